"""The run that the simulator predicted, in the form of a traced one, from a model's report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rammer.inspection.timeline import Place, Report, SpansNs, signallers_of

_LAST_NS = 1 << 62  # a report of somebody else's may say anything


def predicted_spans_ns(report: Report) -> SpansNs:
    """When each step would happen, as `Trace.spans_ns` of `rammer.devices.base`.

    A Wait lasts until the last of its signals is seen: a hand-over after the rTask before it, on another vEU.
    """
    programs = zip(report["programs"], report["predicted"]["starts_us"], strict=True)
    task_us = [operator["candidates"][operator["chosen"]]["scheduled_us"] for operator in report["operators"]]
    handover_us = report["device"]["handover_us"]["value"]
    found, now_ns = [], 0
    for program, starts_us in programs:
        spans_ns = [np.zeros((len(queue), 2), np.int64) for queue in program]
        ends_us: dict[Place, float] = {}
        for veu, (queue, starts) in enumerate(zip(program, starts_us, strict=True)):
            tasks = [place for place, step in enumerate(queue) if step[0] == "execute"]
            for place, start_us in zip(tasks, starts, strict=True):
                ends_us[veu, place] = end_us = start_us + task_us[queue[place][1]]
                spans_ns[veu][place] = _ns(start_us), _ns(end_us)
        signallers = signallers_of(program)
        for veu, queue in enumerate(program):
            last_ns = now_ns
            following = _following(queue)
            for place, step in enumerate(queue):
                if step[0] != "execute":
                    seen_ns = last_ns
                    if step[0] == "wait":
                        makers = signallers.get(step[1], ())
                        seen = [_ns(ends_us[maker] + (maker[0] != veu) * handover_us) for maker in makers]
                        seen_ns = max([last_ns, *seen])
                        if place < len(following):  # which may start early
                            seen_ns = min(seen_ns, max(last_ns, int(spans_ns[veu][following[place], 0])))
                    spans_ns[veu][place] = last_ns, seen_ns
                last_ns = int(spans_ns[veu][place, 1])
        now_ns = max((int(times[-1, 1]) for times in spans_ns if len(times)), default=now_ns)
        found.append(tuple(spans_ns))
    return tuple(found)


def _following(queue: Sequence[Sequence[Any]]) -> list[int]:
    """For each step up to the last rTask, where the next rTask stands, which may be the step itself."""
    found: list[int] = []
    for place, step in enumerate(queue):
        if step[0] == "execute":
            found += [place] * (place + 1 - len(found))
    return found


def _ns(time_us: float) -> int:
    return int(min(max(1e3 * time_us, -_LAST_NS), _LAST_NS))
