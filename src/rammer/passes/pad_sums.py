"""pad_sums: rows of weights get an even length, so that they are copied in whole pieces.

    y = sum[c, k < 11](x[c, 4 o + k] * w[m, c, k])
      ->  y = sum[c, k < 12](x[c, 4 o + k] * w'[m, c, k]), w' being w and zeros
    y = sum[c, k < 7](x[c, 2 o + k - 3] * w[m, c, k])
      ->  y = sum[c, k < 8](x[c, 2 o + k - 4] * w'[m, c, k]), w' being zeros and w

Devices that stage the operands of products copy up to 16 bytes at a time, where rows begin at multiples of that. In a
network's first convolution, whose input lies channel by channel, a row is a window's: of odd width, and with odd
padding before it. Zeros go to where they leave windows at even places. What is added costs arithmetic, so Roller's
model decides.

What x has beyond a window is multiplied by 0, which gives 0 unless it is infinite or NaN.

Ordering restriction: after `channels_last`, which says along what the rows lie; before `round_products`, which narrows
weights that are copied, and before `layout`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rammer.ir.expr import Axis, Expr, Load, TensorExpr, const, nodes, rebuild, substitute
from rammer.ir.graph import Graph, Operator
from rammer.ir.region import affine, depends_on_data
from rammer.ir.vdevice import VDevice
from rammer.passes.helpers.predicted import laid_out, predicted_us
from rammer.passes.helpers.rewrite import Rewriter
from rammer.passes.helpers.shares import shares
from rammer.tiling.packing import is_staged
from rammer.tiling.pattern import contraction, plain_load, reduction_order

_MULTIPLE = 4  # elements: 16 bytes of float32, 8 of 16 bits
_WORTH = 0.95
"""The fraction of the time that the padded sum may take: the model errs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """The innermost axis of an operator's sums, dimension `dim` of its weights; `image` is what they multiply."""

    axis: Axis
    weight: Load
    dim: int
    image: Load

    @property
    def missing(self) -> int:
        """Elements up to a whole number of pieces."""
        return -self.axis.extent % _MULTIPLE

    @property
    def before(self) -> int:
        """How many of these come first, so that windows begin at multiples of as many elements as can be."""
        starts = [form.offset for form in map(affine, self.image.indices) if form and form.coefficient(self.axis) == 1]
        if len(starts) != 1:
            return 0
        return max(range(self.missing + 1), key=lambda count: (math.gcd(starts[0] - count, _MULTIPLE), -count))


def run(graph: Graph, device: VDevice) -> Graph:
    """Pad rows of weights; see the module.

    Args:
        graph: after fusion; every operator has an expression.
        device: says whether it stages operands, and whose figures decide.
    """
    rewriter = Rewriter(graph)
    for operator, veus in zip(graph.operators, shares(graph, device.veu_count), strict=True):
        row = _row(operator, graph, device)
        padded = None if row is None or operator.expr is None else _padded(operator.expr, row)
        if row is None or padded is None or not _pays(operator, padded, graph, device, veus):
            rewriter.insert(operator)
            continue
        weight = operator.inputs[row.weight.slot]
        zeros = (row.before, row.missing - row.before)
        widths = [zeros if dim == row.dim else (0, 0) for dim in range(len(row.weight.indices))]
        longer = rewriter.constant(np.pad(graph.constants[weight], widths), graph.values[weight].name)
        inputs = tuple(longer if slot == row.weight.slot else value for slot, value in enumerate(operator.inputs))
        rewriter.insert(replace(operator, expr=padded, inputs=inputs))
    return rewriter.finish()


def _row(operator: Operator, graph: Graph, device: VDevice) -> _Row | None:
    """The row of an operator's weights that may be padded."""
    expr = operator.expr
    found = None if expr is None else contraction(expr)
    if expr is None or found is None or len(found.terms) != 1 or not is_staged(expr, found, device):
        return None
    (term,) = found.terms
    weight, image = (plain_load(operand) for operand in found.split(term, found.lanes[0]))
    if image is not None and operator.inputs[image.slot] in graph.constants:
        weight, image = image, weight
    if weight is None or image is None or operator.inputs[weight.slot] not in graph.constants:
        return None
    if sum(load.slot == weight.slot for load in expr.loads) > 1 or any(map(depends_on_data, image.indices)):
        return None
    if image.fill is not None and image.fill.value != 0:
        return None
    layouts = [graph.values[value].storage for value in operator.inputs]
    innermost = reduction_order([image], term.reduce.axes, layouts)[-1]
    dims = [dim for dim, index in enumerate(weight.indices) if innermost in nodes(index)]
    if len(dims) != 1 or weight.indices[dims[0]] is not innermost:
        return None
    row = _Row(axis=innermost, weight=weight, dim=dims[0], image=image)
    return row if row.missing else None


def _padded(expr: TensorExpr, row: _Row) -> TensorExpr:
    """The expression over the longer row."""
    longer = Axis(row.axis.name, row.axis.extent + row.missing)

    def visit(node: Expr) -> Expr | None:
        if node is row.image:  # it may be read beyond its ends
            indices = substitute(row.image.indices, {row.axis: row.axis - row.before})
            return replace(row.image, indices=tuple(indices), fill=const(0, row.image.type))
        return None

    bodies = substitute(rebuild(expr.roots, visit), {row.axis: longer})
    inputs = list(expr.inputs)
    weight = inputs[row.weight.slot]
    shape = tuple(longer.extent if dim == row.dim else extent for dim, extent in enumerate(weight.shape))
    inputs[row.weight.slot] = replace(weight, shape=shape)
    outputs = tuple(replace(output, body=body) for output, body in zip(expr.outputs, bodies, strict=True))
    return replace(expr, inputs=tuple(inputs), outputs=outputs)


def _pays(operator: Operator, padded: TensorExpr, graph: Graph, device: VDevice, veus: int) -> bool:
    """Whether an operator takes clearly less time in its padded form."""
    assert operator.expr is not None  # it has a row
    layouts = [graph.values[value].storage for value in (*operator.inputs, *operator.outputs)]
    constants = [slot for slot, value in enumerate(operator.inputs) if value in graph.constants]
    before_us, after_us = (
        predicted_us(expr, laid_out(expr, layouts, constants, device), constants, device, veus)
        for expr in (operator.expr, padded)
    )
    return after_us <= _WORTH * before_us
