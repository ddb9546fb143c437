"""Matrix products and Einstein sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rammer.frontends.builder import Operand
from rammer.frontends.einsum import einsum
from rammer.frontends.onnx.converters.elementwise import plain
from rammer.frontends.onnx.node import Converter, Node


def _einsum(node: Node) -> Sequence[Operand]:
    return [einsum(node, node.text("equation"), node.operands)]


def _gemm(node: Node) -> Sequence[Operand]:
    alpha, beta = node.number("alpha"), node.number("beta")
    trans_a, trans_b = node.flag("transA"), node.flag("transB")
    return [node.add("Gemm", *node.operands, alpha=alpha, beta=beta, trans_a=trans_a, trans_b=trans_b)]


CONVERTERS: Mapping[str, Converter] = {
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": plain,
}
