"""Which rKernels keep their weights in registers, and how the warps of a block share them out.

It takes a contraction whose weights are constants and whose other operands are vectors: all rTasks of one tile then
multiply the same weights, as the cells of a recurrent layer do step after step. Sums with the same vector are a *part*,
which some warps of the block have to themselves: each warp takes some sums, each lane some elements of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rammer.devices.cuda.describe import MAX_WEIGHTS, THREADS
from rammer.ir.blocks import WARP, WARPS
from rammer.ir.expr import Axis, Expr, Load, nodes
from rammer.ir.pattern import Contraction, Skeleton, Term, contraction
from rammer.ir.task import RKernel
from rammer.ir.types import DType

_VECTOR = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Sums over `axes` with the same vector, for each of `points`: sum number `term * points + point`.

    `first_warp` and `warps` say whose they are; `vector_at` and `sums_at` where the vector and the sums begin in
    shared memory, in elements.
    """

    axes: tuple[Axis, ...]
    vector: Expr
    terms: tuple[Term, ...]
    weights: tuple[Expr, ...]
    points: int
    first_warp: int
    warps: int
    vector_at: int
    sums_at: int

    @property
    def length(self) -> int:
        """Elements of a sum."""
        return math.prod(axis.extent for axis in self.axes)

    @property
    def sums(self) -> int:
        """Number of sums."""
        return self.points * len(self.terms)

    @property
    def pitch(self) -> int:
        """Elements between the weights of neighbouring sums in shared memory, so that they lie in different banks."""
        return self.length + 1

    @property
    def sums_per_warp(self) -> int:
        """Sums that a warp takes."""
        return -(-self.sums // self.warps)

    @property
    def elements_per_lane(self) -> int:
        """Elements of each sum that a lane takes."""
        return -(-self.length // WARP)

    @property
    def weights_per_lane(self) -> int:
        """Registers of a lane that hold weights."""
        return self.sums_per_warp * self.elements_per_lane

    @property
    def vector_width(self) -> int:
        """Neighbouring elements that a lane takes together."""
        return _VECTOR if self.length % (_VECTOR * WARP) == 0 else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Residence:
    """The parts of a resident rKernel, and the operands whose weights stay."""

    parts: tuple[Part, ...]
    kept: tuple[int, ...]

    @property
    def points(self) -> int:
        """Points of the tile."""
        return self.parts[0].points

    @property
    def kept_at(self) -> int:
        """Where constants of the elementwise rest begin in shared memory, in elements."""
        return self.parts[-1].sums_at + self.parts[-1].sums

    @property
    def weight_bytes(self) -> int:
        """All weights."""
        return sum(part.sums * part.length for part in self.parts) * DType.FLOAT32.itemsize_bytes

    @property
    def weights(self) -> int:
        """Registers of a thread that hold weights."""
        return max(part.weights_per_lane for part in self.parts)


def residence_of(kernel: RKernel, constants: Collection[int], resident_bytes: int) -> Residence | None:
    """How an rKernel keeps its weights; None where it has none to keep, or too many.

    Args:
        kernel: the rKernel.
        constants: its slots that are constants wherever it is used.
        resident_bytes: weights that a block keeps at most.
    """
    found = contraction(kernel.expr) if kernel.skeleton == Skeleton.CONTRACT else None
    points = math.prod(kernel.tile.task)
    if found is None or points > THREADS or any(term.reduce.dtype is not DType.FLOAT32 for term in found.terms):
        return None
    grouped: dict[tuple[tuple[Axis, ...], Expr], list[tuple[Term, Expr]]] = {}
    for group in found.groups:
        for term in group.terms:
            split = _split(found, term, constants)
            if split is None:
                return None
            vector, weight = split
            grouped.setdefault((group.axes, vector), []).append((term, weight))
    if len(grouped) > WARPS:
        return None
    loads = [math.prod(axis.extent for axis in axes) * len(members) for (axes, _), members in grouped.items()]
    parts: list[Part] = []
    first_warp = vector_at = 0
    sums_at = sum(-(-math.prod(axis.extent for axis in axes) // WARP) * WARP for axes, _ in grouped)
    for ((axes, vector), members), warps in zip(grouped.items(), _shares(loads), strict=True):
        part = Part(
            axes=axes,
            vector=vector,
            terms=tuple(term for term, _ in members),
            weights=tuple(weight for _, weight in members),
            points=points,
            first_warp=first_warp,
            warps=warps,
            vector_at=vector_at,
            sums_at=sums_at,
        )
        parts.append(part)
        first_warp += warps
        vector_at += part.elements_per_lane * WARP
        sums_at += part.sums
    residence = Residence(parts=tuple(parts), kept=tuple(sorted(constants)))
    fits = residence.weights <= MAX_WEIGHTS and residence.weight_bytes <= resident_bytes
    return residence if fits else None


def _split(found: Contraction, term: Term, constants: Collection[int]) -> tuple[Expr, Expr] | None:
    """The vector and the weights of a product; None where it is no such product."""
    for vector, weight in (term.operands, term.operands[::-1]):
        slots = {load.slot for load in nodes(weight) if isinstance(load, Load)}
        if found.free[vector] <= frozenset(term.reduce.axes) and slots and slots <= frozenset(constants):
            return vector, weight
    return None


def _shares(loads: Sequence[int]) -> list[int]:
    """How many warps each part gets: one, and the rest one by one to the part that has most to do."""
    shares = [1] * len(loads)
    for _ in range(WARPS - len(loads)):
        shares[max(range(len(loads)), key=lambda i: (loads[i] / shares[i], -i))] += 1
    return shares
