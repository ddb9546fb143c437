"""fuse_windows: a product computes what it multiplies, a short sum or elementwise work, instead of reading it.

    y[c] = sum[k](x[c + k] * v[c, k]), z[m] = sum[c](y[c] * w[m, c])
      ->  z[m] = sum[c](sum[k](x[c + k] * v[c, k]) * w[m, c])
    y[p, c] = x[p, c] * g[c], z[p, m] = sum[c](y[p, c] * w[m, c])
      ->  z[p, m] = sum[c](x[p, c] * g[c] * w[m, c])

The first is a separable convolution, the second one whose channels are gated (squeeze and excite): what comes before
the product takes as long to hand over as to compute. Devices that stage the operands of products compute such elements
where they would copy them. That saves an operator and a hand-over, but rTasks with other lanes of the same rows compute
the same elements. Roller's model decides, on that share of the units that is an operator's own among those beside it.

Ordering restriction: last, for nothing lays out the operands of sums inside of sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from rammer.ir.expr import Axis, Load, TensorExpr, nodes, substitute
from rammer.ir.graph import Graph, Operator
from rammer.ir.types import Layout
from rammer.ir.vdevice import VDevice
from rammer.passes.helpers.fusion import LARGEST_OPERANDS
from rammer.passes.helpers.predicted import predicted_us
from rammer.passes.helpers.rewrite import PLACED_KINDS, Rewriter
from rammer.passes.helpers.shares import shares
from rammer.passes.helpers.views import Definition, definition
from rammer.passes.helpers.work import lift, lower
from rammer.tiling.gemm import staged_product
from rammer.tiling.packing import is_staged
from rammer.tiling.pattern import MAX_WINDOW_POINTS, chosen_axes


def run(graph: Graph, device: VDevice) -> Graph:
    """Fuse windows into products; see the module.

    Args:
        graph: after fusion; every operator has an expression.
        device: says whether it stages operands, and whose figures decide.
    """
    times = _Times(graph, device)
    makers, consumers = graph.producers(), graph.consumers()
    multiplied = _multiplied(graph)
    fused: dict[tuple[int, ...], Operator] = {}
    gone: set[tuple[int, ...]] = set()
    for operator in graph.operators:
        for value in operator.inputs:
            if value not in makers or value in graph.outputs or len(consumers[value]) > 1:
                continue
            if not _reduces(makers[value]) and multiplied.intersection(makers[value].inputs):
                continue
            whole = _joined(makers[value], operator, graph, device)
            if whole is not None and times.whole_pays(whole, makers[value], operator):
                fused[operator.outputs] = whole
                gone.add(makers[value].outputs)
                break
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        if operator.outputs not in gone:
            rewriter.insert(fused.get(operator.outputs, operator))
    return rewriter.finish()


def _multiplied(graph: Graph) -> set[int]:
    """Values that products read, and what has these for parts: the states of recurrent layers travel tagged.

    Elementwise work takes tagged elements; a product that stages its operands would have all of them announced.
    """
    products = (one for one in graph.operators if one.expr is not None and staged_product(one.expr) is not None)
    found = {value for product in products for value in product.inputs}
    for operator in graph.operators:
        if operator.kind in PLACED_KINDS and found.intersection(operator.inputs):
            found.update(operator.outputs)
    return found


def _reduces(operator: Operator) -> bool:
    return operator.expr is not None and bool(operator.expr.reductions)


class _Times:
    """How long operators take, as Roller predicts, each on its share of the units."""

    def __init__(self, graph: Graph, device: VDevice) -> None:
        self._graph = graph
        self._device = device
        own = zip(graph.operators, shares(graph, device.veu_count), strict=True)
        self._veus = {operator.outputs: veus for operator, veus in own}
        self._known: dict[tuple[TensorExpr, tuple[Layout, ...], frozenset[int], int], float] = {}

    def whole_pays(self, whole: Operator, maker: Operator, operator: Operator) -> bool:
        """Whether an operator ends sooner than the two that it stands for, the second of which has its results."""
        return self._time_us(whole) < self._time_us(maker) + self._device.handover_us.value + self._time_us(operator)

    def _time_us(self, operator: Operator) -> float:
        assert operator.expr is not None  # a window or a product
        layouts = tuple(self._graph.values[value].storage for value in (*operator.inputs, *operator.outputs))
        constants = frozenset(slot for slot, value in enumerate(operator.inputs) if value in self._graph.constants)
        key = (operator.expr, layouts, constants, self._veus[operator.outputs])
        if key not in self._known:
            expr, *_, veus = key
            self._known[key] = predicted_us(expr, layouts, constants, self._device, veus)
        return self._known[key]


def _joined(maker: Operator, operator: Operator, graph: Graph, device: VDevice) -> Operator | None:
    """The product that computes what `maker` makes and it alone reads, as an operand, once; None for anything else."""
    found = None if operator.expr is None else staged_product(operator.expr)
    if operator.expr is None or found is None or not is_staged(operator.expr, found, device):
        return None
    window = _window(maker, device)
    if window is None:
        return None
    (value,) = maker.outputs
    slot = operator.inputs.index(value)
    links = [load for load in operator.expr.loads if load.slot == slot]
    operands = nodes(*(operand for term in found.terms for operand in term.operands))
    if len(links) != 1 or links[0] not in operands or not _is_whole(links[0], operator.expr.inputs[slot].shape):
        return None
    fused = lift(operator).rewritten(
        lambda node: window.at(node.indices) if isinstance(node, Load) and node.slot == value else None
    )
    if len(fused.reads) + len(fused.outputs) > LARGEST_OPERANDS:
        return None
    expr, inputs = lower(fused, lambda number: graph.values[number].type)
    if staged_product(expr) is None:
        return None
    kind, sources = f"{maker.kind}+{operator.kind}", tuple(dict.fromkeys((*maker.sources, *operator.sources)))
    return replace(operator, kind=kind, inputs=inputs, expr=expr, sources=sources)


def _window(operator: Operator, device: VDevice) -> Definition | None:
    """The one result of an operator that reduces over few points or none; None for others, and for what is staged.

    Values that an axis chooses between stay together, for what they share is computed once. The axes of the operator's
    reductions get names that no other uses.
    """
    expr = operator.expr
    if expr is None or len(expr.outputs) != 1 or operator.kind in PLACED_KINDS or expr.guards:
        return None
    product = staged_product(expr)
    points = math.prod(axis.extent for axis in expr.reduce_axes)
    if chosen_axes(expr) or not 0 <= points <= MAX_WINDOW_POINTS:
        return None
    if product is not None and is_staged(expr, product, device):
        return None
    work = lift(operator)
    (output,) = work.outputs.values()
    axes = {axis: Axis(f"window{number}", axis.extent) for number, axis in enumerate(expr.reduce_axes)}
    (body,) = substitute([output.body], axes)
    return definition(work.axes, replace(output, body=body))


def _is_whole(link: Load, shape: Sequence[int]) -> bool:
    """Whether a load goes through all of a value, so that no element of it is computed for several rows."""
    whole = all(
        extent == 1 or (isinstance(index, Axis) and index.extent == extent)
        for index, extent in zip(link.indices, shape, strict=True)
    )
    axes = [index for index in link.indices if isinstance(index, Axis)]
    return link.fill is None and whole and len(set(axes)) == len(axes)
