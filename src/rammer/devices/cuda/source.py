"""A plan as one translation unit, tables and constants. No path, time or machine gets in."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from rammer.devices.base import Source
from rammer.devices.codegen.source import (
    RECORDS,
    SIGNALS,
    SLOTS,
    Functions,
    assemble,
    where_of,
    write_functions,
)
from rammer.devices.codegen.tables import CALLER, RECORD, SIGNAL_COUNT, SLOT
from rammer.devices.cuda.ahead import Streamed, ahead_limit_bytes, look_ahead
from rammer.devices.cuda.architecture import KIND
from rammer.devices.cuda.describe import MULTIPROCESSOR_THREADS
from rammer.devices.cuda.emit.dispatch import Target, emit_dispatch
from rammer.devices.cuda.emit.kernel import KernelText, emit_kernel
from rammer.devices.cuda.emit.persistent_rnn import emit_walk
from rammer.devices.cuda.emit.warpgroup_gemm import emit_multiply
from rammer.devices.cuda.limits import check_room, chunk_of, records_room_bytes
from rammer.devices.cuda.records import device_records
from rammer.devices.cuda.runs import Runs, runs_of
from rammer.devices.cuda.source_files import ABI, CODE, DEVICE_RECORDS, LAUNCH, TENSOR_MAPS
from rammer.devices.cuda.tensor_maps import tensor_maps
from rammer.ir.kernel_form import GemvForm, GemvRowsForm, WarpgroupGemmForm
from rammer.ir.program import Plan, Schedule
from rammer.ir.task import RKernel, ROperator, TaskGraph, TensorRole, kernels_of
from rammer.ir.vdevice import VDevice
from rammer.tiling.persistent_rnn import Family, Stationary

_FAR_BYTES = 16 << 10  # more is quicker only where it is written row by row (ADR 0013)
_LINE_BYTES = 128
_SWIZZLED_BYTES = 1024  # that operands of warpgroups are aligned to
_LEAST_SLOTS = 2  # a model may have no operator that computes anything, C has no empty arrays
SKELETONS = (
    ("rammer.devices.cuda", "kernels/rammer_types.cuh"),
    ("rammer.devices.cuda", "kernels/rammer_intrinsics.cuh"),
    ("rammer.devices.cuda", "kernels/rammer_kernel.cuh"),
    ("rammer.devices.codegen", "rammer_scalars.h"),
    ("rammer.devices.cuda", "kernels/rammer_mma.cuh"),
    ("rammer.devices.cuda", "skeletons/map.cuh"),
    ("rammer.devices.cuda", "skeletons/reduce.cuh"),
    ("rammer.devices.cuda", "skeletons/gemm.cuh"),
    ("rammer.devices.cuda", "skeletons/epilogue.cuh"),
    ("rammer.devices.cuda", "skeletons/depthwise.cuh"),
    ("rammer.devices.cuda", "skeletons/gemv.cuh"),
    ("rammer.devices.cuda", "skeletons/gemv_rows.cuh"),
    ("rammer.devices.cuda", "skeletons/attention_warps.cuh"),
    ("rammer.devices.cuda", "skeletons/attention.cuh"),
    ("rammer.devices.cuda", "skeletons/trees.cuh"),
    ("rammer.devices.cuda", "skeletons/persistent_rnn_words.cuh"),
    ("rammer.devices.cuda", "skeletons/persistent_rnn.cuh"),
    ("rammer.devices.cuda", "skeletons/persistent_rnn_formats.cuh"),
    ("rammer.devices.cuda", "skeletons/persistent_rnn_parts.cuh"),
    ("rammer.devices.cuda", "skeletons/persistent_rnn_looks.cuh"),
    ("rammer.devices.cuda", "skeletons/persistent_rnn_weights.cuh"),
    ("rammer.devices.cuda", "skeletons/persistent_rnn_batch.cuh"),
)
"""Skeletons and what they stand on; of a program they need `RAMMER_THREADS` alone."""
_RUNTIME = (
    ("rammer.devices.cuda", "runtime/tables.cuh"),
    ("rammer.devices.cuda", "runtime/walk.cuh"),
    ("rammer.devices.cuda", "runtime/runs.cuh"),
)
WARPGROUPS = (
    ("rammer.devices.cuda", "kernels/rammer_intrinsics_sm90.cuh"),
    ("rammer.devices.cuda", "skeletons/gemm_sm90.cuh"),
)
_INTERPRETER = ("rammer.devices.cuda", "runtime/interpreter.cuh")


class Turns(NamedTuple):
    """Segments that change places from run to run: so many from `read` on with as many from `written` on."""

    states: int
    read: int
    written: int


NO_TURNS = Turns(0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Code(Source):
    """The code of a schedule, to be compiled before there are tables, and what these have to fit.

    Attributes:
        functions: its rKernels.
        texts: of the same, by symbol.
        slots: operands that a record has room for.
        ahead_bytes: what a vEU may ask for ahead.
    """

    functions: Functions
    texts: Mapping[str, KernelText]
    slots: int
    ahead_bytes: int


def source_of(plan: Plan, vdevice: VDevice) -> Source:
    """The source of a plan for a vDevice.

    Raises:
        TooManyArraysError: the kernel has no room for the model's inputs and outputs, or for an operator's operands.
    """
    return complete(plan, vdevice, code_of(plan.graph, plan.schedule, vdevice))


def code_of(graph: TaskGraph, schedule: Schedule, vdevice: VDevice) -> Code:
    """The code of a schedule for a vDevice: it is the same wherever tensors lie.

    Raises:
        TooManyArraysError: the kernel has no room for the model's inputs and outputs, or for an operator's operands.
    """
    chosen = kernels_of(graph, schedule.choice)
    widest = sorted(graph.operators, key=lambda operator: _operands(operator, chosen))[-1:]
    predicated = any(operator.predicate is not None for operator in graph.operators)
    slots = max(_LEAST_SLOTS, sum(_operands(operator, chosen) for operator in widest)) + predicated
    slots += slots % 2
    arrays = len(graph.inputs) + len(graph.outputs)
    shared = next(level for level in vdevice.levels if not level.shared)
    room_bytes = shared.capacity_bytes - _scratch_bytes(chosen)
    check_room(arrays, slots, where_of(widest), room_bytes)
    unwritten = _slots_of(graph, chosen, {TensorRole.CONSTANT, TensorRole.INPUT})
    emitted: dict[RKernel, KernelText] = {}
    streamed_bytes, kept_bytes = _constant_bytes(graph, chosen)
    ahead_bytes = ahead_limit_bytes(vdevice, streamed_bytes=streamed_bytes, kept_bytes=kept_bytes)

    def emit(kernel: RKernel, symbol: str) -> str:
        emitted[kernel] = emit_kernel(kernel, symbol, unwritten=unwritten[kernel], constants_stay=ahead_bytes == 0)
        return emitted[kernel].text

    functions = write_functions(graph, schedule, emit)
    texts = {symbol: replace(emitted[functions.kernels[symbol]], text=text) for symbol, text in functions.texts.items()}
    states, outputs = graph.states, CALLER + len(graph.inputs)
    turns = Turns(states, outputs - states, CALLER + arrays - states)
    stationary = _stationary_of(texts)
    places = {symbol: number for number, symbol in enumerate(texts)}
    numbers = {operator: places[symbol] for operator, symbol in functions.symbols.items()}
    runs = runs_of(graph, schedule, numbers, stationary) if stationary else {}
    unit = translation_unit(
        texts,
        vdevice.threads,
        slots,
        CALLER + arrays + 1,
        turns,
        predicated=predicated,
        runs=runs,
        room_bytes=records_room_bytes(arrays, room_bytes),
    )
    return Code(
        device=KIND,
        files={CODE: unit.encode()},
        functions=functions,
        texts=texts,
        slots=slots,
        ahead_bytes=ahead_bytes,
    )


def complete(plan: Plan, vdevice: VDevice, code: Code) -> Source:
    """The source of a plan whose code is written."""
    assembly = assemble(plan, code.functions, vdevice.alignment_bytes, ABI)
    kernels = [code.functions.kernels[symbol] for symbol in code.texts]
    streamed = {
        number: Streamed(kernel=kernel, slots=tuple(sorted(kernel.constants)))
        for number, kernel in enumerate(kernels)
        if isinstance(kernel.form, GemvForm | GemvRowsForm)
    }
    data = assembly.data
    slot_table = np.frombuffer(data[SLOTS], dtype=SLOT)
    maps = tensor_maps(
        plan, assembly.first_slots, slot_table, CALLER + len(plan.graph.inputs) + len(plan.graph.outputs)
    )
    records, starts = device_records(
        np.frombuffer(data[RECORDS], dtype=RECORD),
        assembly.manifest.starts,
        slot_table,
        np.frombuffer(data[SIGNALS], dtype=SIGNAL_COUNT),
        code.slots,
        _stationary_of(code.texts),
        maps.operands,
    )
    look_ahead(records, starts.tolist(), streamed, code.ahead_bytes)
    return Source(
        device=KIND,
        files={
            **data,
            DEVICE_RECORDS: records.tobytes(),
            TENSOR_MAPS: maps.table.tobytes(),
            LAUNCH: _launch(plan, vdevice, code.slots, starts.tolist()),
            **code.files,
        },
        recipes=assembly.recipes,
    )


def _stationary_of(texts: Mapping[str, KernelText]) -> dict[int, Stationary]:
    """The stationary rKernels by number."""
    return {number: text.stationary for number, text in enumerate(texts.values()) if text.stationary is not None}


def _launch(plan: Plan, vdevice: VDevice, slots: int, starts: Sequence[int]) -> bytes:
    """What a launch takes, as JSON."""
    graph = plan.graph
    launch = {
        "threads": vdevice.threads,
        "scratch_bytes": _scratch_bytes(plan.kernels),
        "slots": slots,
        "starts": starts,
        "input_bytes": [graph.tensors[i].nbytes for i in graph.inputs],
        "output_bytes": [graph.tensors[i].nbytes for i in graph.outputs],
        "states": graph.states,
        "far_outputs": _far_outputs(graph),
    }
    return json.dumps(launch, indent=1).encode()


def translation_unit(
    kernels: Mapping[str, KernelText],
    threads: int,
    slots: int,
    segments: int,
    turns: Turns = NO_TURNS,
    *,
    predicated: bool = False,
    runs: Mapping[int, Runs] = MappingProxyType({}),
    room_bytes: int = 0,
) -> str:
    """Headers, device functions, the dispatch over them, and the interpreter, as one text.

    Args:
        kernels: by symbol, in the order of their numbers.
        threads: of a block.
        slots: operands that a record has room for.
        segments: in which operands lie.
        turns: those of states.
        predicated: whether rTasks may be skipped.
        runs: of the stationary rKernels by number; of one that is not there all that can be.
        room_bytes: of shared memory, for records; there are so few at least that no rTask misses it.
    """
    has_warpgroups = any(kernel.loop is not None for kernel in kernels.values())
    families: dict[Family, dict[int, str]] = {}
    for number, (symbol, kernel) in enumerate(kernels.items()):
        if kernel.stationary is not None:
            families.setdefault(kernel.stationary.family, {})[number] = symbol
    targets = [Target(symbol, apart=kernel.apart) for symbol, kernel in kernels.items()]
    walks = {f"walk_{min(members)}": (family, members) for family, members in families.items()}
    for symbol, (_, members) in walks.items():
        walk = Target(symbol, walks=True, apart=any(targets[number].apart for number in members))
        for number in members:
            targets[number] = walk
    sizes = {
        "THREADS": threads,
        "BLOCKS": MULTIPROCESSOR_THREADS // threads,
        "SLOTS": slots,
        "SEGMENTS": segments,
        "STATES": turns.states,
        "READ": turns.read,
        "WRITTEN": turns.written,
        "PREDICATES": int(predicated),
        "CHUNK": chunk_of(slots, room_bytes),
        "NEIGHBOURS": int(has_warpgroups),
        "SCRATCH_ALIGNMENT": _SWIZZLED_BYTES if has_warpgroups else _LINE_BYTES,
    }
    macros = "".join(f"#define RAMMER_{name} {size}\n" for name, size in sizes.items())
    headers = map(header_text, SKELETONS + _RUNTIME + (WARPGROUPS if has_warpgroups else ()))
    functions = [kernel.text for kernel in kernels.values()]
    functions += [emit_walk(symbol, *walk, runs) for symbol, walk in walks.items()]
    loops = {symbol: kernel.loop for symbol, kernel in kernels.items() if kernel.loop is not None}
    numbers = {symbol: number for number, symbol in enumerate(kernels)}
    beside = [symbol for symbol, kernel in kernels.items() if kernel.has_rows]
    functions += [emit_multiply(loops, beside, numbers)] if loops else []
    functions.append(emit_dispatch(targets))
    return "\n".join([macros, *headers, *functions, header_text(_INTERPRETER)])


def _scratch_bytes(kernels: Sequence[RKernel]) -> int:
    """Shared memory for all rTasks; what aligns it for warpgroups may come on top."""
    aligned = _SWIZZLED_BYTES if any(isinstance(kernel.form, WarpgroupGemmForm) for kernel in kernels) else 0
    return max((kernel.form.scratch_bytes + aligned for kernel in kernels), default=0)


def _operands(operator: ROperator, chosen: Sequence[RKernel]) -> int:
    """What the records of an rOperator have room for: operands, and the tensor maps of two."""
    has_maps = isinstance(chosen[operator.id].form, WarpgroupGemmForm)
    return len(operator.reads) + len(operator.writes) + (2 if has_maps else 0)


def _far_outputs(graph: TaskGraph) -> bool:
    """Whether to write outputs for the host straight into its memory: few bytes, which no rTask reads again.

    A copy after the run would begin when the host has asked for it and the GPU has ended all else. States stay there.
    """
    outputs = {graph.root(i).id for i in graph.outputs[: len(graph.outputs) - graph.states]}
    read = {graph.root(binding.tensor).id for operator in graph.operators for binding in operator.needs}
    return not outputs & read and sum(graph.tensors[i].nbytes for i in outputs) <= _FAR_BYTES


def _constant_bytes(graph: TaskGraph, chosen: Sequence[RKernel]) -> tuple[int, int]:
    """Bytes of the constants that matrix-vector products read, and of all others; the room between them left out."""
    read = {
        graph.root(binding.tensor).id
        for operator, kernel in zip(graph.operators, chosen, strict=True)
        if isinstance(kernel.form, GemvForm | GemvRowsForm)
        for binding in operator.reads
    }
    constants = [t for t in graph.tensors if t.role is TensorRole.CONSTANT and t.alias_of is None]
    streamed_bytes = sum(t.nbytes for t in constants if t.id in read)
    return streamed_bytes, sum(t.nbytes for t in constants) - streamed_bytes


def _slots_of(
    graph: TaskGraph, chosen: Sequence[RKernel], wanted: Collection[TensorRole]
) -> dict[RKernel, frozenset[int]]:
    """The slots of each chosen rKernel that have one of some roles wherever it is used."""
    found: dict[RKernel, frozenset[int]] = {}
    for operator, kernel in zip(graph.operators, chosen, strict=True):
        roles = [graph.root(binding.tensor).role for binding in operator.reads]
        slots = frozenset(slot for slot, role in enumerate(roles) if role in wanted)
        found[kernel] = found.get(kernel, slots) & slots
    return found


def header_text(name: tuple[str, str]) -> str:
    """A header by its package and path."""
    package, path = name
    return files(package).joinpath(path).read_text()
