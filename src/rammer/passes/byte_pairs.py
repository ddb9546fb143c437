"""byte_pairs: products of two values quantised to 8 bits are computed from floats of 16 bits, where that is exact.

    y = MatMul(s_a * (a - z_a), s_b * (b - z_b))  ->  y = s_a * s_b * sum[k](f16(a - z_a) * f16(b - z_b))

Of bytes, sums of each row and column would have to be taken away, for the zero points; `byte_products` has those of
weights ready. Less their zero points, they are integers of nine bits, which float16 holds, as float32 does a sum of few
of their products. What makes the bytes can make such floats of them instead, and they are copied as they lie. Heads of
attention are multiplied so.

Ordering restriction: as of `byte_products`; before `fold_scales`, which has the integers that bytes were made of.
"""

from __future__ import annotations

from rammer.ir.graph import Attribute, Graph, Operator
from rammer.ir.kernel_form import Instruction
from rammer.ir.types import DType, TensorType
from rammer.ir.vdevice import ByteProducts, VDevice
from rammer.operators.contraction import matmul
from rammer.passes.helpers.quads import of_types
from rammer.passes.helpers.quantised import Numbers, numbers_of
from rammer.passes.helpers.rewrite import Rewriter
from rammer.tiling.gemm import LEAST_ROWS

_MOST_SUMMED = 2**24 // (255 * 255)
"""So many products of bytes less their zero points are certain to have a sum that float32 holds."""


def run(graph: Graph, device: VDevice) -> Graph:
    """Compute products of two quantised values from float16; see the module.

    Args:
        graph: whose operators are known by their kinds.
        device: nothing is done where tensor cores do not take bytes as they lie, or no float16.
    """
    if device.byte_products is not ByteProducts.PLAIN or Instruction.MMA_F16 not in device.instructions:
        return graph
    rewriter = Rewriter(graph)
    makers = graph.producers()
    for operator in graph.operators:
        rewriter.insert(operator)
        pair = _pair(operator, graph, makers)
        if pair is not None:
            rewriter.replace(operator.outputs[0], _rewritten(operator, pair, rewriter))
    return rewriter.finish()


def _pair(operator: Operator, graph: Graph, makers: dict[int, Operator]) -> tuple[Numbers, Numbers] | None:
    """The operands of a product of two quantised values, None for any other operator."""
    if operator.kind != "MatMul":
        return None
    a, b = (numbers_of(value, makers) for value in operator.inputs)
    if a is None or b is None or (a.scale is None) != (b.scale is None):
        return None
    own = [value for one in (a, b) for value in (one.zero, one.scale) if value is not None]
    if any(one.integers in graph.constants for one in (a, b)) or any(
        graph.values[value].type.size != 1 for value in own
    ):
        return None
    left, right = (graph.values[value].type.shape for value in operator.inputs)
    if min(len(left), len(right)) < 2 or min(left[-2], right[-1]) < LEAST_ROWS or left[-1] > _MOST_SUMMED:
        return None
    return a, b


def _rewritten(operator: Operator, pair: tuple[Numbers, Numbers], rewriter: Rewriter) -> int:
    """Add the operators that compute a product from float16; returns the result."""
    name, sources = operator.name, operator.sources

    def add(kind: str, *inputs: int, **attributes: Attribute) -> int:
        return rewriter.add(kind, inputs, attributes, name=name, sources=sources)

    def halves(numbers: Numbers) -> int:
        zeros = () if numbers.zero is None else (numbers.zero,)
        return add("Cast", add("Centre", numbers.integers, *zeros), to=DType.FLOAT16)

    operands = tuple(map(halves, pair))
    expr = matmul([TensorType(DType.FLOAT32, rewriter.type(value).shape) for value in operands], {})
    expr = of_types(expr, DType.FLOAT16, DType.FLOAT16)
    total = rewriter.add_expression(expr, operands, kind="MatMulHalves", name=name, sources=sources)
    scales = [add("Reshape", numbers.scale, shape=()) for numbers in pair if numbers.scale is not None]
    return add("Mul", total, add("Mul", *scales)) if scales else add("Cast", total, to=DType.INT32)
