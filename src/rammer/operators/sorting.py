"""The first elements of lines in order: TopK, a composite of runs that are put in order, and of merges.

Elements of short runs are compared with each other, which says how many come before each, where many are wanted.
Neighbouring runs are merged until one is left: each element of the result finds its place by halving (Odeh et al.,
Merge Path, 2012), so a merge is one expression, and a level of merges one operator; n elements take log n of them. Runs
keep no more elements than are asked for. Equal elements keep their order. A NaN is greater than any number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rammer.ir.evaluate import identity
from rammer.ir.expr import Axis, Expr, Output, ReduceFn, ScalarFn, TensorExpr, call, cast, const, load
from rammer.ir.graph import Attributes
from rammer.ir.types import DType, TensorType
from rammer.operators.attributes import flag, integer
from rammer.operators.registry import Builder, CompositeDef, OperatorDef, register, require
from rammer.operators.scalars import both, choose, clamp, equal, less, maximum, minimum
from rammer.operators.shapes import NUMBERS, check_axis, check_dtype, plain_result, reduced, reduction_axes

_RUNS = ((32, 64), (8, 16))
"""From how many wanted elements on runs of what length are put in order by comparing; of fewer, all is merged."""


def merge(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The first elements of two neighbouring runs at a time, those of the first run before equal ones of the second.

    Slots: keys `[lines, 2 * blocks, run]`, each run in order; their positions, int64 of that shape. Attributes: keep:
    how many elements of each block; largest: bool, the greatest elements come first. Outputs: keys and positions,
    `[lines, blocks, keep]`.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    keys, positions = inputs
    require(
        keys.shape == positions.shape and keys.rank == 3 and keys.shape[1] % 2 == 0, f"Merge of {keys}, {positions}"
    )
    lines, runs, run = keys.shape
    line, block, place = Axis("l", lines), Axis("b", runs // 2), Axis("p", integer(attributes, "keep"))
    require(place.extent <= 2 * run, f"{place.extent} elements of two runs of {run}")

    def at(slot: int, second: int, position: Expr) -> Expr:
        return load(slot, inputs[slot], [line, block * 2 + second, clamp(position, 0, run - 1)])

    def overtakes(second: Expr, first: Expr) -> Expr:
        """Whether an element of the second run comes before one of the first."""
        return _before(at(0, 1, second), at(0, 0, first), largest=flag(attributes, "largest"))

    # How many of the elements before this place come from the first run.
    low, high = maximum(place - run, 0), minimum(place, run)
    for _ in range(run.bit_length()):
        middle = (low + high) // 2
        fewer = overtakes(place - 1 - middle, middle)
        searching = less(low, high)
        low, high = (
            choose(both(searching, call(ScalarFn.NOT, fewer)), middle + 1, low),
            choose(both(searching, fewer), middle, high),
        )
    other = place - low
    second = call(ScalarFn.OR, call(ScalarFn.LE, const(run, DType.INT64), low), overtakes(other, low))
    from_second = both(less(other, run), second)
    outputs = tuple(
        Output(
            type=TensorType(type_.dtype, (lines, block.extent, place.extent)),
            indices=(line, block, place),
            body=cast(type_.dtype, choose(from_second, at(slot, 1, other), at(slot, 0, low))),
        )
        for slot, type_ in enumerate(inputs)
    )
    return TensorExpr(axes=(line, block, place), inputs=tuple(inputs), outputs=outputs)


def ranks(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """How many elements of its run come before each element; of equal ones the first does.

    Slot: keys `[lines, blocks, run]`. Attribute: largest. Output: int32 of that shape.

    Raises:
        InvalidModelError: the operand does not fit.
    """
    (keys,) = inputs
    require(keys.rank == 3, f"Ranks of {keys}")
    line, block, place = (Axis(name, extent) for name, extent in zip("lbp", keys.shape, strict=True))
    (other,) = reduction_axes(keys.shape[2:])
    own, its = (load(0, keys, [line, block, at]) for at in (place, other))
    largest = flag(attributes, "largest")
    earlier = both(less(other, place), call(ScalarFn.NOT, _before(own, its, largest=largest)))
    comes_before = call(ScalarFn.OR, _before(its, own, largest=largest), earlier)
    total = reduced(ReduceFn.SUM, (other,), cast(DType.INT32, comes_before))
    return plain_result(inputs, DType.INT32, (line, block, place), total)


def in_ranks(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The first elements of each run in the order of their ranks.

    Slots: keys `[lines, blocks, run]`; ranks, int32 of that shape. Attribute: keep, how many elements of each run.
    Outputs: keys and their positions in the line, int64, `[lines, blocks, keep]`.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    keys, order = inputs
    require(keys.rank == 3 and keys.shape == order.shape, f"InRanks of {keys}, {order}")
    lines, blocks, run = keys.shape
    line, block, place = Axis("l", lines), Axis("b", blocks), Axis("p", integer(attributes, "keep"))
    require(place.extent <= run, f"{place.extent} elements of runs of {run}")
    (other,) = reduction_axes((run,))
    is_it = equal(load(1, order, [line, block, other]), cast(DType.INT32, place))
    outputs = []
    for dtype, value in ((keys.dtype, load(0, keys, [line, block, other])), (DType.INT64, block * run + other)):
        compute = dtype.compute
        nothing = const(identity(ReduceFn.MAX, compute), compute)
        body = reduced(ReduceFn.MAX, (other,), choose(is_it, value, nothing))
        type_ = TensorType(dtype, (lines, blocks, place.extent))
        outputs.append(Output(type=type_, indices=(line, block, place), body=cast(dtype, body)))
    return TensorExpr(axes=(line, block, place), inputs=tuple(inputs), outputs=tuple(outputs))


def _before(a: Expr, b: Expr, *, largest: bool) -> Expr:
    """Whether a comes before b in order."""
    if largest:
        a, b = b, a
    ahead = less(a, b)
    if a.dtype.is_float:
        ahead = call(ScalarFn.OR, ahead, both(call(ScalarFn.ISNAN, b), equal(a, a)))
    return ahead


def _infer(inputs: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    require(len(inputs) == 1, f"TopK of {len(inputs)} operands")
    (x,) = inputs
    axis, k = integer(attributes, "axis"), integer(attributes, "k")
    check_dtype("TopK", x, NUMBERS)
    check_axis("TopK", x, axis)
    require(0 <= k <= x.shape[axis], f"TopK: {k} elements along dimension {axis} of {x}")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return TensorType(x.dtype, shape), TensorType(DType.INT64, shape)


def _expand(builder: Builder, inputs: Sequence[int], attributes: Attributes, name: str) -> tuple[int, ...]:
    (x,) = inputs
    return top_k(
        builder,
        x,
        axis=integer(attributes, "axis"),
        k=integer(attributes, "k"),
        largest=flag(attributes, "largest"),
        name=name,
    )


def top_k(builder: Builder, x: int, *, axis: int, k: int, largest: bool, name: str) -> tuple[int, ...]:
    """Add the operators of TopK: the first k elements of each line along `axis`, and their positions.

    Lines lie side by side, filled up to a power of two with elements that come last. Where many are wanted, short runs
    are put in order by comparing all of their elements with each other; then runs are merged.
    """
    type_ = builder.type(x)
    extent = type_.shape[axis]
    if not k or not type_.size:
        shape = (*type_.shape[:axis], k, *type_.shape[axis + 1 :])
        zeros = (builder.constant(np.zeros((), dtype.numpy), name) for dtype in (type_.dtype, DType.INT64))
        return tuple(builder.add("Expand", [zero], {"shape": shape}, name=name)[0] for zero in zeros)
    order = [dim for dim in range(type_.rank) if dim != axis]
    (turned,) = builder.add("Transpose", [x], {"perm": (*order, axis)}, name=f"{name}.lines")
    lines, width = type_.size // extent, 1 << (extent - 1).bit_length()
    (keys,) = builder.add("Reshape", [turned], {"shape": (lines, extent)}, name=f"{name}.keys")
    if width > extent:
        last = np.full((lines, width - extent), _last(type_.dtype, largest=largest), type_.dtype.numpy)
        fill = builder.constant(last, f"{name}.last")
        (keys,) = builder.add("Concat", [keys, fill], {"axis": 1}, name=f"{name}.filled")
    kept = min(width, next((run for least, run in _RUNS if k >= least), 1))
    runs: tuple[int, ...]
    if kept > 1:
        width //= kept
        (blocks,) = builder.add("Reshape", [keys], {"shape": (lines, width, kept)}, name=f"{name}.blocks")
        (places,) = builder.add("Ranks", [blocks], {"largest": largest}, name=f"{name}.ranks")
        kept = min(kept, k)
        runs = builder.add("InRanks", [blocks, places], {"keep": kept}, name=f"{name}.runs")
    else:
        numbers = np.broadcast_to(np.arange(width, dtype=np.int64), (lines, width))
        runs = keys, builder.constant(np.ascontiguousarray(numbers), f"{name}.numbers")
    while width > 1:
        parts = [builder.add("Reshape", [run], {"shape": (lines, width, kept)}, name=name)[0] for run in runs]
        kept, width = min(2 * kept, k), width // 2
        runs = builder.add("Merge", parts, {"keep": kept, "largest": largest}, name=f"{name}.merge{width}")
    shape = (*(type_.shape[dim] for dim in order), k)
    back = tuple(sorted(range(type_.rank), key=[*order, axis].__getitem__))
    results: list[int] = []
    for run in runs:
        (whole,) = builder.add("Reshape", [run], {"shape": shape}, name=name)
        results += builder.add("Transpose", [whole], {"perm": back}, name=name)
    return tuple(results)


def _last(dtype: DType, *, largest: bool) -> float:
    """The element that no other comes after."""
    if dtype.is_float:
        return -np.inf if largest else np.nan
    return identity(ReduceFn.MAX if largest else ReduceFn.MIN, dtype)


register(OperatorDef(kind="InRanks", build=in_ranks))
register(OperatorDef(kind="Merge", build=merge))
register(OperatorDef(kind="Ranks", build=ranks))
register(CompositeDef(kind="TopK", infer=_infer, expand=_expand))
