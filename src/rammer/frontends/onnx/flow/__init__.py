"""How values whose size depends on the data flow through operators: a rule for each operator that takes them.

A rule prepares a node's operands, lets the node's ordinary converter do the work, which knows nothing of counts, and
says what counts of the results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rammer.frontends.onnx.checking import full_name
from rammer.frontends.onnx.flow import (
    elementwise,
    held,
    lines,
    making,
    movement,
    picking,
    products,
    resizing,
    sizes,
    slicing,
    writing,
)
from rammer.frontends.onnx.flow.rule import Rule
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.sequences import Value

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **elementwise.RULES,
        **held.RULES,
        **lines.RULES,
        **making.RULES,
        **movement.RULES,
        **picking.RULES,
        **products.RULES,
        **resizing.RULES,
        **sizes.RULES,
        **slicing.RULES,
        **writing.RULES,
    }
)
"""All rules, by operator type. `If` has none: it carries what its branches give."""

_SIZED: Mapping[str, tuple[int, ...]] = {
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Slice": (1, 2),
    "TopK": (1,),
}
"""Operands that say how large a result is: where the model computes one that has a bound, the result has a count."""

_BOUND_BY_OPERAND = frozenset({"Slice", "TopK"})
"""Operators that have no more elements in a result than in their operand, whatever number says how many."""


def convert(node: Node, converter: Converter) -> Sequence[Value | None]:
    """The results of a node, which may have operands whose size depends on the data.

    Raises:
        UnsupportedFeatureError: it has, and no rule for them or not for such.
        ModelError: what the converter raises.
    """
    name = full_name(node.proto)
    rule = RULES.get(name)
    if not node.counted_operands():
        return rule(node, converter) if rule is not None and _is_sized(node, name) else converter(node)
    if rule is None:
        raise node.refusal()
    return rule(node, converter)


def _is_sized(node: Node, name: str) -> bool:
    """Whether the model computes an operand that says how large a result is, which has a bound."""
    sizes = [size for size in map(node.optional, _SIZED.get(name, ())) if size is not None]
    has_bound = name in _BOUND_BY_OPERAND or all(node.builder.most(size) is not None for size in sizes)
    return has_bound and any(size.array is None for size in sizes)
