"""When and where every rTask of a run took place: what the simulator predicts and a device's trace records."""

from __future__ import annotations

from dataclasses import dataclass

from rammer.ir.task import RTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One rTask of rProgram `program` on vEU `veu`, in microseconds from the start of the run."""

    program: int
    veu: int
    task: RTask
    start_us: float
    end_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A run of a schedule.

    `spans` go by rProgram, then vEU, then time. `waiting_us[v]` is the time that vEU v stood at a Wait, and `total_us`
    the time from the start of the run to its end, both in microseconds.
    """

    spans: tuple[Span, ...]
    waiting_us: tuple[float, ...]
    total_us: float

    @property
    def veus(self) -> int:
        """Number of execution units, idle ones included."""
        return len(self.waiting_us)

    @property
    def busy_us(self) -> tuple[float, ...]:
        """Time that each vEU ran rTasks, in microseconds."""
        busy = [0.0] * self.veus
        for span in self.spans:
            busy[span.veu] += span.end_us - span.start_us
        return tuple(busy)
