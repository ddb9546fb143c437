"""A model in memory, and its instances: they share code, tables and constants, and each has an arena of its own.

The runtime's library is loaded once: the pool of threads belongs to the process.
"""

from __future__ import annotations

import ctypes
import logging
import weakref
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rammer.devices.base import Binary, Buffer, Source
from rammer.devices.codegen.constants import aligned_bytes
from rammer.devices.codegen.source import MANIFEST, RECORDS, SIGNALS, SLOTS
from rammer.devices.codegen.tables import CONSTANT, RECORD, SIGNAL_COUNT, SLOT, Manifest
from rammer.devices.cpu.binary import KERNELS_LIBRARY, RUNTIME_LIBRARY
from rammer.devices.cpu.library import Library
from rammer.devices.cpu.machine import Machine
from rammer.devices.cpu.native import Runtime, find_runtime
from rammer.errors import OutOfMemoryError
from rammer.ir.sizes import size_text
from rammer.options import CompileOptions

_log = logging.getLogger(__name__)

OK, STALLED, PAUSED = 0, -1, -2
_WAIT_POLLS = 512  # some 20 us
_CROWDED_WAIT_POLLS = 16  # where a thread has several vEUs, another one may have work


class Program(ctypes.Structure):
    """`rammer_program` of the runtime's header."""

    _fields_ = (
        ("veu_count", ctypes.c_uint32),
        ("counter_count", ctypes.c_uint32),
        ("slot_count", ctypes.c_uint32),
        ("wait_polls", ctypes.c_uint32),
        ("thread_count", ctypes.c_uint32),
        ("kernels", ctypes.c_void_p),
        ("records", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("slots", ctypes.c_void_p),
        ("signals", ctypes.c_void_p),
        ("cores", ctypes.c_void_p),
        ("arena", ctypes.c_void_p),
        ("constants", ctypes.c_void_p),
        ("spin_ns", ctypes.c_int64),
        ("timeout_ns", ctypes.c_int64),
    )


class Stall(ctypes.Structure):
    """`rammer_stall` of the runtime's header."""

    _fields_ = (
        ("veu", ctypes.c_uint32),
        ("step", ctypes.c_uint32),
        ("counter", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("seen", ctypes.c_uint64),
        ("wanted", ctypes.c_uint64),
    )


class Image:
    """What the instances of a model share."""

    def __init__(self, source: Source, binary: Binary, machine: Machine, options: CompileOptions) -> None:
        self.manifest = manifest = Manifest.from_bytes(source.files[MANIFEST])
        self.runtime = find_runtime(binary.files[RUNTIME_LIBRARY], options.cache_dir)
        self.records: npt.NDArray[np.void] = np.frombuffer(source.files[RECORDS], dtype=RECORD)
        self._library = Library(binary.files[KERNELS_LIBRARY], options.cache_dir) if manifest.kernels else None
        addresses = [self._library.address(entry.symbol) for entry in manifest.kernels] if self._library else []
        self._constants = [_in_place(source.files[name], manifest.alignment_bytes) for name in manifest.constants]
        slots, constants = _resolved(np.frombuffer(source.files[SLOTS], dtype=SLOT), manifest, self._constants)
        self._tables: dict[str, npt.NDArray[np.generic]] = {
            "kernels": np.array(addresses, dtype=np.uintp),
            "records": self.records,
            "starts": np.array(manifest.starts, dtype=np.uint32),
            "slots": slots,
            "signals": np.frombuffer(source.files[SIGNALS], dtype=SIGNAL_COUNT),
            "cores": np.array([machine.core_of(veu) for veu in range(manifest.veus)], dtype=np.int32),
        }
        threads = min(manifest.veus, machine.computing_cores)
        crowded = manifest.veus > threads
        if crowded:
            _log.warning(
                "a model for %d execution units runs on %d cores: compile or load it with veus=%d",
                *(manifest.veus, threads, threads),
            )
        self._program = Program(
            veu_count=manifest.veus,
            counter_count=self._tables["signals"].size,
            slot_count=slots.size,
            thread_count=threads,
            wait_polls=_CROWDED_WAIT_POLLS if crowded else _WAIT_POLLS,
            spin_ns=0 if crowded else round(options.spin_us * 1e3),
            timeout_ns=round(options.run_timeout_s * 1e9),
            constants=constants,
            **{name: table.ctypes.data for name, table in self._tables.items()},
        )

    def program(self, arena: npt.NDArray[np.uint8]) -> Program:
        """The program of an instance."""
        program = Program.from_buffer_copy(self._program)
        program.arena = arena.ctypes.data
        return program


class Instance:
    """A model that can run once at a time; callers on other threads wait their turn."""

    def __init__(self, image: Image) -> None:
        """Make an instance.

        Raises:
            OutOfMemoryError: there is no memory for its arena.
        """
        arena = _arena(image.manifest)
        runtime = image.runtime
        self._model = runtime.new(ctypes.byref(image.program(arena)))
        if not self._model:
            raise OutOfMemoryError("no memory for the counters and operands of a model")
        self._call, self._resume, self._cancel = runtime.run, runtime.resume, runtime.cancel
        # C holds addresses only; these live until the model is freed, which at exit is not worth the wait.
        weakref.finalize(self, _free, runtime, self._model, image, arena).atexit = False

    def run(self, arrays: ctypes.Array[ctypes.c_void_p], spans: int | None, stall: Stall) -> int:
        """Run once on arrays by their addresses: `OK`, or `STALLED` with `stall` filled in."""
        try:
            code = self._call(self._model, arrays, spans, ctypes.byref(stall))
            while code == PAUSED:  # between these calls Python handles signals
                code = self._resume(self._model, ctypes.byref(stall))
        except BaseException:
            self._cancel(self._model)
            raise
        return code


def _arena(manifest: Manifest) -> npt.NDArray[np.uint8]:
    try:
        return aligned_bytes(manifest.arena_bytes, manifest.alignment_bytes)
    except (MemoryError, ValueError) as error:  # the latter where there can be none of that size
        raise OutOfMemoryError(f"no {size_text(manifest.arena_bytes)} for the values between operators") from error


def _resolved(
    slots: npt.NDArray[np.void], manifest: Manifest, constants: Sequence[npt.NDArray[np.uint8]]
) -> tuple[npt.NDArray[np.void], int]:
    """Slots whose constants are where the blocks lie, which need not be side by side, and from where they count."""
    addresses = np.array([block.ctypes.data for block in constants], dtype=np.uint64)
    base = addresses.min()
    starts = np.array(manifest.constant_starts[:-1], dtype=np.uint64)
    resolved = slots.copy()
    is_constant = slots["segment"] == CONSTANT
    offsets = slots["offset_bytes"][is_constant]
    blocks = np.searchsorted(starts, offsets, side="right") - 1
    resolved["offset_bytes"][is_constant] = addresses[blocks] - base + offsets - starts[blocks]
    return resolved, int(base)


def _in_place(content: Buffer, alignment_bytes: int) -> npt.NDArray[np.uint8]:
    """The bytes as an array: where they lie if that is aligned, else copied."""
    array: npt.NDArray[np.uint8] = np.frombuffer(content, dtype=np.uint8)
    if array.ctypes.data % alignment_bytes == 0:
        return array
    copied = aligned_bytes(array.size, alignment_bytes)
    copied[:] = array
    return copied


def _free(runtime: Runtime, model: int, *_pointed_to: object) -> None:
    runtime.free(model)
