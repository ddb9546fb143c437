"""Operands against the signature in ONNX's operator schema: none missing, and element types as it allows."""

from __future__ import annotations

from onnx.defs import OpSchema

from rammer.frontends.onnx.node import Node
from rammer.frontends.onnx.tensors import schema_type
from rammer.ir.types import DType


def check_operands(node: Node) -> None:
    """Check a node's operands.

    Raises:
        InvalidModelError: a required operand is missing or an element type does not fit.
    """
    formals = node.schema.inputs
    shared: dict[str, DType] = {}  # type variables of the schema
    for position, operand in enumerate(node.inputs):
        formal = formals[min(position, len(formals) - 1)]
        if operand is None:
            if formal.option == OpSchema.FormalParameterOption.Single:
                raise node.invalid(f"its input '{formal.name}' is missing")
            continue
        if schema_type(operand.dtype) not in formal.types:
            raise node.invalid(f"its input '{formal.name}' cannot be {operand.type}")
        first = shared.setdefault(formal.type_str, operand.dtype)
        if formal.is_homogeneous and first is not operand.dtype:
            raise node.invalid(
                f"its input '{formal.name}' is {operand.type}, another input of the same type is {first.value}"
            )
