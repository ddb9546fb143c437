"""Graph -> TaskGraph: storage for every value, and for every operator canonical work with candidate rKernels.

What is tagged follows from all work, so that is collected before any rKernel is constructed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from rammer.ir.expr import TensorExpr
from rammer.ir.graph import Graph, Operator, SourceLocation
from rammer.ir.task import Binding, RKernel, ROperator, TaskGraph, Tensor, TensorRole
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.lowering.canonical import View, canonical, copy_expr
from rammer.lowering.extern import extern_kernels
from rammer.lowering.fixed import fixed_tensors
from rammer.lowering.storage import Copy, Storage, assign
from rammer.lowering.tagging import tagged_tensors
from rammer.lowering.work import Work, root_id
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
    lowering = _Lowering(graph, storage)
    for position, operator in enumerate(graph.operators):
        copies = storage.copies.get(position)
        if copies is None:
            lowering.compute(operator)
        else:
            for copy in copies:
                lowering.copy(copy, operator.name, operator.sources, operator.predicate)
    for copy in storage.output_copies:
        lowering.copy(copy, graph.values[copy.source].name, ())
    works = [named.work for named in lowering.works]
    fixed = fixed_tensors(works, storage.tensors, _states(graph, storage), device)
    workload_of = partial(_workload, tensors=storage.tensors, fixed=fixed, device=device)
    tagged = tagged_tensors(works, storage.tensors, fixed, device, workload_of)
    tensors = tuple(
        replace(tensor, layout=replace(tensor.layout, tagged=True)) if tensor.id in tagged else tensor
        for tensor in storage.tensors
    )
    return TaskGraph(
        name=graph.name,
        tensors=tensors,
        constants=MappingProxyType({storage.views[v].tensor: array for v, array in graph.constants.items()}),
        operators=_operators(lowering.works, tensors, fixed, device, to_measure=to_measure),
        inputs=tuple(storage.views[value].tensor for value in graph.inputs),
        outputs=storage.outputs,
        states=len(graph.states),
        in_place=tuple(position for position, state in enumerate(graph.states) if state.in_place),
        recipes=MappingProxyType({storage.views[v].tensor: recipe for v, recipe in graph.recipes.items()}),
    )


@dataclass(frozen=True, slots=True)
class _Named:
    """Work with what messages call it; with the operator and its views where users may have rKernels for it."""

    work: Work
    name: str
    kind: str
    sources: tuple[SourceLocation, ...]
    operator: Operator | None = None
    views: tuple[View, ...] = ()


class _Lowering:
    """Collects the work of rOperators."""

    def __init__(self, graph: Graph, storage: Storage) -> None:
        self.works: list[_Named] = []
        self._graph = graph
        self._storage = storage

    def compute(self, operator: Operator) -> None:
        """The work of an operator with an expression."""
        if operator.expr is None:
            raise ValueError(f"{operator.kind} '{operator.name}' is composite")
        views = self._storage.views
        reads = [views[value] for value in operator.inputs]
        writes = [views[value] for value in operator.outputs]
        if _has_points(operator.expr):
            work = self._work(operator.expr, reads, writes, operator.predicate)
            self.works.append(_Named(work, operator.name, operator.kind, operator.sources, operator, (*reads, *writes)))

    def copy(self, copy: Copy, name: str, sources: tuple[SourceLocation, ...], predicate: int | None = None) -> None:
        """The work that writes a value once more."""
        expr = copy_expr(self._graph.values[copy.source].type)
        if _has_points(expr):
            work = self._work(expr, [self._storage.views[copy.source]], [copy.target], predicate)
            self.works.append(_Named(work, name, "Copy", sources))

    def _work(self, expr: TensorExpr, reads: Sequence[View], writes: Sequence[View], predicate: int | None) -> Work:
        """Canonical work over places in tensors."""
        view = None if predicate is None else self._storage.views[predicate]
        bool_there = None if view is None else Binding(tensor=view.tensor, origin=view.origin)
        return Work(*canonical(expr, reads, writes), predicate=bool_there)


def _states(graph: Graph, storage: Storage) -> frozenset[int]:
    """The tensors of states that a run reads and leaves as they are: what follows them lies elsewhere."""
    first = len(graph.inputs) - len(graph.states)
    values = zip(graph.inputs[first:], graph.states, strict=True)
    return frozenset(storage.views[value].tensor for value, state in values if not state.in_place)


def _has_points(expr: TensorExpr) -> bool:
    """Whether there is anything to compute."""
    return all(axis.extent for axis in expr.axes)


def _operators(
    works: Sequence[_Named], tensors: Sequence[Tensor], fixed: frozenset[int], device: VDevice, *, to_measure: bool
) -> tuple[ROperator, ...]:
    """The rOperators; equal canonical work shares its candidate rKernels."""
    numbers, workloads = _workloads([named.work for named in works], tensors, fixed, device)

    known: dict[tuple[int, tuple[RKernel, ...]], tuple[RKernel, ...]] = {}

    def kernels(named: _Named, workload: int) -> tuple[RKernel, ...]:
        operator, of = named.operator, workloads[workload]
        externs = () if operator is None else extern_kernels(operator, named.views, named.work, of, device)
        if (workload, externs) not in known:
            known[workload, externs] = construct(of, device, to_measure=to_measure, externs=externs)
        return known[workload, externs]

    return tuple(
        ROperator(
            id=number,
            name=named.name,
            kind=named.kind,
            kernels=kernels(named, workload),
            reads=named.work.reads,
            writes=named.work.writes,
            sources=named.sources,
            predicate=named.work.predicate,
        )
        for number, (named, workload) in enumerate(zip(works, numbers, strict=True))
    )


def _workloads(
    works: Sequence[Work], tensors: Sequence[Tensor], fixed: frozenset[int], device: VDevice
) -> tuple[list[int], list[Workload]]:
    """The number of each work's workload, and all workloads.

    Equal work takes for constants what is one wherever it is done.
    """
    numbers: list[int] = []
    known: dict[Workload, int] = {}
    shared: list[frozenset[int]] = []
    for work in works:
        workload = _workload(work, tensors, fixed, device)
        constants = workload.constants
        workload = replace(workload, constants=frozenset())
        number = known.setdefault(workload, len(known))
        if number == len(shared):
            shared.append(constants)
        shared[number] &= constants
        numbers.append(number)
    return numbers, [replace(workload, constants=shared[number]) for workload, number in known.items()]


def _workload(work: Work, tensors: Sequence[Tensor], fixed: frozenset[int], device: VDevice) -> Workload:
    """What rKernels of one work are constructed for."""
    bindings = (*work.reads, *work.writes)
    roots = [root_id(tensors, binding) for binding in work.reads]
    return Workload(
        expr=work.expr,
        layouts=tuple(tensors[binding.tensor].layout for binding in bindings),
        alignments=tuple(_alignment(tensors, binding, device.array_alignment_bytes) for binding in bindings),
        constants=frozenset(slot for slot, root in enumerate(roots) if root in fixed),
    )


def _alignment(tensors: Sequence[Tensor], binding: Binding, array_alignment_bytes: int) -> int:
    """The power of two, up to a limit, that divides the place of a binding's first element in memory, in elements."""
    tensor, root = tensors[binding.tensor], tensors[root_id(tensors, binding)]
    most = _MAX_ALIGNMENT
    if root.role in (TensorRole.INPUT, TensorRole.OUTPUT):
        most = max(1, array_alignment_bytes // root.type.dtype.itemsize_bytes)
    return math.gcd(most, tensor.layout.address(binding.origin))
