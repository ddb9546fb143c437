"""The tables of a source made anew, for another schedule of the same rTasks: its code and its constants stay.

Which function an rOperator calls, and where its constants lie, is read off the tables that there are. On the way they
are compared with the task graph: rTasks, operands and sizes must be the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rammer.devices.base import Source
from rammer.devices.codegen.source import MANIFEST, RECORDS, SLOTS, steps_of, table_files
from rammer.devices.codegen.tables import (
    ARENA,
    CALLER,
    CONSTANT,
    EXECUTE_IF,
    RECORD,
    SLOT,
    TASKS,
    Manifest,
    build_tables,
)
from rammer.ir.program import Plan
from rammer.ir.schema import SchemaError
from rammer.ir.task import RKernel, ROperator, TaskGraph, TensorRole


def placed(source: Source, plan: Plan) -> Source:
    """A source with the tables of another plan.

    Raises:
        SchemaError: the plan is not one of the source's rTasks.
    """
    known = read_uses(source, plan.graph)
    tables = build_tables(plan, known.functions, known.first_slots, known.constants)
    files = table_files(tables)
    manifest = Manifest.from_bytes(source.files[MANIFEST])
    manifest = replace(
        manifest,
        steps=steps_of(plan),
        first_counters=tables.first_counters,
        arena_bytes=plan.memory.arena_bytes,
        table_bytes={**manifest.table_bytes, **{name: len(table) for name, table in files.items()}},
    )
    return replace(source, files={**source.files, MANIFEST: manifest.to_bytes(), **files})


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """What tables say of a task graph.

    Attributes:
        first_slots: where the slots of each rOperator with rTasks begin.
        functions: the number of the function that it calls.
        constants: byte offsets of the constant root tensors in their segment.
    """

    first_slots: Mapping[int, int]
    functions: Mapping[int, int]
    constants: Mapping[int, int]


def read_uses(source: Source, graph: TaskGraph) -> Uses:
    """What the tables of a source say of the task graph that they were made of.

    Args:
        source: whose tables were checked.
        graph: with one rKernel for each rOperator; it need not be sound.

    Raises:
        SchemaError: the tables are of another task graph, or it does not fit together.
    """
    try:
        executed = [operator for operator in graph.operators if operator.kernels[0].task_count]
        manifest = Manifest.from_bytes(source.files[MANIFEST])
        first_slots = {op.id: entry.first_slot for op, entry in zip(executed, manifest.operators, strict=True)}
        return Uses(
            first_slots=first_slots,
            functions=_functions(source, executed, first_slots),
            constants=_constants(source, manifest, graph, executed, first_slots),
        )
    except (ValueError, ArithmeticError, LookupError) as error:
        raise SchemaError(f"its tables are not those of its task graph: {error}") from error


def _functions(source: Source, executed: Sequence[ROperator], first_slots: Mapping[int, int]) -> dict[int, int]:
    """The function of each rOperator, of which the records run each rTask once."""
    records = np.frombuffer(source.files[RECORDS], dtype=RECORD)
    runs = records[np.isin(records["opcode"], TASKS)]
    runs = runs[np.lexsort((runs["b"], runs["c"]))]
    counts = [operator.kernels[0].task_count for operator in executed]
    if sum(counts) != len(runs):
        raise ValueError(f"{len(runs)} rTasks instead of {sum(counts)}")
    firsts = np.cumsum([0, *counts])
    starts = np.repeat([first_slots[operator.id] for operator in executed], counts)
    tiles = np.arange(len(runs)) - np.repeat(firsts[:-1], counts)
    numbers = runs["a"][firsts[:-1]].tolist()
    predicated = np.repeat([operator.predicate is not None for operator in executed], counts)
    if not (
        np.array_equal(runs["opcode"] == EXECUTE_IF, predicated)
        and np.array_equal(runs["c"], starts)
        and np.array_equal(runs["b"], tiles)
        and np.array_equal(runs["a"], np.repeat(numbers, counts))
    ):
        raise ValueError("other rTasks")
    called: dict[RKernel, int] = {}
    for operator, number in zip(executed, numbers, strict=True):
        if called.setdefault(operator.kernels[0], number) != number:
            raise ValueError(f"one rKernel, and functions {called[operator.kernels[0]]} and {number}")
    return {operator.id: number for operator, number in zip(executed, numbers, strict=True)}


def _constants(
    source: Source,
    manifest: Manifest,
    graph: TaskGraph,
    executed: Sequence[ROperator],
    first_slots: Mapping[int, int],
) -> dict[int, int]:
    """Where constants begin in their segment, by the slots of those who read them; all slots are looked at."""
    arrays = [graph.root(tensor).id for tensor in (*graph.inputs, *graph.outputs)]
    if [graph.tensors[tensor].nbytes for tensor in arrays] != list(manifest.array_bytes):
        raise ValueError("other arrays")
    callers = {tensor: CALLER + place for place, tensor in enumerate(arrays)}
    ends = [manifest.arena_bytes, manifest.constant_starts[-1], *manifest.array_bytes]
    own = {TensorRole.INTERMEDIATE: ARENA, TensorRole.CONSTANT: CONSTANT}
    slots = np.frombuffer(source.files[SLOTS], dtype=SLOT)
    segments, offsets = slots["segment"].tolist(), slots["offset_bytes"].tolist()
    bases: dict[int, int] = {}
    for operator in executed:
        first = first_slots[operator.id] - (operator.predicate is not None)
        for place, binding in enumerate(operator.bindings, first):
            tensor, root = graph.tensors[binding.tensor], graph.root(binding.tensor)
            base = offsets[place] - tensor.layout.address(binding.origin) * tensor.element_bytes
            segment = own.get(root.role, callers.get(root.id, CALLER))
            if (
                segments[place] != segment
                or bases.setdefault(root.id, base) != base
                or not 0 <= base <= ends[segment] - root.nbytes
            ):
                raise ValueError(f"another place of an operand of '{operator.name}'")
    return {tensor: base for tensor, base in bases.items() if graph.tensors[tensor].role is TensorRole.CONSTANT}
