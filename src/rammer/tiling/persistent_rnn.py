"""Persistent recurrent layers: which rKernels keep their weights in registers, and which thread has which.

It takes a contraction whose weights are constants and whose other operands are vectors, one for each element of a
batch: all rTasks of one tile then multiply the same weights, as the cells of a recurrent layer do step after step. Axes
that weights do not have are *columns*, the others *units*. Sums with the same vectors are a *part*. Every unit of the
tile has some gates (`gates.py`); number `gate * units + unit` is a *row*.

Warps multiply slices of every vector (`rnn_shares.py`). So parts are multiplied one after another, as they come, and
nothing is added over warps before the last of them. A weight is multiplied with the vectors of all columns of the tile,
of several by tensor cores. So may be one vector by weights of 16 bits, which are `narrow` then, two in a register.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from rammer.ir.expr import Axis, Expr, Load, TensorExpr, nodes
from rammer.ir.kernel_form import Instruction, PersistentRnnForm
from rammer.ir.task import RKernel, RTile
from rammer.ir.types import DType, Layout
from rammer.tiling.addresses import Accesses, accesses_of
from rammer.tiling.cell_products import CellProduct, columns_of, lengths_of, multiplier_of, products_of, weight_dtype_of
from rammer.tiling.gates import Gate, find_gates
from rammer.tiling.gemm import WARP, instruction_of
from rammer.tiling.pattern import Term, contraction, reduction_order
from rammer.tiling.rnn_shares import TILE_COLUMNS, Shares, ways

MOST_COLUMNS = 64
"""With more, weights are used often enough within one rTask."""

_MANY_REGISTERS = 84  # of a thread, for weights and sums: with more, none is left for vectors that are on their way
_TEAMS = 2
_MOST_APART = TILE_COLUMNS  # of more columns, each part's vectors are brought by all warps
_MAX_ROWS = 256  # whose sums of all slices lie in shared memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Products with one vector along `axes`: `weight` is that of the first gate, `tables` what they load, by gate.

    `form` is all about the weights but what they load.

    The vector is cut into `slices`, of which the warps of `team` each have one. A slice has `slice` elements, and
    `pitch` in shared memory, where slices begin at element `vector_at`. A lane has `elements` for each of `slots` rows,
    from its row number `first_slot` on. The weights of the first `stored` of them are `stored_words` of shared memory,
    from word `stored_at` of those on; the others are `weights` registers, from number `weights_at` on.
    """

    axes: tuple[Axis, ...]
    vector: Expr
    weight: Expr
    form: tuple[object, ...]
    tables: Mapping[int, int]
    team: range
    slices: int
    slice: int
    pitch: int
    elements: int
    first_slot: int
    slots: int
    stored: int
    stored_words: int
    stored_at: int
    weights: int
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistentRnn:
    """How an rTask of a persistent recurrent layer is shared out: its parts, its gates, and the operands that stay.

    `column_axes` are those of the columns. Weights are in memory as `weight_dtype`, or anything that makes float32.
    """

    tile: tuple[object, ...]
    units: int
    column_axes: tuple[Axis, ...]
    gates: tuple[Gate, ...]
    parts: tuple[Part, ...]
    shares: Shares
    kept: tuple[int, ...]
    weight_dtype: DType

    @property
    def stationary(self) -> Stationary:
        """What others have to know of it."""
        parts = tuple((part.axes, part.form, tuple(part.tables)) for part in self.parts)
        return Stationary(
            family=Family(
                arrangement=(self.tile, len(self.gates), self.shares, parts),
                registers=self.weights,
                vectors=self.vectors,
            ),
            kept=self.kept,
            weights=tuple(slot for part in self.parts for slot in part.tables.values()),
        )

    @property
    def columns(self) -> int:
        """Of the rTask."""
        return self.shares.columns

    @property
    def points(self) -> int:
        """Units of all columns; number `column * units + unit` is a point."""
        return self.units * self.columns

    @property
    def points_per_warp(self) -> int:
        """Points of one vector of which a warp does the epilogue, a lane for each gate."""
        return WARP // len(self.gates)

    @property
    def point_warps(self) -> int:
        """Warps that do the epilogue of one vector."""
        return -(-self.points // self.points_per_warp)

    @property
    def column_pitch(self) -> int:
        """Elements of shared memory from one column's vectors to the next one's: all slices, and padding."""
        pitches, tensor = [part.slices * part.pitch for part in self.parts], self.shares.tensor
        pitch = max(pitches) if self.shares.overlaid else sum(pitches)
        return pitch if tensor is None else -(-pitch // (2 * tensor.padding)) * 2 * tensor.padding + tensor.padding

    @property
    def vectors(self) -> int:
        """Words of shared memory that hold the slices of vectors; sums lie behind them."""
        tensor = self.shares.tensor
        element_bytes = DType.FLOAT32.itemsize_bytes if tensor is None else tensor.planes * tensor.element_bytes
        return self.shares.padded * self.column_pitch * element_bytes // DType.FLOAT32.itemsize_bytes

    @property
    def kept_at(self) -> int:
        """Where constants of the epilogue begin in shared memory, in words: first the biases of all rows."""
        sums = self.shares.slices * self.shares.row_pitch * self.shares.padded
        return self.vectors + sums + sum(part.stored_words for part in self.parts) + self.shares.is_scaled

    @property
    def weights(self) -> int:
        """Registers of a thread that hold weights."""
        return max(part.weights_at + part.weights for part in self.parts)

    @property
    def words(self) -> int:
        """Of a thread, that hold weights, in registers and in shared memory."""
        return sum(part.slots * self.shares.words(part.elements) for part in self.parts)

    @property
    def at_once(self) -> int:
        """Columns whose sums a thread holds together, 0 if there is no room for any."""
        return self.shares.at_once(self.weights)

    @property
    def has_room(self) -> bool:
        """Whether registers are left beside weights and sums for more of the vectors; of one a thread has little."""
        return self.columns == 1 or self.registers <= _MANY_REGISTERS

    @property
    def registers(self) -> int:
        """Of a thread, for weights and sums."""
        return self.weights + self.shares.slots * self.at_once // self.shares.deep

    @property
    def weight_bytes(self) -> int:
        """All weights, as float32 or as they are."""
        weights = sum(len(part.tables) * part.length for part in self.parts) * self.units
        return weights * (self.weight_dtype if self.shares.is_narrow else DType.FLOAT32).itemsize_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What stationary rKernels have in common that have the same weights in their registers if they load the same ones.

    `registers` is how many of a thread hold weights, `vectors` how many elements of shared memory hold slices.
    """

    arrangement: tuple[object, ...]
    registers: int
    vectors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stationary:
    """What a stationary rKernel keeps: its family, the operands that stay, and those of them that are weights."""

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
    room_bytes: int,
    *,
    narrow: bool = False,
) -> PersistentRnnForm | None:
    """The form of rTasks of a tile; None where there are no weights to keep, or too many.

    Args:
        expr: the expression.
        layouts: of its slots and outputs.
        tile: what an rTask computes.
        constants: slots that are constants.
        threads: of a block.
        stationary_bytes: weights that a block keeps at most.
        room_bytes: of shared memory.
        narrow: whether to keep weights of one vector as the 16 bits that they are: None where they are none.
    """
    found = contraction(expr)
    if found is None or not constants:
        return None
    products = products_of(layouts, found, constants)
    if products is None or (narrow and not can_be_narrow(expr, layouts, constants)):
        return None
    accesses = accesses_of(expr, layouts)

    def plan_with(stored: int, *, overlaid: bool = False, apart: bool = False) -> PersistentRnn:
        plans = _plans(
            expr, tile, products, constants, threads // WARP, stored, overlaid=overlaid, apart=apart, narrow=narrow
        )
        return min(plans, key=lambda one: one.words)

    def has_place(plan: PersistentRnn) -> bool:
        return _scratch_bytes(accesses, plan) <= room_bytes

    most = stationary_bytes // (threads * DType.FLOAT32.itemsize_bytes)
    plan = _with_room(plan_with, has_place)
    if plan.shares.tensor is not None and len(plan.parts) == _TEAMS and plan.columns <= _MOST_APART and not narrow:
        apart = _with_room(partial(plan_with, apart=True), has_place)
        plan = apart if has_place(apart) and apart.has_room and apart.at_once == apart.shares.padded else plan
    elif plan.shares.tensor is not None and not plan.has_room and len({part.length for part in plan.parts}) == 1:
        overlaid = _with_room(partial(plan_with, overlaid=True), has_place)
        plan = overlaid if overlaid.has_room else plan
    rows, scratch_bytes = plan.shares.rows, _scratch_bytes(accesses, plan)
    fits = rows <= _MAX_ROWS and has_place(plan)
    if plan.shares.tensor is not None:
        fits &= plan.columns <= plan.shares.tensor.columns
        fits &= plan.weights <= most if narrow else plan.weight_bytes <= stationary_bytes
    else:
        fits &= plan.weights <= most and plan.points <= plan.points_per_warp * plan.shares.warps
    if not fits or not plan.at_once:
        return None
    return PersistentRnnForm(
        threads=threads,
        scratch_bytes=scratch_bytes,
        instruction=plan.shares.instruction,
        across=plan.shares.across,
        slices=plan.shares.slices,
        columns=plan.columns,
        weight_registers=plan.weights,
        weight_bytes=plan.weight_bytes,
        stored=plan.shares.stored,
        overlaid=plan.shares.overlaid,
        teams=plan.shares.teams,
    )


def _with_room(plan_with: Callable[[int], PersistentRnn], has_place: Callable[[PersistentRnn], bool]) -> PersistentRnn:
    """The plan that stores as many weights as leave a thread few registers of them and of sums, or as have a place.

    For multiply-adds none are stored.
    """
    plan = plan_with(0)
    tensor = plan.shares.tensor
    while tensor is not None and plan.registers > tensor.registers:
        other = plan_with(plan.shares.stored + plan.shares.step)
        if other.weights == plan.weights or not has_place(other):
            break
        plan = other
    return plan


def _scratch_bytes(accesses: Accesses, plan: PersistentRnn) -> int:
    """Shared memory of an rTask."""
    words = plan.kept_at + plan.shares.rows + len(kept_loads(accesses, plan)) * plan.points
    return words * DType.FLOAT32.itemsize_bytes


def column_axes(expr: TensorExpr, layouts: tuple[Layout, ...], constants: frozenset[int]) -> tuple[Axis, ...] | None:
    """The axes of the columns of a product of vectors and constant weights; None of any other expression."""
    found = contraction(expr)
    products = None if found is None else products_of(layouts, found, constants)
    return None if found is None or products is None else columns_of(found, products)


def can_be_narrow(expr: TensorExpr, layouts: tuple[Layout, ...], constants: frozenset[int]) -> bool:
    """Whether a product of one vector is one of numbers of 16 bits, of which two fit in a register."""
    found = contraction(expr)
    products = None if found is None else products_of(layouts, found, constants)
    if found is None or products is None or math.prod(axis.extent for axis in columns_of(found, products)) > 1:
        return False
    return weight_dtype_of(products).is_half and instruction_of(found) in {Instruction.MMA_F16, Instruction.MMA_BF16}


@lru_cache(maxsize=256)
def plan_of(kernel: RKernel) -> PersistentRnn:
    """How an rTask of an rKernel is shared out.

    Raises:
        ValueError: it is none of a persistent recurrent layer.
    """
    found, form = contraction(kernel.expr), kernel.form
    products = None if found is None else products_of(kernel.layouts, found, kernel.constants)
    if products is None or not isinstance(form, PersistentRnnForm):
        raise ValueError("its weights do not stay")
    plans = _plans(
        kernel.expr,
        kernel.tile,
        products,
        kernel.constants,
        form.threads // WARP,
        form.stored,
        overlaid=form.overlaid,
        apart=bool(form.teams),
        narrow=form.is_narrow,
    )
    return next(plan for plan in plans if (plan.shares.across, plan.shares.slices) == (form.across, form.slices))


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
    products: Mapping[Term, CellProduct],
    constants: frozenset[int],
    warps: int,
    stored: int,
    *,
    overlaid: bool,
    apart: bool,
    narrow: bool,
) -> list[PersistentRnn]:
    """How threads may share out products; `Shares` says what the last ones are."""
    found = contraction(expr)
    assert found is not None  # it has products
    along = columns_of(found, products)
    sizes = dict(zip(expr.axes, tile.task, strict=True))
    columns = math.prod(sizes[axis] for axis in along)
    units = math.prod(tile.task) // columns
    parts = {key: number for number, key in enumerate(dict.fromkeys(product.key for product in products.values()))}
    stay = [load for load in expr.loads if load.slot in constants and found.free[load].isdisjoint(along)]
    gates = find_gates(expr.roots, {term: parts[products[term].key] for term in products}, stay)
    members: list[dict[int, CellProduct]] = [{} for _ in parts]
    for number, gate in enumerate(gates):
        for term in gate.terms:
            members[parts[products[term].key]][number] = products[term]
    lengths, weight_dtype = lengths_of(members), weight_dtype_of(products)
    return [
        PersistentRnn(
            tile=(expr.axes, tile.task),
            units=units,
            column_axes=along,
            gates=gates,
            parts=_parts(members, units, shares),
            shares=shares,
            kept=tuple(sorted(constants)),
            weight_dtype=weight_dtype,
        )
        for shares in ways(
            multiplier_of(found, columns, narrow=narrow),
            warps,
            units * len(gates),
            columns,
            lengths,
            stored=stored,
            overlaid=overlaid,
            apart=apart,
        )
    ]


def _parts(members: Sequence[Mapping[int, CellProduct]], units: int, shares: Shares) -> tuple[Part, ...]:
    """The parts, from their products by gate."""
    parts: list[Part] = []
    vector_at = weights_at = stored_at = 0
    lengths = lengths_of(members)
    slices, elements, stored = shares.slices_of(len(lengths)), shares.elements_of(lengths), shares.stored_of(lengths)
    for number, products in enumerate(members):
        typical, team = products[min(products)], shares.team(number)
        first_slot, end_slot = 0, shares.slots
        if shares.tensor is None:
            first_slot = min(products) * units // shares.across
            end_slot = -(-(max(products) + 1) * units // shares.across)
        slots = end_slot - first_slot
        part = Part(
            axes=typical.axes,
            vector=typical.vector,
            weight=typical.weight,
            form=typical.form,
            tables={gate: product.slot for gate, product in products.items()},
            team=team,
            slices=slices[number],
            slice=shares.slice(lengths[number], slices[number]),
            pitch=shares.deep * elements[number],
            elements=elements[number],
            first_slot=first_slot,
            slots=slots,
            stored=stored[number],
            stored_words=shares.stored_words(slots, stored[number]) * len(team) * WARP,
            stored_at=stored_at,
            weights=slots * shares.words(elements[number] - stored[number]),
            weights_at=weights_at,
            vector_at=vector_at,
        )
        parts.append(part)
        vector_at += 0 if shares.overlaid else part.slices * part.pitch
        weights_at += 0 if shares.teams else part.weights
        stored_at += part.stored_words
    return tuple(parts)
