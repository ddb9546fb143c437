"""Settings that all tests share."""

from hypothesis import settings

# A test's outcome depends neither on chance nor on the machine's speed.
settings.register_profile("rammer", deadline=None, derandomize=True)
settings.load_profile("rammer")
