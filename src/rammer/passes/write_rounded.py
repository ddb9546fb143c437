"""write_rounded: what products read rounded, and others read whole, is written once for each.

    y = relu(a); z = sum(f32(f16(y)) * w); r = y + b  ->  y, y' = relu(a); z = sum(f32(f16(y')) * w); r = y + b

`narrow_values` then stores the second one in 16 bits or as TF32, as it stores what products alone read: their many
rTasks have nothing to round, and copy operands as they lie, in 16 bits half as much. The two are results of one
operator, so the work is done once. What is multiplied is the same bits.

Ordering restriction: after `round_products`, which rounds operands, and `channels_last`, which says what a row is;
before `narrow_values`. No pass behind it may take two results of an operator for one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rammer.ir.graph import Graph, Operator
from rammer.ir.types import DType
from rammer.ir.vdevice import VDevice
from rammer.passes.helpers.constants import read_again
from rammer.passes.helpers.further import can_be_written_again, written_again
from rammer.passes.helpers.rewrite import Rewriter
from rammer.passes.narrow_values import lies_in_words, rounds
from rammer.passes.round_products import ROUNDED
from rammer.tiling.packing import is_staged
from rammer.tiling.pattern import contraction


def run(graph: Graph, device: VDevice) -> Graph:
    """Write values for products that read them rounded; see the module.

    Args:
        graph: after fusion; operators that are set apart have no expression.
        device: says the precision, and what it stages.
    """
    dtype = ROUNDED.get(device.precision)
    if dtype is None:
        return graph
    wanted = _wanted(graph, device, dtype)
    rewriter = Rewriter(graph)
    second: dict[tuple[int, tuple[int, ...]], int] = {}  # by the value, and the results of who reads it
    for operator in graph.operators:
        inputs = tuple(second.get((value, operator.outputs), value) for value in operator.inputs)
        changed = replace(operator, inputs=inputs)
        for value in operator.outputs:
            if value in wanted:
                entry = graph.values[value]
                fresh = rewriter.value(entry.type, f"{entry.name}.rounded", entry.layout)
                second.update({(value, product.outputs): fresh for product in wanted[value]})
                changed = written_again(changed, value, fresh, entry.type)
        rewriter.insert(changed)
    return rewriter.finish()


def _wanted(graph: Graph, device: VDevice, dtype: DType) -> Mapping[int, Sequence[Operator]]:
    """The values that are to be written twice, and the products that read them rounded."""
    kept, consumers, can_be_again = read_again(graph), graph.consumers(), can_be_written_again(graph)
    reading: dict[int, list[Operator]] = defaultdict(list)
    for operator in graph.operators:
        if _is_staged(operator, device) and kept.isdisjoint(operator.inputs):
            for value in set(operator.inputs):
                if rounds(operator, value, dtype):
                    reading[value].append(operator)
    return {
        value: products
        for value, products in reading.items()
        if can_be_again(value)
        and (value in graph.outputs or len(products) < len(consumers[value]))
        and lies_in_words(graph.values[value], dtype)
    }


def _is_staged(operator: Operator, device: VDevice) -> bool:
    """Whether an operator is a product whose operands are staged."""
    sums = None if operator.expr is None else contraction(operator.expr)
    return operator.expr is not None and sums is not None and is_staged(operator.expr, sums, device)
