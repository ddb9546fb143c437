"""Which operators a model uses that Rammer does not have; all are found before the first is converted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import onnx

from rammer.errors import InvalidModelError, UnsupportedFeatureError, UnsupportedOperatorsError
from rammer.frontends.onnx.checking import full_name, node_names, subgraphs
from rammer.frontends.onnx.functions import STANDARD, FunctionId, function_id
from rammer.operators.registry import custom_definitions

_MOST_NODES = 1 << 18
_DEEPEST_CALL = 50
_HINT = "rewrite these parts with other operators, or export the model so that they are decomposed"
_OF_ONE_PROCESSOR = "com.microsoft.nchwc."
_OF_ONE_PROCESSOR_HINT = (
    "give the model as it was before ONNX Runtime optimised it for the processor it ran on, or save it there with "
    "graph_optimization_level = ORT_ENABLE_EXTENDED"
)


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
        converted: operators that have a converter, with their domain where that is not ONNX's own; those that users
            defined are known beside them.
        where: the model, for messages.

    Raises:
        UnsupportedOperatorsError: some do not; the error lists all, with their nodes.
        InvalidModelError: a function calls itself.
        UnsupportedFeatureError: functions call each other so deeply, or so often, that they cannot be taken apart.
    """
    known = STANDARD.union(converted, custom_definitions())
    missing = []
    for node, name in expanded(nodes, functions, where):
        operator = full_name(node)
        if function_id(node) not in functions and operator not in known:
            missing.append((operator, name))
    if missing:
        blocked = any(operator.startswith(_OF_ONE_PROCESSOR) for operator, _ in missing)
        raise UnsupportedOperatorsError(missing, where=where, hint=_OF_ONE_PROCESSOR_HINT if blocked else _HINT)


def expanded(
    nodes: Sequence[onnx.NodeProto], functions: Mapping[FunctionId, onnx.FunctionProto], where: str
) -> Iterator[tuple[onnx.NodeProto, str]]:
    """All nodes with their names, each followed by those of its graphs or, if it calls a function, of that.

    Raises:
        InvalidModelError: a function calls itself.
        UnsupportedFeatureError: functions call each other so deeply, or so often, that they cannot be taken apart.
    """
    for count, found in enumerate(_expanded(nodes, "", functions, (), where)):
        if count == _MOST_NODES:
            raise UnsupportedFeatureError(f"functions that expand to more than {_MOST_NODES} nodes", where=where)
        yield found


def _expanded(
    nodes: Sequence[onnx.NodeProto],
    prefix: str,
    functions: Mapping[FunctionId, onnx.FunctionProto],
    callers: tuple[FunctionId, ...],
    where: str,
) -> Iterator[tuple[onnx.NodeProto, str]]:
    """As `expanded`, without end, for the nodes of a function that `callers` call."""
    if len(callers) > _DEEPEST_CALL:
        raise UnsupportedFeatureError(f"functions that call each other more than {_DEEPEST_CALL} deep", where=where)
    for node, name in zip(nodes, node_names(nodes, prefix), strict=True):
        yield node, name
        called = function_id(node)
        if called in callers:
            raise InvalidModelError(f"the function {called[0]}.{called[1]} calls itself", where=where)
        for graph in subgraphs(node):
            yield from _expanded(graph.node, f"{name}/", functions, callers, where)
        if called in functions:
            yield from _expanded(functions[called].node, f"{name}/", functions, (*callers, called), where)
