"""widen_halves: on devices that multiply no 16-bit floats, what lies between inputs and outputs is float32.

    y = Mul(x, w), z = Add(y, b), of float16  ->  y = Mul(Cast(x), w32), z = Cast(Add(y, b32)), x and z of float16

All arithmetic of 16-bit floats is float32 arithmetic anyway. Where values between operators are float32, too, they are
widened once instead of wherever they are read, and products, filterings and fusions are those of a float32 model. What
is rounded are inputs, outputs, states, and what the model itself casts to 16 bits: where ONNX Runtime rounds on
processors. Tables of which a run looks up a part stay as they are: what was looked up is widened, and the table is not
made twice as large as a saved model is loaded.

Ordering restriction: after `unroll`, since composite operators are not rewritten; before every pass that knows
operators by kind, operands and attributes.
"""

from __future__ import annotations

from dataclasses import replace

from rammer.ir.evaluate import converted
from rammer.ir.expr import Load, nodes
from rammer.ir.graph import Graph, Operator
from rammer.ir.types import DType
from rammer.ir.vdevice import VDevice
from rammer.operators.registry import OperatorDef, definition_of
from rammer.passes.helpers.rewrite import Rewriter


def run(graph: Graph, device: VDevice) -> Graph:
    """Widen values; see the module.

    Args:
        graph: operators as they were built.
        device: says whether it has instructions for products of 16 bits.
    """
    if device.instructions or not any(value.type.dtype.is_half for value in graph.values.values()):
        return graph
    widening = _Widening(graph)
    for operator in graph.operators:
        widening.add(operator)
    return widening.rewriter.finish()


class _Widening:
    """A graph being rewritten, and the float32 value that stands for each of 16 bits."""

    def __init__(self, graph: Graph) -> None:
        self.rewriter = Rewriter(graph)
        self._graph = graph
        self._wide: dict[int, int] = {}

    def add(self, operator: Operator) -> None:
        """Add an operator, on float32 if it is one of 16-bit floats."""
        rewriter = self.rewriter
        if not any(map(self._is_half, (*operator.inputs, *operator.outputs))) or self._looks_up(operator):
            rewriter.insert(operator)
            return
        definition = definition_of(operator.kind)
        assert isinstance(definition, OperatorDef)  # none is composite any more
        inputs = tuple(self._widened(value) if self._is_half(value) else value for value in operator.inputs)
        expr = definition.build([rewriter.type(value) for value in inputs], operator.attributes)
        outputs = tuple(
            rewriter.value(output.type, self._graph.values[value].name)
            for output, value in zip(expr.outputs, operator.outputs, strict=True)
        )
        rewriter.insert(replace(operator, inputs=inputs, outputs=outputs, expr=expr))
        for value, fresh in zip(operator.outputs, outputs, strict=True):
            if rewriter.type(fresh) == rewriter.type(value):
                rewriter.replace(value, fresh)
                continue
            self._wide[value] = fresh
            if value in self._graph.outputs:
                attributes = {"to": self._graph.values[value].type.dtype}
                narrow = rewriter.add("Cast", [fresh], attributes, name=operator.name, sources=operator.sources)
                rewriter.replace(value, narrow)

    def _is_half(self, value: int) -> bool:
        return self._graph.values[value].type.dtype.is_half

    def _looks_up(self, operator: Operator) -> bool:
        """Whether it copies less than all of a constant, from where another operand says."""
        body = operator.expr.roots[0] if operator.expr is not None else None
        if not isinstance(body, Load) or not any(isinstance(node, Load) for node in nodes(*body.indices)):
            return False
        table = operator.inputs[body.slot]
        sizes = [self._graph.values[value].type.size for value in (operator.outputs[0], table)]
        return table in self._graph.constants and sizes[0] < sizes[1]

    def _widened(self, value: int) -> int:
        """The float32 value that stands for one of 16 bits."""
        if value not in self._wide:
            array = self._graph.constants.get(value)
            name = self._graph.values[value].name
            if array is None:
                self._wide[value] = self.rewriter.add("Cast", [value], {"to": DType.FLOAT32}, name=name)
            else:
                self._wide[value] = self.rewriter.constant(converted(array, DType.FLOAT32), name)
        return self._wide[value]
