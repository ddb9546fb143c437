"""The reference device, which runs any rProgram in NumPy."""
