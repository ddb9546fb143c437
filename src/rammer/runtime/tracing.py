"""A run that was measured, step by step: totals by operator, and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.inspection.page import Shown, to_html
from rammer.inspection.report import check_report
from rammer.inspection.timeline import bars, end_ns, fits, to_chrome_trace
from rammer.inspection.units import time_text
from rammer.ir.schema import SchemaError

_LISTED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTime:
    """What the rTasks of one rOperator took in a run.

    Attributes:
        name: of the rOperator.
        kind: what it computes.
        nodes: the operators of the model that it stands for.
        tasks: how many rTasks.
        busy_us: what they took together, in microseconds; on several execution units at a time, more than passed.
        share: of what all rTasks took.
    """

    name: str
    kind: str
    nodes: tuple[str, ...]
    tasks: int
    busy_us: float
    share: float


class TracedRun:
    """A run of a model with the time of every step; `Executable.trace` makes it.

    Attributes:
        spans_ns: `[program][vEU]` has shape `[steps, 2]`, int64: start and end of each step in nanoseconds from the
            start of the run.
    """

    def __init__(
        self, title: str, report: Mapping[str, Any], spans_ns: Sequence[Sequence[npt.NDArray[np.int64]]]
    ) -> None:
        """Put a run and the report of its model together.

        Raises:
            SchemaError: the report is of another program.
        """
        check_report(report)
        if not fits(report, spans_ns):
            raise SchemaError("its report is of another program")
        self._title, self._report = title, report
        self.spans_ns = spans_ns

    @property
    def total_us(self) -> float:
        """How long the run took, in microseconds."""
        return end_ns(self.spans_ns) / 1e3

    @cached_property
    def operators(self) -> tuple[OperatorTime, ...]:
        """The rOperators, those first that took most time."""
        known = self._report["operators"]
        tasks, busy_us = [0] * len(known), [0.0] * len(known)
        for bar in bars(self._report, self.spans_ns):
            if bar.operator is not None:
                tasks[bar.operator] += 1
                busy_us[bar.operator] += bar.duration_us
        all_us = sum(busy_us) or 1.0
        times = [
            OperatorTime(
                name=operator["name"],
                kind=operator["kind"],
                nodes=tuple(node for _, node in operator["sources"]),
                tasks=tasks[number],
                busy_us=busy_us[number],
                share=busy_us[number] / all_us,
            )
            for number, operator in enumerate(known)
        ]
        return tuple(sorted(times, key=lambda time: -time.busy_us))

    def to_html(self, title: str = "") -> str:
        """A page with this run and the predicted one, and a table of the rOperators, for any browser."""
        shown = Shown(name=self._title, report=self._report, spans_ns=self.spans_ns)
        return to_html([shown], title or self._title)

    def to_perfetto(self) -> str:
        """JSON for ui.perfetto.dev and chrome://tracing; a thread is an execution unit."""
        return to_chrome_trace(self._report, self.spans_ns)

    def __str__(self) -> str:
        lines = [f"{self._title}: {time_text(self.total_us)}"]
        lines += [
            f"{100 * time.share:5.1f} %  {time_text(time.busy_us):>10}  {time.tasks:>6} rTasks  {time.name}"
            for time in self.operators[:_LISTED]
        ]
        more = len(self.operators) - _LISTED
        return "\n".join([*lines, f"and {more} more"] if more > 0 else lines)

    def __repr__(self) -> str:
        return f"<rammer.TracedRun of {self._title}, {time_text(self.total_us)}>"
