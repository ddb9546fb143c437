"""The processor as a device."""
