"""Persistent recurrent layers: which rKernels keep their weights in registers, and which thread has which.

It takes a contraction whose weights are constants and whose other operands are vectors, one for each element of a
batch: all rTasks of one tile then multiply the same weights, as the cells of a recurrent layer do step after step. Axes
that weights do not have are *columns*, the others *units*. Sums with the same vectors are a *part*. Every unit of the
tile has some gates (`gates.py`); number `gate * units + unit` is a *row*.

Each warp multiplies a slice of every vector for all rows: neighbouring lanes have neighbouring rows, and the lanes that
are left over split the slice. So parts are multiplied one after another, as they come, and nothing is added over warps
before the last of them. A weight is multiplied with the vectors of all columns of the tile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from rammer.ir.expr import Axis, Cast, Expr, Load, TensorExpr, nodes
from rammer.ir.kernel_form import PersistentRnnForm
from rammer.ir.task import RKernel, RTile
from rammer.ir.types import DType, Layout
from rammer.tiling.addresses import Accesses, accesses_of
from rammer.tiling.gates import Gate, find_gates
from rammer.tiling.gemm import WARP
from rammer.tiling.pattern import Contraction, Term, contraction, reduction_order

_VECTOR = 4
_MAX_ROWS = 256  # whose sums of all warps lie in shared memory
_MAX_SUMS = 24  # of a thread, for all columns: registers are left for the vectors
_MAX_REGISTERS = 88  # of a thread, for weights and sums: with more, the compiler stores some in local memory
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
    """Products with one vector along `axes`: `weight` is that of the first gate, `tables` what they load, by gate.

    `form` is all about the weights but what they load.

    Each of the `warps` has a slice of the vector, which `deep` lanes split: a lane has `elements` for each of `slots`
    rows, from its row number `first_slot` on; their weights begin at `weights_at` among its registers, or among its
    words of shared memory if they are `stored` there. The slices begin at element `vector_at` of shared memory.
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
    stored: bool
    weights_at: int
    vector_at: int

    @property
    def length(self) -> int:
        """Elements of a vector."""
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

    @property
    def weights(self) -> int:
        """Those of a thread."""
        return self.slots * self.elements


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistentRnn:
    """How an rTask of a persistent recurrent layer is shared out: its parts, its gates, and the operands that stay.

    `column_axes` are those of the columns. `across` is how many lanes of each of the `warps` have different rows.
    """

    tile: tuple[object, ...]
    warps: int
    units: int
    columns: int
    column_axes: tuple[Axis, ...]
    gates: tuple[Gate, ...]
    parts: tuple[Part, ...]
    across: int
    kept: tuple[int, ...]

    @property
    def resident(self) -> Resident:
        """What others have to know of it."""
        parts = tuple((part.axes, part.form, tuple(part.tables)) for part in self.parts)
        return Resident(
            family=Family(
                arrangement=(self.tile, len(self.gates), self.across, parts),
                registers=self.registers,
                vectors=self.vectors,
            ),
            kept=self.kept,
            weights=tuple(slot for part in self.parts for slot in part.tables.values()),
        )

    @property
    def points(self) -> int:
        """Units of all columns; number `column * units + unit` is a point."""
        return self.units * self.columns

    @property
    def rows(self) -> int:
        """Gates of all units."""
        return self.units * len(self.gates)

    @property
    def points_per_warp(self) -> int:
        """Points of which a warp does the epilogue, a lane for each gate."""
        return WARP // len(self.gates)

    @property
    def point_warps(self) -> int:
        """Warps that do the epilogue."""
        return -(-self.points // self.points_per_warp)

    @property
    def slots(self) -> int:
        """Rows that a lane adds to."""
        return -(-self.rows // self.across)

    @property
    def column_pitch(self) -> int:
        """Elements of shared memory that hold the slices of a column's vectors."""
        return sum(self.warps * part.pitch for part in self.parts)

    @property
    def vectors(self) -> int:
        """Elements of shared memory that hold the slices of vectors; stored weights lie behind them, then sums."""
        return self.columns * self.column_pitch

    @property
    def kept_at(self) -> int:
        """Where constants of the epilogue begin in shared memory, in elements: first the biases of all points."""
        return self.vectors + self.stored * self.warps * WARP + self.warps * self.rows * self.columns

    @property
    def registers(self) -> int:
        """Registers of a thread that hold weights."""
        return sum(part.weights for part in self.parts if not part.stored)

    @property
    def stored(self) -> int:
        """Weights of a thread in shared memory."""
        return sum(part.weights for part in self.parts if part.stored)

    @property
    def weights(self) -> int:
        """All weights of a thread."""
        return self.registers + self.stored

    @property
    def weight_bytes(self) -> int:
        """All weights."""
        return sum(len(part.tables) * part.length for part in self.parts) * self.units * DType.FLOAT32.itemsize_bytes


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


def persistent_rnn_form(
    expr: TensorExpr,
    layouts: tuple[Layout, ...],
    tile: RTile,
    constants: frozenset[int],
    threads: int,
    stationary_bytes: int,
) -> PersistentRnnForm | None:
    """The form of rTasks of a tile; None where there are no weights to keep, or too many.

    Args:
        expr: the expression.
        layouts: of its slots and outputs.
        tile: what an rTask computes.
        constants: slots that are constants.
        threads: of a block.
        stationary_bytes: weights that a block keeps at most.
    """
    found = contraction(expr)
    if found is None or not constants or math.prod(tile.task) > threads:
        return None
    products = _products(layouts, found, constants)
    if products is None:
        return None
    plan = min(_plans(expr, tile, products, constants, threads, _ACROSS), key=lambda one: one.weights)
    fits = (
        plan.weights * threads * DType.FLOAT32.itemsize_bytes <= stationary_bytes
        and plan.rows <= _MAX_ROWS
        and (plan.columns == 1 or plan.slots * plan.columns <= _MAX_SUMS)
        and plan.points <= plan.points_per_warp * plan.warps
        and plan.weight_bytes <= stationary_bytes
    )
    if not fits:
        return None
    kept = len(kept_loads(accesses_of(expr, layouts), plan))
    return PersistentRnnForm(
        threads=threads,
        scratch_bytes=(plan.kept_at + plan.rows * plan.columns + kept * plan.points) * DType.FLOAT32.itemsize_bytes,
        across=plan.across,
        columns=plan.columns,
        weight_registers=plan.weights,
    )


def column_axes(expr: TensorExpr, layouts: tuple[Layout, ...], constants: frozenset[int]) -> tuple[Axis, ...] | None:
    """The axes of the columns of a product of vectors and constant weights; None of any other expression."""
    found = contraction(expr)
    products = None if found is None else _products(layouts, found, constants)
    return None if found is None or products is None else _columns(found, products)


@lru_cache(maxsize=256)
def plan_of(kernel: RKernel) -> PersistentRnn:
    """How an rTask of an rKernel is shared out.

    Raises:
        ValueError: it is none of a persistent recurrent layer.
    """
    found, form = contraction(kernel.expr), kernel.form
    products = None if found is None else _products(kernel.layouts, found, kernel.constants)
    if products is None or not isinstance(form, PersistentRnnForm):
        raise ValueError("its weights do not stay")
    (plan,) = _plans(kernel.expr, kernel.tile, products, kernel.constants, form.threads, (form.across,))
    return plan


def kept_loads(accesses: Accesses, plan: PersistentRnn) -> list[Load]:
    """Loads of the epilogue that stay in shared memory."""
    columns = frozenset(plan.column_axes)
    return [
        load
        for load in epilogue_loads(accesses, plan)
        if load.slot in plan.kept and load.dtype is DType.FLOAT32 and columns.isdisjoint(accesses.free[load])
    ]


def epilogue_loads(accesses: Accesses, plan: PersistentRnn) -> list[Load]:
    """Loads of the epilogue."""
    return accesses.outer_loads({gate.node for gate in plan.gates})


def _plans(
    expr: TensorExpr,
    tile: RTile,
    products: Mapping[Term, _Product],
    constants: frozenset[int],
    threads: int,
    all_across: Sequence[int],
) -> list[PersistentRnn]:
    """How threads share out products, for each number of lanes of a warp that may have different rows."""
    found = contraction(expr)
    assert found is not None  # it has products
    along = _columns(found, products)
    sizes = dict(zip(expr.axes, tile.task, strict=True))
    columns = math.prod(sizes[axis] for axis in along)
    units, warps = math.prod(tile.task) // columns, threads // WARP
    parts = {key: number for number, key in enumerate(dict.fromkeys(product.key for product in products.values()))}
    stay = [load for load in expr.loads if load.slot in constants and found.free[load].isdisjoint(along)]
    gates = find_gates(expr.roots, {term: parts[products[term].key] for term in products}, stay)
    members: list[dict[int, _Product]] = [{} for _ in parts]
    for number, gate in enumerate(gates):
        for term in gate.terms:
            members[parts[products[term].key]][number] = products[term]
    return [
        PersistentRnn(
            tile=(expr.axes, tile.task),
            warps=warps,
            units=units,
            columns=columns,
            column_axes=along,
            gates=gates,
            parts=_placed(
                _parts(members, units, warps, across), _MAX_REGISTERS - columns * -(-units * len(gates) // across)
            ),
            across=across,
            kept=tuple(sorted(constants)),
        )
        for across in all_across
    ]


def _columns(found: Contraction, products: Mapping[Term, _Product]) -> tuple[Axis, ...]:
    """The axes that no weight depends on."""
    taken = frozenset[Axis]().union(*(found.free[product.weight] for product in products.values()))
    return tuple(axis for axis in found.axes if axis not in taken)


def _products(
    layouts: tuple[Layout, ...], found: Contraction, constants: frozenset[int]
) -> dict[Term, _Product] | None:
    """Each sum as a product of vectors and weights; None where one is none, or vectors have axes that weights have."""
    for lane in found.lanes:
        products = {term: _product(layouts, found, term, lane, constants) for term in found.terms}
        known = {term: product for term, product in products.items() if product is not None}
        columns = frozenset(_columns(found, known))
        if len(known) == len(products) and all(
            found.free[product.vector] <= columns.union(product.axes) for product in known.values()
        ):
            return known
    return None


def _product(
    layouts: tuple[Layout, ...], found: Contraction, term: Term, lane: Axis, constants: frozenset[int]
) -> _Product | None:
    """A sum of products in float32 of vectors and of weights along a lane, constants at most converted; or None."""
    load, vector = found.split(term, lane)
    weight, types = load, []
    while isinstance(load, Cast):
        types.append(load.type)
        load = load.arg
    if term.reduce.dtype is not DType.FLOAT32 or not isinstance(load, Load) or load.slot not in constants:
        return None
    form = (*types, load.indices, load.type, load.fill, layouts[load.slot])
    return _Product(axes=term.reduce.axes, vector=vector, weight=weight, slot=load.slot, form=form)


def _parts(members: Sequence[Mapping[int, _Product]], units: int, warps: int, across: int) -> list[Part]:
    """The parts, from their products by gate, where `across` lanes of each of the warps have different rows."""
    parts: list[Part] = []
    vector_at = 0
    deep = WARP // across
    for products in members:
        typical = products[min(products)]
        elements = -(-_slice(typical.axes, warps) // deep)
        first_slot = min(products) * units // across
        part = Part(
            axes=typical.axes,
            vector=typical.vector,
            weight=typical.weight,
            form=typical.form,
            tables={gate: product.slot for gate, product in products.items()},
            warps=warps,
            deep=deep,
            elements=elements,
            first_slot=first_slot,
            slots=-(-(max(products) + 1) * units // across) - first_slot,
            stored=False,
            weights_at=0,
            vector_at=vector_at,
        )
        parts.append(part)
        vector_at += warps * part.pitch
    return parts


def _placed(parts: Sequence[Part], free: int) -> tuple[Part, ...]:
    """The parts with their weights where `free` registers hold some.

    Others lie in shared memory: those of the first parts, which are multiplied while later vectors are on their way.
    """
    missing = sum(part.weights for part in parts) - free
    placed: list[Part] = []
    ends = {False: 0, True: 0}
    for part in parts:
        stored = missing > 0
        placed.append(replace(part, stored=stored, weights_at=ends[stored]))
        ends[stored] += part.weights
        missing -= part.weights
    return tuple(placed)


def _slice(axes: Sequence[Axis], warps: int) -> int:
    return -(-math.prod(axis.extent for axis in axes) // warps)
