"""What a device is to the rest of the compiler: describe, emit, build, load.

    Plan ──emit──▶ Source ──build──▶ Binary ──load──▶ Loaded

`Source` follows from the plan alone; `Binary` depends on the machine and its compilers. Both are named bytes, so an
artifact stores them as they are and a model loads without its plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from rammer.errors import StateError
from rammer.options import CompileOptions

if TYPE_CHECKING:
    from rammer.ir.graph import Array
    from rammer.ir.program import Plan, Schedule
    from rammer.ir.recipe import Recipe
    from rammer.ir.task import TaskGraph
    from rammer.ir.types import TensorType
    from rammer.ir.vdevice import VDevice

Buffer = bytes | memoryview
Progress = Callable[[int, int], None]


def no_progress(done: int, total: int) -> None:
    """The `Progress` of a caller who does not want to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A plan in a device's terms: code, tables and constants by name.

    Equal plans give equal bytes: there is no path, time, address or machine in them. A device whose programs live in
    memory only (the reference device) derives from this class and leaves `files` empty; its models cannot be saved.
    `recipes` say how some files follow from less, which a saved model holds instead.
    """

    device: str
    files: Mapping[str, Buffer]
    recipes: Mapping[str, Recipe] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """A source, built. `machine` holds what a machine must have to run it, see `Device.mismatch`."""

    device: str
    machine: Mapping[str, str]
    files: Mapping[str, Buffer]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """When each step of a run happened.

    `spans_ns[program][veu]` has shape `[steps, 2]`, int64: start and end of `programs[program].steps[veu][i]` in
    nanoseconds from the start of the run.
    """

    spans_ns: tuple[tuple[npt.NDArray[np.int64], ...], ...]


class Loaded(Protocol):
    """A model in a device's memory. Calls from several threads are safe.

    They run side by side where the device can do so and a run leaves it room: on a processor those of a model of one
    vEU; others run one after another.
    """

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run the model once, in place: nothing is copied.

        Args:
            inputs: C-contiguous arrays of the graph's input types, in order. Checked by the caller.
            outputs: C-contiguous writable arrays of the graph's output types, in order, apart from each other and
                from the inputs; every element is written.

        Raises:
            RunTimeoutError: the run stopped making progress. Later runs are not affected.
        """
        ...

    def trace(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Trace:
        """`run`, measuring every step."""
        ...

    def clone(self) -> Self:
        """The same model once more: it shares code and constants, and has memory of its own for all else.

        Raises:
            OutOfMemoryError: there is too little memory.
            DeviceUnavailableError: there is too little memory on the device.
        """
        ...


class OnHost(Loaded, Protocol):
    """A `Loaded` that reads and writes the host's memory in place: one that is not `Resident`."""

    def run_at(self, addresses: Sequence[int], stream: int | None = None) -> None:
        """`run` on arrays by the addresses of the inputs, then of the outputs; there are no streams."""
        ...

    def bound(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Callable[[], None]:
        """`run` on the same arrays each time, which stay where they are as long as they are held."""
        ...


@runtime_checkable
class Clocked(Loaded, Protocol):
    """A `Loaded` whose device has a clock of its own."""

    def measure_us(self, inputs: Sequence[Array], runs: int) -> list[float]:
        """Device time of the program alone, in microseconds, for each of `runs` after some to warm up.

        States are among the inputs, the last of them.
        """
        ...


class Lap(Protocol):
    """How long one run took, which may be under way when its call has returned."""

    def times_us(self) -> Sequence[float] | None:
        """The time of the run, or one for each rProgram where that was asked for, in us; None while it is under way.

        Raises:
            RunTimeoutError: a run stopped making progress, of which nobody was told yet.
        """
        ...


@runtime_checkable
class Swappable(Loaded, Protocol):
    """A `Loaded` on a device with memory and a clock of its own, beside which other programs of the model may be."""

    def allow_capture(self, *, may: bool) -> None:
        """Say whether runs may become part of what replays them later, as they may at first.

        While another program may take this one's place they may not: runs that are captured raise StreamCaptureError.
        """
        ...

    def beside(self, source: Source, binary: Binary, *, by_program: bool = False) -> Swappable:
        """Another program of the model, loaded: what is equal in both is in memory once.

        With `by_program`, it can be `timed_by_program`.

        Runs of both, and of others beside them, follow each other whatever their streams. May be called while runs are
        given to streams, of which none waits for it.

        Raises:
            DeviceUnavailableError: there is too little memory, or the binary does not load.
        """
        ...

    def added_bytes(self, source: Source) -> int:
        """The device's memory that `beside` would take, without code."""
        ...

    def timed(self) -> AbstractContextManager[Lap]:
        """Time the run that is given to the device inside, by the device's clock; nobody waits for it."""
        ...

    def timed_by_program(self) -> AbstractContextManager[Lap]:
        """`timed`, each rProgram apart."""
        ...


View = tuple[int, np.dtype[Any], tuple[int, ...], tuple[int, ...] | None, bool]
"""A caller's array in a device's memory: its address, dtype, shape and strides (in elements; None where it lies row by
row), and whether it is writable. A plain tuple, for a NamedTuple takes 0.2 us longer to make and read."""


class StateMemory(Protocol):
    """Where a device keeps states between runs. Safe to use from several threads."""

    def load(self, positions: Sequence[int]) -> list[Array]:
        """Copies of what the next run will read of states, by their positions.

        Raises:
            RunTimeoutError: a run of them stopped making progress.
            StateError: one may be written in part: a run that updates it in place stopped making progress.
        """
        ...

    def store(self, values: Mapping[int, Array]) -> None:
        """Let the next run read other values, of the states' types, by position."""
        ...


def check_whole(torn: Collection[int]) -> None:
    """Refuse states that a run which was given up may have written in part.

    Raises:
        StateError: there are any.
    """
    if torn:
        raise StateError(
            "a run was given up that updates this state in place, and may have written a part of it",
            hint="reset() it, or write a value to it",
        )


@runtime_checkable
class DeviceArray(Protocol):
    """An array that a run leaves in a device's memory, for other libraries to take over without a copy."""

    @property
    def address(self) -> int:
        """Where its first element lies."""
        ...

    def cut(self, shape: tuple[int, ...]) -> DeviceArray:
        """The elements below some extents, row by row: the same memory where they lie so, else a copy.

        Raises:
            DeviceUnavailableError: there is too little memory.
        """
        ...

    def numpy(self) -> Array:
        """A copy on the host; waits for the run.

        Raises:
            RunTimeoutError: the run stopped making progress.
        """
        ...

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """The array by the DLPack protocol."""
        ...

    def __dlpack_device__(self) -> tuple[int, int]:
        """Kind and number of the device, as DLPack counts them."""
        ...


@runtime_checkable
class Resident(Loaded, Protocol):
    """A `Loaded` whose inputs and outputs may lie in the device's own memory.

    A stream is what the device's own interfaces call one, as a number: work given to it is done in order. Other work
    on it goes on while a run is under way; only `wait` stands still.
    """

    @property
    def array_alignment_bytes(self) -> int:
        """What addresses of arrays in the device's memory have to be multiples of."""
        ...

    def stream_of(self, stream: object) -> int:
        """The caller's stream; None stands for the one that the device's libraries use when told nothing.

        Raises:
            OptionError: it is no stream, or one that a run cannot be given to.
        """
        ...

    def view(self, array: object, stream: int) -> View | None:
        """An array as it lies in the device's memory, or None where it lies elsewhere.

        Work given to `stream` from now on follows what its library has been told to do with it.
        """
        ...

    def room(self, type: TensorType) -> Callable[[int], DeviceArray]:
        """Room for outputs of a type: given the stream of a run, it makes an array for that run to write.

        It raises DeviceUnavailableError where there is too little memory.
        """
        ...

    def padded(self, address: int, given: TensorType, shape: tuple[int, ...], stream: int) -> DeviceArray:
        """An array of a shape that begins with a given one, row by row at an address, and is 0 elsewhere.

        It is made in the order of `stream`.

        Raises:
            DeviceUnavailableError: there is too little memory.
        """
        ...

    def fill(self, address: int, array: Array) -> None:
        """Copy an array of the host to the device's memory, in the order of its default stream; waits for the copy."""
        ...

    def new_state(self, types: Sequence[TensorType], in_place: Sequence[int] = ()) -> StateMemory:
        """Memory for states of these types, of which some are updated in place. What they hold is for `store` to say.

        Raises:
            DeviceUnavailableError: there is too little memory.
        """
        ...

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array], state: StateMemory | None = None) -> None:
        """As for `Loaded`, on the arrays that are no states, and with the states of a model that keeps some.

        A run that fails leaves the states as they were; those in place have to be stored before they are used again.

        Raises:
            RunTimeoutError: the run stopped making progress.
            StateError: a state was not stored since such a run.
        """
        ...

    def trace(self, inputs: Sequence[Array], outputs: Sequence[Array], state: StateMemory | None = None) -> Trace:
        """`run`, measuring every step; the states stay as they are."""
        ...

    def enqueue(self, arrays: Sequence[int], stream: int, state: StateMemory | None = None) -> None:
        """Give a run to `stream`, in place: nothing is copied.

        Args:
            arrays: addresses of arrays of the graph's input types, then of its output types, in order, without states;
                outputs lie apart from each other and from the inputs.
            stream: what `stream_of` returned, or a handle; 0 is the default stream.
            state: those of a model that keeps some. A run that is given up leaves them undefined.

        Raises:
            RunTimeoutError: an earlier run stopped making progress. Later runs are not affected.
            StreamCaptureError: the capture that the stream is part of was made invalid.
        """
        ...

    def again(self, arrays: Sequence[int], stream: int, state: StateMemory | None = None) -> None:
        """`enqueue`, long after `stream_of` was asked: other streams may be captured by now.

        Raises:
            RunTimeoutError: as `enqueue`.
            StreamCaptureError: as `enqueue`, and where the run would not be part of what is captured.
        """
        ...

    def wait(self) -> None:
        """Wait until all runs are over.

        Raises:
            RunTimeoutError: one of them stopped making progress. Later runs are not affected.
        """
        ...


class Device(Protocol):
    """One kind of accelerator. Devices hold no state."""

    @property
    def name(self) -> str:
        """What users call it."""
        ...

    def describe(self, options: CompileOptions) -> VDevice:
        """The machine at hand as data, from what it says about itself and what was measured once: the same each time.

        Raises:
            DeviceUnavailableError: there is no such device here.
            OptionError: more vEUs than the device can have.
        """
        ...

    def emit(self, plan: Plan, vdevice: VDevice) -> Source:
        """The plan as code and tables. Pure: equal arguments give equal bytes."""
        ...

    def build(self, source: Source, options: CompileOptions, progress: Progress = no_progress) -> Binary:
        """Compile for the machine at hand, or take from the cache what was compiled before.

        Args:
            source: what `emit` returned, here or elsewhere.
            options: compiler, cache and limits.
            progress: told (units done, units in all) as units are done, from any thread.

        Raises:
            CompilerNotFoundError: no compiler.
            CompilerFailedError: the compiler ended with an error, or not at all.
            CacheError: no folder to work in can be written.
        """
        ...

    def outdated(self, source: Source, array_bytes: Sequence[int]) -> str | None:
        """Why this Rammer cannot read a saved source, or None if it can. Only compiling the model again helps.

        What is read then is checked as far as that is cheap: forms and sizes. Tables and code are taken at their word.

        Args:
            source: what was saved.
            array_bytes: what each input, then each output takes by the model's signature.

        Raises:
            SchemaError: the source is of this version, but has another form, or does not fit together or the arrays.
        """
        ...

    def mismatch(self, binary: Binary) -> str | None:
        """Why this machine cannot run `binary`, or None if it can. Building its source again helps.

        Raises:
            SchemaError: it does not say what it needs.
        """
        ...

    def load(self, source: Source, binary: Binary, options: CompileOptions) -> Loaded:
        """Place a model in memory. Buffers that are aligned to 64 bytes are used where they lie.

        Raises:
            DeviceUnavailableError: the binary does not load on this machine.
        """
        ...


@runtime_checkable
class Placing(Protocol):
    """A `Device` whose code and constants are the same for any number of execution units: only tables differ."""

    def usual_veus(self) -> int:
        """The execution units that it has where nobody names a number."""
        ...

    def check_tasks(self, source: Source, graph: TaskGraph) -> None:
        """See whether a source is that of a task graph with one rKernel for each rOperator, which may not be sound.

        Raises:
            SchemaError: it is not, or the task graph does not fit together.
        """
        ...

    def placed(self, source: Source, plan: Plan) -> Source:
        """A source with the tables of another plan of the same task graph."""
        ...


@runtime_checkable
class Divisible(Protocol):
    """A `Device` that can be cut into execution units in several ways."""

    def divisions(self, options: CompileOptions) -> Sequence[VDevice]:
        """Other descriptions than that of `Device.describe`; none where the options name a number of execution units.

        Raises:
            DeviceUnavailableError: as for `Device.describe`.
        """
        ...


_Code = TypeVar("_Code", bound=Source)


@runtime_checkable
class Early(Protocol[_Code]):
    """A `Device` whose code is the same wherever tensors lie: it is compiled while the rest of a plan is made."""

    def code(self, graph: TaskGraph, schedule: Schedule, vdevice: VDevice) -> _Code:
        """The code of a schedule, which `Device.build` takes as it is. Pure, as `Device.emit` is."""
        ...

    def complete(self, plan: Plan, vdevice: VDevice, code: _Code) -> Source:
        """What `Device.emit` returns for a plan, given the code of its schedule."""
        ...


@runtime_checkable
class TracedApart(Protocol):
    """A `Device` whose traced runs are of code of their own."""

    def build_traced(self, source: Source, options: CompileOptions) -> Binary:
        """Machine code as of `Device.build`, that always writes times: what is loaded of it is traced as it is.

        Arguments and errors are those of `Device.build`.
        """
        ...
