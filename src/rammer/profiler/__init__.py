"""Measured costs: keys that name what was measured, a database of figures, and the measurement that fills it."""
