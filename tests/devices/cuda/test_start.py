"""The driver's start, beside which the rest of Rammer is imported."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from rammer.devices.cuda.start import start

LIBRARY = """
int status, retained;
int cuInit(unsigned flags) { return status; }
int cuDevicePrimaryCtxRetain(void **context, int device) { retained = 1 + device; *context = 0; return 0; }
"""


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """A library with the two functions, whose `retained` says whether the second was called."""
    (tmp_path / "driver.c").write_text(LIBRARY)
    path = tmp_path / "libdriver.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(path), str(tmp_path / "driver.c")], check=True)
    return path


@pytest.mark.parametrize(("status", "retained"), [(0, 1), (100, 0)])
def test_the_context_is_retained_where_there_is_a_gpu(driver: Path, status: int, retained: int) -> None:
    library = ctypes.CDLL(str(driver))
    ctypes.c_int.in_dll(library, "status").value = status
    start(str(driver))
    assert ctypes.c_int.in_dll(library, "retained").value == retained


def test_without_a_driver_nothing_happens() -> None:
    start("libno-such-driver.so")


def test_nothing_large_is_imported_before_the_driver_starts() -> None:
    code = """
import sys
from rammer.devices.registry import start_device
start_device("cpu"), start_device("cuda"), start_device("no device")
print([name for name in ("numpy", "cuda", "rammer.devices.cuda.device") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
