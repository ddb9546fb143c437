"""Rammer: a deep-learning compiler that schedules tile-sized tasks at compile time."""
