"""Gradients of what is counted: rows that do not count add nothing to them."""

from __future__ import annotations

from collections.abc import Mapping

from rammer.frontends.counts.count import broadcast_count, filled, one_count
from rammer.frontends.torch.flow.rule import Rule, counted_axis, ordinary
from rammer.frontends.torch.node import Converter, Node, Result


def _classes(node: Node, converter: Converter) -> Result:
    """Of a loss of rows, which are counted as their targets are."""
    x, target, g = (node.operand(name) for name in ("self", "target", "grad_output"))
    rows = [x, target, *([g] if g.rank else [])]
    if any(each.count is None or each.count.axis for each in rows):
        raise node.refusal("rows and targets are not counted alike")
    one_count(node, rows)
    return ordinary(node, converter)


def _log_softmax(node: Node, converter: Converter) -> Result:
    g, y = node.operand("grad_output"), node.operand("output")
    broadcast_count(node, [g, y])
    is_along = counted_axis(node, "output") == node.dimension("dim", y.rank)
    return ordinary(node, converter, grad_output=filled(node, g) if is_along else g)


def _convolution(node: Node, converter: Converter) -> Result:
    """Images are counted; those of the weights are sums over all of them."""
    g, x = node.operand("grad_output"), node.operand("input")
    if counted_axis(node, "grad_output") != 0 or counted_axis(node, "input") != 0:
        raise node.refusal("only that of the first dimension may")
    one_count(node, [g, x])
    return ordinary(node, converter, grad_output=filled(node, g), input=filled(node, x))


RULES: Mapping[str, Rule] = {
    "_log_softmax_backward_data": _log_softmax,
    "convolution_backward": _convolution,
    "nll_loss_backward": _classes,
}
