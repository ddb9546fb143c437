"""The critical path of a run: the rTasks that its end waited for, one after the other.

From the rTask that ended last it goes back, each time to what the rTask had to wait for: where a Wait before it lasted,
the last rTask to signal that; where its vEU stood still without one, the last of the rTasks whose results it takes by
their tags; else the rTask before it on its vEU. The first rTask of an rProgram waited for the last one of the rProgram
before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rammer.inspection.timeline import Bar, Report, signallers_of

_NOTICED_US = 0.05  # what clocks of two vEUs may be apart


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPath:
    """The rTasks of a critical path, from the first to the last.

    Attributes:
        bars: their numbers among the run's bars.
        busy_us: what they take, in microseconds; the rest of the time to the last one's end, something is handed over.
    """

    bars: tuple[int, ...]
    busy_us: float


def critical_path(report: Report, drawn: Sequence[Bar]) -> CriticalPath:
    """The critical path of a run, given by its bars in order."""
    run = _Run(report, drawn)
    found: list[int] = []
    number = _last(drawn, range(len(drawn)))
    while number is not None:
        found.append(number)
        earlier = run.before(number)
        number = earlier if earlier is not None and drawn[earlier].end_us < drawn[number].end_us else None
    return CriticalPath(bars=tuple(reversed(found)), busy_us=sum(drawn[number].duration_us for number in found))


def _last(drawn: Sequence[Bar], numbers: Iterable[int]) -> int | None:
    """The rTask among some bars that ends last."""
    return max(
        (number for number in numbers if drawn[number].operator is not None),
        key=lambda number: drawn[number].end_us,
        default=None,
    )


class _Run:
    """What rTasks of a run may have waited for."""

    def __init__(self, report: Report, drawn: Sequence[Bar]) -> None:
        self._report = report
        self._drawn = drawn
        self._places = {(bar.program, bar.veu, bar.step): number for number, bar in enumerate(drawn)}
        self._signallers = [signallers_of(program) for program in report["programs"]]
        self._ends: dict[int, list[int]] = {}
        self._programs: dict[int, list[int]] = {}
        for number, bar in enumerate(drawn):
            self._programs.setdefault(bar.program, []).append(number)
            if bar.operator is not None:
                self._ends.setdefault(bar.operator, []).append(number)
        self._producers: Mapping[int, list[int]] = _producers(report)

    def before(self, number: int) -> int | None:
        """The rTask that another one had to wait for; None where nothing kept it."""
        bar = self._drawn[number]
        waits, previous = self._ahead(number)
        if lasting := [wait for wait in waits if self._drawn[wait].duration_us > _NOTICED_US]:
            queue = self._report["programs"][bar.program][bar.veu]
            signallers = self._signallers[bar.program]
            awaited = [
                self._places[bar.program, *place]
                for wait in lasting
                for place in signallers.get(queue[self._drawn[wait].step][1], ())
            ]
            if (found := _last(self._drawn, awaited)) is not None:
                return found
        begun_us = bar.start_us - _NOTICED_US
        if not waits and (previous is None or self._drawn[previous].end_us < begun_us):
            assert bar.operator is not None  # it is an rTask
            made = [n for producer in self._producers.get(bar.operator, ()) for n in self._ends.get(producer, ())]
            there = [n for n in made if self._drawn[n].end_us <= bar.start_us and self._drawn[n].program == bar.program]
            if (found := _last(self._drawn, there)) is not None:
                return found
        if previous is None and bar.program > 0:
            return _last(self._drawn, self._programs.get(bar.program - 1, ()))
        return previous

    def _ahead(self, number: int) -> tuple[list[int], int | None]:
        """The Waits right before an rTask, and the rTask before them on its vEU."""
        bar = self._drawn[number]
        waits: list[int] = []
        for ahead in range(number - 1, -1, -1):
            other = self._drawn[ahead]
            if (other.program, other.veu) != (bar.program, bar.veu):
                break
            if other.operator is not None:
                return waits, ahead
            waits.append(ahead)
        return waits, None


def _producers(report: Report) -> Mapping[int, list[int]]:
    """Per rOperator those that it depends on."""
    found: dict[int, list[int]] = {}
    for producer, consumer, *_ in report["edges"]:
        found.setdefault(consumer, []).append(producer)
    return found
