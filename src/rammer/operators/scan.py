"""Running sums, products and extremes along a dimension: CumSum, CumProd, CumMax, CumMin, composites of blocked scans.

A line is cut into blocks. Their totals are scanned in the same way, and each block goes on from the total of those
before it, element after element. So work is proportional to the elements, and blocks do not wait for each other. A
short line is one block. 16-bit floats are combined in float32 and rounded once.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rammer.ir.evaluate import identity
from rammer.ir.expr import Axis, Expr, Output, ReduceFn, ScalarFn, TensorExpr, call, cast, const, load
from rammer.ir.graph import Attributes
from rammer.ir.types import TensorType
from rammer.operators.attributes import flag, integer, text
from rammer.operators.registry import Builder, CompositeDef, OperatorDef, register, require
from rammer.operators.scalars import choose, equal
from rammer.operators.shapes import (
    NUMBERS,
    check_axis,
    check_dtype,
    padded_load,
    plain_result,
    reduced,
    reduction_axes,
    spatial_axes,
)

_BLOCK = 16
_LONGEST_BLOCK = 32
"""The code of a block is as long: one that stands for a whole line may have so many elements."""

_COMBINE = {
    ReduceFn.SUM: ScalarFn.ADD,
    ReduceFn.PROD: ScalarFn.MUL,
    ReduceFn.MAX: ScalarFn.MAX,
    ReduceFn.MIN: ScalarFn.MIN,
}


def block_totals(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """What the elements of each block along `axis` combine to; the last block may be shorter.

    Attributes: fn: a `ReduceFn`; axis, block: int. The result is float32 where x has 16-bit floats.

    Raises:
        InvalidModelError: the operand or the axis does not fit.
    """
    x, axis = _operand("BlockTotals", inputs, attributes)
    fn, block = ReduceFn(text(attributes, "fn")), integer(attributes, "block")
    axes = spatial_axes(_resized(x, axis, -(-x.shape[axis] // block)))
    (place,) = reduction_axes([block])
    position = axes[axis] * block + place
    element = padded_load(0, x, [*axes[:axis], position, *axes[axis + 1 :]], fill=identity(fn, x.dtype))
    return plain_result(inputs, x.dtype.compute, axes, reduced(fn, [place], element))


def block_scan(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The scan of some neighbouring blocks along `axis`, each from the element of slot 1 on where there is that slot.

    Slots: x; optionally, in x's compute type, what the blocks before each block of the line combine to. Attributes: fn:
    a `ReduceFn`; axis: int; first: the first element; blocks: how many; block: elements of each; number: the first
    block's number in the line; exclusive, reverse: bool.

    Raises:
        InvalidModelError: the operands or the axis do not fit.
    """
    x, axis = _operand("BlockScan", inputs, attributes)
    fn, size = ReduceFn(text(attributes, "fn")), integer(attributes, "block")
    outside = spatial_axes(x.shape)
    block, place = Axis("b", integer(attributes, "blocks")), Axis("w", size)

    def at(type_: TensorType, slot: int, position: Expr) -> Expr:
        return load(slot, type_, [*outside[:axis], position, *outside[axis + 1 :]])

    total: Expr = const(identity(fn, x.dtype.compute), x.dtype.compute)
    for before in inputs[1:]:
        total = at(before, 1, block + integer(attributes, "number"))
    elements = [at(x, 0, block * size + integer(attributes, "first") + number) for number in range(size)]
    totals = list(
        itertools.accumulate(
            reversed(elements) if flag(attributes, "reverse") else elements,
            lambda a, b: call(_COMBINE[fn], a, b),
            initial=total,
        )
    )
    scanned = totals[:-1] if flag(attributes, "exclusive") else totals[1:]
    body = _chosen(place, scanned[::-1] if flag(attributes, "reverse") else scanned)
    output = Output(
        type=TensorType(x.dtype, _resized(x, axis, block.extent * size)),
        indices=(*outside[:axis], block * size + place, *outside[axis + 1 :]),
        body=cast(x.dtype, body),
    )
    axes = (*outside[:axis], block, place, *outside[axis + 1 :])
    return TensorExpr(axes=axes, inputs=tuple(inputs), outputs=(output,))


def _chosen(axis: Axis, elements: Sequence[Expr]) -> Expr:
    """The element at the position of an axis."""
    *others, chosen = elements
    for position, other in reversed(list(enumerate(others))):
        chosen = choose(equal(axis, position), other, chosen)
    return chosen


def _operand(kind: str, inputs: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, int]:
    """What is scanned, and along which dimension."""
    require(1 <= len(inputs) <= 2, f"{kind} of {len(inputs)} operands")
    check_dtype(kind, inputs[0], NUMBERS)
    axis = integer(attributes, "axis")
    check_axis(kind, inputs[0], axis)
    return inputs[0], axis


def _resized(x: TensorType, axis: int, extent: int) -> tuple[int, ...]:
    return (*x.shape[:axis], extent, *x.shape[axis + 1 :])


def cumulative(kind: str, fn: ReduceFn) -> CompositeDef:
    """The operator that combines the elements up to each one along `axis`.

    `exclusive` leaves the element itself out, `reverse` starts at the end. The result has the operand's type.
    """

    def infer(inputs: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
        require(len(inputs) == 1, f"{kind} of {len(inputs)} operands")
        return (_operand(kind, inputs, attributes)[0],)

    def expand(builder: Builder, inputs: Sequence[int], attributes: Attributes, name: str) -> tuple[int, ...]:
        (x,) = inputs
        return (_scanned(builder, x, {**attributes, "fn": fn.value}, name),)

    return CompositeDef(kind=kind, infer=infer, expand=expand)


def _scanned(builder: Builder, x: int, attributes: Attributes, name: str) -> int:
    """The scan of a value along `axis`."""
    axis = integer(attributes, "axis")
    extent = builder.type(x).shape[axis]

    def blocks(operands: Sequence[int], count: int, size: int, first: int) -> int:
        place: Attributes = {"first": first, "blocks": count, "block": size, "number": first // _BLOCK}
        (result,) = builder.add("BlockScan", operands, {**attributes, **place}, name=name)
        return result

    if extent <= _LONGEST_BLOCK:
        return blocks([x], int(extent > 0), max(extent, 1), 0)
    (totals,) = builder.add("BlockTotals", [x], {**attributes, "block": _BLOCK}, name=f"{name}.totals")
    before = _scanned(builder, totals, {**attributes, "exclusive": True}, f"{name}.before")
    count, rest = divmod(extent, _BLOCK)
    whole = blocks([x, before], count, _BLOCK, 0)
    if not rest:
        return whole
    last = blocks([x, before], 1, rest, extent - rest)
    (result,) = builder.add("Concat", [whole, last], {"axis": axis}, name=name)
    return result


register(OperatorDef(kind="BlockTotals", build=block_totals))
register(OperatorDef(kind="BlockScan", build=block_scan))
register(cumulative("CumSum", ReduceFn.SUM))
register(cumulative("CumProd", ReduceFn.PROD))
register(cumulative("CumMax", ReduceFn.MAX))
register(cumulative("CumMin", ReduceFn.MIN))
