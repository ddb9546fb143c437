"""Rammer: a model compiled into one static program of tile-sized tasks on the device's execution units."""
