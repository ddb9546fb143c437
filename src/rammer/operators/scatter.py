"""Elements written at positions that another operand holds, each result finding what is written to it.

Of few updates, or for few places, every result looks at all. Others are sorted by their position; then those of one
place lie together, neighbours are combined in steps that double their reach, and each result finds the last of its own
by halving. Nothing is multiplied by zero, so an infinity or NaN stays at its place. Updates outside of the operand fall
away: a static program has no way to refuse them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rammer.ir.evaluate import identity
from rammer.ir.expr import Axis, Expr, Reduce, ReduceFn, ScalarFn, TensorExpr, call, cast, const, load
from rammer.ir.graph import Attributes
from rammer.ir.types import DType, TensorType
from rammer.operators.attributes import flag, integer, text
from rammer.operators.registry import Builder, CompositeDef, OperatorDef, register, require
from rammer.operators.scalars import both, choose, clamp, equal, less, maximum
from rammer.operators.shapes import check_axis, check_dtype, plain_result, spatial_axes
from rammer.operators.sorting import top_k

_FEW = 32
"""So many updates of a line are looked at by every result."""
_LITTLE = 1 << 22
"""So many updates are looked at, by all results, in about the time that the many operators take which sort a few."""
_MERGED = 16
"""Looking at so many updates takes as long as the halving that merges one, for each doubling of their number."""
_JOINED = 4
"""Looking at so many takes as long as combining one with a neighbour once, and its share of the other steps."""

_COMBINE: Mapping[str, tuple[ReduceFn, ScalarFn]] = {
    "add": (ReduceFn.SUM, ScalarFn.ADD),
    "mul": (ReduceFn.PROD, ScalarFn.MUL),
    "max": (ReduceFn.MAX, ScalarFn.MAX),
    "min": (ReduceFn.MIN, ScalarFn.MIN),
}
"""What combines updates with what they are written to; "none" replaces it by the last of them."""


def scatter_few(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """As `Scatter`, each result looking at all updates of its line.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    data, positions, updates = _operands(inputs)
    line, place, column = axes = spatial_axes(data.shape)
    update = Axis("u", positions.shape[1])
    old = load(0, data, axes)
    if update.extent == 1 and text(attributes, "reduction") == "none":
        only = load(2, updates, (line, 0, column))
        return plain_result(inputs, data.dtype, axes, choose(equal(load(1, positions, (line, 0)), place), only, old))
    here = equal(load(1, positions, (line, update)), place)
    reduction = text(attributes, "reduction")
    if reduction == "none":
        last = Reduce(ReduceFn.MAX, (update,), choose(here, update, -1))
        new = load(2, updates, (line, clamp(last, 0, update.extent - 1), column))
        return plain_result(inputs, data.dtype, axes, choose(less(last, 0), old, new))
    reduce, combine = _COMBINE[reduction]
    given = load(2, updates, (line, update, column))
    total = Reduce(reduce, (update,), choose(here, given, identity(reduce, given.dtype)))
    return plain_result(inputs, data.dtype, axes, call(combine, old, total))


def scatter_sorted(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """As `Scatter` of updates whose positions ascend, the last of equal ones standing for all.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    data, positions, updates = _operands(inputs)
    line, place, column = axes = spatial_axes(data.shape)
    old = load(0, data, axes)
    found = _last_up_to(positions, line, place)
    written = equal(load(1, positions, (line, found)), place)
    new = cast(old.dtype, load(2, updates, (line, found, column)))
    reduction = text(attributes, "reduction")
    combined = new if reduction == "none" else call(_COMBINE[reduction][1], old, new)
    return plain_result(inputs, data.dtype, axes, choose(written, combined, old))


def _last_up_to(positions: TensorType, line: Axis, place: Axis) -> Expr:
    """The last of a line's ascending positions that is not beyond a place; the first where all are."""
    found: Expr = const(0, DType.INT64)
    count = positions.shape[1]
    step = 1 << count.bit_length() >> 1
    while step:
        farther = found + step
        reached = call(ScalarFn.LE, load(1, positions, (line, clamp(farther, 0, count - 1))), place)
        found = choose(both(less(farther, count), reached), farther, found)
        step //= 2
    return found


def in_order(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """Row `order[line, u]` of each line's updates, in their compute type: slots updates `[lines, m, columns]`, order.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    updates, order = inputs
    require(order.shape == updates.shape[:2], f"{updates} in the order {order}")
    line, place, column = axes = spatial_axes(updates.shape)
    taken = clamp(load(1, order, (line, place)), 0, updates.shape[1] - 1)
    return plain_result(inputs, updates.dtype.compute, axes, load(0, updates, (line, taken, column)))


def combine_neighbours(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """Slot 1 `[lines, m, columns]`, combined with the row `distance` before where that has the same position in slot 0.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    positions, updates = inputs
    line, place, column = axes = spatial_axes(updates.shape)
    distance = integer(attributes, "distance")
    before = maximum(place - distance, 0)
    together = equal(load(0, positions, (line, before)), load(0, positions, (line, place)))
    together = both(together, less(distance - 1, place))
    own = load(1, updates, axes)
    combined = call(_COMBINE[text(attributes, "reduction")][1], load(1, updates, (line, before, column)), own)
    return plain_result(inputs, updates.dtype, axes, choose(together, combined, own))


def tensor_scatter(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """Slot 0 with slot 1 written over it along `axis`, for each element of dimension 0 from a position on.

    Slots: x; y, as x but for a smaller extent along the axis; optionally the positions, int64 `[x.shape[0]]`.
    Attributes: axis: int, not 0; circular: bool, what passes the end begins again.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    x, y = inputs[:2]
    axis = integer(attributes, "axis")
    check_axis("TensorScatter", x, axis)
    extent, count = x.shape[axis], y.shape[axis] if y.rank == x.rank else 0
    fits = axis > 0 and y.shape == (*x.shape[:axis], count, *x.shape[axis + 1 :]) and count <= extent
    require(fits and y.dtype is x.dtype, f"TensorScatter of {y} into {x} along dimension {axis}")
    axes = spatial_axes(x.shape)
    first: Expr = const(0, DType.INT64)
    for positions in inputs[2:]:
        require(positions.shape == x.shape[:1], f"TensorScatter into {x} at positions {positions}")
        check_dtype("TensorScatter at positions", positions, frozenset({DType.INT64}))
        first = load(2, positions, axes[:1])
    place = axes[axis] - first
    if flag(attributes, "circular"):
        place = place % extent
    inside = both(call(ScalarFn.LE, const(0, DType.INT64), place), less(place, count))
    old = load(0, x, axes)
    if not count:
        return plain_result(inputs, x.dtype, axes, old)
    new = load(1, y, [*axes[:axis], clamp(place, 0, count - 1), *axes[axis + 1 :]])
    return plain_result(inputs, x.dtype, axes, choose(inside, new, old))


def _operands(inputs: Sequence[TensorType]) -> tuple[TensorType, TensorType, TensorType]:
    require(len(inputs) == 3, f"Scatter of {len(inputs)} operands")
    data, positions, updates = inputs
    check_dtype("Scatter at positions", positions, frozenset({DType.INT64}))
    require(
        data.rank == 3
        and positions.shape == updates.shape[:2]
        and updates.shape == (data.shape[0], positions.shape[1], data.shape[2])
        and updates.dtype in (data.dtype, data.dtype.compute),
        f"Scatter of {updates} at {positions} into {data}",
    )
    return data, positions, updates


def _infer(inputs: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    """Slots: data `[lines, places, columns]`; positions, int64 `[lines, m]`; updates `[lines, m, columns]`."""
    return (_operands(inputs)[0],)


def _expand(builder: Builder, inputs: Sequence[int], attributes: Attributes, name: str) -> tuple[int, ...]:
    data, positions, updates = inputs
    count = builder.type(positions).shape[1]
    if not count:
        return builder.add("Identity", [data], name=name)
    if _look_at_all(builder.type(data), count):
        return builder.add("ScatterFew", inputs, attributes, name=name)
    ascending, places = top_k(builder, positions, axis=1, k=count, largest=False, name=f"{name}.order")
    (rows,) = builder.add("InOrder", [updates, places], name=f"{name}.rows")
    distance = 1
    while distance < count and text(attributes, "reduction") != "none":
        step: Attributes = {**attributes, "distance": distance}
        (rows,) = builder.add("CombineNeighbours", [ascending, rows], step, name=f"{name}.combined{distance}")
        distance *= 2
    return builder.add("ScatterSorted", [data, ascending, rows], attributes, name=name)


def _look_at_all(data: TensorType, count: int) -> bool:
    """Whether every result had better look at all of `count` updates of its line than have them sorted."""
    if count <= _FEW or data.size * count <= _LITTLE:
        return True
    _, places, columns = data.shape
    doublings = count.bit_length()
    return places * columns <= doublings * (_MERGED * doublings + _JOINED * columns)


_Build = Callable[[Sequence[TensorType], Attributes], TensorExpr]
_KINDS: Mapping[str, _Build] = {
    "ScatterFew": scatter_few,
    "ScatterSorted": scatter_sorted,
    "InOrder": in_order,
    "CombineNeighbours": combine_neighbours,
    "TensorScatter": tensor_scatter,
}
for _kind, _build in _KINDS.items():
    register(OperatorDef(kind=_kind, build=_build))
register(CompositeDef(kind="Scatter", infer=_infer, expand=_expand))
