"""Compiled artifacts and the executables that run them."""
