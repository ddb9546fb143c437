"""layout: constant operands of contractions are packed for the device.

    z = MatMul(x, w)  ->  z = MatMul(x, w), `Value.layout` of w as the kernels want to read it

Shapes and contents do not change, only where elements lie in storage. Where readers want different layouts, or some
the plain one, there is one constant for each. A gather takes what there is: it reads a few rows, and a second copy of
an embedding would cost more than their scattered elements.

Ordering restriction: after all passes that change what contractions read, `fuse_windows` excepted; no pass after it may
read a constant by its strides.
"""

from __future__ import annotations

from dataclasses import replace

from rammer.ir.expr import TensorExpr
from rammer.ir.graph import Graph, Operator
from rammer.ir.types import Layout
from rammer.ir.vdevice import VDevice
from rammer.passes.helpers.constants import gathered, read_once
from rammer.passes.helpers.rewrite import Rewriter
from rammer.tiling.packing import preferred_layouts


def run(graph: Graph, device: VDevice) -> Graph:
    """Choose layouts of constants; see the module.

    Args:
        graph: after fusion; every operator has an expression.
        device: whose vectors the layouts are for.
    """
    rewriter = Rewriter(graph)
    packed: dict[tuple[int, Layout], int] = {}
    wishes_of = _Wishes(graph, device)
    wished = [wishes_of(operator) for operator in graph.operators]
    first: dict[int, Layout] = {}
    for operator, wishes in zip(graph.operators, wished, strict=True):
        for slot, layout in wishes.items():
            first.setdefault(operator.inputs[slot], layout)
    for operator, wishes in zip(graph.operators, wished, strict=True):
        inputs = list(operator.inputs)
        taken = {slot: first[inputs[slot]] for slot in gathered(operator) if inputs[slot] in first}
        for slot, layout in (taken | wishes).items():
            key = (operator.inputs[slot], layout)
            if key not in packed:
                packed[key] = rewriter.with_layout(*key)
            inputs[slot] = packed[key]
        changed = tuple(inputs) != operator.inputs
        rewriter.insert(replace(operator, inputs=tuple(inputs)) if changed else operator)
    return rewriter.finish()


class _Wishes:
    """The layout that an operator wants of each slot that is a constant, where it is not the plain one."""

    def __init__(self, graph: Graph, device: VDevice) -> None:
        self._graph = graph
        self._device = device
        self._once = read_once(graph)
        self._known: dict[
            tuple[TensorExpr, tuple[frozenset[int], ...], tuple[Layout | None, ...]], dict[int, Layout]
        ] = {}

    def __call__(self, operator: Operator) -> dict[int, Layout]:
        """Those of an operator; equal operators wish the same."""
        graph = self._graph
        constants = frozenset(slot for slot, value in enumerate(operator.inputs) if value in graph.constants)
        if operator.expr is None or not constants:
            return {}
        values = [graph.values[value] for value in operator.inputs]
        once = frozenset(slot for slot in constants if operator.inputs[slot] in self._once)
        key = (operator.expr, (constants, once), tuple(value.layout for value in values))
        if key not in self._known:
            layouts = tuple(value.storage for value in values)
            self._known[key] = {
                slot: layout
                for slot, layout in preferred_layouts(operator.expr, constants, layouts, self._device, once).items()
                if not layout.is_row_major(operator.expr.inputs[slot].shape)
            }
        return self._known[key]
