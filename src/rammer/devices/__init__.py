"""Devices: how each is described, and how code is emitted, built and launched for it."""
