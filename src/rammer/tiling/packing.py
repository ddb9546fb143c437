"""How operands of a contraction should lie: layouts for constants, copies for what nobody can lay out anew."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from rammer.ir.expr import Axis, Expr, Load, TensorExpr
from rammer.ir.region import Affine, affine
from rammer.ir.types import Layout, TensorType
from rammer.ir.vdevice import VDevice
from rammer.tiling.gemv_rows import streams_rows
from rammer.tiling.pattern import (
    QUAD,
    Contraction,
    Group,
    Term,
    broadcast_loads,
    contraction,
    lies_in_lanes,
    lies_in_quads,
    plain_load,
    reduction_order,
)

MAX_PACK_BYTES = 40 << 10


def is_staged(expr: TensorExpr, found: Contraction, vdevice: VDevice) -> bool:
    """Whether a vDevice stages both operands of a contraction in its fast memory: there are rows and lanes enough."""
    return any(_is_staged_along(lane, expr, found, vdevice) for lane in found.lanes)


def _is_staged_along(lane: Axis, expr: TensorExpr, found: Contraction, vdevice: VDevice) -> bool:
    if vdevice.staged_rows is None or lane not in found.lanes:
        return False
    return min(lane.extent, math.prod(axis.extent for axis in found.rows(expr.axes, lane))) >= vdevice.staged_rows


def preferred_layouts(
    expr: TensorExpr,
    constants: Collection[int],
    layouts: Sequence[Layout],
    vdevice: VDevice,
    once: Collection[int] = (),
) -> dict[int, Layout]:
    """How a contraction wants its constant operands laid out; slots that are not named have no preference.

    The lanes lie innermost and the reduction axes in the order in which they run; where the vDevice stages operands,
    the reduction axes lie innermost instead. Panels as wide as a vector, or a cache line if that is wider, make a
    register block's weights one stream; those that are read once, for want of rows, are as wide as the vDevice likes
    its streams. Lanes that do not start at a panel's edge (gates of odd sizes) get narrower panels or a plain order.

    Args:
        expr: an operator's expression, not necessarily canonical.
        constants: the slots whose storage is free to choose.
        layouts: of all slots; those of `constants` do not matter.
        vdevice: gives the width of vectors.
        once: those of `constants` that no other operator multiplies with.
    """
    if (streamed := streams_rows(expr, constants, vdevice, once)) is not None:
        order = reduction_order([load for load in expr.loads if load.slot not in constants], streamed.axes, layouts)
        matrices = [row.load for row in streamed.rows if row.packed is None]  # packed ones lie as they should
        return {load.slot: _row_innermost(load, expr.inputs[load.slot], order) for load in matrices}
    found = contraction(expr, vdevice.byte_products)
    if found is None:
        return {}
    for lane in (*found.lanes, *found.shared):
        weights = _weights_along(lane, expr, found, constants, layouts, vdevice)
        if weights is None:
            continue
        preferred: dict[int, Layout] = {}
        for group in found.groups:
            order = reduction_order(broadcast_loads(found, group, lane), group.axes, layouts)
            for term in group.terms:
                load = weights[term]
                if load.slot not in preferred:
                    same_slot = [other for other in expr.loads if other.slot == load.slot]
                    type_ = expr.inputs[load.slot]
                    if _is_staged_along(lane, expr, found, vdevice):
                        preferred[load.slot] = _sums_innermost(same_slot, type_, lane, order)
                    elif group.quad is not None:
                        preferred[load.slot] = _in_quads(same_slot, type_, lane, order, vdevice)
                    else:
                        rows = math.prod(axis.extent for axis in found.rows(expr.axes, lane))
                        preferred[load.slot] = _packed(same_slot, type_, lane, order, rows, vdevice)
        return preferred
    return {}


def odd_parts(
    expr: TensorExpr, constants: Collection[int], layouts: Sequence[Layout], vdevice: VDevice
) -> dict[int, int]:
    """The slots of weights that a contraction reads in parts of which some begin beside a panel's edge.

    Returns:
        the dimension along which parts follow each other, by slot.
    """
    found = contraction(expr, vdevice.byte_products)
    if found is None or vdevice.staged_rows is not None:
        return {}
    for lane in (*found.lanes, *found.shared):
        weights = _weights_along(lane, expr, found, constants, layouts, vdevice)
        if weights is None:
            continue
        slots = {load.slot for load in weights.values()}
        dims = {slot: _parted_dim([load for load in expr.loads if load.slot == slot], lane) for slot in sorted(slots)}
        return {slot: dim for slot, dim in dims.items() if dim is not None and _is_odd(expr, slot, dim, lane, vdevice)}
    return {}


def _parted_dim(loads: Sequence[Load], lane: Axis) -> int | None:
    """The dimension along which all loads of a slot read parts of it, each as long as a lane; None if there is none."""
    found = {None if dims is None else dims[0] for dims in (_dims(load, lane, ()) for load in loads)}
    (dim,) = found if len(found) == 1 else (None,)
    forms = [] if dim is None else [affine(load.indices[dim]) for load in loads]
    return dim if all(form is not None and form.terms == ((lane, 1),) for form in forms) else None


def _is_odd(expr: TensorExpr, slot: int, dim: int, lane: Axis, vdevice: VDevice) -> bool:
    """Whether a part of a slot begins beside the edge of a narrow panel."""
    width = _narrow_bytes(vdevice) // expr.inputs[slot].dtype.compute.itemsize_bytes
    loads = [load for load in expr.loads if load.slot == slot]
    return not all(_starts_panel(affine(load.indices[dim]), lane, width) for load in loads)


def _weights_along(
    lane: Axis,
    expr: TensorExpr,
    found: Contraction,
    constants: Collection[int],
    layouts: Sequence[Layout],
    vdevice: VDevice,
) -> dict[Term, Load] | None:
    """The constant that each sum multiplies by along a lane; None where there are others than constants, or too few."""
    width = vdevice.vector_bytes // found.terms[0].reduce.dtype.itemsize_bytes
    weights = {
        term: load
        for term in found.terms
        if (load := plain_load(found.split(term, lane)[0])) is not None and load.slot in constants
    }
    others = [found.split(term, lane)[1] for term in found.terms]
    shared = [plain_load(other) or other for other in others if lane in found.free[other]]
    is_wide = lane.extent * 4 >= width and len(weights) == len(found.terms)
    return weights if is_wide and all(lies_in_lanes(other, lane, expr, layouts) for other in shared) else None


def _narrow_bytes(vdevice: VDevice) -> int:
    """What a narrow panel is wide."""
    return max(vdevice.vector_bytes, vdevice.alignment_bytes)


def _packed(
    loads: Sequence[Load], type_: TensorType, lane: Axis, order: Sequence[Axis], rows: int, vdevice: VDevice
) -> Layout:
    """The layout of a lane operand that only `loads` read, in a contraction of so many rows."""
    dims = _dims(loads[0], lane, order)
    if dims is None:
        return Layout.row_major(type_.shape)
    lane_dim, outer, summed = dims
    others = (*outer, *summed)
    narrow_bytes = _narrow_bytes(vdevice)
    wide_bytes = max(narrow_bytes, vdevice.stream_bytes) if rows == 1 else narrow_bytes
    for panel_bytes in (wide_bytes, narrow_bytes):
        width = panel_bytes // type_.dtype.compute.itemsize_bytes
        if all(_starts_panel(affine(load.indices[lane_dim]), lane, width) for load in loads):
            return Layout.panelled(type_.shape, others, lane_dim, width)
    return Layout.ordered(type_.shape, (*others, lane_dim))


def _in_quads(loads: Sequence[Load], type_: TensorType, lane: Axis, order: Sequence[Axis], vdevice: VDevice) -> Layout:
    """The layout of a lane operand whose bytes are summed by fours, which lie along its last dimension."""
    dims = _dims(loads[0], lane, order)
    width = _narrow_bytes(vdevice) // QUAD
    if dims is None or not all(_starts_panel(affine(load.indices[dims[0]]), lane, width) for load in loads):
        return Layout.row_major(type_.shape)
    lane_dim, outer, summed = dims
    quad_dim = type_.rank - 1
    others = [dim for dim in (*outer, *summed) if dim != quad_dim]
    return Layout.panelled(type_.shape, others, lane_dim, width, inner=quad_dim)


def _sums_innermost(loads: Sequence[Load], type_: TensorType, lane: Axis, order: Sequence[Axis]) -> Layout:
    """The layout of a lane operand that is staged."""
    dims = _dims(loads[0], lane, order)
    if dims is None:
        return Layout.row_major(type_.shape)
    lane_dim, outer, summed = dims
    return Layout.ordered(type_.shape, (*outer, lane_dim, *summed))


def _row_innermost(load: Load, type_: TensorType, order: Sequence[Axis]) -> Layout:
    """The layout of a matrix whose rows are streamed: the dimensions that are summed over innermost."""
    forms = [affine(index) for index in load.indices]
    inner = {axis: dim for dim, form in enumerate(forms) if form is not None for axis, _ in form.terms if axis in order}
    summed = list(dict.fromkeys(inner[axis] for axis in order if axis in inner))
    return Layout.ordered(type_.shape, (*(dim for dim in range(len(forms)) if dim not in summed), *summed))


def _dims(load: Load, lane: Axis, order: Sequence[Axis]) -> tuple[int, list[int], list[int]] | None:
    """The lane's dimension, those that are not summed over, those that are; None if not one dimension has the lane."""
    forms = [affine(index) for index in load.indices]
    lane_dims = [dim for dim, form in enumerate(forms) if form is not None and form.coefficient(lane)]
    if len(lane_dims) != 1:
        return None

    def depth(dim: int) -> int:
        form = forms[dim]
        return min((order.index(axis) for axis, _ in form.terms if axis in order), default=-1) if form else -1

    others = sorted((dim for dim in range(len(forms)) if dim != lane_dims[0]), key=depth)
    outer = [dim for dim in others if depth(dim) < 0]
    return lane_dims[0], outer, others[len(outer) :]


def _starts_panel(form: Affine | None, lane: Axis, width: int) -> bool:
    """Whether the index is the lane's position plus multiples of `width`."""
    if form is None or form.coefficient(lane) != 1:
        return False
    steps = [coefficient for axis, coefficient in form.terms if axis is not lane]
    return all(step % width == 0 for step in (*steps, form.offset))


def scattered_operands(
    expr: TensorExpr, found: Contraction, lane: Axis, layouts: Sequence[Layout]
) -> tuple[tuple[Group, Expr], ...]:
    """The lane operands of each group that do not lie in lanes."""
    return tuple(
        (group, operand)
        for group in found.groups
        for operand in dict.fromkeys(found.split(term, lane)[0] for term in group.terms)
        if not _lies_well(operand, group, expr, lane, layouts)
    )


def _lies_well(operand: Expr, group: Group, expr: TensorExpr, lane: Axis, layouts: Sequence[Layout]) -> bool:
    """Whether vectors of a lane operand can be loaded."""
    if group.quad is None:
        return isinstance(operand, Load) and lies_in_lanes(operand, lane, expr, layouts)
    return isinstance(operand, Load) and lies_in_quads(operand, lane, group.quad, layouts)


def packed_operands(
    found: Contraction, scattered: Sequence[tuple[Group, Expr]], lanes: int, rows: int
) -> tuple[tuple[Group, Expr], ...]:
    """Those of `scattered` that are copied for each block of `lanes`: all its rows load vectors from the copy.

    That pays if there are several rows, and if the copies stay below `MAX_PACK_BYTES`. Quads are not copied.
    """
    packed = []
    left_bytes = MAX_PACK_BYTES if rows > 1 else 0
    for group, operand in scattered:
        if group.quad is not None:
            continue
        size_bytes = pack_points(found, group, operand) * lanes * operand.dtype.itemsize_bytes
        if size_bytes <= left_bytes:
            packed.append((group, operand))
            left_bytes -= size_bytes
    return tuple(packed)


def pack_points(found: Contraction, group: Group, operand: Expr) -> int:
    """Points of the reduction axes that a lane operand depends on."""
    return math.prod(axis.extent for axis in group.axes if axis in found.free[operand])
