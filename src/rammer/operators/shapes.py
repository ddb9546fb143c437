"""What the operator families share: element types, axes, broadcasting, padded loads and plain results.

Unless a family says otherwise, an operator's domain has one axis per dimension of its result, named i0, i1, ... and
stored in place: extents of 1 keep their axis. Such operators can be inlined by replacing axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rammer.errors import InvalidModelError
from rammer.ir.expr import Axis, Expr, Output, Reduce, ReduceFn, Scalar, TensorExpr, cast, const, load
from rammer.ir.region import Interval, interval_of
from rammer.ir.types import MODEL_DTYPES, STORED_DTYPES, DType, TensorType
from rammer.operators.registry import require

FLOATS = frozenset(dtype for dtype in MODEL_DTYPES if dtype.is_float)
BOOLS = frozenset({DType.BOOL})
NUMBERS = frozenset(MODEL_DTYPES) - BOOLS
INTEGERS = NUMBERS - FLOATS
SIGNED = frozenset(dtype for dtype in MODEL_DTYPES if dtype.is_signed)
UNSIGNED = INTEGERS - SIGNED
COMPUTED = frozenset(MODEL_DTYPES)
ANY = frozenset(STORED_DTYPES)
INDICES = frozenset({DType.INT32, DType.INT64})
AVERAGED = FLOATS | {DType.INT64}

_NAMES: Mapping[frozenset[DType], str] = {
    FLOATS: "floating-point numbers",
    BOOLS: "booleans",
    NUMBERS: "numbers",
    INTEGERS: "integers",
    SIGNED: "signed numbers",
    UNSIGNED: "unsigned integers",
    INDICES: "int32 or int64",
    AVERAGED: "floating-point numbers or int64",
}


def check_operands(
    kind: str, inputs: Sequence[TensorType], counts: tuple[int, int | None], dtypes: frozenset[DType] = ANY
) -> None:
    """Check the number of operands and their element type, which all share.

    Args:
        kind: the operator's kind, for the message.
        inputs: the operands' types.
        counts: least and greatest number of operands; None: no limit.
        dtypes: the element types that the operator is defined for.

    Raises:
        InvalidModelError: they do not fit.
    """
    least, most = counts
    require(least <= len(inputs) and (most is None or len(inputs) <= most), f"{kind} of {len(inputs)} operands")
    for type_ in inputs:
        check_dtype(kind, type_, dtypes)
        if type_.dtype is not inputs[0].dtype:
            raise InvalidModelError(f"{kind} of several element types: {', '.join(map(str, inputs))}")


def check_dtype(kind: str, type_: TensorType, dtypes: frozenset[DType]) -> None:
    """Check an operand's element type.

    Raises:
        InvalidModelError: it is not one of `dtypes`.
    """
    if type_.dtype not in dtypes:
        raise InvalidModelError(f"{kind} takes {_NAMES.get(dtypes, 'other types')}, not {type_}")


def check_axis(kind: str, type_: TensorType, *axes: int) -> None:
    """Check that each of `axes` is a dimension of an operand, and none is named twice.

    Raises:
        InvalidModelError: it is not.
    """
    for axis in axes:
        require(0 <= axis < type_.rank, f"{kind} along dimension {axis} of {type_}, which has rank {type_.rank}")
    require(len(set(axes)) == len(axes), f"{kind} names a dimension of {type_} twice: {list(axes)}")


def spatial_axes(shape: Sequence[int]) -> tuple[Axis, ...]:
    """One spatial axis per dimension of a shape."""
    return tuple(Axis(f"i{dim}", extent) for dim, extent in enumerate(shape))


def reduction_axes(extents: Sequence[int], prefix: str = "r") -> tuple[Axis, ...]:
    """One reduction axis per extent; nested and neighbouring reductions need prefixes of their own."""
    return tuple(Axis(f"{prefix}{position}", extent) for position, extent in enumerate(extents))


def broadcast_shape(kind: str, *shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that `shapes` broadcast to by NumPy's rules.

    Raises:
        InvalidModelError: they do not broadcast together.
    """
    rank = max(len(shape) for shape in shapes)
    result: list[int] = []
    for dim in range(-rank, 0):
        extents = [shape[dim] for shape in shapes if len(shape) >= -dim]
        longest = next((extent for extent in extents if extent != 1), 1)
        require(
            all(extent in (1, longest) for extent in extents),
            f"{kind}: shapes {', '.join(str(list(shape)) for shape in shapes)} do not broadcast together",
        )
        result.append(longest)
    return tuple(result)


def check_broadcasts_to(kind: str, type_: TensorType, shape: Sequence[int]) -> None:
    """Check that an operand broadcasts to a shape that it cannot change.

    Raises:
        InvalidModelError: it does not.
    """
    require(
        type_.rank <= len(shape) and broadcast_shape(kind, type_.shape, shape) == tuple(shape),
        f"{kind}: {type_} does not broadcast to {list(shape)}",
    )


def broadcast_load(slot: int, type_: TensorType, axes: Sequence[Axis]) -> Expr:
    """The element of an operand that broadcasts to `axes`, aligned at the last dimensions."""
    zero = const(0, DType.INT64)
    tail = axes[len(axes) - type_.rank :]
    indices = [axis if axis.extent == extent else zero for axis, extent in zip(tail, type_.shape, strict=True)]
    return load(slot, type_, indices)


def padded_load(slot: int, type_: TensorType, indices: Sequence[Expr], fill: Scalar, *, finite: bool = False) -> Expr:
    """A load that gives `fill` outside the operand; a plain load where no index can leave it."""
    spans = [interval_of(index, {}) for index in indices]
    inside = all(
        span is not None and Interval(0, extent).contains(span) for span, extent in zip(spans, type_.shape, strict=True)
    )
    return load(slot, type_, indices, None if inside else fill, finite=finite)


def reduced(fn: ReduceFn, axes: Sequence[Axis], body: Expr) -> Expr:
    """A reduction, or the body itself where there is nothing to reduce over."""
    return Reduce(fn, tuple(axes), body) if axes else body


def plain_result(inputs: Sequence[TensorType], dtype: DType, axes: Sequence[Axis], body: Expr) -> TensorExpr:
    """The expression with one result of one dimension per axis, `body` converted to its element type."""
    type_ = TensorType(dtype, tuple(axis.extent for axis in axes))
    output = Output(type=type_, indices=tuple(axes), body=cast(dtype, body))
    return TensorExpr(axes=tuple(axes), inputs=tuple(inputs), outputs=(output,))
