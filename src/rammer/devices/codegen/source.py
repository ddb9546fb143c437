"""A plan as named bytes: kernel sources, tables and constants. No path, time or machine gets in."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rammer.devices.base import Buffer, Source
from rammer.devices.codegen.constants import pack_constants
from rammer.devices.codegen.tables import (
    EXECUTE_IF,
    RECORD,
    SIGNAL_COUNT,
    SLOT,
    TASKS,
    KernelEntry,
    Manifest,
    OperatorEntry,
    Tables,
    bindings,
    build_tables,
)
from rammer.ir.schema import SchemaError, read_json
from rammer.printable import listing

if TYPE_CHECKING:
    from rammer.ir.program import Plan, Schedule
    from rammer.ir.recipe import Recipe
    from rammer.ir.task import Binding, RKernel, ROperator, TaskGraph

MANIFEST = "program.json"
RECORDS = "records.bin"
SLOTS = "slots.bin"
SIGNALS = "signals.bin"

EmitKernel = Callable[["RKernel", str], str]
_MOST_ALIGNMENT_BYTES = 4096  # a page
_UNNAMED = "rammer_kernel_without_a_name"  # the symbol until it is known


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Functions:
    """The rKernels of a schedule as C functions, each once.

    Attributes:
        texts: by symbol, in the order of their numbers.
        symbols: the function of each rOperator that has rTasks, by its number, in order.
        kernels: what a function is the code of, by symbol.
    """

    texts: Mapping[str, str]
    symbols: Mapping[int, str]
    kernels: Mapping[str, RKernel]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assembly:
    """A plan as tables: named bytes, and what is in them.

    `first_slots` says where the slots of each rOperator that is run begin, `recipes` how some data follow from less.
    """

    manifest: Manifest
    first_slots: Mapping[int, int]
    data: Mapping[str, Buffer]
    recipes: Mapping[str, Recipe]


def write_functions(graph: TaskGraph, schedule: Schedule, emit_kernel: EmitKernel) -> Functions:
    """The functions of a schedule, which do not depend on where anything lies.

    A symbol follows from the code alone, so models with the same kernel share its object in the cache. The code is
    written once, before its symbol is known.

    Args:
        graph: what is scheduled.
        schedule: which rKernel each rOperator runs, and which of them have rTasks.
        emit_kernel: (rKernel, symbol) -> C text of one function with that name.
    """
    ids = {task.operator for program in schedule.programs for _, _, task in program.tasks()}
    texts: dict[str, str] = {}
    known: dict[RKernel, str] = {}
    symbols: dict[int, str] = {}
    for operator in graph.operators:
        if operator.id not in ids:
            continue
        kernel = operator.kernels[schedule.choice[operator.id]]
        if kernel not in known:
            text = emit_kernel(kernel, _UNNAMED)
            digest = hashlib.sha256(text.replace(_UNNAMED, "kernel").encode()).hexdigest()
            known[kernel] = f"{kernel.form.skeleton}_{digest[:16]}"
            texts[known[kernel]] = text.replace(_UNNAMED, known[kernel])
        symbols[operator.id] = known[kernel]
    return Functions(texts=texts, symbols=symbols, kernels={symbol: kernel for kernel, symbol in known.items()})


def assemble(plan: Plan, functions: Functions, alignment_bytes: int, abi: int) -> Assembly:
    """The tables of a plan.

    Args:
        plan: the plan.
        functions: those of its schedule.
        alignment_bytes: of the constants.
        abi: the version of the tables' format that the device's runtime reads.
    """
    symbols = functions.symbols
    executed = [plan.graph.operators[number] for number in symbols]
    users: dict[str, list[ROperator]] = {symbol: [] for symbol in functions.texts}
    for operator in executed:
        users[symbols[operator.id]].append(operator)
    numbers = {symbol: i for i, symbol in enumerate(functions.texts)}
    first_slots = _first_slots(plan, executed)
    makers = _makers(plan, executed)
    alignment_bytes = max(alignment_bytes, plan.memory.alignment_bytes)
    constants = pack_constants(plan.graph, _used(plan, executed), alignment_bytes)
    kernels = {i: numbers[symbol] for i, symbol in symbols.items()}
    tables = build_tables(plan, kernels, first_slots, constants.offsets_bytes)
    data: dict[str, Buffer] = {**table_files(tables), **constants.blocks}
    manifest = Manifest(
        abi=abi,
        kernels=tuple(KernelEntry(symbol=symbol, where=where_of(found)) for symbol, found in users.items()),
        operators=tuple(
            OperatorEntry(
                where=where_of([op]),
                first_slot=first_slots[op.id],
                takes_from=tuple(first_slots[maker] for maker in makers[op.id]),
            )
            for op in executed
        ),
        steps=steps_of(plan),
        first_counters=tables.first_counters,
        array_bytes=tuple(plan.graph.tensors[i].nbytes for i in (*plan.graph.inputs, *plan.graph.outputs)),
        arena_bytes=plan.memory.arena_bytes,
        alignment_bytes=alignment_bytes,
        table_bytes={name: len(table) for name, table in data.items()},
        constants=tuple(constants.names),
    )
    return Assembly(
        manifest=manifest,
        first_slots=first_slots,
        data={MANIFEST: manifest.to_bytes(), **data},
        recipes=constants.recipes,
    )


def table_files(tables: Tables) -> dict[str, bytes]:
    """Tables by the names of their files."""
    return {
        RECORDS: tables.records.tobytes(),
        SLOTS: tables.slots.tobytes(),
        SIGNALS: tables.signals.tobytes(),
    }


def steps_of(plan: Plan) -> tuple[tuple[int, ...], ...]:
    """The number of steps on each vEU, by rProgram."""
    return tuple(
        tuple(len(queue) for queue in program.steps) + (0,) * (plan.veus - program.veus)
        for program in plan.schedule.programs
    )


def outdated(source: Source, abi: int, array_bytes: Sequence[int]) -> str | None:
    """Why a runtime that reads version `abi` of the tables cannot read those of a source; see `Device.outdated`."""
    content = source.files[MANIFEST]
    try:
        manifest = Manifest.from_bytes(content)
        written = manifest.abi
        if written == abi:
            _check_tables(manifest, source.files, array_bytes)
            return None
    except SchemaError:  # which another version's has
        written = read_json(content, {"abi": int}, "its manifest")["abi"]
        if written == abi:
            raise
    return f"its tables are of version {written}, this Rammer reads version {abi}"


def _check_tables(manifest: Manifest, files: Mapping[str, Buffer], array_bytes: Sequence[int]) -> None:
    """See whether the tables of a saved source are those of its manifest, and that the manifest of these arrays.

    Records and slots may name what there is alone; that they are what the compiler wrote is for checksums to say.
    """
    if manifest.array_bytes != tuple(array_bytes):
        raise SchemaError(
            f"its program takes arrays of {manifest.array_bytes} bytes, its signature {tuple(array_bytes)}"
        )
    named = (RECORDS, SLOTS, SIGNALS, *manifest.constants)
    if sorted(named) != sorted(manifest.table_bytes):
        raise SchemaError("its constants are not those of its tables")
    for name in named:
        expected = manifest.table_bytes.get(name)
        if len(files[name]) != expected:
            raise SchemaError(f"its table {name} has {len(files[name])} bytes instead of {expected}")
    alignment_bytes = manifest.alignment_bytes
    if alignment_bytes.bit_count() != 1 or alignment_bytes > _MOST_ALIGNMENT_BYTES:
        raise SchemaError(f"its program asks for memory at multiples of {alignment_bytes} bytes")
    if {len(program) for program in manifest.steps} - {manifest.veus}:
        raise SchemaError("its rPrograms are for different numbers of vEUs")
    counters = len(files[SIGNALS]) // SIGNAL_COUNT.itemsize
    if len(manifest.first_counters) != len(manifest.steps) or max(manifest.first_counters, default=0) > counters:
        raise SchemaError("the counters of its rPrograms are not those of its tables")
    if len(files[RECORDS]) != manifest.starts[-1] * RECORD.itemsize:
        raise SchemaError("the steps of its rPrograms are not those of its tables")
    records, slots = np.frombuffer(files[RECORDS], dtype=RECORD), np.frombuffer(files[SLOTS], dtype=SLOT)
    opcodes, segments = records["opcode"], slots["segment"]
    # by opcode: how many there are
    targets = np.array([len(manifest.kernels), counters, counters, len(manifest.kernels)])
    sizes_bytes = np.array([manifest.arena_bytes, manifest.constant_starts[-1], *array_bytes], dtype=np.uint64)
    if not (
        (opcodes < len(targets)).all()
        and (records["a"] < targets[opcodes]).all()
        and (records["c"][np.isin(opcodes, TASKS)] < len(slots)).all()
        and (records["c"][opcodes == EXECUTE_IF] > 0).all()
        and (segments < len(sizes_bytes)).all()
        and (slots["offset_bytes"] <= sizes_bytes[segments]).all()
    ):
        raise SchemaError("its steps are for other rKernels, counters or operands than there are")


def _first_slots(plan: Plan, executed: Sequence[ROperator]) -> dict[int, int]:
    """Where the slots of what each rOperator reads begin; that of its predicate comes before."""
    starts = itertools.accumulate((len(bindings(plan, operator.id)) for operator in executed), initial=0)
    return {op.id: start + (op.predicate is not None) for op, start in zip(executed, starts, strict=False)}


def _makers(plan: Plan, executed: Sequence[ROperator]) -> dict[int, list[int]]:
    """The rOperators whose tagged results each rOperator takes, in order."""

    def tagged(bindings: Sequence[Binding]) -> set[int]:
        roots = {plan.graph.root(binding.tensor) for binding in bindings}
        return {root.id for root in roots if root.layout.tagged}

    writers: dict[int, list[int]] = {}
    for operator in executed:
        for root in tagged(operator.writes):
            writers.setdefault(root, []).append(operator.id)
    return {op.id: sorted({w for root in tagged(op.reads) for w in writers.get(root, ())}) for op in executed}


def where_of(operators: Sequence[ROperator]) -> str:
    """The places of some rOperators in the user's model, for messages."""
    places = [str(operator.sources[0]) if operator.sources else f"'{operator.name}'" for operator in operators]
    return listing(places)


def _used(plan: Plan, executed: Iterable[ROperator]) -> list[int]:
    """The constants that rTasks read, by the ids of their root tensors."""
    from rammer.ir.task import TensorRole  # noqa: PLC0415 - loading a model needs none of it

    graph = plan.graph
    roots = {graph.root(binding.tensor) for operator in executed for binding in bindings(plan, operator.id)}
    return sorted(root.id for root in roots if root.role is TensorRole.CONSTANT)
