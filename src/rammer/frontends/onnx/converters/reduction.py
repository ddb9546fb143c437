"""Reductions; their axes are an attribute or, since opset 18 (ReduceSum: 13), an operand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rammer.frontends.builder import Operand
from rammer.frontends.onnx.node import Converter, Node

_REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin"),
    *("ReduceProd", "ReduceSum", "ReduceSumSquare"),
)


def _reduce(node: Node) -> Sequence[Operand]:
    x = node.operand(0)
    return [node.add(node.op_type, x, axes=reduced_axes(node, x), keepdims=node.flag("keepdims"))]


def reduced_axes(node: Node, x: Operand) -> tuple[int, ...]:
    """The axes that a node reduces, ascending. Without any, all are, or none if `noop_with_empty_axes` says so."""
    if "axes" in node.schema.attributes:
        wanted = node.integers("axes") or ()
    else:
        wanted = () if node.optional(1) is None else node.known_integers(1)
    axes = tuple(sorted(node.axes(wanted, x.rank)))
    if not axes and not (node.has("noop_with_empty_axes") and node.flag("noop_with_empty_axes")):
        axes = tuple(range(x.rank))
    return axes


def _arg_extreme(node: Node) -> Sequence[Operand]:
    x = node.operand(0)
    axis = node.axis(node.integer("axis"), x.rank)
    last = node.flag("select_last_index")
    return [node.add(node.op_type, x, axis=axis, keepdims=node.flag("keepdims"), select_last_index=last)]


def _cumulative(node: Node) -> Sequence[Operand]:
    x = node.operand(0)
    axis = node.axis(node.known_integer(1), x.rank)
    return [node.add(node.op_type, x, axis=axis, exclusive=node.flag("exclusive"), reverse=node.flag("reverse"))]


CONVERTERS: Mapping[str, Converter] = {
    **dict.fromkeys(_REDUCTIONS, _reduce),
    "ArgMax": _arg_extreme,
    "ArgMin": _arg_extreme,
    "CumProd": _cumulative,
    "CumSum": _cumulative,
}
