"""winograd: a convolution with kernels of 3x3 multiplies at the points of minimal filtering, not at every pixel.

    y = Conv(x, w, b)  ->  v = ConvInputTransform(x)         tiles of the image, evaluated at all points
                           p = ConvProduct(v, w')            at each point a product over the channels
                           y = ConvOutputTransform(p, b)     tiles of the result
                           y = Slice(y)                      where tiles reach beyond it

F(2x2, 3x3) takes 4 products for an output instead of 9, F(4x4, 3x3) takes 2.25 (see `minimal_filtering`). In exchange
v and p are 4 or 2.25 times as large as the images, w' 1.8 or 4 times as large as w, the transforms have to be
computed, and there are two more hand-overs. What takes least time by the vDevice's figures is taken: one of the two, or
the convolution as it is. Groups stay groups. Weights are float32 constants, transformed in float64.

Ordering restriction: after `fold_batch_norm` and `merge_products`, which know convolutions by their kind; before
`hoist_pointwise` and `fuse` lead what follows a convolution to its output transform.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rammer.ir.expr import Axis, Call, Expr, Output, Reduce, ReduceFn, ScalarFn, TensorExpr, call, const, load, select
from rammer.ir.graph import Array, Attributes, Graph, Operator
from rammer.ir.pattern import choices, free_axes, values
from rammer.ir.types import DType, TensorType
from rammer.ir.vdevice import MemoryLevel, VDevice
from rammer.operators.attributes import integer, integers
from rammer.operators.shapes import padded_load
from rammer.passes.minimal_filtering import Filtering, filtering, in_two_dimensions
from rammer.passes.rewrite import Rewriter

_KERNEL = (3, 3)
_OUTPUTS = (2, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """A convolution `[n, c, *image]` to `[n, m, *result]` with weights `[m, c / group, 3, 3]`, perhaps with a bias."""

    x: TensorType
    y: TensorType
    weight: TensorType
    begins: tuple[int, ...]
    group: int
    biases: tuple[TensorType, ...]

    def tiles(self, by: Filtering) -> tuple[Axis, ...]:
        """Axes over the tiles of the result."""
        return tuple(Axis(f"t{d}", -(-extent // by.outputs)) for d, extent in enumerate(self.y.shape[2:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Filtered:
    """The three operators that stand for a convolution."""

    by: Filtering
    input_transform: TensorExpr
    product: TensorExpr
    output_transform: TensorExpr


def run(graph: Graph, device: VDevice) -> Graph:
    """Rewrite the convolutions for which it pays; see the module.

    Args:
        graph: convolutions by kind, weights known.
        device: whose figures decide.
    """
    rewriter = Rewriter(graph)
    known: dict[_Form, _Filtered | None] = {}
    weights = _level(device, sum(array.nbytes for array in graph.constants.values()))
    for operator in graph.operators:
        form = _form(operator, graph)
        if form is not None and form not in known and operator.expr is not None:
            known[form] = _fastest(form, operator.expr, device, weights)
        filtered = None if form is None else known[form]
        if filtered is None:
            rewriter.insert(operator)
        else:
            _replace(operator, graph.constants[operator.inputs[1]], filtered, rewriter)
    return rewriter.finish()


def _form(operator: Operator, graph: Graph) -> _Form | None:
    """What a convolution looks like, None for one that cannot be rewritten and for any other operator."""
    if operator.kind != "Conv" or operator.inputs[1] not in graph.constants:
        return None
    x, weight, *biases = (graph.values[value].type for value in operator.inputs)
    attributes = operator.attributes
    steps = (*integers(attributes, "strides"), *integers(attributes, "dilations"))
    y = graph.values[operator.outputs[0]].type
    if weight.shape[2:] != _KERNEL or weight.dtype is not DType.FLOAT32 or set(steps) != {1} or y.size == 0:
        return None
    return _Form(
        x=x,
        y=y,
        weight=weight,
        begins=integers(attributes, "pads")[:2],
        group=integer(attributes, "group"),
        biases=tuple(biases),
    )


def _fastest(form: _Form, direct: TensorExpr, device: VDevice, weights: MemoryLevel) -> _Filtered | None:
    """What takes least time; None if that is the convolution as it is."""
    least_us, fastest = _time_us(direct, {1}, device, weights), None
    for outputs in _OUTPUTS:
        filtered = _filtered(form, filtering(outputs))
        time_us = (
            _time_us(filtered.input_transform, (), device, weights)
            + _time_us(filtered.product, {1}, device, weights)
            + _time_us(filtered.output_transform, (), device, weights)
        )
        if time_us < least_us:
            least_us, fastest = time_us, filtered
    return fastest


def _time_us(expr: TensorExpr, constants: Collection[int], device: VDevice, weights: MemoryLevel) -> float:
    """Time of an operator alone on the device: its arithmetic, its operands moved once, and a hand-over.

    Args:
        expr: what it computes.
        constants: the slots that hold weights.
        device: the machine.
        weights: where the weights of the whole model come from.
    """
    constant_bytes = sum(expr.inputs[slot].nbytes for slot in constants)
    moved_bytes = sum(type_.nbytes for type_ in expr.inputs) - constant_bytes
    moved_bytes += sum(output.type.nbytes for output in expr.outputs)
    one_unit_us = (
        _operations(expr) / device.flops_per_us[DType.FLOAT32].value
        + constant_bytes / weights.bandwidth_bytes_per_us.value
        + moved_bytes / _level(device, moved_bytes).bandwidth_bytes_per_us.value
    )
    return one_unit_us / device.veu_count + device.handover_us.value


def _operations(expr: TensorExpr) -> int:
    """Floating-point operations, each as often as the axes that it depends on say."""
    free = free_axes(*expr.roots)
    total = 0
    for node in set(values(*expr.roots)) - choices(expr):
        if isinstance(node, Call | Reduce):
            axes = free[node.body] if isinstance(node, Reduce) else free[node]
            total += math.prod(axis.extent for axis in axes)
    return total


def _level(device: VDevice, size_bytes: int) -> MemoryLevel:
    """The innermost memory level that holds so much, private ones all together."""
    for level in device.levels:
        if size_bytes <= level.capacity_bytes * (1 if level.shared else device.veu_count):
            return level
    return device.levels[-1]


def _replace(operator: Operator, weight: Array, filtered: _Filtered, rewriter: Rewriter) -> None:
    """Let the three operators stand for a convolution."""
    x, w, *bias = operator.inputs
    by = filtered.by

    def add(expr: TensorExpr, inputs: Sequence[int], part: str) -> int:
        name = f"{operator.name}.{part}"
        return rewriter.add_expression(expr, inputs, kind=f"Conv{part}", name=name, sources=operator.sources)

    tiles = add(filtered.input_transform, [x], "InputTransform")
    # [m, c, 3, 3] -> [points, m, c]
    at_points = np.einsum("pk,ql,mckl->pqmc", by.filter, by.filter, weight.astype(np.float64), optimize=True)
    rounded = at_points.astype(np.float32).reshape(by.size**2, *weight.shape[:2])
    products = add(filtered.product, [tiles, rewriter.constant(rounded, rewriter.name(w))], "Product")
    result = add(filtered.output_transform, [products, *bias], "OutputTransform")
    (output,) = operator.outputs
    shape = rewriter.type(output).shape
    if rewriter.type(result).shape != shape:
        part: Attributes = {"starts": (0,) * len(shape), "steps": (1,) * len(shape), "sizes": shape}
        result = rewriter.add("Slice", [result], part, name=operator.name, sources=operator.sources)
    rewriter.replace(output, result)


@lru_cache(maxsize=256)
def _filtered(form: _Form, by: Filtering) -> _Filtered:
    """The expressions of the three operators."""
    input_transform = _input_transform(form, by)
    product = _product(form, by, input_transform.outputs[0].type)
    return _Filtered(
        by=by,
        input_transform=input_transform,
        product=product,
        output_transform=_output_transform(form, by, product.outputs[0].type),
    )


def _input_transform(form: _Form, by: Filtering) -> TensorExpr:
    """The image `[n, c, *image]` -> `[n, c, *tiles, points]`."""
    p = (Axis("p0", by.size), Axis("p1", by.size))
    n, c = (Axis(name, extent) for name, extent in zip("nc", form.x.shape, strict=False))
    t = form.tiles(by)

    def pixel(*k: int) -> Expr:
        position = [t_d * by.outputs + (k_d - begin) for t_d, k_d, begin in zip(t, k, form.begins, strict=True)]
        return padded_load(0, form.x, (n, c, *position), 0)

    tile = [[pixel(k0, k1) for k1 in range(by.size)] for k0 in range(by.size)]
    output = Output(
        type=TensorType(DType.FLOAT32, (n.extent, c.extent, *(t_d.extent for t_d in t), by.size**2)),
        indices=(n, c, *t, p[0] * by.size + p[1]),
        body=_chosen(p, in_two_dimensions(by.data, tile)),
    )
    return TensorExpr(axes=(n, *t, c, *p), inputs=(form.x,), outputs=(output,))


def _product(form: _Form, by: Filtering, data: TensorType) -> TensorExpr:
    """`[n, c, *tiles, points]` and weights `[points, m, c / group]` -> `[n, m, *tiles, points]`."""
    n, p, t = Axis("n", form.x.shape[0]), Axis("p", by.size**2), form.tiles(by)
    m_count, c_count = form.weight.shape[:2]
    m, c = Axis("m", m_count // form.group), Axis("c", c_count)
    g = Axis("g", form.group) if form.group > 1 else const(0, DType.INT64)
    weight = TensorType(DType.FLOAT32, (p.extent, m_count, c_count))
    feature = g * m.extent + m
    product = load(0, data, (n, g * c_count + c, *t, p)) * load(1, weight, (p, feature, c))
    output = Output(
        type=TensorType(DType.FLOAT32, (n.extent, m_count, *data.shape[2:])),
        indices=(n, feature, *t, p),
        body=Reduce(ReduceFn.SUM, (c,), product),
    )
    axes = [axis for axis in (n, p, g, m, *t) if isinstance(axis, Axis)]
    return TensorExpr(axes=tuple(axes), inputs=(data, weight), outputs=(output,))


def _output_transform(form: _Form, by: Filtering, products: TensorType) -> TensorExpr:
    """`[n, m, *tiles, points]`, perhaps a bias `[m]` -> y `[n, m, *result]`, up to the end of the last tiles."""
    o = (Axis("o0", by.outputs), Axis("o1", by.outputs))
    n, m = (Axis(name, extent) for name, extent in zip("nm", products.shape, strict=False))
    t = form.tiles(by)
    square = [[load(0, products, (n, m, *t, p0 * by.size + p1)) for p1 in range(by.size)] for p0 in range(by.size)]
    body = _chosen(o, in_two_dimensions(by.result, square))
    for bias in form.biases:
        body = body + load(1, bias, (m,))
    output = Output(
        type=TensorType(DType.FLOAT32, (n.extent, m.extent, *(t_d.extent * by.outputs for t_d in t))),
        indices=(n, m, *(t_d * by.outputs + o_d for t_d, o_d in zip(t, o, strict=True))),
        body=body,
    )
    return TensorExpr(axes=(n, *t, m, *o), inputs=(products, *form.biases), outputs=(output,))


def _chosen(axes: tuple[Axis, Axis], square: Sequence[Sequence[Expr]]) -> Expr:
    """The element of a square at the positions of two axes."""
    return _element(axes[0], [_element(axes[1], row) for row in square])


def _element(axis: Axis, elements: Sequence[Expr]) -> Expr:
    *others, element = elements
    for position, other in reversed(list(enumerate(others))):
        element = select(call(ScalarFn.EQ, axis, position), other, element)
    return element
