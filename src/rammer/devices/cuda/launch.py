"""A built model in a GPU's memory, and the launch of its persistent kernel.

Everything that does not depend on a call is allocated once. NumPy arrays are copied through pinned memory, on a stream
of the model's own; arrays in the GPU's memory are used where they lie, on the caller's stream.
"""

from __future__ import annotations

import ctypes
import json
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from rammer.devices.base import Binary, DeviceArray, Source, Trace
from rammer.devices.codegen.source import MANIFEST, RECORDS, SIGNALS
from rammer.devices.codegen.tables import ARENA, CALLER, CONSTANT, RECORD, SIGNAL_COUNT, Manifest
from rammer.devices.cuda.arrays import Exchange, Room, stream_of
from rammer.devices.cuda.build import CUBIN, compile_source
from rammer.devices.cuda.describe import ARRAY_ALIGNMENT_BYTES
from rammer.devices.cuda.driver import Driver, check, find_driver
from rammer.devices.cuda.kernel import Kernel, load_kernel
from rammer.devices.cuda.memory import Memory, Staging
from rammer.devices.cuda.order import Order
from rammer.devices.cuda.records import step_times
from rammer.devices.cuda.source import DEVICE_RECORDS, LAUNCH, TENSOR_MAPS
from rammer.devices.cuda.stall import Stall
from rammer.devices.cuda.tables import CLOCK, COUNTER, SPAN, STATUS, TENSOR_MAP, program_type, record_dtype
from rammer.devices.cuda.tensor_maps import encoded
from rammer.ir.graph import Array
from rammer.ir.types import TensorType
from rammer.options import CompileOptions

_WARMUP_RUNS = 5


class Constants:
    """The constants of a model on the GPU, for all its instances."""

    def __init__(self, driver: Driver, source: Source, manifest: Manifest) -> None:
        blocks = [np.frombuffer(source.files[name], dtype=np.uint8) for name in manifest.constants]
        self._memory = Memory(driver)
        try:
            self.address = self._memory.side_by_side(blocks, manifest.constant_starts)
        except BaseException:
            self._memory.free()
            raise


class LoadedModel:
    """A model that runs on a GPU; see `rammer.devices.base.Resident`."""

    array_alignment_bytes = ARRAY_ALIGNMENT_BYTES

    def __init__(
        self, source: Source, binary: Binary, options: CompileOptions, constants: Constants | None = None
    ) -> None:
        """Load a model.

        Args:
            source: what it was emitted as.
            binary: what that was built into.
            options: how to run it.
            constants: those of another instance; None copies them to the GPU.

        Raises:
            DeviceUnavailableError: there is too little memory, or the binary does not load.
        """
        self._source, self._binary, self._options = source, binary, options
        self._architecture = binary.machine["architecture"]
        self._driver = find_driver()
        self._manifest = Manifest.from_bytes(source.files[MANIFEST])
        self._launch: dict[str, Any] = json.loads(bytes(source.files[LAUNCH]))
        self._lock = threading.Lock()
        self._runs = 0
        self._traced: Kernel | None = None
        self._driver.enter()
        self._exchange = Exchange(self._driver.ordinal)
        self.view = self._exchange.view
        self.stream_of = partial(stream_of, self._driver)
        self._order = Order(self._driver)
        self._memory = Memory(self._driver)
        self._constants = constants or Constants(self._driver, source, self._manifest)
        try:
            self._kernel = self._load(bytes(binary.files[CUBIN]))
            self._allocate()
        except BaseException:
            self._memory.free()
            raise

    def _allocate(self) -> None:
        source, manifest, memory, driver = self._source, self._manifest, self._memory, self._driver
        signals = np.frombuffer(source.files[SIGNALS], dtype=SIGNAL_COUNT)
        self._records = np.frombuffer(source.files[DEVICE_RECORDS], dtype=record_dtype(self._launch["slots"]))
        self._signals = signals
        flags = int(driver.api.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self._stream = memory.own("cuStreamDestroy", int(driver.call("cuStreamCreate", flags)))
        self._synchronize = partial(driver.api.cuStreamSynchronize, self._stream)
        self._inputs = Staging(driver, memory, self._launch["input_bytes"], self._stream)
        far = self._launch["far_outputs"]
        self._outputs = Staging(driver, memory, self._launch["output_bytes"], self._stream, on_host=far)
        self._staged = self._inputs.addresses + self._outputs.addresses
        # On the host, so that every call sees what became of those before it without standing still.
        status = memory.pinned(STATUS.itemsize)
        status[:] = 0
        self._stalled = ctypes.c_uint32.from_address(status.ctypes.data)
        self._counters_bytes = (signals.size + 1) * COUNTER.itemsize  # and one where the blocks of a traced run meet
        self._program = program_type(CALLER + len(manifest.array_bytes) + 1)(
            records=memory.copied(self._records),
            starts=memory.copied(np.array(self._launch["starts"], dtype=np.uint32)),
            counters=memory.device(self._counters_bytes),
            reached=memory.device(4 * manifest.veus),
            status=status.ctypes.data,
            timeout_ns=round(self._options.run_timeout_s * 1e9),
            met=signals.size,
            tag=1,
        )
        self._callers = slice(CALLER, CALLER + len(manifest.array_bytes))
        self._parameter = ctypes.c_void_p(ctypes.addressof(self._program))
        self._parameters = ctypes.addressof(self._parameter)
        self._segments = self._program.segments
        self._segments[ARENA] = memory.device(manifest.arena_bytes)
        self._segments[CONSTANT] = self._constants.address
        table = np.frombuffer(source.files[TENSOR_MAPS], dtype=TENSOR_MAP)
        self._segments[self._callers.stop] = memory.copied(encoded(driver.api, table, self._segments))
        driver.call("cuCtxSynchronize")  # the model's stream does not wait for what was done on others

    def clone(self) -> LoadedModel:
        """The same model once more; see `Loaded.clone`."""
        return LoadedModel(self._source, self._binary, self._options, self._constants)

    def _load(self, code: bytes) -> Kernel:
        return load_kernel(
            self._driver,
            self._memory,
            code,
            architecture=self._architecture,
            blocks=self._manifest.veus,
            threads=self._launch["threads"],
            scratch_bytes=self._launch["scratch_bytes"],
        )

    # --- Arrays on the host -------------------------------------------------------------------------------------------

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
            meeting = program.counters + program.met * COUNTER.itemsize
            driver.call("cuMemsetD8Async", meeting, 0, COUNTER.itemsize, self._stream)
            self._run(inputs, outputs, self._traced)
            spans, clocks = np.zeros(len(self._records), dtype=SPAN), np.zeros(veus, dtype=CLOCK)
            driver.call("cuMemcpyDtoH", spans.ctypes.data, program.spans, spans.nbytes)
            driver.call("cuMemcpyDtoH", clocks.ctypes.data, program.clocks, clocks.nbytes)
        ns_per_cycle = clocks["nanoseconds"].sum() / max(1, clocks["cycles"].sum())
        times_ns: npt.NDArray[np.int64] = np.rint(step_times(self._records, spans) * ns_per_cycle).astype(np.int64)
        return self._by_step(times_ns)

    def _by_step(self, times_ns: npt.NDArray[np.int64]) -> Trace:
        """The times of steps, by rProgram and vEU."""
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
                self._launch_kernel(self._kernel, self._staged, self._stream)
                driver.call("cuEventRecord", after, self._stream)
                self._receive()
                times_us.append(1e3 * driver.call("cuEventElapsedTime", before, after))
            for event in (before, after):
                driver.call("cuEventDestroy", event)
        return times_us[_WARMUP_RUNS:]

    def _run(self, inputs: Sequence[Array], outputs: Sequence[Array], kernel: Kernel) -> None:
        self._driver.enter()
        self._send(inputs)
        self._launch_kernel(kernel, self._staged, self._stream)
        self._receive()
        self._outputs.read(outputs)

    def _send(self, inputs: Sequence[Array]) -> None:
        self._order.before(self._stream)  # a run on another stream may still read what was sent before
        self._inputs.send(inputs)

    def _receive(self) -> None:
        """Fetch outputs that are not there yet and wait for the run's end; raises as `Resident.wait`."""
        self._outputs.fetch()
        answer = self._synchronize()
        if answer[0]:
            check(self._driver.api, "cuStreamSynchronize", answer)
        self._order.ended()  # `_send` let this run follow it
        if self._stalled.value:
            self._give_up()

    # --- Arrays in the GPU's memory -----------------------------------------------------------------------------------

    def room(self, type: TensorType) -> Callable[[int], DeviceArray]:
        """Room for outputs of a type; see `Resident.room`."""
        wait = weakref.WeakMethod(self.wait)
        return Room(type, driver=self._driver, exchange=self._exchange, order=self._order, wait=wait).take

    def enqueue(self, arrays: Sequence[int], stream: int) -> None:
        """Give a run to a stream; see `Resident.enqueue`."""
        with self._lock:
            self._driver.enter()
            if self._stalled.value:
                self._give_up()
            self._order.before(stream)
            self._launch_kernel(self._kernel, arrays, stream)
            self._order.after(stream)

    def wait(self) -> None:
        """Wait until all runs are over; see `Resident.wait`."""
        with self._lock:
            self._driver.enter()
            self._order.wait()
            if self._stalled.value:
                self._give_up()

    # --- Both ---------------------------------------------------------------------------------------------------------

    def _launch_kernel(self, kernel: Kernel, arrays: Sequence[int], stream: int) -> None:
        if kernel.blocks == 0:
            return
        self._segments[self._callers] = arrays
        answer = kernel.launch(stream, self._parameters)
        if answer[0]:
            check(self._driver.api, "cuLaunchCooperativeKernel", answer)
        program = self._program
        self._runs += 1
        program.run = self._runs & 0xFFFFFFFF  # of the next run: the GPU is at work by now
        program.tag = program.tag % 0xFFFFFFFF + 1

    def _give_up(self) -> NoReturn:
        """Report a run that was given up. The next run starts afresh."""
        driver, veus = self._driver, self._manifest.veus
        driver.call("cuCtxSynchronize")  # runs behind it end soon: they are given up, too
        counters, reached = np.zeros(self._signals.size + 1, dtype=COUNTER), np.zeros(veus, dtype=np.uint32)
        driver.call("cuMemcpyDtoH", counters.ctypes.data, self._program.counters, counters.nbytes)
        driver.call("cuMemcpyDtoH", reached.ctypes.data, self._program.reached, reached.nbytes)
        before = np.uint32((self._runs - 1) & 0xFFFFFFFF) * self._signals
        stall = Stall(
            manifest=self._manifest,
            records=np.frombuffer(self._source.files[RECORDS], dtype=RECORD),
            reached=reached,
            seen=counters["signals"][:-1] - before,
            timeout_s=self._options.run_timeout_s,
        )
        driver.call("cuMemsetD8", self._program.counters, 0, self._counters_bytes)
        driver.call("cuCtxSynchronize")
        self._stalled.value = 0
        self._runs = self._program.run = 0
        raise stall.error()
