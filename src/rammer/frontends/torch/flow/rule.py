"""What the rules have in common by which tensors whose size depends on the data flow through operators."""

from __future__ import annotations

from collections.abc import Callable

import torch

from rammer.frontends.builder import Count, Operand
from rammer.frontends.counts.count import bare
from rammer.frontends.torch.node import Converter, Node, Result

Rule = Callable[[Node, Converter], Result]
"""The results of a call by its ordinary converter; PyTorch's symbols say what counts of them."""


def ordinary(node: Node, converter: Converter, **given: object) -> Result:
    """The results for the arguments as they are, or as given here, whose elements all are computed."""
    node.arguments = {name: _bare(value) for name, value in {**node.arguments, **given}.items()}
    return converter(node)


def _bare(value: object) -> object:
    if isinstance(value, Operand):
        return bare(value)
    return [_bare(each) for each in value] if isinstance(value, list) else value


def counted_axis(node: Node, name: str) -> int | None:
    """Along which dimension an argument's size depends on the data."""
    x = node.optional(name) if name in node.arguments else None
    return None if x is None or x.count is None else x.count.axis


def as_result(node: Node) -> Operand:
    """What stands for the first result where operands are compared with it: its type, and what counts of it."""
    made = node.made[0]
    axes = node.sizes.axes(node, made)
    if not isinstance(made, torch.Tensor) or len(axes) > 1:
        raise node.refusal("its result has several such sizes")
    counts = [Count(axis=axis, value=node.sizes.number(node, made.shape[axis])) for axis in axes]
    return Operand(name=node.location.node, type=node.type, count=counts[0] if counts else None)


def only(*names: str) -> Callable[[Rule], Rule]:
    """A rule for sizes of these arguments alone."""

    def limited(rule: Rule) -> Rule:
        def checked(node: Node, converter: Converter) -> Result:
            others = [name for name, *_ in node.counted_operands() if name not in names]
            if others:
                raise node.refusal(f"that of '{others[0]}' has to be known")
            return rule(node, converter)

        return checked

    return limited
