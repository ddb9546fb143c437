"""Proof that states in place are sound: nobody reads there what is written too late or too early (T22, P11, P19).

A run reads such a state through one tensor and writes it through another at the same addresses. One rOperator writes
it, each point of its domain at an element of its own (T12), so that its rTasks cannot meet. It may read of what the
state was just the elements that it stores, each before it stores it. For all others boxes are compared: where a
position comes from data, they are as long as the axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from rammer.errors import VerificationError
from rammer.ir.expr import Axis, Call, Const, Expr, Load, Output, ScalarFn, TensorExpr, all_nodes, const
from rammer.ir.program import Plan
from rammer.ir.region import depends_on_data
from rammer.ir.task import ROperator, TaskGraph, Tensor
from rammer.ir.types import DType
from rammer.verify.footprints import Footprints, IntArray, Region
from rammer.verify.naming import describe_operator, describe_tensor, sources_of
from rammer.verify.order import Order
from rammer.verify.owners import Touch
from rammer.verify.placement import Placement

_RegionsOf: TypeAlias = Callable[[ROperator, TensorExpr, tuple[int, ...]], list[Region]]


def settled_stores(output: Output) -> Output | None:
    """An output with indices that load nothing and tell points apart if its own do; None where that is not known.

    An index from data is `p % n` or `(p % n + r) % n`, within the dimension. The first may be left out, if the others
    tell all points apart. Of the second an axis r of at most n points is left: where the other indices are those of the
    axes that p depends on, p is one, and r goes around at most once.
    """
    indices = list(output.indices)
    for dim, index in enumerate(output.indices):
        if not depends_on_data(index):
            continue
        match index:
            case Call(ScalarFn.MOD, (Call(ScalarFn.ADD, (Call(ScalarFn.MOD, (first, inner)), Axis() as row)), turn)):
                others = {*output.indices[:dim], *output.indices[dim + 1 :]}
                axes = {node for node in all_nodes(first) if isinstance(node, Axis)}
                apart = row not in axes and axes <= others and inner is turn
                if not apart or not isinstance(turn, Const) or row.extent > int(turn.value):
                    return None
                indices[dim] = row
            case Call(ScalarFn.MOD, (_, Const() as turn)):
                indices[dim] = const(0, DType.INT64)
            case _:
                return None
        if not 0 < int(turn.value) <= output.type.shape[dim]:
            return None
    return Output(type=output.type, indices=tuple(indices), body=output.body)


def reads_what_it_stores(expr: TensorExpr, slot: int) -> bool:
    """Whether a point of an expression of one output loads of a slot just the element at the indices that it stores."""
    (output,) = expr.outputs
    return all(load.indices == output.indices and load.fill is None for load in expr.loads if load.slot == slot)


def loads_of_indices(expr: TensorExpr) -> list[Load]:
    """What the indices of stores load beside what the bodies do."""
    indices: list[Expr] = [index for output in expr.outputs for index in output.indices]
    return [node for node in all_nodes(*indices) if isinstance(node, Load) and node not in expr.loads]


def check_flow(graph: TaskGraph, footprints: Footprints) -> None:
    """Prove the states in place of a task graph; each rOperator counts as one tile.

    Raises:
        VerificationError: T22.
    """
    for new, old in graph.updated.items():
        tensor, before = graph.tensors[new], graph.tensors[old]
        if tensor.alias_of is not None or (tensor.type, tensor.layout) != (before.type, before.layout):
            raise VerificationError("T22", f"{describe_tensor(tensor)} and {describe_tensor(before)} lie otherwise")
        writer = _writer(graph, tensor)
        (written,) = _whole(footprints.writes, writer, new)
        for operator in graph.operators:
            late = operator.id > writer.id or (operator is writer and not _reads_own(graph, writer, old))
            if late and _meet(_whole(footprints.reads, operator, old), written):
                raise _misplaced(operator, writer, before, "behind")
            if operator.id <= writer.id and _meet(_whole(footprints.reads, operator, new), written):
                raise _misplaced(operator, writer, tensor, "before")


def _meet(reads: Sequence[Region], written: Region) -> bool:
    """Whether whole rOperators touch an element that another one writes."""
    return any(len(read.lo) and len(written.lo) and _meets(read, 0, written).size for read in reads)


def _misplaced(operator: ROperator, writer: ROperator, tensor: Tensor, where: str) -> VerificationError:
    message = (
        f"{describe_operator(operator)} reads {describe_tensor(tensor)} {where} {describe_operator(writer)}, "
        "which writes it in place"
    )
    return VerificationError("T22", message, where=sources_of(operator, writer))


def _writer(graph: TaskGraph, tensor: Tensor) -> ROperator:
    """The one rOperator that writes a state in place, and nothing else."""
    writers = [o for o in graph.operators if any(graph.root(b.tensor).id == tensor.id for b in o.writes)]
    if len(writers) != 1 or len(writers[0].writes) != 1 or writers[0].writes[0].tensor != tensor.id:
        names = " and ".join(map(describe_operator, writers)) or "nobody"
        message = (
            f"{names} writes {describe_tensor(tensor)} in place, which takes one rOperator that writes nothing else"
        )
        raise VerificationError("T22", message, where=sources_of(*writers))
    return writers[0]


def _reads_own(graph: TaskGraph, writer: ROperator, old: int) -> bool:
    """Whether the writer of a state reads of what it was only what it stores itself."""
    (target,) = writer.writes
    expr = writer.kernels[0].expr
    return all(
        (binding.tensor, binding.origin) == (old, target.origin) and reads_what_it_stores(expr, slot)
        for slot, binding in enumerate(writer.reads)
        if graph.root(binding.tensor).id == old
    )


def _whole(regions_of: _RegionsOf, operator: ROperator, tensor: int) -> list[Region]:
    """What a whole rOperator touches of a tensor."""
    expr = operator.kernels[0].expr
    whole = tuple(max(1, axis.extent) for axis in expr.axes)
    return [region for region in regions_of(operator, expr, whole) if region.tensor == tensor]


def check_order(plan: Plan, placement: Placement, order: Order) -> None:
    """Prove that a plan keeps reads and writes of states in place apart.

    Raises:
        VerificationError: P11 or P19.
    """
    graph, footprints = plan.graph, Footprints(plan.graph)
    for new, old in graph.updated.items():
        writer = _writer(graph, graph.tensors[new])
        reads: dict[int, list[Touch]] = {new: [], old: []}
        writes: list[Touch] = []
        for operator, kernel in zip(graph.operators, plan.kernels, strict=True):
            numbers = placement.numbers(operator.id)
            for region in footprints.reads(operator, kernel.expr, kernel.tile.task):
                if region.tensor in reads and operator is not writer:
                    reads[region.tensor].append(Touch(region=region, numbers=numbers))
            if operator is writer:
                regions = footprints.writes(operator, kernel.expr, kernel.tile.task)
                writes += [Touch(region=region, numbers=numbers) for region in regions]
        for write in writes:
            for tile, number in enumerate(write.numbers.tolist()):
                _check_before(graph.tensors[old], reads[old], write.region, tile, number, placement, order)
                _check_after(graph.tensors[new], reads[new], write.region, tile, number, placement, order)


def _check_before(
    tensor: Tensor, reads: Sequence[Touch], written: Region, tile: int, writer: int, placement: Placement, order: Order
) -> None:
    """Whoever reads what an rTask overwrites has ended."""
    for read in reads:
        late = order.unordered(read.numbers[_meets(written, tile, read.region)], writer)
        if late.size:
            reader = int(late[0])
            message = (
                f"{placement.describe(writer)} overwrites {describe_tensor(tensor)} in place, "
                f"and may start before {placement.describe(reader)} has read that"
            )
            raise VerificationError("P19", message, where=placement.where((reader, writer)))


def _check_after(
    tensor: Tensor, reads: Sequence[Touch], written: Region, tile: int, writer: int, placement: Placement, order: Order
) -> None:
    """Whoever reads what an rTask writes comes after it."""
    for read in reads:
        readers = read.numbers[_meets(written, tile, read.region)]
        if not order.follow(readers, writer):
            early = [reader for reader in readers.tolist() if not order.follow(np.array([reader]), writer)]
            message = (
                f"{placement.describe(early[0])} reads {describe_tensor(tensor)}, "
                f"and may start before {placement.describe(writer)} has written there"
            )
            raise VerificationError("P11", message, where=placement.where((early[0], writer)))


def _meets(one: Region, tile: int, others: Region) -> IntArray:
    """Which boxes share an element with that of a tile, as places in `others`."""
    shared = np.maximum(one.lo[tile], others.lo) < np.minimum(one.hi[tile], others.hi)
    return np.flatnonzero(shared.all(axis=1)).astype(np.int64)
