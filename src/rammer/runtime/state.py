"""What a model keeps from call to call: two arrays for each state, read and written in turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rammer.devices.base import StateMemory
from rammer.errors import StateError
from rammer.ir.types import TensorType
from rammer.printable import listing
from rammer.runtime.arrays import aligned_empty
from rammer.runtime.signature import Port

if TYPE_CHECKING:
    from rammer.ir.graph import Array

T = TypeVar("T")


class HostState:
    """Two arrays of the host for each state; see `rammer.devices.base.StateMemory`.

    A run reads one of them and writes the other; when it is over they change places, so that a run that fails leaves
    the states as they were. Calls that share them take turns.
    """

    def __init__(self, types: Sequence[TensorType]) -> None:
        self._sides = [[aligned_empty(type.shape, type.dtype.numpy) for type in types] for _ in ("read", "written")]
        self._addresses = [[array.ctypes.data for array in side] for side in self._sides]
        self._turn = 0
        self._lock = threading.Lock()

    def load(self, positions: Sequence[int]) -> list[Array]:
        """Copies of what the next run will read."""
        with self._lock:
            return [self._sides[self._turn][position].copy() for position in positions]

    def store(self, values: Mapping[int, Array]) -> None:
        """Let the next run read other values."""
        with self._lock:
            for position, value in values.items():
                self._sides[self._turn][position][...] = value

    def advance(self, run: Callable[[Sequence[Array], Sequence[Array]], object]) -> None:
        """Run on the arrays that are to be read and written; then they change places."""
        with self._lock:
            run(self._sides[self._turn], self._sides[1 - self._turn])
            self._turn = 1 - self._turn

    def peek(self, run: Callable[[Sequence[Array], Sequence[Array]], T]) -> T:
        """What a run gives on the arrays that are to be read and written; the states stay as they are."""
        with self._lock:
            return run(self._sides[self._turn], self._sides[1 - self._turn])

    def advance_at(self, run: Callable[[Sequence[int], Sequence[int]], object]) -> None:
        """`advance` by the arrays' addresses."""
        with self._lock:
            run(self._addresses[self._turn], self._addresses[1 - self._turn])
            self._turn = 1 - self._turn


class State(Mapping[str, "Array"]):
    """The states of one sequence of calls, by name, where the device keeps them.

    Reading gives a copy. Calls that share a state take turns; calls with states of their own do not wait for each other
    here.

    Attributes:
        version: how often the host has written to it.
        calls: what runs the model on tensors with this state, by the tensors' class.
    """

    def __init__(
        self,
        ports: Sequence[Port],
        initial: Sequence[Array],
        device: str,
        take: Callable[[Sequence[TensorType]], StateMemory],
    ) -> None:
        self._ports = tuple(ports)
        self._initial = tuple(initial)
        self._device = device
        self._take = take
        self._memory: StateMemory | None = None
        self._lock = threading.Lock()
        self._positions = {port.name: position for position, port in enumerate(ports)}
        self.version = 0
        self.calls: dict[type, Callable[[Sequence[Any]], Sequence[Any]]] = {}

    @property
    def memory(self) -> StateMemory:
        """Where it lies; taken when it is first needed, for its device may not be here."""
        with self._lock:
            if self._memory is None:
                self._memory = self._take([port.type for port in self._ports])
                self._memory.store(dict(enumerate(self._initial)))
            return self._memory

    @property
    def on_host(self) -> HostState:
        """Where it lies, for a device that works in the host's memory."""
        assert isinstance(self.memory, HostState)
        return self.memory

    def reset(self) -> None:
        """Put the initial values back."""
        self._store(dict(enumerate(self._initial)))

    def __getitem__(self, name: str) -> Array:
        """A copy of what the next run will read.

        Raises:
            StateError: there is no such state.
            RunTimeoutError: a run of it on a stream stopped making progress.
        """
        (array,) = self.memory.load([self._position(name)])
        return array

    def __setitem__(self, name: str, value: object) -> None:
        """Let the next run read another value.

        Raises:
            StateError: there is no such state, or the value has another element type or shape.
        """
        position = self._position(name)
        array, type_ = np.asarray(value), self._ports[position].type
        if array.dtype != type_.dtype.numpy or array.shape != type_.shape:
            raise StateError(
                f"state '{name}' is {type_}, not {array.dtype}{list(array.shape)}", hint="give a value of its type"
            )
        self._store({position: array})

    def update(self, other: State) -> None:
        """Let the next run read what the next run with another state would read."""
        self._store(dict(enumerate(other.memory.load(range(len(other))))))

    def _store(self, values: Mapping[int, Array]) -> None:
        self.memory.store(values)
        self.version += 1

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._ports)

    def fits(self, ports: Sequence[Port], device: str) -> bool:
        """Whether these are the states of a model for a device."""
        return (self._ports, self._device) == (tuple(ports), device)

    def _position(self, name: str) -> int:
        if name not in self._positions:
            raise StateError(f"no state '{name}'", hint=f"there are {listing(list(self._positions)) or 'none'}")
        return self._positions[name]

    def __repr__(self) -> str:
        return f"<rammer.State {', '.join(map(str, self._ports))}>"
