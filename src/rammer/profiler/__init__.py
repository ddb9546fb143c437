"""Measured costs: a database of figures and the measurements that fill it."""
