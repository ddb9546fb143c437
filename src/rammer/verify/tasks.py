"""Proof that a task graph is sound: storage, rKernels and data flow between rOperators, before any schedule."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from rammer.errors import VerificationError
from rammer.ir.task import ROperator, TaskGraph, Tensor, TensorRole
from rammer.verify.footprints import Footprints, Region
from rammer.verify.naming import describe_operator, describe_tensor, sources_of
from rammer.verify.owners import NOBODY, Owners, Touch
from rammer.verify.predicates import check_predicates
from rammer.verify.storage import check_alias, check_ids, check_layout, check_recipes, check_roles
from rammer.verify.updates import check_flow
from rammer.verify.work import WorkChecker

RULES: Mapping[str, str] = MappingProxyType(
    {
        "T01": "Tensors and rOperators are numbered by position, and every number that is used names one.",
        "T02": "The listed inputs, outputs and constants are the root tensors of these roles; constants have data.",
        "T03": "A layout gives every element an address of its own within its span; inputs and outputs are row-major.",
        "T04": "An alias names a root tensor of the same bytes, role and element type, both row-major.",
        "T05": "Every slot and output is bound to a part of a tensor, within its bounds.",
        "T06": "A binding starts at the edge of a panel.",
        "T07": "Element types agree between tensor, slot, and what is stored.",
        "T08": "An rOperator has candidate rKernels, and all compute the same expression.",
        "T09": "Tile sizes are positive, one for each axis, grow outwards, and are shared out among threads evenly.",
        "T10": "A form fits its expression: `map` has no reductions, products are sums of products.",
        "T11": "An rKernel is made for the layouts of the tensors that it is bound to.",
        "T12": "An expression stores every point of its domain at an element of its own, within its output.",
        "T13": "Loads fit their slots, and without a fill stay within them.",
        "T14": "Nothing writes inputs and constants.",
        "T15": "An element is written at most once.",
        "T16": "What an rOperator reads is written by earlier ones, or is an input or a constant.",
        "T17": "Outputs are written entirely, but for states in place.",
        "T18": "What an rKernel takes for constants is bound to constants, or to states that are not in place.",
        "T19": "A recipe makes the constant that it is of, bit for bit.",
        "T20": "What tells whether to run is there in any case; what may be skipped is no output, and has no tags.",
        "T21": "What may be skipped is read only where it runs, by what is skipped with it or as the side of a choice.",
        "T22": "One rOperator writes a state in place, after all who read it as it was, before all who read it anew.",
    }
)


def verify(graph: TaskGraph) -> None:
    """Prove a task graph.

    Raises:
        VerificationError: a rule of `RULES` is broken; the message names the rOperator or tensor.
    """
    check_ids(graph)
    check_roles(graph)
    for tensor in graph.tensors:
        check_layout(tensor)
        check_alias(graph, tensor)
    work = WorkChecker(graph)
    for operator in graph.operators:
        work.check(operator)
    _check_flow(graph)
    check_predicates(graph)
    check_recipes(graph)


def _check_flow(graph: TaskGraph) -> None:
    """Every element written once, before it is read. Each rOperator counts as one tile."""
    footprints = Footprints(graph)
    reads: list[list[tuple[ROperator, Region]]] = [[] for _ in graph.tensors]
    writes: list[list[Touch]] = [[] for _ in graph.tensors]
    for operator in graph.operators:
        expr = operator.kernels[0].expr
        whole = tuple(max(1, axis.extent) for axis in expr.axes)
        for region in footprints.reads(operator, expr, whole):
            reads[region.tensor].append((operator, region))
        for region in footprints.writes(operator, expr, whole):
            numbers = np.full(len(region.lo), operator.id, dtype=np.int64)
            writes[region.tensor].append(Touch(region=region, numbers=numbers))
    check_flow(graph, footprints)
    for tensor in graph.tensors:
        if tensor.alias_of is None and tensor.type.size and tensor.id not in graph.updated:
            _check_tensor(graph, tensor, reads[tensor.id], writes[tensor.id])


def _check_tensor(graph: TaskGraph, tensor: Tensor, reads: list[tuple[ROperator, Region]], writes: list[Touch]) -> None:
    name = describe_tensor(tensor)
    if tensor.role in (TensorRole.INPUT, TensorRole.CONSTANT):
        for operator in (graph.operators[number] for write in writes for number in write.numbers.tolist()):
            message = f"{describe_operator(operator)} writes {name}, which has the role {tensor.role.value}"
            raise VerificationError("T14", message, where=sources_of(operator))
        return
    owners = Owners(tensor.type.shape, writes)
    if owners.clash is not None:
        pair = (graph.operators[owners.clash.first], graph.operators[owners.clash.second])
        message = f"{' and '.join(map(describe_operator, pair))} write the same element of {name}"
        raise VerificationError("T15", message, where=sources_of(*pair))
    if reads:
        _check_reads(graph, name, reads, owners)
    if tensor.role is TensorRole.OUTPUT and not owners.complete:
        raise VerificationError("T17", f"output {name} has elements that nothing writes")


def _check_reads(graph: TaskGraph, name: str, reads: list[tuple[ROperator, Region]], owners: Owners) -> None:
    """Whatever is read of a tensor is written by earlier rOperators."""
    lo, hi = (np.concatenate([getattr(region, end) for _, region in reads]) for end in ("lo", "hi"))
    readers = [operator for operator, region in reads for _ in region.lo]
    touched = (hi > lo).all(axis=1)
    for reader, writers in zip(np.flatnonzero(touched).tolist(), owners.of(lo[touched], hi[touched]), strict=True):
        operator = readers[reader]
        if writers[0] == NOBODY or writers[-1] >= operator.id:
            late = [graph.operators[number] for number in writers.tolist() if number >= operator.id]
            whom = "nothing" if not late else f"only {describe_operator(late[0])}"
            message = f"{describe_operator(operator)} reads an element of {name} that {whom} writes"
            raise VerificationError("T16", message, where=sources_of(operator, *late))
