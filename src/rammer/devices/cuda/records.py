"""Records as the GPU's interpreter reads them: an rTask with its Waits, its Signals and its operands in one.

They are made of the steps that all devices share (`devices.codegen.tables`): neighbouring Waits, an Execute and the
Signals behind it become one record, more of them than fit become records without an rTask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rammer.devices.codegen.tables import EXECUTE, EXECUTE_IF, SIGNAL, TASKS, WAIT
from rammer.devices.cuda.tables import NOTHING, SEGMENT_SHIFT, SIGNALS, WAITS, record_dtype

if TYPE_CHECKING:
    from rammer.tiling.persistent_rnn import Stationary

_PHASE = {WAIT: 0, EXECUTE: 1, SIGNAL: 2}
_LIMITS = {WAIT: WAITS, EXECUTE: 1, SIGNAL: SIGNALS}


def device_records(
    steps: npt.NDArray[np.void],
    starts: Sequence[int],
    slots: npt.NDArray[np.void],
    signals: npt.NDArray[np.uint32],
    room: int,
    stationary: Mapping[int, Stationary],
    maps: Mapping[int, Sequence[int]] = MappingProxyType({}),
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.uint32]]:
    """Records of all vEUs one after another, and where each vEU's begin and end.

    Args:
        steps: the steps of all vEUs one after another.
        starts: where each vEU's steps begin and end.
        slots: of all rOperators.
        signals: how often each counter is signalled in a run.
        room: operands that a record has room for; the last place is that of predicates, where there are any.
        stationary: the stationary rKernels by number.
        maps: what the records of some rOperators have behind their operands, by where their slots begin: where, and
            addresses.
    """
    opcodes = np.where(steps["opcode"] == EXECUTE_IF, EXECUTE, steps["opcode"]).tolist()
    groups: list[list[int]] = []
    firsts = [0]
    for veu in range(len(starts) - 1):
        groups += _groups(opcodes, range(starts[veu], starts[veu + 1]))
        firsts.append(len(groups))
    records = np.zeros(len(groups), dtype=record_dtype(room))
    records["kernel"] = NOTHING
    records["number"] = np.arange(len(records))
    first_steps = np.array([group[0] for group in groups], dtype=np.int64)
    veus = np.repeat(np.arange(len(starts) - 1), np.diff(firsts))
    records["step"] = first_steps - np.asarray(starts, dtype=np.int64)[veus]
    record_of = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    place = np.arange(len(steps)) - first_steps[record_of]
    _fill(records, steps, slots, signals, record_of, place)
    for first_slot, (at, *addresses) in maps.items():
        owners = record_of[np.isin(steps["opcode"], TASKS) & (steps["c"] == first_slot)]
        records["operands"][owners, at : at + len(addresses)] = addresses
    _mark_runs(records, firsts, stationary)
    return records, np.array(firsts, dtype=np.uint32)


def _groups(opcodes: Sequence[int], queue: range) -> list[list[int]]:
    """The steps of a vEU's queue that share a record."""
    groups: list[list[int]] = []
    for step in queue:
        opcode = opcodes[step]
        last = groups[-1] if groups else []
        full = sum(opcodes[other] == opcode for other in last) == _LIMITS[opcode]
        if not last or full or _PHASE[opcode] < _PHASE[opcodes[last[-1]]]:
            groups.append([step])
        else:
            last.append(step)
    return groups


def _fill(
    records: npt.NDArray[np.void],
    steps: npt.NDArray[np.void],
    slots: npt.NDArray[np.void],
    signals: npt.NDArray[np.uint32],
    record_of: npt.NDArray[np.int64],
    place: npt.NDArray[np.int64],
) -> None:
    """Write each step into its record, of which it is step number `place`."""
    waits, executes, signalled = (np.isin(steps["opcode"], opcodes) for opcodes in ((WAIT,), TASKS, (SIGNAL,)))
    np.add.at(records["wait_count"], record_of[waits], 1)
    np.add.at(records["signal_count"], record_of[signalled], 1)
    for field, values in (
        ("counter", steps["a"][waits]),
        ("threshold", steps["b"][waits]),
        ("signals", signals[steps["a"][waits]]),
    ):
        records["waits"][field][record_of[waits], place[waits]] = values
    owners = record_of[executes]
    records["kernel"][owners] = steps["a"][executes]
    records["tile"][owners] = steps["b"][executes]
    before = records["wait_count"][record_of[signalled]] + (records["kernel"][record_of[signalled]] != NOTHING)
    records["signals"][record_of[signalled], place[signalled] - before] = steps["a"][signalled]
    if slots.size:
        # What a record reads beyond its rOperator's slots nobody uses.
        room = records["operands"].shape[1]
        found = np.minimum(steps["c"][executes].astype(np.int64)[:, None] + np.arange(room), slots.size - 1)
        operands = (slots["segment"].astype(np.uint64) << np.uint64(SEGMENT_SHIFT)) | slots["offset_bytes"]
        records["operands"][owners] = operands[found]
        predicated = steps["opcode"] == EXECUTE_IF
        records["predicated"][record_of[predicated]] = True
        records["operands"][record_of[predicated], -1] = operands[steps["c"][predicated] - 1]


def _mark_runs(records: npt.NDArray[np.void], firsts: Sequence[int], stationary: Mapping[int, Stationary]) -> None:
    """Say of each record of a stationary rKernel how many from it on are the same rTask over the same constants.

    Of such a run, say whether it has Waits, Signals or predicates, and at its end whether the next record has the same
    weights.
    """
    kernels, tiles, operands = (records[field] for field in ("kernel", "tile", "operands"))
    waits = (records["wait_count"] + records["signal_count"] > 0) | (records["predicated"] > 0)
    ends = {first - 1 for first in firsts[1:]}
    for i in reversed(range(len(records))):
        here = stationary.get(int(kernels[i]))
        if here is None:
            continue
        behind = None if i in ends or tiles[i] != tiles[i + 1] else stationary.get(int(kernels[i + 1]))
        goes_on = behind is here and (operands[i][list(here.kept)] == operands[i + 1][list(here.kept)]).all()
        if behind is not None and behind.family == here.family and not goes_on:
            weights = operands[i + 1][list(behind.weights)]
            records["joins"][i] = (operands[i][list(here.weights)] == weights).all()
        records["run"][i] = 1 + (records["run"][i + 1] if goes_on else 0)
        records["busy"][i] = waits[i] or (goes_on and records["busy"][i + 1])


def step_times(
    records: npt.NDArray[np.void], spans: npt.NDArray[np.void], ns_per_cycle: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    """When each step began and ended in nanoseconds, int64 [steps, 2], from the times of the records in cycles.

    Args:
        records: of all vEUs one after another.
        spans: of the records.
        ns_per_cycle: of the clock that each record's times are from.
    """
    has_task = (records["kernel"] != NOTHING).astype(np.int64)
    counts = np.stack([records["wait_count"], has_task, records["signal_count"]], axis=1).astype(np.int64)
    edges = np.stack([spans["begin"], spans["ready"], spans["computed"], spans["end"]], axis=1)
    edges = np.rint(edges * ns_per_cycle[:, None]).astype(np.int64)
    times = np.stack([edges[:, :-1], edges[:, 1:]], axis=2)
    found: npt.NDArray[np.int64] = np.repeat(times.reshape(-1, 2), counts.reshape(-1), axis=0)
    return found
