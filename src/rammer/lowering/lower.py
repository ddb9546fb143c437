"""Graph -> TaskGraph: storage for every value, and for every operator canonical work with candidate rKernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

from rammer.ir.expr import TensorExpr
from rammer.ir.graph import Graph, Operator, SourceLocation
from rammer.ir.task import Binding, RKernel, ROperator, TaskGraph, TensorRole
from rammer.ir.types import Layout
from rammer.ir.vdevice import VDevice
from rammer.lowering.canonical import View, canonical, copy_expr
from rammer.lowering.storage import Copy, Storage, assign
from rammer.roller.construct import construct

_MAX_ALIGNMENT = 16  # elements: no vector that is loaded at once is longer


def lower(graph: Graph, device: VDevice, *, to_measure: bool = False) -> TaskGraph:
    """Cut a graph into rOperators over tensors.

    Args:
        graph: after all passes; every operator has an expression.
        device: the machine the rKernels are constructed for.
        to_measure: whether candidates will be measured, see `construct`.

    Raises:
        ValueError: an operator has no expression.
    """
    storage = assign(graph)
    lowering = _Lowering(graph, device, storage, to_measure=to_measure)
    for position, operator in enumerate(graph.operators):
        copies = storage.copies.get(position)
        if copies is None:
            lowering.compute(operator)
        else:
            for copy in copies:
                lowering.copy(copy, operator.name, operator.sources)
    for copy in storage.output_copies:
        lowering.copy(copy, graph.values[copy.source].name, ())
    return TaskGraph(
        name=graph.name,
        tensors=storage.tensors,
        constants=MappingProxyType({storage.views[v].tensor: array for v, array in graph.constants.items()}),
        operators=tuple(lowering.operators),
        inputs=tuple(storage.views[value].tensor for value in graph.inputs),
        outputs=storage.outputs,
    )


class _Lowering:
    """Collects rOperators; equal canonical work shares its candidate rKernels."""

    def __init__(self, graph: Graph, device: VDevice, storage: Storage, *, to_measure: bool) -> None:
        self.operators: list[ROperator] = []
        self._graph = graph
        self._device = device
        self._storage = storage
        self._to_measure = to_measure
        self._kernels: dict[tuple[TensorExpr, tuple[Layout, ...], tuple[int, ...]], tuple[RKernel, ...]] = {}

    def compute(self, operator: Operator) -> None:
        """The rOperator of an operator with an expression."""
        if operator.expr is None:
            raise ValueError(f"{operator.kind} '{operator.name}' is composite")
        views = self._storage.views
        reads = [views[value] for value in operator.inputs]
        writes = [views[value] for value in operator.outputs]
        self._add(operator.expr, reads, writes, operator.name, operator.kind, operator.sources)

    def copy(self, copy: Copy, name: str, sources: tuple[SourceLocation, ...]) -> None:
        """The rOperator that writes a value once more."""
        expr = copy_expr(self._graph.values[copy.source].type)
        self._add(expr, [self._storage.views[copy.source]], [copy.target], name, "Copy", sources)

    def _add(
        self,
        expr: TensorExpr,
        reads: Sequence[View],
        writes: Sequence[View],
        name: str,
        kind: str,
        sources: tuple[SourceLocation, ...],
    ) -> None:
        if any(axis.extent == 0 for axis in expr.axes):
            return
        form, read_bindings, write_bindings = canonical(expr, reads, writes)
        bindings = (*read_bindings, *write_bindings)
        layouts = tuple(self._storage.tensors[binding.tensor].layout for binding in bindings)
        alignments = tuple(self._alignment(binding) for binding in bindings)
        key = (form, layouts, alignments)
        if key not in self._kernels:
            found = construct(form, layouts, self._device, to_measure=self._to_measure)
            self._kernels[key] = tuple(replace(kernel, alignments=alignments) for kernel in found)
        self.operators.append(
            ROperator(
                id=len(self.operators),
                name=name,
                kind=kind,
                kernels=self._kernels[key],
                reads=read_bindings,
                writes=write_bindings,
                sources=sources,
            )
        )

    def _alignment(self, binding: Binding) -> int:
        """The power of two, up to a limit, that divides the place of a binding's first element in the storage."""
        tensor = self._storage.tensors[binding.tensor]
        root = tensor if tensor.alias_of is None else self._storage.tensors[tensor.alias_of]
        if root.role in (TensorRole.INPUT, TensorRole.OUTPUT):
            return 1  # callers' arrays lie anywhere
        return math.gcd(_MAX_ALIGNMENT, tensor.layout.address(binding.origin))
