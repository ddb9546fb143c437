"""A built model in a GPU's memory, and the launch of its persistent kernel.

Everything that does not depend on a call is allocated once. NumPy arrays are copied through pinned memory, by one of
two sets of buffers with a stream each: while one thread's run is under way, another's is sent to follow it. Arrays in
the GPU's memory are used where they lie, on the caller's stream.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np
import numpy.typing as npt

from rammer.devices.base import Binary, Buffer, DeviceArray, Lap, Source, StateMemory, Trace
from rammer.devices.codegen.source import MANIFEST, RECORDS, SIGNALS
from rammer.devices.codegen.tables import ARENA, CALLER, CONSTANT, RECORD, SIGNAL_COUNT, Manifest
from rammer.devices.cuda.architecture import ARRAY_ALIGNMENT_BYTES
from rammer.devices.cuda.arrays import CudaArray, Room, stream_of
from rammer.devices.cuda.build import CUBIN, TRACED, compile_source
from rammer.devices.cuda.call_buffers import CallBuffers
from rammer.devices.cuda.capture import capture_of, refuse_while_capturing, unrestricted
from rammer.devices.cuda.company import Company
from rammer.devices.cuda.constants import Constants
from rammer.devices.cuda.driver import LEGACY_STREAM, check, find_driver
from rammer.devices.cuda.encoded_maps import encoded
from rammer.devices.cuda.kernel import Kernel, LoadedCode
from rammer.devices.cuda.laps import EventLap, ProgramsLap
from rammer.devices.cuda.memory import Memory
from rammer.devices.cuda.order import Order
from rammer.devices.cuda.records import step_times
from rammer.devices.cuda.source_files import DEVICE_RECORDS, LAUNCH
from rammer.devices.cuda.spans import Spans
from rammer.devices.cuda.stall import Stall
from rammer.devices.cuda.state import GpuState
from rammer.devices.cuda.tables import CLOCK, COUNTER, DONE, SPAN, STATUS, VEU, program_type
from rammer.devices.cuda.upload import upload
from rammer.errors import RunTimeoutError, StreamCaptureError
from rammer.ir.types import DType, TensorType
from rammer.options import CompileOptions

if TYPE_CHECKING:
    from rammer.ir.graph import Array

_WARMUP_RUNS = 5
_IN_FLIGHT = 2  # calls: one runs, the next is sent


class LoadedModel:
    """A model that runs on a GPU; see `rammer.devices.base.Resident`."""

    array_alignment_bytes = ARRAY_ALIGNMENT_BYTES

    def __init__(
        self,
        source: Source,
        binary: Binary,
        options: CompileOptions,
        constants: Constants | None = None,
        *,
        known: LoadedModel | None = None,
    ) -> None:
        """Load a model.

        Args:
            source: what it was emitted as.
            binary: what that was built into.
            options: how to run it.
            constants: those of another instance; None copies them to the GPU.
            known: another program of the model, whose runs and those of this one follow each other; see `beside`.

        Raises:
            DeviceUnavailableError: there is too little memory, or the binary does not load.
            StreamCaptureError: PyTorch captures a CUDA graph.
        """
        refuse_while_capturing("a model cannot be loaded", "load it, or call it once, before the capture")
        self._source, self._binary, self._options = source, binary, options
        self._architecture = binary.machine["architecture"]
        self._driver = find_driver()
        self._manifest = Manifest.from_bytes(source.files[MANIFEST])
        self._launch: dict[str, Any] = json.loads(bytes(source.files[LAUNCH]))
        self._turns = itertools.count()
        self._may_be_captured = True
        self._stall: Stall | None = None
        self._failures = 0
        self._waits = weakref.WeakMethod(self.wait)
        self._traced: Kernel | None = None
        self._spans: Spans | None = None
        self._driver.enter()
        self._company: Company = Company(self._driver) if known is None else known._company
        self._lock, self._order, self._exchange = self._company.lock, self._company.order, self._company.exchange
        self.view = self._exchange.view
        self.stream_of = stream_of
        self._constants = self._company.constants_of(self._driver, source, self._manifest, constants)
        self._kept: list[object] = [self._constants]
        self._memory = Memory(self._driver, partial(_end, self._order, self._kept))
        try:
            self._kernel = self._load(binary.files[CUBIN])
            self._allocate()
            if TRACED in binary.files:
                self._load_traced(binary.files[TRACED])
        except BaseException:
            self._memory.free()
            raise

    def _allocate(self) -> None:
        source, manifest, memory, driver = self._source, self._manifest, self._memory, self._driver
        signals = np.frombuffer(source.files[SIGNALS], dtype=SIGNAL_COUNT)
        self._records, table = self._constants.tables(source, self._launch["slots"])
        self._buffers = [self._new_buffers()]
        # On the host, so that every call sees what became of those before it without standing still.
        status = memory.pinned(STATUS.itemsize)
        status[:] = 0
        self._given_up, self._stalled = (ctypes.c_uint32.from_address(status.ctypes.data + at) for at in (0, 4))
        self._program = program_type(CALLER + len(manifest.array_bytes) + 1)(
            records=memory.copied(self._records),
            starts=memory.copied(np.array(self._launch["starts"], dtype=np.uint32)),
            counters=memory.device((signals.size + 1) * COUNTER.itemsize),  # and one where blocks of a traced run meet
            veus=memory.device(manifest.veus * VEU.itemsize),
            status=status.ctypes.data,
            timeout_ns=round(self._options.run_timeout_s * 1e9),
            met=signals.size,
        )
        self._callers = slice(CALLER, CALLER + len(manifest.array_bytes))
        self._parameter = ctypes.c_void_p(ctypes.addressof(self._program))
        self._parameters = ctypes.addressof(self._parameter)
        self._segments = self._program.segments
        self._segments[ARENA] = memory.device(manifest.arena_bytes)
        self._segments[CONSTANT] = self._constants.segment
        self._segments[self._callers.stop] = memory.copied(encoded(driver.api, table, self._segments))

    def _new_buffers(self) -> CallBuffers:
        inputs, outputs = (
            sizes[: len(sizes) - self._launch["states"]]
            for sizes in (self._launch["input_bytes"], self._launch["output_bytes"])
        )
        return CallBuffers(self._driver, self._memory, inputs, outputs, far_outputs=self._launch["far_outputs"])

    def clone(self) -> LoadedModel:
        """The same model once more; see `Loaded.clone`."""
        return LoadedModel(self._source, self._binary, self._options, self._constants)

    def allow_capture(self, *, may: bool) -> None:
        """Say whether runs may be captured; see `Swappable.allow_capture`."""
        self._may_be_captured = may

    def beside(self, source: Source, binary: Binary, *, by_program: bool = False) -> LoadedModel:
        """Another program of the model; see `Swappable.beside`."""
        if by_program and TRACED not in binary.files:
            code = compile_source(source, self._architecture, self._options, trace=True)
            binary = replace(binary, files={**binary.files, TRACED: code})
        with unrestricted(self._driver):
            loaded = LoadedModel(source, binary, self._options, known=self)
            if by_program:
                loaded._keep_spans()
        return loaded

    def added_bytes(self, source: Source) -> int:
        """What `beside` takes; see `Swappable.added_bytes`."""
        manifest = Manifest.from_bytes(source.files[MANIFEST])
        constants_bytes = self._constants.missing_bytes(source)
        arrays_bytes = sum(manifest.array_bytes)  # for calls with arrays of the host
        return manifest.arena_bytes + len(source.files[DEVICE_RECORDS]) + arrays_bytes + constants_bytes

    def timed(self) -> AbstractContextManager[Lap]:
        """Time a run; see `Swappable.timed`."""
        return _Timing(self, EventLap(self._company.events, self._check), self._kernel)

    def timed_by_program(self) -> AbstractContextManager[Lap]:
        """Time a run's rPrograms; see `Swappable.timed_by_program`."""
        assert self._traced is not None  # loaded by `beside`
        assert self._spans is not None
        return _Timing(self, ProgramsLap(self._company.events, self._check, self._spans), self._traced)

    def _load(self, code: Buffer) -> Kernel:
        launch = {
            "architecture": self._architecture,
            "blocks": self._manifest.veus,
            "threads": self._launch["threads"],
            "scratch_bytes": self._launch["scratch_bytes"],
            "constants": self._constants.lines,
        }
        loaded = next((one for one in self._company.codes if one.is_that_of(code, launch)), None)
        loaded = loaded or LoadedCode(self._driver, code, launch)
        self._company.codes.add(loaded)
        self._kept.append(loaded)
        return loaded.kernel

    def _load_traced(self, code: Buffer) -> None:
        """Code that writes times, and room for them."""
        self._traced = self._load(code)
        self._program.spans = self._memory.device(len(self._records) * SPAN.itemsize)
        self._program.clocks = self._memory.device(self._manifest.veus * CLOCK.itemsize)

    def _keep_spans(self) -> None:
        """Room for what traced runs tell while others go on."""
        steps = self._source.files[RECORDS]
        self._spans = Spans(self._driver, self._memory, self._program, self._records, self._manifest, steps)

    # --- Arrays on the host -------------------------------------------------------------------------------------------

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array], state: StateMemory | None = None) -> None:
        """Run the model once; see `Resident.run`."""
        refuse_while_capturing("arrays of the host cannot be copied", "give arrays in the GPU's memory, and a stream")
        held = cast(GpuState | None, state)
        with self._free_buffers() as buffers:
            buffers.inputs.send(inputs)
            if held is None:
                with self._lock:
                    failures = self._begin(buffers, self._kernel, None)
                self._finish(buffers, failures)
            else:
                with self._lock, held.lock:
                    self._run(buffers, self._kernel, held)
            buffers.outputs.read(outputs)

    def trace(self, inputs: Sequence[Array], outputs: Sequence[Array], state: StateMemory | None = None) -> Trace:
        """Run the model once and measure every step; see `Resident.trace`.

        The first time, the model is compiled once more, with code that writes times, unless its binary has that.
        """
        held = cast(GpuState | None, state)
        with self._free_buffers() as buffers, self._lock, _lock_of(held):
            driver, program, veus = self._driver, self._program, self._manifest.veus
            kept = {} if held is None else held.kept()
            buffers.inputs.send(inputs)
            if self._traced is None:
                self._load_traced(compile_source(self._source, self._architecture, self._options, trace=True))
            meeting = program.counters + program.met * COUNTER.itemsize
            driver.call("cuMemsetD8Async", meeting, 0, COUNTER.itemsize, buffers.stream)
            assert self._traced is not None  # just loaded
            self._run(buffers, self._traced, held)
            buffers.outputs.read(outputs)
            if held is not None:
                held.turn_back()
                held.store(kept)
            spans, clocks = np.zeros(len(self._records), dtype=SPAN), np.zeros(veus, dtype=CLOCK)
            driver.call("cuMemcpyDtoH", spans.ctypes.data, program.spans, spans.nbytes)
            driver.call("cuMemcpyDtoH", clocks.ctypes.data, program.clocks, clocks.nbytes)
        ns_per_cycle = clocks["nanoseconds"] / np.maximum(1, clocks["cycles"])  # clocks do not all run alike
        ratios = np.repeat(ns_per_cycle, np.diff(self._launch["starts"]))
        return self._by_step(step_times(self._records, spans, ratios))

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
        """Device time of the persistent kernel alone, in microseconds, for each of `runs` after some to warm up.

        States are among the inputs, the last of them.
        """
        driver = self._driver
        plain = len(inputs) - self._launch["states"]
        state = self.new_state([TensorType(DType.of(array), array.shape) for array in inputs[plain:]])
        state.store(dict(enumerate(inputs[plain:])))
        with self._free_buffers() as buffers, self._lock:
            buffers.inputs.send(inputs[:plain])
            before, after = driver.call("cuEventCreate", 0), driver.call("cuEventCreate", 0)
            times_us = []
            for _ in range(_WARMUP_RUNS + runs):
                driver.call("cuEventRecord", before, buffers.stream)
                failures = self._begin(buffers, self._kernel, state if state.read else None)
                driver.call("cuEventRecord", after, buffers.stream)
                self._finish(buffers, failures)
                times_us.append(1e3 * driver.call("cuEventElapsedTime", before, after))
            for event in (before, after):
                driver.call("cuEventDestroy", event)
        return times_us[_WARMUP_RUNS:]

    def _free_buffers(self) -> CallBuffers:
        """Buffers that are this thread's from here on; a thread alone takes the first."""
        self._driver.enter()
        while True:
            for buffers in self._buffers:
                if buffers.lock.acquire(blocking=False):
                    return buffers
            with self._lock:
                if len(self._buffers) == _IN_FLIGHT:
                    break
                with unrestricted(self._driver):
                    self._buffers.append(self._new_buffers())
        buffers = self._buffers[next(self._turns) % _IN_FLIGHT]
        buffers.lock.acquire()
        return buffers

    def _run(self, buffers: CallBuffers, kernel: Kernel, state: GpuState | None) -> None:
        """Run on the inputs in `buffers`, before anybody else's run; the locks are held."""
        if state is not None:
            state.check_whole()
        failures = self._begin(buffers, kernel, state)
        try:
            self._finish(buffers, failures)
        except RunTimeoutError:
            if state is not None:
                state.turn_back()
                state.tear()
            raise
        if state is not None:
            state.order.ended(buffers.stream)

    def _begin(self, buffers: CallBuffers, kernel: Kernel, state: GpuState | None) -> int:
        """Give a run to the stream of `buffers`; the locks are held. Returns how many runs were given up so far."""
        orders = [self._order] if state is None else [self._order, state.order]
        for order in orders:
            order.before(buffers.stream)
        self._launch_kernel(
            kernel, buffers.addresses if state is None else self._with_state(buffers.addresses, state), buffers.stream
        )
        for order in orders:
            order.after(buffers.stream, waits=True)
        return self._failures

    def _finish(self, buffers: CallBuffers, failures: int) -> None:
        """Fetch outputs that are not there yet and wait for the run's end.

        Raises:
            RunTimeoutError: it was given up, or may have been: a run around it was.
        """
        buffers.outputs.fetch()
        buffers.wait()
        self._order.ended(buffers.stream)
        if self._stalled.value or self._failures != failures:
            with self._lock:
                self._give_up()

    # --- Arrays in the GPU's memory -----------------------------------------------------------------------------------

    def room(self, type: TensorType) -> Callable[[int], DeviceArray]:
        """Room for outputs of a type; see `Resident.room`."""
        return self._room(type).take

    def _room(self, type: TensorType) -> Room:
        kept, exchange, order = self._company.kept_of(type.nbytes), self._exchange, self._order
        return Room(type, driver=self._driver, exchange=exchange, order=order, wait=self._waits, kept=kept)

    def padded(self, address: int, given: TensorType, shape: tuple[int, ...], stream: int) -> CudaArray:
        """An array that begins with a given one; see `Resident.padded`."""
        whole = self._room(TensorType(given.dtype, shape)).take(stream)
        whole.fill(address, given.shape)
        return whole

    def fill(self, address: int, array: Array) -> None:
        """Copy an array to the GPU; see `Resident.fill`."""
        if array.nbytes:
            self._driver.enter()
            upload(self._driver, address, array)

    def new_state(self, types: Sequence[TensorType], in_place: Sequence[int] = ()) -> GpuState:
        """Memory for states; see `Resident.new_state`."""
        return GpuState(self._driver, types, in_place)

    def enqueue(self, arrays: Sequence[int], stream: int, state: StateMemory | None = None) -> None:
        """Give a run to a stream; see `Resident.enqueue`."""
        stream = stream or LEGACY_STREAM
        if state is None:
            with self._lock:
                if stream == self._order.steady and not self._stalled.value:
                    self._go_on(arrays, stream)
                else:
                    self._enqueue(arrays, stream, (self._order,))
        else:
            held = cast(GpuState, state)
            with self._lock, held.lock:
                held.check_whole()
                arrays = self._with_state(arrays, held)
                if stream == self._order.steady == held.order.steady and not self._stalled.value:
                    self._go_on(arrays, stream)
                else:
                    self._enqueue(arrays, stream, (self._order, held.order))

    def again(self, arrays: Sequence[int], stream: int, state: StateMemory | None = None) -> None:
        """`enqueue` to a stream that was given before; see `Resident.again`."""
        if stream == LEGACY_STREAM:
            refuse_while_capturing("a run on the default stream", "bind it to stream=torch.cuda.current_stream()")
        self.enqueue(arrays, stream, state)

    def _enqueue(self, arrays: Sequence[int], stream: int, orders: Sequence[Order]) -> None:
        self._driver.enter()
        if (capture := capture_of(self._driver, stream)) is not None:
            if not self._may_be_captured:
                raise StreamCaptureError(
                    "a graph would keep a program whose place another one may take", hint="freeze() the model before"
                )
            for order in orders:
                order.before_captured(stream, capture)
            self._launch_kernel(self._kernel, arrays, stream)
            for order in orders:
                order.after_captured(stream, capture)
            return
        if self._stalled.value:
            self._give_up()
        for order in orders:
            order.before(stream)
        self._launch_kernel(self._kernel, arrays, stream)
        for order in orders:
            order.after(stream)

    def _go_on(self, arrays: Sequence[int], stream: int) -> None:
        """Give a run to the default stream behind another one there, as most calls do; nothing else is asked for."""
        self._segments[self._callers] = arrays
        if self._kernel.launch(stream, self._parameters)[0]:  # mostly the context is another one, or none
            self._driver.enter()
            self._launch_kernel(self._kernel, arrays, stream)

    def wait(self) -> None:
        """Wait until all runs are over; see `Resident.wait`."""
        with self._lock:
            self._driver.enter()
            self._order.wait()
            if self._stalled.value:
                self._give_up()

    # --- Both ---------------------------------------------------------------------------------------------------------

    def _with_state(self, arrays: Sequence[int], state: GpuState) -> list[int]:
        """The arrays of a run, with where its states lie; which of the two places is read, the run knows."""
        program, inputs = self._program, len(self._launch["input_bytes"]) - len(state.read)
        state.wait = self._waits
        program.turns, program.turn_count = state.turns, state.turn_count
        return [*arrays[:inputs], *state.read, *arrays[inputs:], *state.written]

    def _launch_kernel(self, kernel: Kernel, arrays: Sequence[int], stream: int) -> None:
        self._segments[self._callers] = arrays
        answer = kernel.launch(stream, self._parameters)
        if answer[0]:
            check(self._driver.api, "cuLaunchCooperativeKernel", answer)

    def _check(self) -> None:
        """Report a run that was given up, unless somebody was told of it."""
        if self._stalled.value:
            with self._lock:
                self._driver.enter()
                self._give_up()

    def _give_up(self) -> NoReturn:
        """Report the last run that was given up. Nothing else is to be done: it left counters as every run does."""
        if self._stalled.value:
            driver, veus = self._driver, np.zeros(self._manifest.veus, dtype=VEU)
            driver.call("cuCtxSynchronize")  # runs behind it may be given up, too
            driver.call("cuMemcpyDtoH", veus.ctypes.data, self._program.veus, veus.nbytes)
            self._stall = Stall(
                manifest=self._manifest,
                records=np.frombuffer(self._source.files[RECORDS], dtype=RECORD),
                reached=np.where(veus["late_run"] == self._given_up.value, veus["late"], np.uint32(DONE)),
                seen=veus["seen"],
                timeout_s=self._options.run_timeout_s,
            )
            self._failures += 1
            self._stalled.value = 0
        assert self._stall is not None  # whoever cleared `stalled` left it
        raise self._stall.error()


class _Timing:
    """Inside, a lap gives a model's runs to the GPU. Written out, for what `contextmanager` makes takes 2 us longer."""

    __slots__ = ("_kernel", "_lap", "_model", "_plain")

    def __init__(self, model: LoadedModel, lap: EventLap, kernel: Kernel) -> None:
        self._model, self._lap, self._kernel = model, lap, kernel

    def __enter__(self) -> Lap:
        self._plain, kernel = self._model._kernel, self._kernel
        self._model._kernel = Kernel(blocks=kernel.blocks, launch=partial(self._lap.launch, kernel.launch))
        return self._lap

    def __exit__(self, *_: object) -> None:
        self._model._kernel = self._plain


def _end(order: Order, kept: Sequence[object]) -> None:
    """Wait until all runs are over; constants and code, which they use, are there until then."""
    order.outlast()


def _lock_of(state: GpuState | None) -> AbstractContextManager[object]:
    """Nobody else gives runs of the states to a stream."""
    return nullcontext() if state is None else state.lock
