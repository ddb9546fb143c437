"""Which rKernels keep their weights in registers, and how the threads of a block share them out.

It takes a contraction whose weights are constants and whose other operands are vectors: all rTasks of one tile then
multiply the same weights, as the cells of a recurrent layer do step after step. Sums with the same vector are a *part*.
Every point of the tile has some totals (`totals.py`); number `total * points + point` is a *row*.

Each warp multiplies a slice of every vector for all rows: neighbouring lanes have neighbouring rows, and the lanes that
are left over split the slice. So parts are multiplied one after another, as they come, and nothing is added over warps
before the last of them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rammer.devices.cuda.describe import MAX_WEIGHTS
from rammer.devices.cuda.emit.totals import Total, find_totals
from rammer.ir.expr import Axis, Cast, Expr, Load, nodes
from rammer.ir.task import RKernel
from rammer.ir.types import DType, Layout
from rammer.tiling.blocks import WARP
from rammer.tiling.pattern import Contraction, Skeleton, Term, contraction, reduction_order

_VECTOR = 4
_MAX_ROWS = 256  # whose sums of all warps lie in shared memory
_ACROSS = (32, 16, 8, 4, 2, 1)  # the more, the fewer exchanges between lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    """A sum of products: the weight loads operand `slot`, `form` is all else about it."""

    axes: tuple[Axis, ...]
    vector: Expr
    weight: Expr
    slot: int
    form: tuple[object, ...]

    @property
    def key(self) -> tuple[object, ...]:
        """The same for products of one part."""
        return self.axes, self.vector, self.form


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Products with one vector along `axes`: `weight` is that of the first total, `tables` what they load, by total.

    `form` is all about the weights but what they load.

    Each of the `warps` has a slice of the vector, which `deep` lanes split: a lane has `elements` for each of `slots`
    rows, from its row number `first_slot` on; their weights begin at `weights_at` among its registers. The slices begin
    at element `vector_at` of shared memory.
    """

    axes: tuple[Axis, ...]
    vector: Expr
    weight: Expr
    form: tuple[object, ...]
    tables: Mapping[int, int]
    warps: int
    deep: int
    elements: int
    first_slot: int
    slots: int
    weights_at: int
    vector_at: int

    @property
    def length(self) -> int:
        """Elements of the vector."""
        return math.prod(axis.extent for axis in self.axes)

    @property
    def loads(self) -> list[Load]:
        """Where the vector comes from."""
        return [node for node in nodes(self.vector) if isinstance(node, Load)]

    def fastest_first(self, layouts: Sequence[Layout]) -> tuple[Axis, ...]:
        """The axes, those along which the vector lies first; `layouts` are those of the slots."""
        return tuple(reversed(reduction_order(self.loads, self.axes, layouts)))

    @property
    def slice(self) -> int:
        """Elements of the vector that a warp takes."""
        return _slice(self.axes, self.warps)

    @property
    def is_even(self) -> bool:
        """Whether every lane has as many elements as any other."""
        return self.length == self.warps * self.pitch

    @property
    def pitch(self) -> int:
        """Elements of shared memory that a slice has."""
        return self.deep * self.elements

    @property
    def vector_width(self) -> int:
        """Neighbouring elements that a lane loads together."""
        return math.gcd(self.elements, _VECTOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Residence:
    """The parts of a resident rKernel, its totals, and the operands that stay.

    `across` is how many lanes of each of the `warps` have different rows.
    """

    tile: tuple[object, ...]
    warps: int
    points: int
    totals: tuple[Total, ...]
    parts: tuple[Part, ...]
    across: int
    kept: tuple[int, ...]

    @property
    def resident(self) -> Resident:
        """What others have to know of it."""
        parts = tuple((part.axes, part.form, tuple(part.tables)) for part in self.parts)
        return Resident(
            family=Family(
                arrangement=(self.tile, len(self.totals), self.across, parts),
                registers=self.weights,
                vectors=self.vectors,
            ),
            kept=self.kept,
            weights=tuple(slot for part in self.parts for slot in part.tables.values()),
        )

    @property
    def rows(self) -> int:
        """Totals of all points."""
        return self.points * len(self.totals)

    @property
    def points_per_warp(self) -> int:
        """Points of which a warp does the elementwise rest, a lane for each total."""
        return WARP // len(self.totals)

    @property
    def point_warps(self) -> int:
        """Warps that do the elementwise rest."""
        return -(-self.points // self.points_per_warp)

    @property
    def slots(self) -> int:
        """Rows that a lane adds to."""
        return -(-self.rows // self.across)

    @property
    def slots_left(self) -> int:
        """Rows that a lane has once the lanes with the same rows have put their sums together."""
        left, distance = self.slots, WARP // 2
        while distance >= self.across:
            left, distance = -(-left // 2), distance // 2
        return left

    @property
    def vectors(self) -> int:
        """Elements of shared memory that hold the slices of vectors; the sums of warps lie behind them."""
        return sum(self.warps * part.pitch for part in self.parts)

    @property
    def kept_at(self) -> int:
        """Where constants of the elementwise rest begin in shared memory, in elements: first the biases of all rows."""
        return self.vectors + 2 * self.warps * self.rows

    @property
    def weights(self) -> int:
        """Registers of a thread that hold weights."""
        return sum(part.slots * part.elements for part in self.parts)

    @property
    def weight_bytes(self) -> int:
        """All weights."""
        return sum(len(part.tables) * part.length for part in self.parts) * self.points * DType.FLOAT32.itemsize_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What resident rKernels have in common that have the same weights in their registers if they load the same ones.

    `registers` is how many of a thread hold weights, `vectors` how many elements of shared memory hold slices.
    """

    arrangement: tuple[object, ...]
    registers: int
    vectors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """What a resident rKernel keeps: its family, the operands that stay, and those of them that are weights."""

    family: Family
    kept: tuple[int, ...]
    weights: tuple[int, ...]


def residence_of(kernel: RKernel, constants: Collection[int], resident_bytes: int) -> Residence | None:
    """How an rKernel keeps its weights; None where it has none to keep, or too many.

    Args:
        kernel: the rKernel.
        constants: its slots that are constants wherever it is used.
        resident_bytes: weights that a block keeps at most.
    """
    found = contraction(kernel.expr) if kernel.skeleton == Skeleton.CONTRACT else None
    points, warps = math.prod(kernel.tile.task), kernel.resources.threads // WARP
    if found is None or points > warps * WARP or any(term.reduce.dtype is not DType.FLOAT32 for term in found.terms):
        return None
    products: dict[Term, _Product] = {}
    for term in found.terms:
        product = _product(kernel, found, term, constants)
        if product is None:
            return None
        products[term] = product
    parts = {key: number for number, key in enumerate(dict.fromkeys(product.key for product in products.values()))}
    totals = find_totals(kernel.expr.roots, {term: parts[products[term].key] for term in products}, constants)
    members: list[dict[int, _Product]] = [{} for _ in parts]
    for number, total in enumerate(totals):
        for term in total.terms:
            members[parts[products[term].key]][number] = products[term]
    kept = tuple(sorted(constants))
    shared_out = (
        Residence(
            tile=(kernel.expr.axes, kernel.tile.task),
            warps=warps,
            points=points,
            totals=totals,
            parts=_parts(members, points, warps, across),
            across=across,
            kept=kept,
        )
        for across in _ACROSS
    )
    residence = min(shared_out, key=lambda one: one.weights)
    fits = (
        residence.weights <= MAX_WEIGHTS
        and residence.rows <= _MAX_ROWS
        and points <= residence.points_per_warp * warps
        and residence.weight_bytes <= resident_bytes
    )
    return residence if fits else None


def _product(kernel: RKernel, found: Contraction, term: Term, constants: Collection[int]) -> _Product | None:
    """A sum of products of a vector and weights that are constants, converted at most; None where it is none."""
    for vector, weight in (term.operands, term.operands[::-1]):
        types, load = [], weight
        while isinstance(load, Cast):
            types.append(load.type)
            load = load.arg
        if isinstance(load, Load) and load.slot in constants and found.free[vector] <= frozenset(term.reduce.axes):
            form = (*types, load.indices, load.type, load.fill, kernel.layouts[load.slot])
            return _Product(axes=term.reduce.axes, vector=vector, weight=weight, slot=load.slot, form=form)
    return None


def _parts(members: Sequence[Mapping[int, _Product]], points: int, warps: int, across: int) -> tuple[Part, ...]:
    """The parts, from their products by total, where `across` lanes of each of the warps have different rows."""
    parts: list[Part] = []
    weights_at = vector_at = 0
    deep = WARP // across
    for products in members:
        typical = products[min(products)]
        elements = -(-_slice(typical.axes, warps) // deep)
        first_slot = min(products) * points // across
        part = Part(
            axes=typical.axes,
            vector=typical.vector,
            weight=typical.weight,
            form=typical.form,
            tables={total: product.slot for total, product in products.items()},
            warps=warps,
            deep=deep,
            elements=elements,
            first_slot=first_slot,
            slots=-(-(max(products) + 1) * points // across) - first_slot,
            weights_at=weights_at,
            vector_at=vector_at,
        )
        parts.append(part)
        weights_at += part.slots * elements
        vector_at += warps * part.pitch
    return tuple(parts)


def _slice(axes: Sequence[Axis], warps: int) -> int:
    return -(-math.prod(axis.extent for axis in axes) // warps)
