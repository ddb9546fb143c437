"""Why a run was given up: which vEU waits in vain, for what, and which rTasks should have ended that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from rammer.devices.codegen.tables import SIGNAL, TASKS, Manifest
from rammer.devices.cuda.tables import DONE
from rammer.errors import RunTimeoutError

_NAMED = 3  # of those who should have signalled


@dataclass(frozen=True, kw_only=True, eq=False)
class Stall:
    """What a run left behind.

    `reached` is each vEU's Wait in vain, or its rTask that tagged elements did not come for, or `DONE`; `seen` are
    the signals that it saw when it gave up. Behind that it gave its own as if it had gone on.
    """

    manifest: Manifest
    records: npt.NDArray[np.void]
    reached: npt.NDArray[np.uint32]
    seen: npt.NDArray[np.uint32]
    timeout_s: float

    def error(self) -> RunTimeoutError:
        """The error that names a cause: a vEU that waits for what nobody is left to give, else the first in vain."""
        waiting = [int(veu) for veu in np.flatnonzero(self.reached != DONE)]
        veu = next((veu for veu in waiting if not self._late(veu)), waiting[0])
        return RunTimeoutError(
            f"nothing moved for {self.timeout_s:g} s: vEU {veu} is at {self._place(veu)}; {self._who(veu)}",
            where=self._next_task(veu),
            hint="this is a defect of Rammer; please report it with the model",
        )

    def _place(self, veu: int) -> str:
        """Where a vEU waits, and for what."""
        record = self.records[self._at(veu)]
        program, step = self.manifest.locate(veu, int(self.reached[veu]))
        if record["opcode"] in TASKS:
            return f"step {step} of rProgram {program}, an rTask whose tagged elements did not come"
        signals = f"which saw {self.seen[veu]} of {record['b']} signals"
        if step >= self.manifest.steps[program][veu]:
            return f"the barrier behind rProgram {program}, {signals}"
        counter = int(record["a"]) - self.manifest.first_counters[program]
        return f"step {step} of rProgram {program}, a Wait for counter {counter}, {signals}"

    def _who(self, veu: int) -> str:
        """Who should have ended the wait of a vEU, and whether they still can."""
        record = self.records[self._at(veu)]
        late, givers = self._late(veu), self._givers(veu)
        if record["opcode"] in TASKS:
            if late:
                return f"{self._names(late)} should have written them"
            return f"{self._names(givers)} ended before" if givers else "no rTask of the run writes them"
        if late:
            return f"{self._names(late)} should have signalled"
        if len(givers) >= record["b"]:
            return f"{self._names(givers)} signalled, but too late"
        given = f": {self._names(givers)} signalled" if givers else ""
        return f"no vEU has a signal left to give{given}"

    def _next_task(self, veu: int) -> str:
        """The rTask that a vEU would have run next."""
        end = self.manifest.starts[veu + 1]
        task = next((i for i in self._executes if self._at(veu) <= i < end), None)
        return "behind the last rTask of the vEU" if task is None else f"before {self._task(task)}"

    # --- Records, by their number among those of all vEUs -------------------------------------------------------------

    @cached_property
    def _executes(self) -> list[int]:
        found: list[int] = np.flatnonzero(np.isin(self.records["opcode"], TASKS)).tolist()
        return found

    def _at(self, veu: int) -> int:
        """The record that a vEU waits at."""
        return self.manifest.starts[veu] + int(self.reached[veu])

    def _veu(self, record: int) -> int:
        return int(np.searchsorted(self.manifest.starts, record, side="right")) - 1

    def _givers(self, veu: int) -> list[int]:
        """What ends the wait of a vEU: all Signals of a counter, or the rTasks that write tagged elements."""
        awaited, records = self.records[self._at(veu)], self.records
        if awaited["opcode"] in TASKS:
            makers = self.manifest.makers_for(int(awaited["c"]))
            given = np.isin(records["opcode"], TASKS) & np.isin(records["c"], makers)
        else:
            given = (records["opcode"] == SIGNAL) & (records["a"] == awaited["a"])
        found: list[int] = np.flatnonzero(given).tolist()
        return found

    def _late(self, veu: int) -> list[int]:
        """Those that the vEUs they belong to did not come to; a vEU that is `DONE` came to all."""
        return [giver for giver in self._givers(veu) if giver >= self._at(self._veu(giver))]

    def _names(self, givers: Sequence[int]) -> str:
        """The rTasks, and their vEUs; a Signal tells that the rTask before it has ended."""
        named = [self._name(giver) for giver in givers[:_NAMED]]
        more = len(givers) - _NAMED
        return ", ".join(named) + (f" and {more} more" if more > 0 else "")

    def _name(self, giver: int) -> str:
        veu = self._veu(giver)
        last = int(np.searchsorted(self._executes, giver, side="right")) - 1
        if last < 0 or self._veu(self._executes[last]) != veu:
            return f"vEU {veu} before its first rTask"
        return f"{self._task(self._executes[last])} on vEU {veu}"

    def _task(self, record: int) -> str:
        found = self.records[record]
        return f"rTask {found['b']} of {self.manifest.operator_at(found['c'])}"
