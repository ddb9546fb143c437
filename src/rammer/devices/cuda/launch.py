"""A built model in a GPU's memory, and the launch of its persistent kernel.

Everything is allocated once. A call copies its inputs into pinned memory; the stream then takes them to the GPU, runs
one cooperative kernel, and brings outputs and the run's report back.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.devices.base import Binary, Source, Trace
from rammer.devices.codegen.source import CONSTANTS, MANIFEST, RECORDS, SIGNALS, SLOTS
from rammer.devices.codegen.tables import ARENA, CALLER, CONSTANT, RECORD, SIGNAL_COUNT, SLOT, Manifest
from rammer.devices.cuda.build import CUBIN, compile_source
from rammer.devices.cuda.driver import find_driver
from rammer.devices.cuda.memory import Memory, Placement
from rammer.devices.cuda.source import LAUNCH
from rammer.devices.cuda.stall import Stall
from rammer.devices.cuda.tables import CLOCK, COUNTER, SPAN, STATUS, Program, device_records
from rammer.errors import DeviceUnavailableError
from rammer.ir.graph import Array
from rammer.options import CompileOptions

_ENTRY = b"rammer_run"
_WARMUP_RUNS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernel:
    """The persistent kernel, loaded: how many blocks of how many threads, with how much shared memory."""

    function: Any
    blocks: int
    threads: int
    scratch_bytes: int


class LoadedModel:
    """A model that runs on a GPU; see `rammer.devices.base.Loaded`."""

    def __init__(self, source: Source, binary: Binary, options: CompileOptions) -> None:
        self._source, self._options = source, options
        self._architecture = binary.machine["architecture"]
        self._driver = find_driver()
        self._manifest = Manifest.from_bytes(source.files[MANIFEST])
        self._launch: dict[str, Any] = json.loads(bytes(source.files[LAUNCH]))
        self._lock = threading.Lock()
        self._runs = 0
        self._traced: _Kernel | None = None
        self._driver.enter()
        self._memory = Memory(self._driver)
        try:
            self._kernel = self._load(bytes(binary.files[CUBIN]))
            self._allocate()
        except BaseException:
            self._memory.free()
            raise

    def _allocate(self) -> None:
        source, manifest, memory = self._source, self._manifest, self._memory
        signals = np.frombuffer(source.files[SIGNALS], dtype=SIGNAL_COUNT)
        self._records = device_records(np.frombuffer(source.files[RECORDS], dtype=RECORD), signals)
        self._signals = signals
        self._inputs = Placement(self._launch["input_bytes"])
        self._outputs = Placement(self._launch["output_bytes"])
        # The report lies behind the outputs, so that one copy brings both: the status, and what each vEU reached.
        self._back_bytes = self._outputs.total_bytes + STATUS.itemsize + 4 * manifest.veus
        self._to_gpu, self._from_gpu = memory.pinned(self._inputs.total_bytes), memory.pinned(self._back_bytes)
        self._input_block = memory.device(self._inputs.total_bytes)
        self._output_block = memory.device(self._back_bytes)
        self._status = self._output_block + self._outputs.total_bytes
        self._counters_bytes = (signals.size + 1) * COUNTER.itemsize  # and one where the blocks of a traced run meet
        self._program = Program(
            records=memory.copied(self._records),
            starts=memory.copied(np.array(manifest.starts, dtype=np.uint32)),
            pointers=memory.copied(self._pointers()),
            counters=memory.device(self._counters_bytes),
            reached=self._status + STATUS.itemsize,
            status=self._status,
            timeout_ns=round(self._options.run_timeout_s * 1e9),
            met=signals.size,
        )
        self._parameters = (ctypes.c_void_p * 1)(ctypes.addressof(self._program))
        flags = int(self._driver.api.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self._stream = memory.own("cuStreamDestroy", self._driver.call("cuStreamCreate", flags))

    def _pointers(self) -> npt.NDArray[np.uint64]:
        """The address of each slot: all are known now, for a call's arrays are copied to the same places each time."""
        slots = np.frombuffer(self._source.files[SLOTS], dtype=SLOT)
        constants: npt.NDArray[np.uint8] = np.frombuffer(self._source.files[CONSTANTS], dtype=np.uint8)
        segments = {ARENA: self._memory.device(self._manifest.arena_bytes), CONSTANT: self._memory.copied(constants)}
        caller = [
            *(self._input_block + offset for offset in self._inputs.offsets_bytes),
            *(self._output_block + offset for offset in self._outputs.offsets_bytes),
        ]
        segments |= {CALLER + i: address for i, address in enumerate(caller)}
        addresses = [segments[int(slot["segment"])] + int(slot["offset_bytes"]) for slot in slots]
        return np.array(addresses, dtype=np.uint64)

    def _load(self, code: bytes) -> _Kernel:
        """The persistent kernel of machine code, if all its blocks can be resident together."""
        driver, api = self._driver, self._driver.api
        status, module = api.cuModuleLoadData(code)
        if status != api.CUresult.CUDA_SUCCESS:
            raise DeviceUnavailableError(
                f"machine code for {self._architecture} does not load on this GPU: {status.name}",
                hint="compile the model again here; if that does not help, update NVIDIA's driver",
            )
        self._memory.own("cuModuleUnload", module)
        function = driver.call("cuModuleGetFunction", module, _ENTRY)
        threads, scratch_bytes = self._launch["threads"], self._launch["scratch_bytes"]
        limit = driver.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        static = driver.call(
            "cuFuncGetAttribute", api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function
        )
        if static + scratch_bytes > limit:
            raise DeviceUnavailableError(
                f"the model takes {static + scratch_bytes} bytes of shared memory for a block, this GPU has {limit}",
                hint="compile for this GPU's architecture",
            )
        wanted = api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        driver.call("cuFuncSetAttribute", function, wanted, scratch_bytes)
        resident = driver.call("cuOccupancyMaxActiveBlocksPerMultiprocessor", function, threads, scratch_bytes)
        blocks = resident * driver.attribute("MULTIPROCESSOR_COUNT")
        if blocks < self._manifest.veus:
            raise DeviceUnavailableError(
                f"the model has {self._manifest.veus} vEUs, this GPU holds {blocks} of its blocks at a time",
                hint="compile the model again here",
            )
        return _Kernel(function=function, blocks=self._manifest.veus, threads=threads, scratch_bytes=scratch_bytes)

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run the model once; see `Loaded.run`."""
        with self._lock:
            self._run(inputs, outputs, self._kernel)

    def trace(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Trace:
        """Run the model once and measure every step; see `Loaded.trace`.

        The first time, the model is compiled once more, with code that writes times.
        """
        with self._lock:
            driver, program, veus = self._driver, self._program, self._manifest.veus
            driver.enter()
            if self._traced is None:
                code = compile_source(self._source, self._architecture, self._options, trace=True)
                self._traced = self._load(code)
                program.spans = self._memory.device(len(self._records) * SPAN.itemsize)
                program.clocks = self._memory.device(veus * CLOCK.itemsize)
            driver.call("cuMemsetD8", program.counters + program.met * COUNTER.itemsize, 0, COUNTER.itemsize)
            self._run(inputs, outputs, self._traced)
            spans, clocks = np.zeros(len(self._records), dtype=SPAN), np.zeros(veus, dtype=CLOCK)
            driver.call("cuMemcpyDtoH", spans.ctypes.data, program.spans, spans.nbytes)
            driver.call("cuMemcpyDtoH", clocks.ctypes.data, program.clocks, clocks.nbytes)
        ns_per_cycle = clocks["nanoseconds"].sum() / max(1, clocks["cycles"].sum())
        times = np.stack([spans["start"], spans["end"]], axis=1)
        times_ns: npt.NDArray[np.int64] = np.rint(times * ns_per_cycle).astype(np.int64)
        return self._by_step(times_ns)

    def _by_step(self, times_ns: npt.NDArray[np.int64]) -> Trace:
        """The times of records, by rProgram and vEU."""
        manifest = self._manifest
        firsts = [
            [start + first for first in manifest.first_records(veu)] for veu, start in enumerate(manifest.starts[:-1])
        ]
        return Trace(
            spans_ns=tuple(
                tuple(times_ns[firsts[veu][number] :][:length] for veu, length in enumerate(lengths))
                for number, lengths in enumerate(manifest.steps)
            )
        )

    def measure_us(self, inputs: Sequence[Array], runs: int) -> list[float]:
        """Device time of the persistent kernel alone, in microseconds, for each of `runs` after some to warm up."""
        driver = self._driver
        with self._lock:
            driver.enter()
            self._send(inputs)
            before, after = driver.call("cuEventCreate", 0), driver.call("cuEventCreate", 0)
            times_us = []
            for _ in range(_WARMUP_RUNS + runs):
                driver.call("cuEventRecord", before, self._stream)
                self._launch_kernel(self._kernel)
                driver.call("cuEventRecord", after, self._stream)
                self._receive()
                times_us.append(1e3 * driver.call("cuEventElapsedTime", before, after))
            for event in (before, after):
                driver.call("cuEventDestroy", event)
        return times_us[_WARMUP_RUNS:]

    def _run(self, inputs: Sequence[Array], outputs: Sequence[Array], kernel: _Kernel) -> None:
        self._driver.enter()
        self._send(inputs)
        self._launch_kernel(kernel)
        self._receive()
        self._outputs.scatter(self._from_gpu, outputs)

    def _send(self, inputs: Sequence[Array]) -> None:
        self._inputs.gather(inputs, self._to_gpu)
        if self._to_gpu.size:
            self._driver.call(
                "cuMemcpyHtoDAsync", self._input_block, self._to_gpu.ctypes.data, self._to_gpu.size, self._stream
            )

    def _launch_kernel(self, kernel: _Kernel) -> None:
        if kernel.blocks == 0:
            return
        self._program.run = self._runs & 0xFFFFFFFF
        self._driver.call(
            "cuLaunchCooperativeKernel",
            kernel.function,
            *(kernel.blocks, 1, 1),
            *(kernel.threads, 1, 1),
            kernel.scratch_bytes,
            self._stream,
            ctypes.addressof(self._parameters),
        )
        self._runs += 1

    def _receive(self) -> None:
        """Wait for the run's end.

        Raises:
            RunTimeoutError: it was given up. The next run starts afresh.
        """
        driver = self._driver
        driver.call("cuMemcpyDtoHAsync", self._from_gpu.ctypes.data, self._output_block, self._back_bytes, self._stream)
        driver.call("cuStreamSynchronize", self._stream)
        report = self._from_gpu[self._outputs.total_bytes :]
        (status,) = report[: STATUS.itemsize].view(STATUS)
        if not status["stalled"]:
            return
        counters = np.zeros(self._signals.size + 1, dtype=COUNTER)
        driver.call("cuMemcpyDtoH", counters.ctypes.data, self._program.counters, counters.nbytes)
        before = np.uint32((self._runs - 1) & 0xFFFFFFFF) * self._signals
        stall = Stall(
            manifest=self._manifest,
            records=self._records,
            reached=report[STATUS.itemsize :].view(np.uint32).copy(),
            seen=counters["signals"][:-1] - before,
            timeout_s=self._options.run_timeout_s,
        )
        driver.call("cuMemsetD8", self._program.counters, 0, self._counters_bytes)
        driver.call("cuMemsetD8", self._status, 0, STATUS.itemsize)
        self._runs = 0
        raise stall.error()


class DeferredModel:
    """A model for a GPU that need not be here: it is loaded by its first run."""

    def __init__(self, load: Callable[[], LoadedModel]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._loaded: LoadedModel | None = None

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run the model once; see `Loaded.run`."""
        self._model().run(inputs, outputs)

    def trace(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Trace:
        """Run the model once and measure every step; see `Loaded.trace`."""
        return self._model().trace(inputs, outputs)

    def _model(self) -> LoadedModel:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded
