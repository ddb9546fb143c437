"""Run a TaskGraph operator by operator in NumPy, without tiles or schedule: what lowering alone means."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rammer.ir.evaluate import evaluate_tile
from rammer.ir.graph import Array
from rammer.ir.task import Binding, TaskGraph
from rammer.ir.types import TensorType


def run_tasks(graph: TaskGraph, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a TaskGraph; storage starts as garbage so that unwritten elements show."""
    storage: dict[int, Array] = {}
    for tensor in graph.tensors:
        if tensor.alias_of is None:
            storage[tensor.id] = np.full(tensor.type.shape, 77, tensor.type.dtype.numpy)
    storage.update(graph.constants)
    storage.update(zip(graph.inputs, inputs, strict=True))
    for tensor in graph.tensors:
        if tensor.alias_of is not None:
            storage[tensor.id] = storage[tensor.alias_of].reshape(tensor.type.shape)

    def window(binding: Binding, type_: TensorType) -> Array:
        spans = zip(binding.origin, type_.shape, strict=True)
        return storage[binding.tensor][tuple(slice(start, start + extent) for start, extent in spans)]

    for operator in graph.operators:
        expr = operator.kernels[0].expr
        slots = [window(binding, type_) for binding, type_ in zip(operator.reads, expr.inputs, strict=True)]
        stores = evaluate_tile(expr, slots, {})
        for binding, output, (index, values) in zip(operator.writes, expr.outputs, stores, strict=True):
            window(binding, output.type)[index] = values
    return [storage[tensor] for tensor in graph.outputs]
