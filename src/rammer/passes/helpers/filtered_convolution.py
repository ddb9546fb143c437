"""The operators that stand for a convolution by minimal filtering, as expressions (see the pass `winograd`)."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rammer.ir.expr import (
    Axis,
    Expr,
    Guarded,
    Output,
    Reduce,
    ReduceFn,
    ScalarFn,
    TensorExpr,
    call,
    const,
    load,
    select,
)
from rammer.ir.recipe import FilteredWeights, FilterLine
from rammer.ir.types import DType, TensorType
from rammer.operators.shapes import padded_load, reduced
from rammer.passes.helpers.minimal_filtering import Filtering, in_two_dimensions
from rammer.passes.helpers.peaks import operations

OUTLIER = 8.0
"""Times the mean norm of an image's pixels; see docs/numerics.md for what that bounds."""

_HUGE = 2.0**100
"""Squares of norms from here on say nothing about what is ordinary: they may have overflowed."""

CHANNELS_LAST, CHANNELS_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A convolution `[n, c, *image]` to `[n, m, *result]` with weights `[m, c / group, *kernel]`, perhaps a bias."""

    x: TensorType
    y: TensorType
    weight: TensorType
    begins: tuple[int, ...]
    strides: tuple[int, ...]
    group: int
    biases: tuple[TensorType, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One dimension of a convolution: `extent` results of `taps` taps by a filtering."""

    by: Filtering
    extent: int
    taps: int
    stride: int
    begin: int

    @property
    def phases(self) -> int:
        """Phases that have taps."""
        return min(self.stride, self.taps)

    @property
    def groups(self) -> int:
        """Groups of taps of a phase."""
        return -(-self.taps // (self.stride * self.by.taps))

    @property
    def tiles(self) -> int:
        """Tiles of the result."""
        return -(-self.extent // self.by.outputs)

    @property
    def places(self) -> int:
        """Places in a phase where data are transformed: those of tile t and group g are at place t + g."""
        return self.tiles + self.groups - 1

    @property
    def read(self) -> int:
        """Pixels that a tile reads, as often as it does."""
        return self.phases * self.groups * self.by.size

    def pixel(self, phase: Expr, place: Expr, element: int) -> Expr:
        """The index in the image of an element of the data at a place."""
        return (place * self.by.outputs + element) * self.stride + (phase + -self.begin)

    @property
    def filter(self) -> FilterLine:
        """What weights go through."""
        matrix = tuple(map(tuple, self.by.filter.tolist()))
        return FilterLine(stride=self.stride, groups=self.groups, matrix=matrix)


Lines = tuple[Line, Line]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtered:
    """The operators that stand for a convolution.

    `filter_transform` makes the weights of the product in each run, where they are not known before; None of weights
    that are cut into phases or groups.
    """

    lines: Lines
    pixels: TensorExpr
    ordinary: TensorExpr
    input_transform: TensorExpr
    product: TensorExpr
    output_transform: TensorExpr
    filter_transform: TensorExpr | None

    @property
    def operations(self) -> int:
        """Floating-point operations of the transforms and the product."""
        return sum(map(operations, (self.input_transform, self.product, self.output_transform)))

    @property
    def weights(self) -> FilteredWeights:
        """What makes of the convolution's weights those of the product, in another shape."""
        rows, columns = self.lines
        return FilteredWeights(rows=rows.filter, columns=columns.filter)


@lru_cache(maxsize=256)
def filter_convolution(form: Convolution, lines: Lines) -> Filtered:
    """The expressions of the operators."""
    input_transform = _input_transform(form, lines)
    product = _product(form, lines, input_transform.outputs[0].type)
    pixels = _pixels(form, lines)
    ordinary = _ordinary(form, lines, pixels.outputs[0].type, input_transform.outputs[0].type)
    return Filtered(
        lines=lines,
        pixels=pixels,
        ordinary=ordinary,
        input_transform=input_transform,
        product=product,
        output_transform=_output_transform(form, lines, product.outputs[0].type, ordinary.outputs[0].type),
        filter_transform=_filter_transform(form, lines, product.inputs[1]),
    )


def _input_transform(form: Convolution, lines: Lines) -> TensorExpr:
    """The image `[n, c, *image]` -> `[n, c, *(phases * places), points + 1]`: the last is the sum of the squares."""
    n, c = (Axis(name, extent) for name, extent in zip("nc", form.x.shape, strict=False))
    h = [_axis(f"h{d}", line.phases) for d, line in enumerate(lines)]
    t = [Axis(f"t{d}", line.places) for d, line in enumerate(lines)]

    def pixel(*elements: int) -> Expr:
        each = zip(lines, h, t, elements, strict=True)
        return padded_load(0, form.x, (n, c, *(line.pixel(h_d, t_d, k_d) for line, h_d, t_d, k_d in each)), 0)

    rows, columns = (range(line.by.size) for line in lines)
    tile = [[pixel(k0, k1) for k1 in columns] for k0 in rows]
    at_points = itertools.chain.from_iterable(in_two_dimensions([line.by.data for line in lines], tile))
    values = [*at_points, _sum(_sum(element * element for element in row) for row in tile)]
    p = Axis("p", len(values))
    extents = [line.phases * line.places for line in lines]
    places = [h_d * line.places + t_d for line, h_d, t_d in zip(lines, h, t, strict=True)]
    output = Output(
        type=TensorType(DType.FLOAT32, (n.extent, c.extent, *extents, p.extent)),
        indices=(n, c, *places, p),
        body=_element(p, values),
    )
    return TensorExpr(axes=_axes(n, *h, *t, c, p), inputs=(form.x,), outputs=(output,))


def _filter_transform(form: Convolution, lines: Lines, result: TensorType) -> TensorExpr | None:
    """Weights `[m, c / group, *kernel]` -> `[points, m, c / group, 1, 1]`."""
    if any(line.phases * line.groups > 1 for line in lines):
        return None
    m, c = (Axis(name, extent) for name, extent in zip("mc", form.weight.shape, strict=False))
    rows, columns = (range(line.by.taps) for line in lines)
    square = [[load(0, form.weight, (m, c, k0, k1)) for k1 in columns] for k0 in rows]
    values = [*itertools.chain.from_iterable(in_two_dimensions([line.by.weights for line in lines], square))]
    p = Axis("p", len(values))
    zero = const(0, DType.INT64)
    output = Output(type=result, indices=(p, m, c, zero, zero), body=_element(p, values))
    return TensorExpr(axes=(m, c, p), inputs=(form.weight,), outputs=(output,))


def _product(form: Convolution, lines: Lines, data: TensorType) -> TensorExpr:
    """Data and weights `[points, m, c / group, *(phases * groups)]` -> `[n, m, *tiles, points]`."""
    n, p = Axis("n", form.x.shape[0]), Axis("p", data.shape[-1] - 1)
    t = [Axis(f"t{d}", line.tiles) for d, line in enumerate(lines)]
    m_count, c_count = form.weight.shape[:2]
    g, m, c = _axis("g", form.group), Axis("m", m_count // form.group), Axis("c", c_count)
    h = [_axis(f"h{d}", line.phases) for d, line in enumerate(lines)]
    k = [_axis(f"k{d}", line.groups) for d, line in enumerate(lines)]
    each = list(zip(lines, h, k, t, strict=True))
    sums = [line.phases * line.groups for line in lines]
    weight = TensorType(DType.FLOAT32, (p.extent, m_count, c_count, *sums))
    places = [h_d * line.places + (t_d + k_d) for line, h_d, k_d, t_d in each]
    feature = g * m.extent + m
    x = load(0, data, (n, g * c_count + c, *places, p))
    w = load(1, weight, (p, feature, c, *(h_d * line.groups + k_d for line, h_d, k_d, _ in each)))
    output = Output(
        type=TensorType(DType.FLOAT32, (n.extent, m_count, *(t_d.extent for t_d in t), p.extent)),
        indices=(n, feature, *t, p),
        body=Reduce(ReduceFn.SUM, _axes(c, *h, *k), x * w),
    )
    return TensorExpr(axes=_axes(n, p, g, m, *t), inputs=(data, weight), outputs=(output,))


def _pixels(form: Convolution, lines: Lines) -> TensorExpr:
    """The image -> `[n, *samples]`: the squares of the norms of pixels that are evenly spread.

    They are so many that an outlier among them is one still: twice what that takes.
    """
    n, c = (Axis(name, extent) for name, extent in zip("nc", form.x.shape, strict=False))
    rows, columns = form.x.shape[2:]
    wanted = 2 * OUTLIER * math.prod(line.read for line in lines) ** 0.5
    down = max(1, int(rows / max(wanted**0.5, wanted / columns)))
    across = max(1, int(columns * (rows // down) / wanted))
    steps = (down, across)
    samples = [
        Axis(f"s{d}", extent // step) for d, (extent, step) in enumerate(zip(form.x.shape[2:], steps, strict=True))
    ]
    element = load(0, form.x, (n, c, *(s_d * step + step // 2 for s_d, step in zip(samples, steps, strict=True))))
    output = Output(
        type=TensorType(DType.FLOAT32, tuple(axis.extent for axis in (n, *samples))),
        indices=(n, *samples),
        body=Reduce(ReduceFn.SUM, (c,), element * element),
    )
    return TensorExpr(axes=(n, *samples), inputs=(form.x,), outputs=(output,))


def _ordinary(form: Convolution, lines: Lines, pixels: TensorType, data: TensorType) -> TensorExpr:
    """Squares of norms `[n, *samples]`, data with sums of squares -> `[n, *tiles]`: whether a tile has no outlier."""
    n, *t = (
        Axis(name, extent)
        for name, extent in zip(("n", "t0", "t1"), (form.x.shape[0], *(line.tiles for line in lines)), strict=True)
    )
    samples = [Axis(f"s{d}", extent) for d, extent in enumerate(pixels.shape[1:])]
    square = load(0, pixels, (n, *samples))
    norm = select(call(ScalarFn.LT, square, _HUGE), call(ScalarFn.SQRT, square), const(0, DType.FLOAT32))
    mean = Reduce(ReduceFn.SUM, tuple(samples), norm) * (1 / math.prod(axis.extent for axis in samples))
    c = Axis("c", data.shape[1])
    h = [_axis(f"h{d}", line.phases) for d, line in enumerate(lines)]
    k = [_axis(f"k{d}", line.groups) for d, line in enumerate(lines)]
    places = [h_d * line.places + (t_d + k_d) for line, h_d, k_d, t_d in zip(lines, h, k, t, strict=True)]
    squares = Reduce(ReduceFn.SUM, _axes(c, *h, *k), load(1, data, (n, c, *places, data.shape[-1] - 1)))
    limit = mean * mean * (OUTLIER**2 * math.prod(line.read for line in lines))
    output = Output(
        type=TensorType(DType.BOOL, tuple(axis.extent for axis in (n, *t))),
        indices=(n, *t),
        body=call(ScalarFn.LE, squares, limit),
    )
    return TensorExpr(axes=(n, *t), inputs=(pixels, data), outputs=(output,))


def _output_transform(form: Convolution, lines: Lines, products: TensorType, ordinary: TensorType) -> TensorExpr:
    """`[n, m, *tiles, points]`, `[n, *tiles]`, x, w, perhaps a bias `[m]` -> y `[n, m, *result]`, whole tiles.

    Tiles that are not ordinary are the sums that the convolution says.
    """
    n, m, *t = (Axis(name, extent) for name, extent in zip(("n", "m", "t0", "t1"), products.shape, strict=False))
    o = [Axis(f"o{d}", line.by.outputs) for d, line in enumerate(lines)]
    p = _points(lines)
    square = [
        [load(0, products, (n, m, *t, k0 * p[1].extent + k1)) for k1 in range(p[1].extent)] for k0 in range(p[0].extent)
    ]
    pixels = [t_d * o_d.extent + o_d for t_d, o_d in zip(t, o, strict=True)]
    body: Expr = Guarded(
        load(1, ordinary, (n, *t)),
        _chosen(o, in_two_dimensions([line.by.result for line in lines], square)),
        _summed(form, n, m, pixels),
    )
    for bias in form.biases:
        body = body + load(4, bias, (m,))
    extents = [line.tiles * line.by.outputs for line in lines]
    output = Output(
        type=TensorType(DType.FLOAT32, (n.extent, m.extent, *extents)),
        indices=(n, m, *pixels),
        body=body,
    )
    inputs = (products, ordinary, form.x, _plain_weights(form), *form.biases)
    return TensorExpr(axes=_axes(n, *t, m, *o), inputs=inputs, outputs=(output,))


def _summed(form: Convolution, n: Axis, m: Axis, pixels: Sequence[Expr]) -> Expr:
    """A pixel of the result as the convolution says, from slots 2 and 3."""
    features, channels, *taps = form.weight.shape
    c, k = _axis("c", channels), [_axis(f"k{d}", count) for d, count in enumerate(taps)]
    group = m // (features // form.group) if form.group > 1 else const(0, DType.INT64)
    places = [
        pixel * stride + (k_d + -begin)
        for pixel, k_d, stride, begin in zip(pixels, k, form.strides, form.begins, strict=True)
    ]
    x = padded_load(2, form.x, (n, group * channels + c, *places), 0)
    w = load(3, _plain_weights(form), (m, *k, c), finite=True)
    return reduced(ReduceFn.SUM, _axes(c, *k), x * w)


def _plain_weights(form: Convolution) -> TensorType:
    """The weights as they are, but for the order of their dimensions: sums run along channels."""
    return TensorType(DType.FLOAT32, tuple(form.weight.shape[dim] for dim in CHANNELS_LAST))


def _points(lines: Lines) -> list[Axis]:
    """Axes over the points of each dimension."""
    return [Axis(f"p{d}", line.by.size) for d, line in enumerate(lines)]


def _sum(values: Iterable[Expr]) -> Expr:
    return functools.reduce(Expr.__add__, values)


def _axis(name: str, extent: int) -> Expr:
    """An axis, or its one position."""
    return Axis(name, extent) if extent > 1 else const(0, DType.INT64)


def _axes(*found: Expr) -> tuple[Axis, ...]:
    """Those of some positions that are axes."""
    return tuple(axis for axis in found if isinstance(axis, Axis))


def _chosen(axes: Sequence[Axis], square: Sequence[Sequence[Expr]]) -> Expr:
    """The element of a square at the positions of two axes."""
    rows, columns = axes
    return _element(rows, [_element(columns, row) for row in square])


def _element(axis: Axis, elements: Sequence[Expr]) -> Expr:
    *others, element = elements
    for position, other in reversed(list(enumerate(others))):
        element = select(call(ScalarFn.EQ, axis, position), other, element)
    return element
