"""What an ONNX file holds, read without converting a node."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import onnx

from rammer.frontends.onnx.binding import declaration_of
from rammer.frontends.onnx.checking import full_name
from rammer.frontends.onnx.converters import CONVERTERS
from rammer.frontends.onnx.functions import STANDARD, function_id, model_functions
from rammer.frontends.onnx.operators import expanded
from rammer.frontends.onnx.reading import ModelSource, read_model
from rammer.frontends.onnx.tensors import stored_bytes
from rammer.frontends.onnx.versions import brought_up
from rammer.ir.survey import Contents
from rammer.operators.registry import custom_definitions


def read_contents(model: ModelSource) -> Contents:
    """What a model holds.

    Raises:
        ModelError: it cannot be read.
    """
    given = read_model(model)
    source = brought_up(given)
    graph, where = source.proto.graph, source.name
    functions = model_functions(source.proto.functions, where)
    counts: Counter[str] = Counter()
    missing = []
    for node, name in expanded(graph.node, functions, where):
        if function_id(node) in functions:
            continue
        operator = full_name(node)
        counts[operator] += 1
        if not any(operator in known for known in (CONVERTERS, STANDARD, custom_definitions())):
            missing.append((operator, name))
    initial = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in initial]
    return Contents(
        model=where,
        opsets=tuple((entry.domain or "ai.onnx", entry.version) for entry in given.proto.opset_import),
        inputs=_declared(inputs, where),
        outputs=_declared(graph.output, where),
        symbols=tuple(dict.fromkeys(_symbols(inputs))),
        operators=tuple(sorted(counts.items())),
        missing=tuple(missing),
        parameters=sum(math.prod(tensor.dims) for tensor in graph.initializer),
        parameter_bytes=sum(stored_bytes(tensor, where) for tensor in graph.initializer),
    )


def _declared(values: Iterable[onnx.ValueInfoProto], where: str) -> tuple[tuple[str, str], ...]:
    """Names and types; a value may be declared without one."""
    return tuple(
        (value.name, str(declaration_of(value, where)) if value.type.WhichOneof("value") else "?") for value in values
    )


def _symbols(values: Iterable[onnx.ValueInfoProto]) -> Iterable[str]:
    for value in values:
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim if dim.dim_param)
