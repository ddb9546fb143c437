"""An rProgram as a runtime reads it: fixed-size records and slots, and a manifest that names things in messages.

Each device's runtime has C types that mirror the record and the slot. Several rPrograms become one: their counters are
numbered on, and between two of them every vEU signals a counter of its own kind and waits for all.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from rammer.devices.codegen.constants import CONSTANTS, starts_of
from rammer.ir.schema import Schema, check_schema, read_json

if TYPE_CHECKING:
    from rammer.ir.program import Plan, RProgram
    from rammer.ir.task import Binding

EXECUTE, WAIT, SIGNAL, EXECUTE_IF = range(4)
"""What a record says. EXECUTE_IF: an rTask, which does nothing where the bool in the slot before its first is false."""
TASKS = (EXECUTE, EXECUTE_IF)
ARENA, CONSTANT, CALLER = range(3)
"""Segments of slots; CALLER and on are the model's inputs, then its outputs."""

_BARRIER_RECORDS = 2
_MANIFEST: Schema = {
    "abi": int,
    "kernels": [{"symbol": str, "where": str}],
    "operators": [(str, int, [int])],
    "steps": [[int]],
    "first_counters": [int],
    "array_bytes": [int],
    "arena_bytes": int,
    "alignment_bytes": int,
    "table_bytes": {str: int},
    "constants": [str],
}

RECORD = np.dtype([("opcode", "<u4"), ("a", "<u4"), ("b", "<u4"), ("c", "<u4")])
SLOT = np.dtype([("segment", "<u4"), ("reserved", "<u4"), ("offset_bytes", "<u8")])
SIGNAL_COUNT = np.dtype("<u4")
_Record = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEntry:
    """A function of the kernels' library, and the operators it computes, for messages."""

    symbol: str
    where: str


class OperatorEntry(NamedTuple):
    """An rOperator with rTasks, and where its slots begin, but for its predicate's, which comes before.

    A tuple, as there are many, each read with every model. `takes_from` is where those of the rOperators begin whose
    tagged results it takes.
    """

    where: str
    first_slot: int
    takes_from: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The tables' shape and the names of what is in them.

    `steps[program][veu]` is the number of steps there, `first_counters[program]` the number of its counter 0,
    `array_bytes` what the model's inputs, then its outputs take, `table_bytes` what each table takes, by its name,
    `constants` the names of those that the segment of constants consists of.
    """

    abi: int
    kernels: tuple[KernelEntry, ...]
    operators: tuple[OperatorEntry, ...]
    steps: tuple[tuple[int, ...], ...]
    first_counters: tuple[int, ...]
    array_bytes: tuple[int, ...]
    arena_bytes: int
    alignment_bytes: int
    table_bytes: Mapping[str, int]
    constants: tuple[str, ...] = (CONSTANTS,)

    @property
    def constant_starts(self) -> list[int]:
        """Where each block of constants begins in their segment, and where the last one ends."""
        return starts_of((self.table_bytes[name] for name in self.constants), self.alignment_bytes)

    @property
    def veus(self) -> int:
        """Execution units the tables are laid out for."""
        return len(self.steps[0]) if self.steps else 0

    @property
    def barrier_records(self) -> int:
        """Records between two rPrograms, on each vEU."""
        return _BARRIER_RECORDS if self.veus > 1 else 0

    def first_records(self, veu: int) -> list[int]:
        """Where each rProgram begins in a vEU's own records, and where the last one ends."""
        lengths = [program[veu] + self.barrier_records for program in self.steps]
        begins = list(itertools.accumulate(lengths, initial=0))
        begins[-1] -= self.barrier_records
        return begins

    @property
    def starts(self) -> list[int]:
        """Where each vEU's records begin among all, and where they end."""
        return list(itertools.accumulate((self.first_records(veu)[-1] for veu in range(self.veus)), initial=0))

    def locate(self, veu: int, record: int) -> tuple[int, int]:
        """The rProgram and the step that a record stands for; a step past the last one is the barrier behind it."""
        begins = self.first_records(veu)
        program = bisect.bisect_right(begins, record, hi=len(self.steps)) - 1
        return program, record - begins[program]

    def operator_at(self, first_slot: int) -> str:
        """The operator whose slots begin at `first_slot`."""
        return self._entry(first_slot).where

    def makers_for(self, first_slot: int) -> tuple[int, ...]:
        """Where the slots of those operators begin whose tagged results the operator at `first_slot` takes."""
        return self._entry(first_slot).takes_from

    def _entry(self, first_slot: int) -> OperatorEntry:
        return next(entry for entry in self.operators if entry.first_slot == first_slot)

    def to_bytes(self) -> bytes:
        """As JSON, the same each time."""
        return json.dumps(asdict(self), indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Manifest:
        """The manifest that `to_bytes` wrote.

        Raises:
            SchemaError: it has another form.
        """
        return _read_manifest(bytes(data))


@functools.lru_cache(maxsize=1)
def _read_manifest(data: bytes) -> Manifest:
    """Whoever builds, checks or loads a model reads its manifest; for one of a thousand rOperators that takes 1 ms."""
    fields = read_json(data, {}, "its manifest")
    fields = {"constants": [CONSTANTS], **fields}  # files of models whose constants are one block may lack it
    check_schema(fields, _MANIFEST, "its manifest")
    return Manifest(
        abi=fields["abi"],
        kernels=tuple(KernelEntry(symbol=entry["symbol"], where=entry["where"]) for entry in fields["kernels"]),
        operators=tuple(
            OperatorEntry(where, first_slot, tuple(takes_from)) for where, first_slot, takes_from in fields["operators"]
        ),
        steps=tuple(tuple(program) for program in fields["steps"]),
        first_counters=tuple(fields["first_counters"]),
        array_bytes=tuple(fields["array_bytes"]),
        arena_bytes=fields["arena_bytes"],
        alignment_bytes=fields["alignment_bytes"],
        table_bytes=fields["table_bytes"],
        constants=tuple(fields["constants"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tables:
    """Records of all vEUs one after another, slots of all operators, Signals per counter in one run."""

    records: npt.NDArray[np.void]
    slots: npt.NDArray[np.void]
    signals: npt.NDArray[np.uint32]
    first_counters: tuple[int, ...]


def build_tables(
    plan: Plan, kernels: Mapping[int, int], first_slots: Mapping[int, int], constants: Mapping[int, int]
) -> Tables:
    """The tables of a plan.

    Args:
        plan: the plan.
        kernels: the kernel index of each rOperator with rTasks.
        first_slots: where the slots of what each such rOperator reads begin; in the order of the slots.
        constants: byte offsets of the constant root tensors in their segment.
    """
    signals: list[int] = []
    first_counters: list[int] = []
    queues: list[list[_Record]] = [[] for _ in range(plan.veus)]
    for program in plan.schedule.programs:
        if first_counters and plan.veus > 1:
            for queue in queues:
                queue += [(SIGNAL, len(signals), 0, 0), (WAIT, len(signals), plan.veus, 0)]
            signals.append(plan.veus)
        first_counters.append(len(signals))
        for veu in range(program.veus):
            queues[veu].extend(_records(plan, program, veu, len(signals), kernels, first_slots))
        signals += _signals(program)
    places = _places(plan, constants)
    slots = [slot for operator in first_slots for slot in _slots(plan, operator, places)]
    return Tables(
        records=np.array(list(itertools.chain(*queues)), dtype=RECORD),
        slots=np.array(slots, dtype=SLOT),
        signals=np.array(signals, dtype=SIGNAL_COUNT),
        first_counters=tuple(first_counters),
    )


def _records(
    plan: Plan,
    program: RProgram,
    veu: int,
    first_counter: int,
    kernels: Mapping[int, int],
    first_slots: Mapping[int, int],
) -> Iterator[_Record]:
    from rammer.ir.program import Execute, Signal, Wait  # noqa: PLC0415 - loading a model needs none of it

    for step in program.steps[veu]:
        match step:
            case Execute(task):
                always = plan.graph.operators[task.operator].predicate is None
                opcode = EXECUTE if always else EXECUTE_IF
                yield opcode, kernels[task.operator], task.tile, first_slots[task.operator]
            case Wait(counter, threshold):
                yield WAIT, first_counter + counter, threshold, 0
            case Signal(counter):
                yield SIGNAL, first_counter + counter, 0, 0


def _signals(program: RProgram) -> list[int]:
    from rammer.ir.program import Signal  # noqa: PLC0415 - loading a model needs none of it

    counts = Counter(step.counter for queue in program.steps for step in queue if isinstance(step, Signal))
    return [counts[counter] for counter in range(program.counter_count)]


def bindings(plan: Plan, operator: int) -> Sequence[Binding]:
    """An rOperator's bindings in the order of its slots."""
    return plan.graph.operators[operator].bindings


def _slots(plan: Plan, operator: int, places: Mapping[int, tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    graph = plan.graph
    for binding in bindings(plan, operator):
        tensor = graph.tensors[binding.tensor]
        segment, base = places[graph.root(tensor.id).id]
        yield segment, 0, base + tensor.layout.address(binding.origin) * tensor.element_bytes


def _places(plan: Plan, constants: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Segment and byte offset of each root tensor that has storage.

    Raises:
        ValueError: the plan is for several memories; tables know one.
    """
    graph = plan.graph
    if len(plan.memory.arenas_bytes) != 1:
        raise ValueError(f"{len(plan.memory.arenas_bytes)} arenas; tables have room for one")
    places = {tensor: (ARENA, offset) for tensor, offset in plan.memory.offsets_bytes.items()}
    places |= {tensor: (CONSTANT, offset) for tensor, offset in constants.items()}
    arrays = [graph.root(tensor).id for tensor in (*graph.inputs, *graph.outputs)]
    return places | {tensor: (CALLER + i, 0) for i, tensor in enumerate(arrays)}
