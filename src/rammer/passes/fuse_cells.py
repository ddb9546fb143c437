"""fuse_cells: elementwise work computes the products that it alone reads, where their weights stay near.

    s = Gemm(x, w) + Gemm(h, r), h' = sigmoid(s[.., :n]) * tanh(s[.., n:])
      ->  h' = sigmoid(sum[k](x[k] * w[k, u]) + ...) * tanh(sum[k](x[k] * w[k, n + u]) + ...)

So exporters write the cell of a recurrent layer that a loop calls. Several operators read such weights, one for each
step; as one expression a cell is what a recurrent operator becomes when it is unrolled, and its weights can stay where
they are used. Every sum is computed once, as before.

Ordering restriction: after `fuse`, which puts elementwise work together; before `round_products`, which wants products
in their last form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rammer.ir.expr import Expr, Load, Reduce, nodes
from rammer.ir.graph import Graph, Operator
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.passes.helpers.constants import read_again
from rammer.passes.helpers.fusion import LARGEST_NODES, LARGEST_OPERANDS
from rammer.passes.helpers.predicted import laid_out
from rammer.passes.helpers.rewrite import Rewriter
from rammer.passes.helpers.scopes import find_scopes
from rammer.passes.helpers.views import definition
from rammer.passes.helpers.work import Work, lift, lower
from rammer.tiling.pattern import contraction


def run(graph: Graph, device: VDevice) -> Graph:
    """Fuse products by shared weights into what reads them; see the module.

    Args:
        graph: after fusion; every operator has an expression.
        device: says which weights stay.
    """
    if not device.stationary_bytes:
        return graph
    consumers = graph.consumers()
    shared = read_again(graph)
    scopes = find_scopes(graph)
    makers: dict[int, Operator] = {}
    fused: dict[tuple[int, ...], Operator] = {}
    gone: set[tuple[int, ...]] = set()
    for operator in graph.operators:
        whole = operator
        for value in operator.inputs:
            maker = makers.get(value)
            if maker is None or value in graph.outputs or len(consumers[value]) > 1:
                continue
            if scopes.of(value) is not scopes.of(operator.outputs[0]):
                continue
            joined = _joined(maker, whole, graph, shared, device)
            if joined is not None:
                whole = fused[operator.outputs] = joined
                gone.add(maker.outputs)
        if len(whole.outputs) == 1 and whole.expr is not None and contraction(whole.expr) is not None:
            makers[whole.outputs[0]] = whole
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        if operator.outputs not in gone:
            rewriter.insert(fused.get(operator.outputs, operator))
    return rewriter.finish()


def _joined(
    maker: Operator, operator: Operator, graph: Graph, shared: frozenset[int], device: VDevice
) -> Operator | None:
    """The operator that computes what `maker` makes where it reads it; None where that or keeping weights cannot be."""
    if operator.expr is None or shared.isdisjoint((*maker.inputs, *operator.inputs)):
        return None
    (value,) = maker.outputs
    work, reader = lift(maker), lift(operator)
    found = definition(work.axes, work.outputs[value])
    links = [load for load in reader.loads if load.slot == value]
    is_once = reader.evaluations(value) <= graph.values[value].type.size and not _in_reductions(reader, links)
    if found is None or not is_once or any(link.fill is not None for link in links):
        return None

    def visit(node: Expr) -> Expr | None:
        return found.at(node.indices) if isinstance(node, Load) and node.slot == value else None

    fused = reader.rewritten(visit)
    if len(fused.reads) + len(fused.outputs) > LARGEST_OPERANDS or len(fused.nodes) > LARGEST_NODES:
        return None
    expr, inputs = lower(fused, lambda number: graph.values[number].type)
    constants = frozenset(slot for slot, number in enumerate(inputs) if number in shared)
    layouts = [graph.values[number].storage for number in (*inputs, *operator.outputs)]
    workload = Workload(expr, laid_out(expr, layouts, constants, device), constants=constants)
    if contraction(expr) is None or not device.rules.persistent(workload.tagged(), device):
        return None
    kind, sources = f"{maker.kind}+{operator.kind}", tuple(dict.fromkeys((*maker.sources, *operator.sources)))
    return replace(operator, kind=kind, inputs=inputs, expr=expr, sources=sources)


def _in_reductions(work: Work, links: Sequence[Load]) -> bool:
    """Whether any of some loads is part of what a work reduces."""
    bodies = [node.body for node in work.nodes if isinstance(node, Reduce)]
    return not set(links).isdisjoint(nodes(*bodies))
