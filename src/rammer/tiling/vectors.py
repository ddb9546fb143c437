"""How many elements a thread of a GPU takes side by side, and how many such vectors at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rammer.ir.expr import Axis, Load
from rammer.ir.region import depends_on_data
from rammer.ir.types import DType
from rammer.tiling.addresses import Accesses

_VECTOR_BYTES = 16  # of one load or store
_MOST_TURNS = 4
_IN_FLIGHT_BYTES = 192  # of a thread's registers
_REGISTER_BYTES = 4
_MOST_SOUGHT = 40  # loads at positions that are loaded, side by side: for eight searches NVRTC takes minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Access:
    """A load, or the store of output `output`, and the axes that it runs along."""

    dtype: DType
    axes: frozenset[Axis]
    load: Load | None = None
    output: int = 0

    @property
    def points(self) -> int:
        """How many elements it has."""
        return math.prod(axis.extent for axis in self.axes)

    def is_vector(self, accesses: Accesses, alignments: Sequence[int], axis: Axis, size: int) -> bool:
        """Whether it takes so many elements along an axis at once."""
        if self.load is None:
            return accesses.stores_vectors(self.output, axis, size, alignments)
        return accesses.loads_vectors(self.load, axis, size, alignments)


def vector_size(
    accesses: Accesses, alignments: Sequence[int], axis: Axis, multiple: int, *, stores: bool = True, most: int = 16
) -> int:
    """The elements along an axis, a divisor of `multiple` and up to `most`, that make loads and stores cheapest."""
    found = [access for access in _all(accesses, stores=stores) if axis in access.axes]
    points = max((access.points for access in found), default=1)
    widest = max((access.dtype.itemsize_bytes for access in found if access.points == points), default=_VECTOR_BYTES)

    def cost(size: int) -> float:
        return sum(one.points / (size if one.is_vector(accesses, alignments, axis, size) else 1) for one in found)

    sizes = (size for size in (1, 2, 4, 8, 16) if size <= most and size * widest <= _VECTOR_BYTES)
    return min((size for size in sizes if multiple % size == 0), key=cost)


def most_side_by_side(accesses: Accesses, axis: Axis) -> int:
    """How many elements along an axis a thread may take at once, each of which looks for its own by what it loads."""
    sought = sum(axis in accesses.free[load] and any(map(depends_on_data, load.indices)) for load in accesses.loads)
    return max(1, _MOST_SOUGHT // max(1, sought))


def vector_turns(accesses: Accesses, axis: Axis | None, size: int, groups: int) -> int:
    """How many of a thread's `groups` vectors it loads together."""
    held = (load.dtype.itemsize_bytes * (size if axis in accesses.free[load] else 1) for load in accesses.loads)
    held_bytes = sum(max(_REGISTER_BYTES, size_bytes) for size_bytes in held)
    turns = max(1, min(groups, _MOST_TURNS, _IN_FLIGHT_BYTES // max(1, held_bytes)))
    return -(-groups // -(-groups // turns)) if groups else 1


def _all(accesses: Accesses, *, stores: bool) -> Iterator[_Access]:
    for load in accesses.loads:
        yield _Access(dtype=load.dtype, axes=accesses.free[load], load=load)
    if stores:
        for number, output in enumerate(accesses.expr.outputs):
            yield _Access(dtype=output.type.dtype, axes=frozenset(accesses.expr.axes), output=number)
