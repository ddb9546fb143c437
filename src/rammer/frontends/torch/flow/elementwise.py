"""Operators that compute each element by itself, or make tensors of a number."""

from __future__ import annotations

from collections.abc import Mapping

from rammer.frontends.builder import Operand
from rammer.frontends.counts.count import broadcast_count
from rammer.frontends.torch.converters import activations, arithmetic, bessel, creation, logic, polynomials, special
from rammer.frontends.torch.flow.rule import Rule, ordinary
from rammer.frontends.torch.node import Converter, Node, Result


def broadcast(node: Node, converter: Converter) -> Result:
    """Operands have as many elements along the dimension that is counted, or one."""
    operands = [value for value in node.arguments.values() if isinstance(value, Operand)]
    broadcast_count(node, operands)
    return ordinary(node, converter)


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(
        (
            *(*activations.CONVERTERS, *arithmetic.CONVERTERS, *bessel.CONVERTERS, *logic.CONVERTERS),
            *(*polynomials.CONVERTERS, *special.CONVERTERS),
        ),
        broadcast,
    ),
    **dict.fromkeys(creation.CONVERTERS, ordinary),
}
