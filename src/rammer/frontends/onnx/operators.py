"""Which operators a model uses that Rammer does not have; all are found before the first is converted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import onnx

from rammer.errors import InvalidModelError, UnsupportedOperatorsError
from rammer.frontends.onnx.checking import domain_of, node_names
from rammer.frontends.onnx.functions import STANDARD, FunctionId, function_id

_HINT = "rewrite these parts with other operators, or export the model so that they are decomposed"


def check_operators(
    nodes: Sequence[onnx.NodeProto],
    functions: Mapping[FunctionId, onnx.FunctionProto],
    converted: Collection[str],
    where: str,
) -> None:
    """Check that every operator has a converter or a definition, functions of the model included.

    Args:
        nodes: the graph's.
        functions: the model's functions.
        converted: operators of ONNX's own domain that have a converter.
        where: the model, for messages.

    Raises:
        UnsupportedOperatorsError: some do not; the error lists all, with their nodes.
        InvalidModelError: a function calls itself.
    """
    known = STANDARD.union(converted)
    missing = list(_missing(nodes, "", functions, known, (), where))
    if missing:
        raise UnsupportedOperatorsError(missing, where=where, hint=_HINT)


def _missing(
    nodes: Sequence[onnx.NodeProto],
    prefix: str,
    functions: Mapping[FunctionId, onnx.FunctionProto],
    known: Collection[str],
    callers: tuple[FunctionId, ...],
    where: str,
) -> Iterator[tuple[str, str]]:
    for node, name in zip(nodes, node_names(nodes, prefix), strict=True):
        called = function_id(node)
        if called in callers:
            raise InvalidModelError(f"the function {called[0]}.{called[1]} calls itself", where=where)
        if called in functions:
            yield from _missing(functions[called].node, f"{name}/", functions, known, (*callers, called), where)
        elif domain_of(node) or node.op_type not in known:
            domain = domain_of(node)
            yield f"{domain}.{node.op_type}" if domain else node.op_type, name
