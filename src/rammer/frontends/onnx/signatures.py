"""A node against its operator's schema: no operand is missing or unknown, and element types are as it allows."""

from __future__ import annotations

from onnx.defs import OpSchema

from rammer.frontends.onnx.node import Node
from rammer.frontends.onnx.sequences import described, kind_of
from rammer.ir.types import DType


def check_operands(node: Node) -> None:
    """Check a node's operands, and that it has none, and no attribute, that the schema does not know.

    Raises:
        InvalidModelError: a required operand is missing, or its type does not fit: a sequence for a tensor, say.
        UnsupportedFeatureError: an operand or attribute is not in the schema, as in a newer version of `com.microsoft`.
    """
    formals = node.schema.inputs
    for attribute in node.proto.attribute:
        if attribute.name not in node.schema.attributes:
            raise node.unsupported(f"{node.op_type} with '{attribute.name}'")
    variadic = bool(formals) and formals[-1].option == OpSchema.FormalParameterOption.Variadic
    for position, operand in enumerate(node.inputs):
        if operand is not None and position >= len(formals) and not variadic:
            raise node.unsupported(f"{node.op_type} with more than {len(formals)} inputs")
    shared: dict[str, DType] = {}  # type variables of the schema
    for position, operand in enumerate(node.inputs):
        formal = formals[min(position, len(formals) - 1)]
        if operand is None:
            if formal.option == OpSchema.FormalParameterOption.Single:
                raise node.invalid(f"its input '{formal.name}' is missing")
            continue
        if kind_of(operand) not in formal.types:
            raise node.invalid(f"its input '{formal.name}' cannot be {described(operand)}")
        first = shared.setdefault(formal.type_str, operand.dtype)
        if formal.is_homogeneous and first is not operand.dtype:
            raise node.invalid(
                f"its input '{formal.name}' is {described(operand)}, another input of the same type is {first.value}"
            )
