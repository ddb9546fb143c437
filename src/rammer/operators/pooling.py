"""Pooling over the spatial dimensions of `[n, c, *spatial]`. 16-bit floats are summed in float32."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rammer.ir.evaluate import identity
from rammer.ir.expr import Axis, Expr, ReduceFn, Scalar, ScalarFn, TensorExpr, call, cast, const
from rammer.ir.graph import Attributes
from rammer.ir.types import DType, TensorType
from rammer.operators.attributes import flag, integer, integers
from rammer.operators.lines import Line, greatest, line_along, mean
from rammer.operators.registry import OperatorDef, register, require
from rammer.operators.scalars import absolute, choose, equal, less, maximum, minimum, power, sqrt, square
from rammer.operators.shapes import (
    AVERAGED,
    FLOATS,
    NUMBERS,
    check_operands,
    padded_load,
    plain_result,
    reduced,
    reduction_axes,
    spatial_axes,
)
from rammer.operators.taps import taps_reaching


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dimension:
    """One spatial dimension of a pooling: window number `out` begins at `out * stride - begin`."""

    extent: int
    kernel: int
    stride: int
    dilation: int
    begin: int
    end: int
    out: Axis

    @property
    def start(self) -> Expr:
        """Where the window begins."""
        return self.out * self.stride - self.begin

    def taps_within(self, lower: int, upper: int) -> Expr:
        """How many taps of the window fall into `lower..upper-1`; a constant where that is all of them."""
        last_start = (self.out.extent - 1) * self.stride - self.begin
        if -self.begin >= lower and last_start + (self.kernel - 1) * self.dilation < upper:
            return const(self.kernel, DType.INT64)
        first, past = (
            (bound + self.dilation - 1 - self.start) // self.dilation if self.dilation > 1 else bound - self.start
            for bound in (lower, upper)
        )
        return maximum(minimum(past, self.kernel) - maximum(first, 0), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Windows:
    """The windows of a pooling: the result's axes, and per spatial dimension its geometry."""

    x: TensorType
    axes: tuple[Axis, ...]
    dimensions: tuple[_Dimension, ...]

    def line(self, fill: Scalar) -> Line:
        """The elements of the window that belongs to the result's point."""

        def at(taps: Sequence[Expr]) -> Expr:
            return padded_load(0, self.x, [*self.axes[:2], *self.places(taps)], fill)

        return Line(extents=tuple(dim.kernel for dim in self.dimensions), at=at)

    def places(self, taps: Sequence[Expr]) -> list[Expr]:
        """Where the taps of the window lie, which may be outside of the operand."""
        return [dim.start + tap * dim.dilation for dim, tap in zip(self.dimensions, taps, strict=True)]


def max_pool(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The greatest element of each window; padding counts as the least value there is.

    Slot: x `[n, c, *spatial]`. Attributes, per spatial dimension: kernel, strides, dilations, out_shape (the result's
    spatial extents, so that rounding up is the caller's choice); pads (all begins, then all ends).

    Raises:
        InvalidModelError: the operand or the attributes do not fit.
    """
    windows = _windows("MaxPool", inputs, attributes, NUMBERS)
    x = windows.x
    return plain_result(
        inputs, x.dtype, windows.axes, windows.line(identity(ReduceFn.MAX, x.dtype)).reduce(ReduceFn.MAX, "k")
    )


def max_pool_positions(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """Where the greatest element of each window of `max_pool` lies among those of its channel, row by row (int64).

    Of equal ones the first counts, and so does the first NaN.

    Raises:
        InvalidModelError: the operand or the attributes do not fit.
    """
    windows = _windows("MaxPoolPositions", inputs, attributes, NUMBERS)
    x = windows.x
    line = windows.line(identity(ReduceFn.MAX, x.dtype))
    taps = reduction_axes(line.extents, "a")
    element, places = line.at(taps), windows.places(taps)
    found = equal(element, line.reduce(ReduceFn.MAX, "k"))
    if element.dtype.is_float:
        found = call(ScalarFn.OR, found, call(ScalarFn.ISNAN, element))
    for place, dim in zip(places, windows.dimensions, strict=True):
        if dim.begin or dim.end or (dim.out.extent - 1) * dim.stride + (dim.kernel - 1) * dim.dilation >= dim.extent:
            inside = call(ScalarFn.AND, call(ScalarFn.LE, const(0, DType.INT64), place), less(place, dim.extent))
            found = call(ScalarFn.AND, found, inside)
    extents = x.shape[2:]
    candidate = choose(found, _row_by_row(places, extents), math.prod(extents))
    return plain_result(inputs, DType.INT64, windows.axes, reduced(ReduceFn.MIN, taps, candidate))


def max_pool_gradient(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The gradient of `max_pool` by its operand: each element sums up the gradients of the windows that it wins.

    Slots: the gradient by the result `[n, c, *out]`; the positions of `max_pool_positions`, int64 of the same shape.
    Attributes: kernel, strides, dilations, pads as for `max_pool`; shape: the spatial extents of the operand.

    Raises:
        InvalidModelError: the operands or the attributes do not fit.
    """
    require(len(inputs) == 2, f"MaxPoolGradient of {len(inputs)} operands")
    g, positions = inputs
    require(positions == TensorType(DType.INT64, g.shape), f"MaxPoolGradient of {g} at positions {positions}")
    kernel, strides, dilations, pads, extents = (
        integers(attributes, name) for name in ("kernel", "strides", "dilations", "pads", "shape")
    )
    fits = len(kernel) == len(strides) == len(dilations) == len(extents) == g.rank - 2 and len(pads) >= g.rank - 2
    require(fits, f"MaxPoolGradient of {g}: its attributes are for another number of spatial dimensions")
    axes = spatial_axes((*g.shape[:2], *extents))
    taps = [
        taps_reaching(axis + begin, f"k{d}", size, stride, dilation)
        for d, (axis, begin, size, stride, dilation) in enumerate(
            zip(axes[2:], pads, kernel, strides, dilations, strict=False)
        )
    ]
    window = [*axes[:2], *(tap.source for tap in taps)]
    won = equal(padded_load(1, positions, window, -1), _row_by_row(axes[2:], extents))
    share = choose(won, padded_load(0, g, window, 0), 0)
    summed = [tap.count for tap in taps if isinstance(tap.count, Axis)]
    return plain_result(inputs, g.dtype, axes, reduced(ReduceFn.SUM, summed, share))


def _row_by_row(indices: Sequence[Expr], extents: Sequence[int]) -> Expr:
    """The number of an element, counted along the rows."""
    number: Expr = const(0, DType.INT64)
    for index, extent in zip(indices, extents, strict=True):
        number = number * extent + index
    return number


def average_pool(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The mean of each window, as `max_pool`; with `count_include_pad` the padding counts as zeros.

    What a window covers beyond the padding (where `out_shape` was rounded up) never counts. The divisor depends on
    the spatial axes alone, and is a constant along each dimension that no window leaves. Quotients of integers are cut
    off.

    Raises:
        InvalidModelError: the operand or the attributes do not fit.
    """
    windows = _windows("AveragePool", inputs, attributes, AVERAGED)
    padded = flag(attributes, "count_include_pad")
    divisor: Expr = const(1, DType.INT64)
    for dim in windows.dimensions:
        divisor = divisor * (
            dim.taps_within(-dim.begin, dim.extent + dim.end) if padded else dim.taps_within(0, dim.extent)
        )
    total = windows.line(0).reduce(ReduceFn.SUM, "k")
    return plain_result(inputs, windows.x.dtype, windows.axes, total / cast(total.dtype, divisor))


def lp_pool(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The `p`-norm of each window, as `max_pool`; p is a positive int.

    Raises:
        InvalidModelError: the operand or the attributes do not fit.
    """
    windows = _windows("LpPool", inputs, attributes, FLOATS)
    return plain_result(inputs, windows.x.dtype, windows.axes, _norm(windows.line(0), _power_of("LpPool", attributes)))


def global_average_pool(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The mean over all spatial dimensions, which stay with extent 1.

    Raises:
        InvalidModelError: the operand does not fit.
    """
    axes, line = _everything("GlobalAveragePool", inputs, FLOATS)
    return plain_result(inputs, inputs[0].dtype, axes, mean(line))


def global_max_pool(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The greatest element over all spatial dimensions, which stay with extent 1.

    Raises:
        InvalidModelError: the operand does not fit.
    """
    axes, line = _everything("GlobalMaxPool", inputs, NUMBERS)
    return plain_result(inputs, inputs[0].dtype, axes, greatest(line))


def global_lp_pool(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The `p`-norm over all spatial dimensions, which stay with extent 1.

    Raises:
        InvalidModelError: the operand does not fit.
    """
    axes, line = _everything("GlobalLpPool", inputs, FLOATS)
    return plain_result(inputs, inputs[0].dtype, axes, _norm(line, _power_of("GlobalLpPool", attributes)))


def _windows(kind: str, inputs: Sequence[TensorType], attributes: Attributes, dtypes: frozenset[DType]) -> _Windows:
    check_operands(kind, inputs, (1, 1), dtypes)
    (x,) = inputs
    kernel, strides, dilations, out = (
        integers(attributes, name) for name in ("kernel", "strides", "dilations", "out_shape")
    )
    pads = integers(attributes, "pads")
    count = x.rank - 2
    require(count >= 1, f"{kind} of {x}, which has no spatial dimension")
    fits = len(kernel) == len(strides) == len(dilations) == len(out) == count and len(pads) == 2 * count
    require(fits, f"{kind} of {x}: its attributes are for another number of spatial dimensions")
    require(min(*kernel, *strides, *dilations) >= 1, f"{kind} of {x}: kernel, strides and dilations are positive")
    require(min(*pads, *out) >= 0, f"{kind} of {x}: the kernel exceeds the padded operand, or padding is negative")
    axes = spatial_axes((*x.shape[:2], *out))
    dimensions = tuple(
        _Dimension(
            extent=x.shape[2 + dim],
            kernel=kernel[dim],
            stride=strides[dim],
            dilation=dilations[dim],
            begin=pads[dim],
            end=pads[count + dim],
            out=axes[2 + dim],
        )
        for dim in range(count)
    )
    return _Windows(x=x, axes=axes, dimensions=dimensions)


def _everything(kind: str, inputs: Sequence[TensorType], dtypes: frozenset[DType]) -> tuple[tuple[Axis, ...], Line]:
    check_operands(kind, inputs, (1, 1), dtypes)
    (x,) = inputs
    require(x.rank >= 2, f"{kind} of {x}, which has no channels")
    axes = spatial_axes((*x.shape[:2], *(1 for _ in x.shape[2:])))
    return axes, line_along(0, x, range(2, x.rank), axes)


def _power_of(kind: str, attributes: Attributes) -> int:
    p = integer(attributes, "p")
    require(p >= 1, f"{kind} with p = {p}, which is not positive")
    return p


def _norm(line: Line, p: int) -> Expr:
    if p == 1:
        return line.sum(absolute)
    if p == 2:
        return sqrt(line.sum(square))
    return power(line.sum(lambda x: power(absolute(x), p)), 1 / p)


register(OperatorDef(kind="MaxPool", build=max_pool))
register(OperatorDef(kind="MaxPoolGradient", build=max_pool_gradient))
register(OperatorDef(kind="MaxPoolPositions", build=max_pool_positions))
register(OperatorDef(kind="AveragePool", build=average_pool))
register(OperatorDef(kind="LpPool", build=lp_pool))
register(OperatorDef(kind="GlobalAveragePool", build=global_average_pool))
register(OperatorDef(kind="GlobalMaxPool", build=global_max_pool))
register(OperatorDef(kind="GlobalLpPool", build=global_lp_pool))
