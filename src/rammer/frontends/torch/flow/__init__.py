"""How tensors whose size depends on the data flow through operators: a rule for each operator that takes them.

A rule prepares a call's operands and lets the ordinary converter do the work, which knows nothing of counts. What
counts of the results PyTorch has found out as it captured the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rammer.frontends.builder import Operand
from rammer.frontends.torch.flow import elementwise, gradients, lines, making, movement, picking, products, writing
from rammer.frontends.torch.flow.rule import Rule
from rammer.frontends.torch.node import Converter, Node, Result

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **elementwise.RULES,
        **gradients.RULES,
        **lines.RULES,
        **making.RULES,
        **movement.RULES,
        **picking.RULES,
        **products.RULES,
        **writing.RULES,
    }
)
"""All rules, by the operator's name."""


def convert(node: Node, converter: Converter) -> Result:
    """The results of a call, of which sizes and numbers may depend on the values of tensors.

    Raises:
        DataDependentError: they do, and there is no rule for that.
        ModelError: what the converter raises.
    """
    if not node.is_open:
        return converter(node)
    rule = RULES.get(node.operator)
    if rule is None:
        raise node.refusal()
    node.arguments = {name: _cut(node, value) for name, value in node.arguments.items()}
    return rule(node, converter)


def _cut(node: Node, value: object) -> object:
    """An argument with no more elements than count at most, as is known by now."""
    if isinstance(value, Operand):
        return node.sizes.cut(node, value)
    return [_cut(node, each) for each in value] if isinstance(value, list) else value
