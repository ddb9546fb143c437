"""A plan as named bytes: kernel sources, tables and constants. No path, time or machine gets in."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from rammer.devices.base import Buffer, Source
from rammer.devices.cpu.tables import ABI, KernelEntry, Manifest, OperatorEntry, bindings, build_tables
from rammer.ir.program import Plan
from rammer.ir.task import RKernel, ROperator, TensorRole

DEVICE = "cpu"
MANIFEST = "program.json"
RECORDS = "records.bin"
SLOTS = "slots.bin"
SIGNALS = "signals.bin"
CONSTANTS = "constants.bin"
KERNEL_FOLDER = "kernels/"

EmitKernel = Callable[[RKernel, str], str]
_NAMED_OPERATORS = 3


def assemble(plan: Plan, emit_kernel: EmitKernel, headers: Mapping[str, str], alignment_bytes: int) -> Source:
    """The source of a plan.

    Args:
        plan: the plan.
        emit_kernel: (rKernel, symbol) -> C text of one function with that name.
        headers: what the kernels include, by name.
        alignment_bytes: of the constants.
    """
    executed = _executed(plan)
    kernels = plan.kernels
    texts: dict[str, str] = {}
    users: dict[str, list[ROperator]] = {}
    symbols: dict[RKernel, str] = {}
    for operator in executed:
        kernel = kernels[operator.id]
        if kernel not in symbols:
            symbols[kernel] = _symbol(kernel, emit_kernel)
            texts[symbols[kernel]] = emit_kernel(kernel, symbols[kernel])
        users.setdefault(symbols[kernel], []).append(operator)
    index = {symbol: i for i, symbol in enumerate(texts)}
    slot_counts = [len(bindings(plan, operator.id)) for operator in executed]
    first_slots = dict(zip((op.id for op in executed), itertools.accumulate(slot_counts, initial=0), strict=False))
    blob, offsets = _constants(plan, executed, alignment_bytes)
    tables = build_tables(
        plan, {operator.id: index[symbols[kernels[operator.id]]] for operator in executed}, first_slots, offsets
    )
    manifest = Manifest(
        abi=ABI,
        kernels=tuple(KernelEntry(symbol=symbol, where=_where(users[symbol])) for symbol in texts),
        operators=tuple(OperatorEntry(where=_where([op]), first_slot=first_slots[op.id]) for op in executed),
        steps=tuple(
            tuple(len(queue) for queue in program.steps) + (0,) * (plan.veus - program.veus)
            for program in plan.schedule.programs
        ),
        first_counters=tables.first_counters,
        array_count=len(plan.graph.inputs) + len(plan.graph.outputs),
        arena_bytes=plan.memory.arena_bytes,
        alignment_bytes=max(alignment_bytes, plan.memory.alignment_bytes),
    )
    code = {**headers, **{f"{symbol}.c": text for symbol, text in texts.items()}}
    data: dict[str, Buffer] = {
        MANIFEST: manifest.to_bytes(),
        RECORDS: tables.records.tobytes(),
        SLOTS: tables.slots.tobytes(),
        SIGNALS: tables.signals.tobytes(),
        CONSTANTS: blob.data,
    }
    return Source(device=DEVICE, files=data | {KERNEL_FOLDER + name: text.encode() for name, text in code.items()})


def aligned_bytes(size_bytes: int, alignment_bytes: int) -> npt.NDArray[np.uint8]:
    """Zeroed memory that starts at a multiple of `alignment_bytes`."""
    memory = np.zeros(size_bytes + alignment_bytes, dtype=np.uint8)
    skipped = -memory.ctypes.data % alignment_bytes
    return memory[skipped : skipped + size_bytes]


def _executed(plan: Plan) -> list[ROperator]:
    """The rOperators that have rTasks, in order."""
    ids = {task.operator for program in plan.schedule.programs for _, _, task in program.tasks()}
    return [operator for operator in plan.graph.operators if operator.id in ids]


def _symbol(kernel: RKernel, emit_kernel: EmitKernel) -> str:
    """A name that follows from the code alone: models with the same kernel share its object in the cache."""
    digest = hashlib.sha256(emit_kernel(kernel, "kernel").encode()).hexdigest()
    return f"{kernel.skeleton}_{digest[:16]}"


def _where(operators: Sequence[ROperator]) -> str:
    places = [str(operator.sources[0]) if operator.sources else f"'{operator.name}'" for operator in operators]
    more = len(places) - _NAMED_OPERATORS
    return ", ".join(places[:_NAMED_OPERATORS]) + (f" and {more} more" if more > 0 else "")


def _constants(
    plan: Plan, executed: Iterable[ROperator], alignment_bytes: int
) -> tuple[npt.NDArray[np.uint8], dict[int, int]]:
    """The constants that are used, packed by their layouts into one block, and their byte offsets."""
    graph = plan.graph
    roots = {graph.root(binding.tensor).id for operator in executed for binding in bindings(plan, operator.id)}
    offsets: dict[int, int] = {}
    end = 0
    for tensor in sorted(roots):
        if graph.tensors[tensor].role is TensorRole.CONSTANT:
            offsets[tensor] = end
            end += -(-graph.tensors[tensor].nbytes // alignment_bytes) * alignment_bytes
    blob = aligned_bytes(end, alignment_bytes)
    for tensor, offset in offsets.items():
        packed = graph.tensors[tensor].layout.pack(graph.constants[tensor])
        blob[offset : offset + packed.nbytes] = packed.view(np.uint8)
    return blob, offsets
