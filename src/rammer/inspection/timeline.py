"""A run, measured or predicted, as bars, and in the trace format of Perfetto and Chrome.

All is made from a model's report and when its steps happened, so it needs neither the model nor its plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.printable import listing

Report = Mapping[str, Any]
SpansNs = Sequence[Sequence[npt.NDArray[np.int64]]]
Program = Sequence[Sequence[Sequence[Any]]]
"""Of a report: per vEU the steps."""
Place = tuple[int, int]
"""A step of an rProgram: its vEU and its place in that vEU's queue."""


@dataclass(frozen=True, slots=True)
class Bar:
    """An rTask, or (with `operator` None) a wait; times in microseconds from the start of the run.

    Attributes:
        step: its place in its vEU's queue.
        tile: which of the rOperator's rTasks; 0 for a wait.
        awaited: ids of the rOperators that a wait waits for; empty for an rTask.
    """

    program: int
    veu: int
    step: int
    start_us: float
    end_us: float
    operator: int | None = None
    tile: int = 0
    awaited: tuple[int, ...] = ()

    @property
    def duration_us(self) -> float:
        """How long it took."""
        return self.end_us - self.start_us


def fits(report: Report, spans_ns: SpansNs) -> bool:
    """Whether a traced run has the steps that a report says."""
    measured = [[len(times) for times in program] for program in spans_ns]
    return measured == [[len(queue) for queue in program] for program in report["programs"]]


def bars(report: Report, spans_ns: SpansNs) -> Iterator[Bar]:
    """The bars of a traced run, by rProgram, then vEU, then time.

    Args:
        report: the compiled model's report.
        spans_ns: `[program][veu][step]` -> (start, end) in nanoseconds, as `Trace.spans_ns` of `rammer.devices.base`.
    """
    for number, (program, measured) in enumerate(zip(report["programs"], spans_ns, strict=True)):
        signallers = signallers_of(program)
        for veu, (queue, times) in enumerate(zip(program, measured, strict=True)):
            for place, (step, (start, end)) in enumerate(zip(queue, times, strict=True)):
                start_us, end_us = int(start) / 1e3, int(end) / 1e3
                match step:
                    case ["execute", operator, tile]:
                        yield Bar(number, veu, place, start_us, end_us, operator=operator, tile=tile)
                    case ["wait", counter, _]:
                        awaited = operators_of(program, signallers.get(counter, ()))
                        yield Bar(number, veu, place, start_us, end_us, awaited=awaited)


def end_ns(spans_ns: SpansNs) -> int:
    """When the last step of a run ended."""
    return max((int(times[-1][1]) for program in spans_ns for times in program if len(times)), default=0)


def to_chrome_trace(report: Report, spans_ns: SpansNs) -> str:
    """JSON in the trace event format that Perfetto and chrome://tracing open: a thread is a vEU."""
    drawn = list(bars(report, spans_ns))
    events: list[dict[str, object]] = [
        {"ph": "M", "pid": 0, "tid": veu, "name": "thread_name", "args": {"name": f"vEU {veu}"}}
        for veu in sorted({bar.veu for bar in drawn})
    ]
    for bar in drawn:
        event: dict[str, object] = {
            "ph": "X",
            "pid": 0,
            "tid": bar.veu,
            "ts": bar.start_us,
            "dur": bar.duration_us,
            "name": "wait" if bar.operator is None else report["operators"][bar.operator]["name"],
            "cat": "wait" if bar.operator is None else report["operators"][bar.operator]["kind"],
            "args": {"program": bar.program, **_details(report, bar)},
        }
        events.append(event)
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})


def _details(report: Report, bar: Bar) -> Mapping[str, object]:
    return {"for": names_of(report, bar.awaited)} if bar.operator is None else {"tile": bar.tile}


def signallers_of(program: Program) -> dict[int, list[Place]]:
    """By counter the rTasks that stand right before its signals, each by its vEU and step."""
    found: dict[int, list[Place]] = {}
    for veu, queue in enumerate(program):
        last = None
        for place, step in enumerate(queue):
            if step[0] == "execute":
                last = place
            elif step[0] == "signal" and last is not None:
                found.setdefault(step[1], []).append((veu, last))
    return found


def operators_of(program: Program, places: Sequence[Place]) -> tuple[int, ...]:
    """The rOperators of some rTasks of an rProgram."""
    return tuple(sorted({program[veu][step][1] for veu, step in places}))


def names_of(report: Report, operators: Sequence[int]) -> str:
    """The names of some rOperators, as a text."""
    return listing([str(report["operators"][operator]["name"]) for operator in operators])
