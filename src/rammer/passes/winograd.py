"""winograd: a convolution multiplies at the points of minimal filtering, not at every pixel.

    y = Conv(x, w, b)  ->  v = ConvInputTransform(x)         tiles of the image, at all points; sums of squares
                           p = ConvProduct(v, w')            at each point a product over the channels
                           y = ConvOutputTransform(p, b)     tiles of the result
                           q = ConvPixels(x)                 squares of norms over the channels, of some pixels
                           o = ConvOrdinary(q, v)            whether a tile has no outlier
                           y = Slice(y)                      where tiles reach beyond it

For a 3x3 kernel, F(2x2, 3x3) takes 4 products for an output instead of 9, F(4x4, 3x3) takes 2.25 (see
`minimal_filtering`). A stride s makes s convolutions of pixels and taps that lie s apart, its *phases*, whose results
are added; a long line of taps is cut into *groups*, whose results are added, too. Both are summed over at the points,
beside the channels. Rows and columns may differ, and either may stay as it is: that is F(1, 1).

The results of a tile share products, so that rounding errors of a great value, or an infinity, would be in results that
do not read it. A tile with an *outlier* is therefore computed as the convolution says, by a guard (ADR 0017): the root
mean square of the norms of what it reads is more than `OUTLIER` times the mean norm of its image's pixels, or not a
number. The input transform adds up the squares of what it reads anyway; the mean is of pixels evenly spread.

In exchange v and p are larger than the images, w' than w, the transforms have to be computed, and there are four more
hand-overs. What takes least time is taken, which may be the convolution as it is, of tiles with no more results in a
row than `VDevice.most_filtered`. Where products run near the peak, the vDevice's figures say what that is; where they
stage their operands, Roller's model does, by what the passes that follow make of a convolution and of the three on that
share of the units that falls to it. Groups of channels stay groups. Weights are float32. Constants are transformed in
float64 here; others, which are trained, in each run, by one more operator (`ConvFilterTransform`), and only where they
are neither cut into phases nor into groups.

Ordering restriction: after `fold_batch_norm` and `merge_products`, which know convolutions by their kind; before
`hoist_pointwise` and `fuse` lead what follows a convolution to its output transform.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from rammer.ir.expr import (
    TensorExpr,
)
from rammer.ir.graph import Attributes, Graph, Operator
from rammer.ir.recipe import Recipe, Transposed
from rammer.ir.types import DType
from rammer.ir.vdevice import MemoryLevel, VDevice
from rammer.operators.attributes import integer, integers
from rammer.passes.helpers.alone import alone, laid_out_alone, predicted_alone_us
from rammer.passes.helpers.filtered_convolution import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    Convolution,
    Filtered,
    Line,
    Lines,
    filter_convolution,
)
from rammer.passes.helpers.minimal_filtering import filterings
from rammer.passes.helpers.peaks import level_of, operations, peak_us
from rammer.passes.helpers.rewrite import Rewriter
from rammer.passes.helpers.shares import shares

_WITH_OUTLIERS = 1.15  # what looks for them runs beside the products, and takes some of the units' time


class _Times(Protocol):
    """Times of a convolution and of what may stand for it."""

    def time_us(self, operator: Operator, veus: int, filtered: Filtered | None, limit_us: float) -> float:
        """Time on so many units, in microseconds; `filtered` is None for the convolution as it is.

        Any time that is not below `limit_us` may be infinity.
        """
        ...


def run(graph: Graph, device: VDevice, rest: Callable[[Graph, VDevice], Graph]) -> Graph:
    """Rewrite the convolutions for which it pays; see the module.

    Args:
        graph: convolutions by kind, weights known.
        device: whose figures decide.
        rest: all passes that follow.
    """
    if device.precision != "fp32":  # transforms would make more of what products are rounded by
        return graph
    times: _Times = _AtPeak(graph, device) if device.products_reach_peak else _Predicted(graph, device, rest)
    rewriter = Rewriter(graph)
    known: dict[tuple[Convolution, bool, int], Filtered | None] = {}
    for operator, veus in zip(graph.operators, shares(graph, device.veu_count), strict=True):
        form = _form(operator, graph)
        filtered = None
        if form is not None:
            is_known = operator.inputs[1] in graph.constants
            key = (form, is_known, veus)
            if key not in known:
                time_us = partial(times.time_us, operator, veus)
                known[key] = _fastest(operator, form, device.most_filtered, time_us, is_known=is_known)
            filtered = known[key]
        if filtered is None:
            rewriter.insert(operator)
        else:
            _replace(operator, filtered, rewriter)
    return rewriter.finish()


def _form(operator: Operator, graph: Graph) -> Convolution | None:
    """What a convolution looks like, None for one that cannot be rewritten and for any other operator."""
    if operator.kind != "Conv":
        return None
    x, weight, *biases = (graph.values[value].type for value in operator.inputs)
    attributes = operator.attributes
    y = graph.values[operator.outputs[0]].type
    if weight.rank != 4 or weight.dtype is not DType.FLOAT32 or set(integers(attributes, "dilations")) != {1}:
        return None
    if y.size == 0 or not attributes.get("finite_weights"):
        return None
    return Convolution(
        x=x,
        y=y,
        weight=weight,
        begins=integers(attributes, "pads")[:2],
        strides=integers(attributes, "strides"),
        group=integer(attributes, "group"),
        biases=tuple(biases),
    )


def _fastest(
    operator: Operator,
    form: Convolution,
    most_filtered: int,
    time_us: Callable[[Filtered | None, float], float],
    *,
    is_known: bool,
) -> Filtered | None:
    """What takes least time of what has fewer operations; None if that is the convolution as it is.

    Weights that are not known are transformed in each run.
    """
    assert operator.expr is not None  # a convolution
    most = operations(operator.expr)
    found = (filter_convolution(form, lines) for lines in _choices(form, most_filtered))
    fewer = [
        filtered
        for filtered in found
        if filtered.operations < most and (is_known or filtered.filter_transform is not None)
    ]
    best, best_us = None, time_us(None, math.inf) if fewer else 0.0
    for filtered in fewer:
        filtered_us = time_us(filtered, best_us)
        if filtered_us < best_us:
            best, best_us = filtered, filtered_us
    return best


def _choices(form: Convolution, most_filtered: int) -> list[Lines]:
    """The filterings to compare: equal dimensions get the same, and one of them has to be more than F(1, 1)."""
    rows, columns = (
        [
            Line(by=by, extent=extent, taps=taps, stride=stride, begin=begin)
            for by in filterings(-(-taps // stride))
            if by.outputs <= most_filtered
        ]
        for extent, taps, stride, begin in zip(
            form.y.shape[2:], form.weight.shape[2:], form.strides, form.begins, strict=True
        )
    )
    return [
        (row, column)
        for row, column in itertools.product(rows, columns)
        if row.by.size * column.by.size > 1
        and (row.by is column.by or (row.taps, row.stride) != (column.taps, column.stride))
    ]


class _AtPeak:
    """`_Times` by the vDevice's peaks."""

    def __init__(self, graph: Graph, device: VDevice) -> None:
        self._device = device
        self._constants = graph.constants
        weights = [op.inputs[1] for op in graph.operators if _form(op, graph) is not None]
        growing = [graph.constants[weight] for weight in weights if weight in graph.constants]
        self._constant_bytes = sum(array.nbytes for array in graph.constants.values())
        self._growing_bytes = sum(array.nbytes for array in growing)

    def time_us(self, operator: Operator, _veus: int, filtered: Filtered | None, _limit_us: float) -> float:
        """Time on the whole device."""
        assert operator.expr is not None  # a convolution
        constants = {1} if operator.inputs[1] in self._constants else set[int]()
        if filtered is None:
            return peak_us(operator.expr, constants, self._device, self._weights(1))
        growth = filtered.product.inputs[1].size / operator.expr.inputs[1].size if constants else 1
        weights = self._weights(growth)
        transform_us = 0.0
        if not constants and filtered.filter_transform is not None:
            transform_us = peak_us(filtered.filter_transform, (), self._device, weights)
        return (
            transform_us
            + peak_us(filtered.product, constants, self._device, weights)
            + peak_us(filtered.input_transform, (), self._device, weights)
            + peak_us(filtered.output_transform, (), self._device, weights)
            + peak_us(filtered.pixels, (), self._device, weights)
            + peak_us(filtered.ordinary, (), self._device, weights)
        )

    def _weights(self, growth: float) -> MemoryLevel:
        """Where a model's constants come from if the weights of all its convolutions grow by a factor."""
        return level_of(self._constant_bytes + int(self._growing_bytes * (growth - 1)), self._device)


class _Predicted:
    """`_Times` by Roller's prediction of what the passes that follow make of each."""

    def __init__(self, graph: Graph, device: VDevice, rest: Callable[[Graph, VDevice], Graph]) -> None:
        self._graph = graph
        self._device = device
        self._rest = rest

    def time_us(self, operator: Operator, veus: int, filtered: Filtered | None, limit_us: float) -> float:
        """Time on so many units."""
        whole = alone(operator, self._graph)
        rewriter = Rewriter(whole)
        if filtered is None:
            rewriter.insert(operator)
        else:
            _replace(operator, filtered, rewriter, blank=True)
        part = rewriter.finish()
        ends = zip((*whole.inputs, *whole.outputs), (*part.inputs, *part.outputs), strict=True)
        fixed = {end for value, end in ends if value in (*self._graph.inputs, *self._graph.outputs)}
        factor = 1.0 if filtered is None else _WITH_OUTLIERS
        limit_us /= factor
        return factor * predicted_alone_us(laid_out_alone(part, fixed), self._device, veus, self._rest, limit_us)


def _replace(operator: Operator, filtered: Filtered, rewriter: Rewriter, *, blank: bool = False) -> None:
    """Let these operators stand for a convolution.

    `blank` is for predictions: weights at the points are zeros, and what looks for outliers, which runs beside the
    rest, is left out.
    """
    x, w, *bias = operator.inputs

    def add(expr: TensorExpr, inputs: Sequence[int], part: str) -> int:
        called = f"{operator.name}.{part}"
        return rewriter.add_expression(expr, inputs, kind=f"Conv{part}", name=called, sources=operator.sources)

    tiles = add(filtered.input_transform, [x], "InputTransform")
    if rewriter.array(w) is not None:
        at_points, plain = _known_weights(w, filtered, rewriter, blank=blank)
    else:
        assert filtered.filter_transform is not None  # `_fastest` took no others
        at_points = add(filtered.filter_transform, [w], "FilterTransform")
        name = f"{operator.name}.weights"
        plain = rewriter.add("Transpose", [w], {"perm": CHANNELS_LAST}, name=name, sources=operator.sources)
    products = add(filtered.product, [tiles, at_points], "Product")
    if blank:
        every = np.broadcast_to(np.True_, filtered.ordinary.outputs[0].type.shape)
        ordinary = rewriter.constant(every, f"{operator.name}.ordinary")
    else:
        ordinary = add(filtered.ordinary, [add(filtered.pixels, [x], "Pixels"), tiles], "Ordinary")
    read = [products, ordinary, x, plain, *bias]
    result = add(filtered.output_transform, read, "OutputTransform")
    (output,) = operator.outputs
    shape = rewriter.type(output).shape
    if rewriter.type(result).shape != shape:
        part: Attributes = {"starts": (0,) * len(shape), "steps": (1,) * len(shape), "sizes": shape}
        result = rewriter.add("Slice", [result], part, name=operator.name, sources=operator.sources)
    rewriter.replace(output, result)


def _known_weights(w: int, filtered: Filtered, rewriter: Rewriter, *, blank: bool) -> tuple[int, int]:
    """Constants of weights: at the points, and as they are but for the order of their dimensions."""
    own, name, known = rewriter.array(w), rewriter.name(w), rewriter.recipe(w)
    assert own is not None  # they are known
    plain = np.ascontiguousarray(own.transpose(CHANNELS_LAST))
    recipe = Recipe(base=plain) if known is None else known.then(Transposed(CHANNELS_LAST))
    if blank:
        at_points, made = np.broadcast_to(np.zeros((), np.float32), filtered.product.inputs[1].shape), None
    else:
        at_points = np.ascontiguousarray(filtered.weights(own))
        made = recipe.then(Transposed(CHANNELS_FIRST), filtered.weights)
    return rewriter.constant(at_points, name, recipe=made), rewriter.constant(plain, name, recipe=recipe)
