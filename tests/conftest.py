"""Settings that all tests share."""

import gc
import os
import re

import pytest
from hypothesis import HealthCheck, settings

from rammer import extending
from rammer.operators import registry

# A test's outcome depends neither on chance nor on the machine's speed.
settings.register_profile("rammer", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rammer")


def pytest_ignore_collect(collection_path, config):
    """A file all of whose tests `-m "not ..."` leaves out is not imported: what it compares with takes seconds."""
    parts = config.option.markexpr.split(" and ")
    left_out = "|".join(part.removeprefix("not ") for part in parts if part.startswith("not "))
    if not left_out or collection_path.suffix != ".py":
        return None
    marks = re.search(rf"^pytestmark = .*pytest\.mark\.({left_out})\b", collection_path.read_text(), re.MULTILINE)
    return None if marks is None else True


def pytest_collection_finish():
    """Tests, of which there are thousands, are no garbage, nor is most of what they make: it is seldom looked for."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 10, 10)


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
