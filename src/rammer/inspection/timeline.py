"""A run as a picture: a page that opens in any browser, and the trace format of Perfetto and Chrome.

Both are made from a model's report and when its steps happened, so they need neither the model nor its plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

Report = Mapping[str, Any]
SpansNs = Sequence[Sequence[Sequence[Sequence[int]]]]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: an rTask, or (with `operator` None) a wait; times in microseconds from the start of the run."""

    program: int
    veu: int
    label: str
    operator: int | None
    start_us: float
    end_us: float


def bars(report: Report, spans_ns: SpansNs) -> Iterator[Bar]:
    """The bars of a traced run.

    Args:
        report: the compiled model's report.
        spans_ns: `[program][veu][step]` -> (start, end) in nanoseconds, as `Trace.spans_ns`.
    """
    for number, (program, measured) in enumerate(zip(report["programs"], spans_ns, strict=True)):
        for veu, (queue, times) in enumerate(zip(program, measured, strict=True)):
            for step, (start, end) in zip(queue, times, strict=True):
                span_us = (int(start) / 1e3, int(end) / 1e3)
                if step[0] == "execute":
                    name = report["operators"][step[1]]["name"]
                    yield Bar(number, veu, f"{name} [{step[2]}]", step[1], *span_us)
                elif step[0] == "wait":
                    yield Bar(number, veu, f"counter {step[1]} to reach {step[2]}", None, *span_us)


def to_html(report: Report, spans_ns: SpansNs, title: str) -> str:
    """A self-contained page with a zoomable timeline."""
    drawn = list(bars(report, spans_ns))
    kinds: dict[str, int] = {}
    names: dict[str, int] = {}
    rows = []
    for bar in drawn:
        kind = -1 if bar.operator is None else kinds.setdefault(report["operators"][bar.operator]["kind"], len(kinds))
        name = names.setdefault(bar.label, len(names))
        rows.append([bar.veu, kind, name, round(bar.start_us, 3), round(bar.end_us, 3)])
    total_us = max((bar.end_us for bar in drawn), default=1.0)
    veus = max((bar.veu for bar in drawn), default=0) + 1
    busy_us = sum(bar.end_us - bar.start_us for bar in drawn if bar.operator is not None)
    tasks = sum(bar.operator is not None for bar in drawn)
    data = {
        "title": title,
        "summary": f"{tasks} rTasks on {veus} execution units in {total_us:,.1f} µs; "
        f"{100 * busy_us / (veus * total_us):.0f} % of the time computing; policy {report['policy']}.",
        "veus": veus,
        "total_us": total_us,
        "kinds": list(kinds),
        "names": list(names),
        "spans": rows,
    }
    template = resources.files("rammer.inspection").joinpath("timeline.html").read_text(encoding="utf-8")
    # A name may hold "</script>": inside the page every "<" is written as an escape.
    return template.replace("/*DATA*/null", json.dumps(data).replace("<", "\\u003c"))


def to_chrome_trace(report: Report, spans_ns: SpansNs) -> str:
    """JSON in the trace event format that Perfetto and chrome://tracing open."""
    events: list[dict[str, object]] = []
    for bar in bars(report, spans_ns):
        event: dict[str, object] = {
            "ph": "X",
            "pid": bar.program,
            "tid": bar.veu,
            "ts": bar.start_us,
            "dur": bar.end_us - bar.start_us,
            "name": "wait" if bar.operator is None else report["operators"][bar.operator]["name"],
            "cat": "wait" if bar.operator is None else report["operators"][bar.operator]["kind"],
            "args": {"step": bar.label},
        }
        events.append(event)
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})
