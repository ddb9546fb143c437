"""Tiles, blocks and packing: what Roller constructs rKernels with and emitters read."""
