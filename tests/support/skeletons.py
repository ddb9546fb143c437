"""The skeletons of `devices/cuda/skeletons` alone: programs of one kernel, in `tests/devices/cuda/skeletons`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.devices.cuda.driver import find_driver, read_gpu
from rammer.devices.cuda.encoded_maps import encoded
from rammer.devices.cuda.kernel import load_kernel
from rammer.devices.cuda.memory import Memory
from rammer.devices.cuda.source import SKELETONS, WARPGROUPS, header_text
from rammer.devices.cuda.tables import MAP_BYTES
from rammer.devices.cuda.toolchain import find_toolchain
from rammer.ir.graph import Array

ENTRY = "rammer_run"
_PROGRAMS = Path(__file__).parents[1] / "devices" / "cuda" / "skeletons"


def skeleton_text(name: str, threads: int, macros: Mapping[str, object]) -> str:
    """The program of a skeleton, for blocks of so many threads and the sizes that `macros` give.

    Those that begin with RAMMER_ are for the skeleton itself.
    """
    headers = map(header_text, SKELETONS + (WARPGROUPS if name == "warpgroup_gemm" else ()))
    settings = {
        macro: value for macro, value in {"RAMMER_THREADS": threads, **macros}.items() if macro.startswith("RAMMER_")
    }
    before = [f"#define {macro} {value}" for macro, value in settings.items()]
    sizes = [f"#define {macro} {value}" for macro, value in macros.items() if macro not in settings]
    scratch = "extern __shared__ __align__(1024) char rammer_scratch[];"
    program = (_PROGRAMS / f"{name}.cu").read_text()
    return "\n".join([*before, *headers, *sizes, scratch, program])


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program, with what it reads and what it is to write into the last of its arrays, `first` before it does."""

    name: str
    macros: Mapping[str, object]
    inputs: Sequence[Array]
    wanted: npt.NDArray[np.float64]
    first: Array | None = None
    threads: int = 128
    scratch_bytes: int = 96 << 10
    tolerance: float = 1e-5
    table: npt.NDArray[np.void] | None = None

    @property
    def text(self) -> str:
        """Its code."""
        return skeleton_text(self.name, self.threads, self.macros)

    def check(self, run: Callable[[Sequence[Array]], None]) -> None:
        """Compare what a run makes of its arrays with what is wanted."""
        found = np.full(self.wanted.shape, np.nan, np.float32)
        if self.first is not None:
            found[:] = self.first
        run([*map(np.array, self.inputs), found])
        np.testing.assert_array_equal(np.isnan(found), np.isnan(self.wanted))
        errors, most = np.abs(found - self.wanted), np.nanmax(np.abs(self.wanted))
        np.testing.assert_array_less(np.nan_to_num(errors), self.tolerance * most)


def maps_of(api: Any, table: npt.NDArray[np.void], addresses: Sequence[int]) -> Array:
    """Tensor maps of arrays at these addresses, which are the segments of `table`, as code wants them aligned."""
    maps = encoded(api, table, addresses).reshape(-1)
    room = np.empty(maps.size + MAP_BYTES, np.uint8)
    start = -room.ctypes.data % MAP_BYTES
    room[start : start + maps.size] = maps
    return room[start : start + maps.size]


def run_on_gpu(
    text: str, threads: int, scratch_bytes: int, arrays: Sequence[Array], table: npt.NDArray[np.void] | None = None
) -> None:
    """Run a program as one block on the first GPU; it reads and writes arrays in place.

    Where there is a table of tensor maps of these arrays, the maps come before them.

    Raises:
        DeviceUnavailableError: no GPU, or one that cannot run it.
        DeviceError: the program went wrong.
    """
    driver = find_driver()
    driver.enter()
    memory = Memory(driver)
    try:
        architecture = read_gpu(driver).architecture
        code = find_toolchain().cubin(text, architecture)
        kernel = load_kernel(
            driver, memory, code, architecture=architecture, blocks=1, threads=threads, scratch_bytes=scratch_bytes
        )
        addresses = [memory.copied(array) for array in arrays]
        maps = [] if table is None else [memory.copied(maps_of(driver.api, table, addresses))]
        values = [ctypes.c_void_p(address) for address in (*maps, *addresses)]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        kernel.launch(0, ctypes.addressof(pointers))
        driver.call("cuCtxSynchronize")
        for array, address in zip(arrays, addresses, strict=True):
            driver.call("cuMemcpyDtoH", array.ctypes.data, address, array.nbytes)
    finally:
        memory.free()
