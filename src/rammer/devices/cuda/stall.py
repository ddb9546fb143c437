"""Why a run was given up: which vEU waits in vain, for what, and who should have signalled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rammer.devices.codegen.tables import EXECUTE, SIGNAL, Manifest
from rammer.devices.cuda.tables import DONE
from rammer.errors import RunTimeoutError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stall:
    """What a run left behind.

    `reached` is each vEU's Wait in vain, or its rTask that tagged elements did not come for, or `DONE`; `seen` are
    each counter's signals in the run.
    """

    manifest: Manifest
    records: npt.NDArray[np.void]
    reached: npt.NDArray[np.uint32]
    seen: npt.NDArray[np.uint32]
    timeout_s: float

    def error(self) -> RunTimeoutError:
        """The error that names a cause: a Wait for signals that nobody is left to give, else the first in vain."""
        waiting = [int(veu) for veu in np.flatnonzero(self.reached != DONE)]
        veu = next((veu for veu in waiting if not self._late(veu)), waiting[0])
        record = self._record(veu)
        program, step = self.manifest.locate(veu, int(self.reached[veu]))
        if record["opcode"] == EXECUTE:
            place = f"step {step} of rProgram {program}, an rTask that takes tagged elements which nobody wrote"
        elif step >= self.manifest.steps[program][veu]:
            place = f"the barrier behind rProgram {program}, {self._signals(record)}"
        else:
            counter = int(record["a"]) - self.manifest.first_counters[program]
            place = f"step {step} of rProgram {program}, a Wait for counter {counter}, {self._signals(record)}"
        return RunTimeoutError(
            f"nothing moved for {self.timeout_s:g} s: vEU {veu} is at {place}; {self._who(veu)}",
            where=self._next_task(veu),
            hint="this is a defect of Rammer; please report it with the model",
        )

    def _signals(self, wait: np.void) -> str:
        return f"which saw {self.seen[wait['a']]} of {wait['b']} signals"

    def _queue(self, veu: int) -> npt.NDArray[np.void]:
        start, end = self.manifest.starts[veu : veu + 2]
        return self.records[start:end]

    def _record(self, veu: int) -> np.void:
        record: np.void = self._queue(veu)[self.reached[veu]]
        return record

    def _late(self, veu: int) -> list[int]:
        """The vEUs that still have a signal to give for what `veu` waits for; any may have to write tagged elements."""
        record = self._record(veu)
        if record["opcode"] == EXECUTE:
            return [other for other in np.flatnonzero(self.reached != DONE).tolist() if other != veu]
        counter = record["a"]

        def signals(other: int) -> Iterator[np.void]:
            for record in self._queue(other)[self.reached[other] :] if self.reached[other] != DONE else ():
                if record["opcode"] == SIGNAL and record["a"] == counter:
                    yield record

        return [other for other in range(self.manifest.veus) if next(signals(other), None) is not None]

    def _who(self, veu: int) -> str:
        late = self._late(veu)
        if self._record(veu)["opcode"] == EXECUTE:
            others = ", ".join(map(str, late))
            return f"vEU {others} did not come to the end either" if late else "all other vEUs came to the end"
        if not late:
            return "no vEU has a signal left to give"
        return f"vEU {', '.join(map(str, late))} should have signalled"

    def _next_task(self, veu: int) -> str:
        """The rTask that a vEU would have run next."""
        for record in self._queue(veu)[self.reached[veu] :]:
            if record["opcode"] == EXECUTE:
                return f"before rTask {record['b']} of {self.manifest.operator_at(record['c'])}"
        return "behind the last rTask of the vEU"
