"""Benchmarks of Rammer and of its peers, run from a checkout and not part of the distribution."""
