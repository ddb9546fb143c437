"""Operators of other domains that users defined (`rammer.operator`): their signatures, and how nodes become them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx.defs import OpSchema

from rammer.frontends.builder import Operand
from rammer.frontends.onnx.checking import full_name
from rammer.frontends.onnx.node import Node
from rammer.ir.graph import Attribute
from rammer.operators.registry import CustomDef


def schema(definition: CustomDef, proto: onnx.NodeProto) -> OpSchema:
    """Names of an operator's operands, of any element type, and attributes, of which `convert` reads the values."""
    types = sorted(onnx.defs.get_schema("Cast").inputs[0].types)
    defaults = {name: 0.0 if default is None else default for name, default in definition.defaults.items()}
    attributes = [OpSchema.Attribute(name, onnx.helper.make_attribute(name, value)) for name, value in defaults.items()]
    return OpSchema(
        proto.op_type,
        proto.domain,
        1,
        inputs=[OpSchema.FormalParameter(name, f"T{i}") for i, name in enumerate(definition.operands)],
        type_constraints=[(f"T{i}", types, "") for i in range(len(definition.operands))],
        attributes=attributes,
    )


def convert(definition: CustomDef, node: Node) -> Sequence[Operand]:
    """The results of a node."""
    given = {attribute.name: _value(node, attribute) for attribute in node.proto.attribute}
    missing = [name for name, default in definition.defaults.items() if default is None and name not in given]
    if missing:
        raise node.invalid(f"its attribute '{missing[0]}' is missing")
    defaults = {name: default for name, default in definition.defaults.items() if default is not None}
    return node.add_all(full_name(node.proto), *node.operands, **(defaults | given))


def _value(node: Node, attribute: onnx.AttributeProto) -> Attribute:
    """An attribute as Python has it."""
    found = onnx.helper.get_attribute_value(attribute)
    match found:
        case bytes():
            return found.decode(errors="replace")
        case int() | float():
            return found
        case [*parts] if all(isinstance(part, int) for part in parts):
            return tuple(parts)
        case [*parts] if all(isinstance(part, int | float) for part in parts):
            return tuple(map(float, parts))
    raise node.unsupported(f"{node.op_type} with '{attribute.name}', which is no number, text or list of numbers")
