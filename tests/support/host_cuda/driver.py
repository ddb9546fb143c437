"""A driver whose GPU is this machine: memory is the host's, kernels are libraries of `toolchain.HostToolchain`."""

from __future__ import annotations

import _ctypes
import ctypes
import itertools
import mmap
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from tests.support.cuda_driver import ATTRIBUTES, Api, Status

_LIMITS = dict(zip(ATTRIBUTES, (227 << 10, 132, 60 << 20, 128 << 20), strict=True))
_ALIGNMENT_BYTES = 256
_GARBAGE = 0xA5
_libc = ctypes.CDLL(None, use_errno=True)
_one_at_a_time = threading.Lock()


class Policy(IntEnum):
    """Who goes on at a scheduling point: the policies of scheduler.cpp."""

    FORWARD = 0
    """The first that can, of the first block."""
    REVERSE = 1
    """The last that can, of the last block."""
    TURNS = 2
    """The next one: lane after lane, warp after warp, block after block."""
    AHEAD = 3
    """Block `seed` whenever it can."""
    BEHIND = 4
    """Block `seed` only when no other can."""
    RANDOM = 5
    """By random ranks, which change now and then."""


class Numbering(IntEnum):
    """The numbers of multiprocessors by the blocks that they have: those of scheduler.cpp."""

    DOUBLED = 0
    """Two blocks find the same one, as where one has gone on elsewhere."""
    TURNED = 1
    """That of the next block."""
    MORE = 2
    """The same, and there are more multiprocessors than blocks."""


class Copies(IntEnum):
    """When copies that run beside a thread are made."""

    EARLY = 0
    LATE = 1
    ANY_TIME = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order in which threads run."""

    policy: Policy
    copies: Copies
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.policy.name.lower()} {self.seed}, copies {self.copies.name.lower()}"


ORDERS = (
    Order(policy=Policy.FORWARD, copies=Copies.LATE),
    Order(policy=Policy.REVERSE, copies=Copies.EARLY),
    Order(policy=Policy.TURNS, copies=Copies.LATE),
    Order(policy=Policy.AHEAD, copies=Copies.ANY_TIME, seed=1),
    Order(policy=Policy.BEHIND, copies=Copies.EARLY, seed=0),
    Order(policy=Policy.RANDOM, copies=Copies.LATE, seed=1),
    Order(policy=Policy.RANDOM, copies=Copies.ANY_TIME, seed=2),
)
"""Orders that show what is missing between threads."""


class LaunchError(AssertionError):
    """A kernel went wrong, or does not end."""


class TensorMap(ctypes.Structure):
    """`host_tensor_map` of intrinsics_sm90.h, and what makes it as long as the hardware's."""

    _fields_ = (
        ("address", ctypes.c_uint64),
        ("extents", ctypes.c_uint64 * 4),
        ("strides_bytes", ctypes.c_uint64 * 3),
        ("box", ctypes.c_uint32 * 4),
        ("element_bytes", ctypes.c_uint32),
        ("rest", ctypes.c_uint32 * 11),
    )

    def getPtr(self) -> int:  # noqa: N802 - as the bindings call it
        """Where it lies."""
        return ctypes.addressof(self)


class HostApi(Api):
    """The driver.

    `order` and `numbering` are those of the next launches, `mutant` the statement that they leave out (`mutants.py`;
    -1: none). `steps` counts the scheduling points of all launches.
    """

    def __init__(self) -> None:
        super().__init__(
            cuCtxSetCurrent=(Status.CUDA_SUCCESS,),
            cuEventElapsedTime=(Status.CUDA_SUCCESS, 0.0),
            cuDeviceGetAttribute=lambda name, _: (Status.CUDA_SUCCESS, _LIMITS[name]),
            cuOccupancyMaxActiveBlocksPerMultiprocessor=(Status.CUDA_SUCCESS, 1),
            cuModuleLoadData=self.load,
            cuModuleGetFunction=lambda module, _: (Status.CUDA_SUCCESS, module),
            cuLaunchCooperativeKernel=self.launch,
            cuTensorMapEncodeTiled=self.tensor_map,
            **dict.fromkeys(("cuMemAlloc", "cuMemHostAlloc", "cuMemAllocFromPoolAsync"), self._allocate),
            **dict.fromkeys(("cuMemFree", "cuMemFreeHost", "cuMemFreeAsync"), self._free),
            **dict.fromkeys(("cuMemsetD8", "cuMemsetD8Async"), self._set),
            **dict.fromkeys(
                ("cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync"),
                self._copy,
            ),
            cuMemcpy3DAsync=self._copy_box,
        )
        self.order = ORDERS[0]
        self.numbering = Numbering.DOUBLED
        self.mutant = -1
        self.steps = 0
        self._memory: dict[int, mmap.mmap] = {}
        self._libraries: dict[int, ctypes.CDLL] = {}
        self._latest: Any = None
        self._numbers = itertools.count(1)

    # --- Memory: each allocation lies between pages that nobody may touch ---------------------------------------------

    def _allocate(self, size_bytes: int, *_: Any) -> tuple[Status, int]:
        rounded = -(-size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        pages = -(-rounded // mmap.PAGESIZE)
        whole = mmap.mmap(-1, (pages + 2) * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(whole))
        end = begin + (pages + 1) * mmap.PAGESIZE
        for page in (begin, end):
            assert _libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
        ctypes.memset(end - rounded, _GARBAGE, rounded)
        self._memory[end - rounded] = whole
        return Status.CUDA_SUCCESS, end - rounded

    def _free(self, address: int, *_: Any) -> tuple[Status]:
        del self._memory[address]
        return (Status.CUDA_SUCCESS,)

    def _set(self, address: int, value: int, size_bytes: int, *_: Any) -> tuple[Status]:
        ctypes.memset(address, value, size_bytes)
        return (Status.CUDA_SUCCESS,)

    def _copy(self, to: int, start: int, size_bytes: int, *_: Any) -> tuple[Status]:
        ctypes.memmove(to, start, size_bytes)
        return (Status.CUDA_SUCCESS,)

    def _copy_box(self, box: Any, *_: Any) -> tuple[Status]:
        for plane in range(box.Depth):
            for row in range(box.Height):
                to = box.dstDevice + (plane * box.dstHeight + row) * box.dstPitch
                start = box.srcDevice + (plane * box.srcHeight + row) * box.srcPitch
                ctypes.memmove(to, start, box.WidthInBytes)
        return (Status.CUDA_SUCCESS,)

    # --- Kernels ------------------------------------------------------------------------------------------------------

    def load(self, code: bytes) -> tuple[Status, int]:
        """A library by a number, which stands for its kernel, too."""
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            Path(file.name).write_bytes(code)
            library = ctypes.CDLL(file.name)
        library.host_launch.restype = library.host_counted.restype = ctypes.c_char_p
        number = next(self._numbers)
        self._libraries[number] = library
        return Status.CUDA_SUCCESS, number

    def launch(self, function: int, blocks: int, _y: int, _z: int, threads: int, *others: int) -> tuple[Status]:
        """Runs the kernel to its end.

        Raises:
            LaunchError: it went wrong.
        """
        _, _, scratch_bytes, _, parameters = others
        steps = ctypes.c_uint64()
        self._latest = library = self._libraries[function]
        with _one_at_a_time:
            ctypes.c_int.in_dll(library, "host_mutant").value = self.mutant
            ctypes.c_int.in_dll(library, "host_numbering").value = self.numbering
            wrong = library.host_launch(
                *(ctypes.c_uint(blocks), ctypes.c_uint(threads), ctypes.c_uint(scratch_bytes)),
                *(ctypes.c_void_p(parameters), ctypes.c_int(self.order.policy), ctypes.c_int(self.order.copies)),
                *(ctypes.c_uint64(self.order.seed), ctypes.byref(steps)),
            )
        self.steps += steps.value
        if wrong is not None:
            raise LaunchError(f"{wrong.decode()} (order: {self.order})")
        return (Status.CUDA_SUCCESS,)

    def close(self) -> None:
        """Unloads all libraries."""
        self._latest = None
        while self._libraries:
            _ctypes.dlclose(self._libraries.popitem()[1]._handle)

    def reached(self, statement: int) -> bool:
        """Whether launches of the kernel that ran last came to a statement (`mutants.py`)."""
        return (ctypes.c_ubyte * 4096).in_dll(self._latest, "host_reached")[statement] != 0

    def counts(self) -> dict[str, int]:
        """How often threads, or warps together, used an instruction in the last launch, by its name."""
        found: dict[str, int] = {}
        times = ctypes.c_uint64()
        while (name := self._latest.host_counted(len(found), ctypes.byref(times))) is not None:
            found[name.decode()] = times.value
        return found

    def tensor_map(
        self, element_bytes: int, rank: int, address: int, extents: Sequence[int], strides: Sequence[int], *others: Any
    ) -> tuple[Status, TensorMap]:
        """A tensor map as intrinsics_sm90.h reads it, if the driver would take it."""
        box = others[0]
        assert rank == len(extents) == len(strides) + 1 == 4
        assert not any(place % 16 for place in (address, *strides)), "places are multiples of 16 bytes"
        assert all(0 < size <= 256 for size in box)
        assert box[0] * element_bytes == 128, "as much as a swizzle reaches over"
        return Status.CUDA_SUCCESS, TensorMap(
            address=address,
            extents=tuple(extents),
            strides_bytes=tuple(strides),
            box=tuple(box),
            element_bytes=element_bytes,
        )

    def scramble(self, address: int, size_bytes: int) -> None:
        """Makes memory hold nothing of use: NaN, were it floats."""
        ctypes.memset(address, 0xFF, size_bytes)


def orders(count: int) -> Sequence[Order]:
    """The orders that matter for so many blocks: a single one is neither ahead nor behind."""
    return [order for order in ORDERS if count > 1 or order.policy not in (Policy.AHEAD, Policy.BEHIND)]
