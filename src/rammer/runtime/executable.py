"""A compiled model that is called like a function."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self, cast

from rammer.devices.base import Binary, Device, DeviceArray, Loaded, OnHost, Resident, Source, Swappable, Trace
from rammer.errors import ArtifactWriteError, OutOfMemoryError, OutputError, PlacementError, StateError
from rammer.ir.recipe import Recipe
from rammer.ir.schema import SchemaError, read_json
from rammer.ir.sizes import size_text
from rammer.options import CompileOptions
from rammer.printable import printable, printable_data
from rammer.runtime.arrays import room_for
from rammer.runtime.bound import BoundCall
from rammer.runtime.container import Buffer, Json, container_pieces, corrupt, write_container
from rammer.runtime.padding import padded
from rammer.runtime.sharing import with_files_of
from rammer.runtime.signature import Signature, host_input, host_output
from rammer.runtime.state import HostState, State
from rammer.runtime.views import (
    address,
    check_input_view,
    check_not_copied,
    check_output_view,
    expected_view,
    on_the_host,
)

if TYPE_CHECKING:
    from rammer.ir.graph import Array
    from rammer.runtime.tracing import TracedRun


class Executable:
    """A model compiled for a device, loaded and ready.

    Calls from several threads are safe. Those of a model of one vEU on a processor run side by side; others run one
    after another, and side by side on clones. Every call gives the same bits for the same inputs.

    Arrays in the memory of the model's device (of PyTorch, CuPy, JAX or any library that speaks DLPack or the CUDA
    array interface) are used where they lie, and the results stay there, as arrays that those libraries take over:
    `torch.from_dlpack(net(x))`. Such a call returns as soon as the run is given to a stream. NumPy arrays, and what
    NumPy makes arrays of, give NumPy arrays.

    Attributes:
        name: the model's name.
        signature: names, dtypes and shapes of inputs and outputs.
        device: what it was compiled for.
    """

    def __init__(
        self,
        *,
        name: str,
        signature: Signature,
        device: Device,
        source: Source,
        binary: Binary,
        report: Buffer,
        options: CompileOptions,
        tasks: Buffer = b"",
        initial: Sequence[Array] = (),
        loaded: Loaded | None = None,
    ) -> None:
        self.name, self.signature = printable(name), signature
        self._output_names = [port.name for port in signature.outputs]
        self._sizes_bytes = [port.type.nbytes for port in (*signature.inputs, *signature.outputs)]
        # What views of arrays that fit mostly hold behind the address. An input need not be writable.
        self._input_views = [expected_view(port) for port in signature.inputs]
        self._output_views = [(*expected_view(port), True) for port in signature.outputs]
        self.device = device.name
        self._load: Callable[[Source, Binary], Loaded] = partial(device.load, options=options)
        self._source, self._binary, self._report, self._tasks = source, binary, report, tasks
        self._initial = tuple(initial)
        self._apart: list[int] = []  # where arrays begin that were found to lie apart: those of the next call often do
        self._host_rooms = [room_for(port.type) for port in signature.outputs]
        self._place(self._load(source, binary) if loaded is None else loaded)
        self._state = self.new_state() if signature.states else None

    def _place(self, loaded: Loaded) -> None:
        """Run what is loaded from now on."""
        self._loaded = loaded
        self._resident = loaded if isinstance(loaded, Resident) else None
        self.__dict__.pop("_rooms", None)

    def clone(self) -> Self:
        """The same model once more: it shares constants and code, and has memory of its own for all else.

        Calls of the two do not wait for each other. A state goes on from where it is now, in each by itself: `reset`
        begins anew. `copy.copy` and `copy.deepcopy` make clones.

        Raises:
            OutOfMemoryError: there is too little memory.
            DeviceUnavailableError: there is too little memory on the device.
        """
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._apart = []
        twin._place(self._loaded.clone())
        if self._state is not None:
            twin._state = self.new_state()
            twin._state.update(self._state)
        return twin

    def __copy__(self) -> Self:
        return self.clone()

    def __deepcopy__(self, memo: object) -> Self:
        return self.clone()

    def share(self, others: Iterable[Executable]) -> None:
        """Use the constants and code of other models wherever they are those of this one, and let go of its own.

        Nobody may be calling this model.
        """
        others = list(others)
        source = with_files_of(self._source, (other._source for other in others))
        if source is self._source:
            return
        self._source = source
        near = next((other._loaded for other in others if isinstance(other._loaded, Swappable)), None)
        self._place(self._load(source, self._binary) if near is None else near.beside(source, self._binary))

    @property
    def state(self) -> State:
        """The state that calls use where they name none; empty for a model that keeps nothing."""
        return self.new_state() if self._state is None else self._state

    def new_state(self) -> State:
        """Another state, as before the first call, for calls with `state=`."""
        take = HostState if self._resident is None else self._resident.new_state
        return State(self.signature, self._initial, self.device, take)

    def reset(self) -> None:
        """Put the state back to what it was before the first call."""
        self.state.reset()

    @property
    def report(self) -> Mapping[str, Any]:
        """What runs where and why, as JSON data, program by program (`links`) where loops are programs of their own.

        Raises:
            ArtifactCorruptError: the file that the model was loaded from has none.
        """
        try:
            parsed: Mapping[str, Any] = printable_data(read_json(self._report, {}, "its report"))
        except SchemaError as error:
            raise corrupt(self.name, str(error)) from error
        return parsed

    # As a union, every caller would have to tell its parts apart, though the model decides which one it is.
    def __call__(self, /, *inputs: object, **named: object) -> Any:  # noqa: ANN401
        """Run the model on arrays, given in order or by name; `state=` names the state of a model that keeps one.

        Returns:
            The output's array where the model has one output, else a dict of arrays by output name.

        Raises:
            CallError: the inputs are not what the signature says.
            RunTimeoutError: the run stopped making progress.
        """
        state = self._chosen(named)
        return self.assemble(self._run(self.signature.arrange(inputs, named), None, None, state))

    async def async_run(self, /, *inputs: object, **named: object) -> Any:  # noqa: ANN401 - as for `__call__`
        """A call that does not stop the event loop: `y = await net.async_run(x)`. It runs on a thread of the loop's.

        A task that is cancelled does not wait for the result; the run itself goes on to its end. On a GPU the run is on
        the stream that is current on that thread, mostly the default one.

        Returns:
            What `net(*inputs, **named)` does.

        Raises:
            CallError: the inputs are not what the signature says.
            RunTimeoutError: the run stopped making progress.
        """
        import asyncio  # noqa: PLC0415 - who awaits has it; for others it takes 30 ms

        return await asyncio.to_thread(self, *inputs, **named)

    # A call in its three parts, for owners that change arrays on the way.

    def spread(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """The arrays among the arguments of a call, in the order of the signature's inputs.

        Raises:
            CallError: the arguments are not those of the model.
        """
        return self.signature.arrange(args, kwargs)

    def call_arrays(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The outputs for such arrays.

        Raises:
            CallError: they do not fit.
        """
        return self._run(arrays, None, None, self._state)

    def padded(self, position: int, array: Any) -> Any:  # noqa: ANN401 - an array of any library, or one of these
        """An array for an input that begins with a given one of smaller extents and is 0 elsewhere; see `padding`.

        Raises:
            CallError: the array is not what the signature says, but for its extents.
        """
        return padded(array, self.signature.inputs[position], self._resident)

    def assemble(self, results: Sequence[Any]) -> Any:  # noqa: ANN401 - as for `__call__`
        """What a call returns of such outputs."""
        return results[0] if len(results) == 1 else self._by_name(results)

    def run(
        self,
        inputs: Mapping[str, object],
        *,
        outputs: Mapping[str, object] | None = None,
        stream: object = None,
        state: State | None = None,
    ) -> dict[str, Any]:
        """Run the model on arrays by input name; always returns a dict by output name.

        Args:
            inputs: an array for each input, all on the host or all in the device's memory.
            outputs: arrays to write into, by output name, where the inputs are; None makes fresh ones.
            stream: for arrays in the device's memory, the stream to run on (a handle, or an object with
                `__cuda_stream__`); None is the default stream. The run follows what the libraries of the inputs have
                been told to do with them.
            state: what the run reads and leaves its states in; None is the model's own.

        Raises:
            CallError: the inputs or outputs are not what the signature says, or lie in different places.
            OptionError: the stream cannot be used.
            RunTimeoutError: the run, or an earlier one on a stream, stopped making progress.
        """
        into = None if outputs is None else self.signature.arrange_outputs(outputs)
        given = self._checked(state)
        return self._by_name(self._run(self.signature.arrange((), inputs), into, stream, given))

    def bind(
        self, inputs: Mapping[str, object], *, outputs: Mapping[str, object] | None = None, stream: object = None
    ) -> BoundCall:
        """The model tied to arrays, as a call without arguments: they are looked at once, not in every call.

        Args:
            inputs: as for `run`; calls read what they hold then, so what would be read from a copy is refused.
            outputs: as for `run`; None makes one array for each output, which all calls write.
            stream: as for `run`.

        Raises:
            CallError: the inputs or outputs are not what the signature says, or lie in different places.
            OptionError: the stream cannot be used.
        """
        given = self.signature.arrange((), inputs)
        into = None if outputs is None else self.signature.arrange_outputs(outputs)
        work, arrays, where, results = self._prepared(given, into, stream)
        if self._resident is not None and work != self._loaded.run:
            work = self._resident.again
        else:
            check_not_copied(self.signature.inputs, given, arrays)
        run: Callable[[], object]
        if self._resident is not None:
            run = partial(work, arrays, where, *([] if self._state is None else [self._state.memory]))
        elif self._state is not None:
            run = partial(self._run_on_host, arrays, where, self._state)
        else:
            run = cast(OnHost, self._loaded).bound(arrays, where)
        return BoundCall(run, self._by_name(results), (given, arrays, where, stream))

    def wait(self) -> None:
        """Wait until all runs on streams are over.

        Raises:
            RunTimeoutError: one of them stopped making progress.
        """
        if self._resident is not None:
            self._resident.wait()

    def trace(self, /, *inputs: object, **named: object) -> TracedRun:
        """Measure every step of a second run with the same inputs, or with a dict of them; a state stays as it is.

        Raises:
            CallError: the inputs are not what the signature says.
            RunTimeoutError: the run stopped making progress.
            OptionError: the model has loops that are programs of their own.
            ArtifactCorruptError: the file that the model was loaded from has no report of it.
        """
        from rammer.runtime.tracing import TracedRun  # noqa: PLC0415 - for this alone

        arrays, results = self._on_host(self._traced_inputs(inputs, named), None)
        self._trace(arrays, results)
        trace = self._trace(arrays, results)
        try:
            return TracedRun(f"{self.name} on {self.device}", self.report, trace.spans_ns)
        except SchemaError as error:
            raise corrupt(self.name, str(error)) from error

    def _trace(self, arrays: Sequence[Any], results: Sequence[Any]) -> Trace:
        """A run on the host's arrays with the time of every step."""
        if self._state is None:
            return self._loaded.trace(arrays, results)
        if self._resident is not None:
            return self._resident.trace(arrays, results, self._state.memory)
        trace, on_host = self._loaded.trace, self._state.on_host
        return on_host.peek(lambda read, written: trace([*arrays, *read], [*results, *written]))

    def _traced_inputs(self, inputs: tuple[object, ...], named: Mapping[str, object]) -> Sequence[Any]:
        """The inputs of a traced run in order."""
        if len(inputs) == 1 and not named and isinstance(inputs[0], Mapping):
            return self.signature.arrange((), inputs[0])
        return self._arranged(inputs, named)

    def _arranged(self, inputs: tuple[object, ...], named: Mapping[str, object]) -> Sequence[Any]:
        """The arrays of a call in the order of the signature."""
        return self.signature.arrange(inputs, named)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the compiled model to one file that `rammer.load` reads.

        Raises:
            ArtifactWriteError: the file cannot be written, or the device's programs live in memory only.
        """
        write_container(path, self.description(), *self.content())

    def to_bytes(self) -> bytes:
        """The content of the file that `save` writes; `rammer.load` takes it, too.

        Raises:
            ArtifactWriteError: the device's programs live in memory only.
        """
        return b"".join(container_pieces(self.description(), *self.content()))

    def content(self) -> tuple[dict[str, Buffer], dict[str, Recipe]]:
        """The sections of a file of the model, by name, and how some of them follow from less.

        Raises:
            ArtifactWriteError: the device's programs live in memory only.
        """
        if not self._source.files:
            raise ArtifactWriteError(
                f"programs of the {self.device} device cannot be saved", hint="compile for another device"
            )
        sections: dict[str, Buffer] = {"report": self._report}
        if self._tasks:
            sections["tasks"] = self._tasks
        sections |= {f"state/{i}": array.tobytes() for i, array in enumerate(self._initial)}
        for kind, files in (("source", self._source.files), ("binary", self._binary.files)):
            sections |= {f"{kind}/{name}": content for name, content in files.items()}
        return sections, {f"source/{name}": recipe for name, recipe in self._source.recipes.items()}

    def description(self) -> dict[str, Json]:
        """What the header of the model's file says."""
        return {
            "name": self.name,
            "device": self.device,
            "machine": dict(self._binary.machine),
            "signature": self.signature.to_json(),
        }

    # What stands in the way of every call counts positions: zip with strict=True takes three times as long.

    def _run(
        self, inputs: Sequence[Any], outputs: Sequence[Any] | None, stream: object, state: State | None
    ) -> Sequence[Any]:
        work, arrays, where, results = self._prepared(inputs, outputs, stream)
        if state is None:
            work(arrays, where)
        elif self._resident is None:
            self._run_on_host(arrays, where, state)
        else:
            work(arrays, where, state.memory)
        return results

    def _run_on_host(self, arrays: Sequence[Array], rooms: Sequence[Array], state: State) -> None:
        state.on_host.advance(lambda read, written: self._loaded.run([*arrays, *read], [*rooms, *written]))

    def _chosen(self, named: dict[str, object]) -> State | None:
        """The state of a call, which is no input."""
        if self._state is None:
            return None
        return self._checked(named.pop("state", None))

    def _checked(self, state: object) -> State | None:
        """A given state of this model, or its own where none is given.

        Raises:
            StateError: it is another model's, or the model keeps none.
        """
        if state is None:
            return self._state
        if self._state is None:
            raise StateError("a state for a model that keeps none", hint="leave state= out")
        if not isinstance(state, State) or not state.fits(self.signature, self.device):
            raise StateError(f"{state!r} is no state of this model", hint="take one that new_state() of it gave")
        return state

    def _prepared(
        self, inputs: Sequence[Any], outputs: Sequence[Any] | None, stream: object
    ) -> tuple[Callable[..., None], Sequence[Any], Any, Sequence[Any]]:
        """A run of checked arrays: what does it, its two arguments, and the results that it writes.

        On a device with memory of its own, the states' memory is a third argument.
        """
        resident = self._resident
        if resident is not None and not on_the_host(inputs):
            handle = resident.stream_of(stream)
            addresses = self._places(resident, inputs, handle)
            if addresses:
                results = self._results(resident, addresses, outputs, handle)
                return resident.enqueue, addresses, handle, results
        if stream is not None:
            raise PlacementError("a stream for inputs on the host", hint="give arrays in the device's memory")
        arrays, rooms = self._on_host(inputs, outputs)
        return self._loaded.run, arrays, rooms, rooms

    def _on_host(self, inputs: Sequence[Any], outputs: Sequence[Any] | None) -> tuple[list[Array], list[Array]]:
        """Inputs and results as arrays of the host."""
        try:
            arrays = [host_input(inputs[i], port) for i, port in enumerate(self.signature.inputs)]
            if outputs is None:
                return arrays, [room() for room in self._host_rooms]
        except MemoryError as error:
            sizes = ", ".join(f"{port}: {size_text(port.type.nbytes)}" for port in self.signature.outputs)
            raise OutOfMemoryError(f"no memory for the arrays of a call: it returns {sizes}") from error
        results = [host_output(outputs[i], port) for i, port in enumerate(self.signature.outputs)]
        self._check_apart(list(map(address, arrays + results)))
        return arrays, results

    def _places(self, resident: Resident, inputs: Sequence[Any], stream: int) -> list[int]:
        """Where inputs lie in the device's memory; nothing where all lie on the host."""
        addresses = []
        for i, expected in enumerate(self._input_views):
            view = resident.view(inputs[i], stream)
            if view is None:
                if i or any(resident.view(array, stream) is not None for array in inputs[1:]):
                    raise PlacementError("some inputs lie on the host, others on the device", hint="move them together")
                break
            if view[1:4] != expected or view[0] % resident.array_alignment_bytes:
                check_input_view(self.signature.inputs[i], view, resident.array_alignment_bytes)
            addresses.append(view[0])
        return addresses

    def _results(
        self, resident: Resident, addresses: list[int], outputs: Sequence[Any] | None, stream: int
    ) -> Sequence[Any]:
        """The given outputs, or fresh ones; where they lie is added to `addresses`."""
        if outputs is None:
            fresh = [room(stream) for room in self._rooms]
            for result in fresh:
                addresses.append(result.address)
            return fresh
        for i, wanted in enumerate(self._output_views):
            found = resident.view(outputs[i], stream)
            if found is None:
                name = self.signature.outputs[i].name
                raise OutputError(f"output '{name}' is to be written elsewhere", hint="give an array on the device")
            if found[1:] != wanted or found[0] % resident.array_alignment_bytes:
                check_output_view(self.signature.outputs[i], found, resident.array_alignment_bytes)
            addresses.append(found[0])
        if addresses != self._apart:
            self._check_apart(addresses)
        return outputs

    @cached_property
    def _rooms(self) -> list[Callable[[int], DeviceArray]]:
        """What makes room for each output on the device; asked for once a run needs it."""
        assert self._resident is not None
        return [self._resident.room(port.type) for port in self.signature.outputs]

    def _check_apart(self, addresses: list[int]) -> None:
        """Each output, which is written, lies apart from all other arrays, given where inputs and outputs begin.

        Inputs may share memory.
        """
        inputs = len(self.signature.inputs)
        taken = written = last = 0  # of the arrays that begin before: where they end, where the outputs do, and which
        for i in sorted(range(len(addresses)), key=addresses.__getitem__):
            begin, end, is_output = addresses[i], addresses[i] + self._sizes_bytes[i], i >= inputs
            if begin < (taken if is_output else written) and begin < end:
                name = self.signature.outputs[(i if is_output else last) - inputs].name
                raise OutputError(
                    f"output '{name}' is to be written where another input or output lies",
                    hint="give each output an array of its own",
                )
            taken = max(taken, end)
            if is_output and end > written:
                written, last = end, i
        self._apart = addresses

    def _by_name(self, outputs: Sequence[Any]) -> dict[str, Any]:
        named = {}
        for i, name in enumerate(self._output_names):
            named[name] = outputs[i]
        return named

    def __repr__(self) -> str:
        return f"<rammer.Executable {self.name} on {self.device}: {self.signature}>"
