"""A self-contained page of runs: what each unit did and why, candidates, bounds, utilisation and memory over time.

Runs of one model (predicted and measured) or of several (two schedules of a network) stand one above the other on the
same axis of time. The page asks for nothing from outside; `page.html`, `page.css` and `page.js` draw the data that is
put together here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from rammer.inspection.critical import critical_path
from rammer.inspection.predicted import predicted_spans_ns
from rammer.inspection.timeline import Report, SpansNs, bars, names_of
from rammer.inspection.usage import busy_shares, live_bytes

_NOTICED_US = 0.01  # shorter waits are none: the signal was there


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A model that a page shows.

    Attributes:
        name: of the model, unlike the others'.
        report: the model's.
        spans_ns: a traced run; None where there is only the predicted one.
        bounds_us: times before which no schedule ends, by what they hold for.
    """

    name: str
    report: Report
    spans_ns: SpansNs | None = None
    bounds_us: Mapping[str, float] | None = None


def to_html(shown: Sequence[Shown], title: str) -> str:
    """The page of some models; their runs are those that were predicted and those that were traced."""
    # A name may hold "</script>": inside the page every "<" is written as an escape.
    data = json.dumps(_page(shown, title), separators=(",", ":")).replace("<", "\\u003c")
    page = _part("page.html").replace("/*STYLE*/\n", _part("page.css")).replace("/*SCRIPT*/\n", _part("page.js"))
    return page.replace("/*DATA*/", data)


def _part(name: str) -> str:
    return resources.files("rammer.inspection").joinpath(name).read_text(encoding="utf-8")


def _page(shown: Sequence[Shown], title: str) -> Mapping[str, object]:
    """What the page's script draws."""
    kinds: dict[str, int] = {}
    lists: dict[str, int] = {}
    runs = []
    for number, model in enumerate(shown):
        several = f"{model.name}, " if len(shown) > 1 else ""
        if model.spans_ns is not None:
            runs.append(_run(number, f"{several}measured", model, model.spans_ns))
        runs.append(_run(number, f"{several}predicted", model, predicted_spans_ns(model.report)))
    models = [_model(model, kinds, lists) for model in shown]
    return {
        "title": title,
        "kinds": list(kinds),
        "candidates": [json.loads(one) for one in lists],
        "models": models,
        "runs": runs,
    }


def _model(model: Shown, kinds: dict[str, int], lists: dict[str, int]) -> Mapping[str, object]:
    """What does not depend on the run; `kinds` and lists of candidates are numbered as they come."""
    report = model.report
    return {
        "name": model.name,
        "policy": report["policy"],
        "device": report["device"]["name"],
        "veus": report["device"]["veus"],
        "arena_bytes": report["memory"]["arena_bytes"],
        "bounds_us": model.bounds_us or {},
        "operators": [
            {
                "name": operator["name"],
                "kind": kinds.setdefault(operator["kind"], len(kinds)),
                "from": ", ".join(f"{node} ({op_type})" for op_type, node in operator["sources"]),
                "chosen": operator["chosen"],
                "reason": operator["reason"],
                "candidates": lists.setdefault(_candidates(operator), len(lists)),
            }
            for operator in report["operators"]
        ],
    }


def _candidates(operator: Mapping[str, object]) -> str:
    """Candidates as rows of the page's table: skeleton, tile, form, rTasks, predicted, measured, in schedules, bound.

    Equal operators have equal ones, which a page holds once.
    """
    found = operator["candidates"]
    assert isinstance(found, Sequence)
    return json.dumps(
        [
            [
                one["skeleton"],
                "x".join(map(str, one["task"])) or "-",
                one["details"],
                one["tasks"],
                one["predicted_us"],
                one["measured_us"],
                one["scheduled_us"],
                one["bound"],
            ]
            for one in found
        ]
    )


def _run(number: int, name: str, model: Shown, spans_ns: SpansNs) -> Mapping[str, object]:
    """A run of model `number`; bars in columns, of which `operator` is -1 for a wait, with what is awaited as tile."""
    report = model.report
    drawn = [bar for bar in bars(report, spans_ns) if bar.operator is not None or bar.duration_us > _NOTICED_US]
    veus = max((len(program) for program in report["programs"]), default=0) or 1
    total_us = max((bar.end_us for bar in drawn), default=0.0) or 1.0
    path = critical_path(report, drawn)
    tasks = [0] * len(report["operators"])
    task_us = [0.0] * len(report["operators"])
    busy_us, waiting_us = [0.0] * veus, [0.0] * veus
    starts_us: dict[int, float] = {}
    awaited: dict[str, int] = {}
    details = []
    for bar in drawn:
        starts_us[bar.program] = min(bar.start_us, starts_us.get(bar.program, bar.start_us))
        if bar.operator is None:
            details.append(awaited.setdefault(names_of(report, bar.awaited), len(awaited)))
            waiting_us[bar.veu] += bar.duration_us
        else:
            details.append(bar.tile)
            tasks[bar.operator] += 1
            task_us[bar.operator] += bar.duration_us
            busy_us[bar.veu] += bar.duration_us
    return {
        "model": number,
        "name": name,
        "veus": veus,
        "total_us": total_us,
        "busy_us": [round(time_us, 3) for time_us in busy_us],
        "waiting_us": round(sum(waiting_us), 3),
        "cuts_us": [starts_us[program] for program in sorted(starts_us)[1:]],
        "tasks": tasks,
        "task_us": [round(time_us, 3) for time_us in task_us],
        "critical": path.bars,
        "critical_us": round(path.busy_us, 3),
        "busy": busy_shares(drawn, veus, total_us),
        "live": live_bytes(report, drawn),
        "awaited": list(awaited),
        "bars": {
            "veu": [bar.veu for bar in drawn],
            "operator": [-1 if bar.operator is None else bar.operator for bar in drawn],
            "tile": details,
            "start": [round(1e3 * bar.start_us) for bar in drawn],
            "end": [round(1e3 * bar.end_us) for bar in drawn],
        },
    }
