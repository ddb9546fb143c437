"""What a model keeps from call to call: two arrays for each state, read and written in turn, or one in place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rammer.devices.base import StateMemory, check_whole
from rammer.errors import StateError
from rammer.ir.types import TensorType
from rammer.printable import listing
from rammer.runtime.arrays import aligned_empty
from rammer.runtime.signature import Signature

if TYPE_CHECKING:
    from rammer.ir.graph import Array

T = TypeVar("T")


class HostState:
    """Two arrays of the host for each state, one for those in place; see `rammer.devices.base.StateMemory`.

    A run reads one of them and writes the other; when it is over they change places, so that a run that fails leaves
    the states as they were. A state in place may be written in part by then, and is asked for again by nobody until it
    is stored. Calls that share states take turns.
    """

    def __init__(self, types: Sequence[TensorType], in_place: Sequence[int] = ()) -> None:
        sides = [[aligned_empty(type.shape, type.dtype.numpy) for type in types]]
        sides.append(
            [
                sides[0][position] if position in in_place else aligned_empty(type.shape, type.dtype.numpy)
                for position, type in enumerate(types)
            ]
        )
        self._sides = sides
        self._addresses = [[array.ctypes.data for array in side] for side in self._sides]
        self._in_place = frozenset(in_place)
        self._torn: set[int] = set()
        self._turn = 0
        self._lock = threading.Lock()

    def load(self, positions: Sequence[int]) -> list[Array]:
        """Copies of what the next run will read.

        Raises:
            StateError: a run that was given up may have written one of them in part.
        """
        with self._lock:
            check_whole(self._torn.intersection(positions))
            return [self._sides[self._turn][position].copy() for position in positions]

    def store(self, values: Mapping[int, Array]) -> None:
        """Let the next run read other values."""
        with self._lock:
            for position, value in values.items():
                self._sides[self._turn][position][...] = value
            self._torn.difference_update(values)

    def advance(self, run: Callable[[Sequence[Array], Sequence[Array]], object]) -> None:
        """Run on the arrays that are to be read and written; then they change places.

        Raises:
            StateError: a run that was given up may have written one of them in part.
        """
        with self._lock:
            self._move(lambda: run(self._sides[self._turn], self._sides[1 - self._turn]))

    def peek(self, run: Callable[[Sequence[Array], Sequence[Array]], T]) -> T:
        """What a run gives on the arrays that are to be read and written; the states stay as they are.

        Raises:
            StateError: a run that was given up may have written one of them in part.
        """
        with self._lock:
            check_whole(self._torn)
            read, written = list(self._sides[self._turn]), list(self._sides[1 - self._turn])
            for position in self._in_place:
                read[position] = written[position] = read[position].copy()
            return run(read, written)

    def advance_at(self, run: Callable[[Sequence[int], Sequence[int]], object]) -> None:
        """`advance` by the arrays' addresses.

        Raises:
            StateError: a run that was given up may have written one of them in part.
        """
        with self._lock:
            self._move(lambda: run(self._addresses[self._turn], self._addresses[1 - self._turn]))

    def _move(self, run: Callable[[], object]) -> None:
        """Run, and let the arrays change places; the lock is held."""
        check_whole(self._torn)
        try:
            run()
        except BaseException:
            self._torn.update(self._in_place)
            raise
        self._turn = 1 - self._turn


class State(Mapping[str, "Array"]):
    """The states of one sequence of calls, by name, where the device keeps them.

    Reading gives a copy. Calls that share a state take turns; calls with states of their own do not wait for each other
    here.

    Attributes:
        version: how often the host has written to it.
        calls: what runs a model on tensors with this state, by the model and the tensors' class.
    """

    def __init__(
        self,
        signature: Signature,
        initial: Sequence[Array],
        device: str,
        take: Callable[[Sequence[TensorType], Sequence[int]], StateMemory],
    ) -> None:
        self._ports, self._in_place = signature.states, signature.in_place
        self._initial = tuple(initial)
        self._device = device
        self._take = take
        self._memory: StateMemory | None = None
        self._lock = threading.Lock()
        self._positions = {port.name: position for position, port in enumerate(self._ports)}
        self.version = 0
        self.calls: dict[object, dict[type, Callable[[Sequence[Any]], Sequence[Any]]]] = {}

    @property
    def memory(self) -> StateMemory:
        """Where it lies; taken when it is first needed, for its device may not be here."""
        with self._lock:
            if self._memory is None:
                self._memory = self._take([port.type for port in self._ports], self._in_place)
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
            StateError: there is no such state, or a run that was given up may have written it in part.
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

    def __contains__(self, name: object) -> bool:
        """Whether there is such a state; nothing is read."""
        return name in self._positions

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._ports)

    def fits(self, signature: Signature, device: str) -> bool:
        """Whether these are the states of a model for a device, and it updates the same of them in place."""
        return (self._ports, self._in_place, self._device) == (signature.states, signature.in_place, device)

    def _position(self, name: str) -> int:
        if name not in self._positions:
            raise StateError(f"no state '{name}'", hint=f"there are {listing(list(self._positions)) or 'none'}")
        return self._positions[name]

    def __repr__(self) -> str:
        return f"<rammer.State {', '.join(map(str, self._ports))}>"
