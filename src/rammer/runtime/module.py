"""A compiled module: called with the arguments of the module it was compiled from, and giving the module's results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rammer.devices.base import DeviceArray, Loaded, OnHost, Resident, StateMemory
from rammer.errors import RefreshError
from rammer.ir.calling import CallForm, Leaf, Nest, assembled, has_sizes
from rammer.ir.types import DType
from rammer.runtime.container import Json
from rammer.runtime.executable import Executable
from rammer.runtime.signature import check_input
from rammer.runtime.state import State
from rammer.runtime.structure import arrays_of, form_to_json
from rammer.runtime.tensors import Addressed, FindLibrary, RunAt, TensorLibrary

if TYPE_CHECKING:
    from rammer.ir.graph import Array

_Call = Callable[[Sequence[Any]], Sequence[Any]]


class CompiledModule(Executable):
    """A module compiled for a device, called as the module is.

    Tensors in arguments are used where they lie, and results are tensors: on the processor with tensors of the
    processor, on a GPU with tensors there, on PyTorch's current stream. NumPy arrays give NumPy arrays. `run` and
    `bind` take arrays by the names of `signature`.

    Attributes:
        form: how arguments and results nest.
    """

    def __init__(
        self,
        *,
        form: CallForm,
        find_library: FindLibrary,
        compile_again: Callable[[object], Executable] | None = None,
        **executable: Any,  # noqa: ANN401 - as for `Executable`
    ) -> None:
        super().__init__(**executable)
        self._compile_again = compile_again
        self.form = form
        self._find_library = find_library
        self._library: TensorLibrary | None = None
        plain = not form.named and all(isinstance(part, Leaf) for _, part in form.positional)
        self._plain_count = len(form.positional) if plain else -1
        self._returns_array = isinstance(form.result, Leaf)

    def _place(self, loaded: Loaded) -> None:
        super()._place(loaded)
        self._calls: dict[type, _Call] = {}  # by the class of the first array

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the module takes and gives
        """Run the model on the module's arguments; `state=` names the state of a module that writes to its buffers.

        Returns:
            what the module returns, in its own containers.

        Raises:
            CallError: the arguments are not like those that the module was compiled for.
            RunTimeoutError: the run stopped making progress.
        """
        state = self._chosen(kwargs)
        arrays = args if not kwargs and len(args) == self._plain_count else arrays_of(self.form, args, kwargs)
        results = self._call_for(arrays, state)(arrays)
        return results[0] if self._returns_array else assembled(self.form.result, iter(results), self._make)

    def spread(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """As for `Executable`."""
        return arrays_of(self.form, args, kwargs)

    def call_arrays(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """As for `Executable`."""
        return self._call_for(arrays, self._state)(arrays)

    def assemble(self, results: Sequence[Any]) -> Any:  # noqa: ANN401 - as for `__call__`
        """As for `Executable`."""
        return assembled(self.form.result, iter(results), self._make)

    def refresh(self, module: object) -> None:
        """Take over the parameters and buffers of a module like the one that this was compiled from; states stay.

        The module is captured and planned once more. Its code is that of the cache, unless a parameter of one element,
        which is part of the code, has changed. Calls under way end with the old parameters.

        Raises:
            ModelError: the module cannot be captured.
            RefreshError: the module takes, gives or keeps something else, or this model was loaded from a file.
        """
        if self._compile_again is None:
            raise RefreshError("a model that was loaded from a file", hint="compile the module again")
        fresh = self._compile_again(module)
        if not isinstance(fresh, CompiledModule) or (fresh.signature, fresh.form) != (self.signature, self.form):
            raise RefreshError(
                f"the module is {fresh.signature}, this model {self.signature}", hint="compile it as a model of its own"
            )
        self._source, self._binary, self._report, self._initial = (
            fresh._source,
            fresh._binary,
            fresh._report,
            fresh._initial,
        )
        self._place(fresh._loaded)

    def _arranged(self, inputs: tuple[object, ...], named: Mapping[str, object]) -> Sequence[Any]:
        return arrays_of(self.form, inputs, named)

    def _call_for(self, arrays: Sequence[object], state: State | None) -> _Call:
        """What runs the model on arrays of such classes with a state."""
        calls = self._calls if state is None else state.calls.setdefault(self, {})
        return calls.get(type(arrays[0]) if arrays else np.ndarray) or self._found_call(arrays, state, calls)

    def _found_call(self, arrays: Sequence[object], state: State | None, calls: dict[type, _Call]) -> _Call:
        """As `_call_for`, found once for each class of tensors."""
        for array in arrays:
            library = None if isinstance(array, np.ndarray) else self._find_library(type(array))
            if library is not None:
                self._library = library
                call = library.calls(self.signature, self.addressed(state), self._refuse)
                return calls.setdefault(type(arrays[0]), call)
        if self._resident is not None and has_sizes(self.form.result):  # which are read to cut the others
            return lambda arrays: [_on_host(each) for each in self._run(arrays, None, None, state)]
        return lambda arrays: self._run(arrays, None, None, state)

    def addressed(self, state: State | None = None) -> Addressed:
        """The model as it runs on addresses, with a state; without one, what is loaded now."""
        resident = self._resident
        return Addressed(
            run=self._runner(state),
            on_gpu=resident is not None,
            alignment_bytes=1 if resident is None else resident.array_alignment_bytes,
        )

    def _runner(self, state: State | None) -> RunAt:
        if state is None:
            resident = self._resident
            return cast(OnHost, self._loaded).run_at if resident is None else cast(RunAt, resident.enqueue)
        if self._resident is not None:
            return partial(self._enqueue_at, state.memory)
        count = len(self.signature.inputs)

        def run_with_state(addresses: Sequence[int], stream: int | None) -> None:
            inputs, outputs = addresses[:count], addresses[count:]
            run_at = cast(OnHost, self._loaded).run_at
            state.on_host.advance_at(lambda read, written: run_at([*inputs, *read, *outputs, *written]))

        return run_with_state

    def _enqueue_at(self, state: StateMemory, addresses: Sequence[int], stream: int | None) -> None:
        resident = cast(Resident, self._resident)
        resident.enqueue(addresses, resident.stream_of(stream), state)

    def _refuse(self, position: int, dtype: DType, shape: tuple[int, ...]) -> None:
        check_input(self.signature.inputs[position], dtype.numpy, shape)

    def _make(self, nest: Nest, parts: Sequence[object]) -> object:
        if self._library is None:
            return dict(zip(nest.keys, parts, strict=True))
        return self._library.make(nest, parts)

    def description(self) -> dict[str, Json]:
        """What the header of the model's file says."""
        return {**super().description(), "form": form_to_json(self.form)}


def _on_host(array: Array | DeviceArray) -> Array:
    return array if isinstance(array, np.ndarray) else array.numpy()
