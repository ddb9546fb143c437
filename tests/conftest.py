"""Settings that all tests share."""

import os

import pytest
from hypothesis import HealthCheck, settings

from rammer import extending
from rammer.operators import registry

# A test's outcome depends neither on chance nor on the machine's speed.
settings.register_profile("rammer", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rammer")


@pytest.fixture(autouse=True, scope="session")
def _cache_of_the_tests(tmp_path_factory):
    """Compiled code goes where the tests' other files go, not into the user's cache; parallel workers share it."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAMMER_CACHE_DIR", str(folder / "rammer-cache"))
        yield


@pytest.fixture(autouse=True)
def _registers(monkeypatch):
    """What a test registers is gone after it."""
    monkeypatch.setattr(extending, "_KERNELS", {})
    monkeypatch.setattr(registry, "_CUSTOM", {})
