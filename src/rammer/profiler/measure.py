"""Measures rKernels alone and rPrograms whole on a device."""
