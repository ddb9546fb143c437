"""How much of a device a run uses, over time: units that compute, and memory that holds what is still needed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rammer.inspection.timeline import Bar, Report

_PARTS = 400
"""Of the run, of equal length."""


def busy_shares(drawn: Sequence[Bar], veus: int, total_us: float) -> list[float]:
    """The share of all units that compute, in each part of a run."""
    part_us = total_us / _PARTS
    edges = np.zeros(_PARTS + 2)  # what is busy from an edge on, less what was before it
    for bar in drawn:
        if bar.operator is None:
            continue
        for time_us, sign in ((bar.start_us, 1.0), (bar.end_us, -1.0)):
            place = min(max(time_us / part_us, 0.0), float(_PARTS))
            part, rest = int(place), place % 1.0
            edges[part] += sign * (1.0 - rest)
            edges[part + 1] += sign * rest
    shares = np.cumsum(edges)[:_PARTS] / veus
    return [round(float(share), 4) for share in shares.clip(0.0, 1.0)]


def live_bytes(report: Report, drawn: Sequence[Bar]) -> list[tuple[float, int]]:
    """What intermediate tensors hold that are written and not yet read for the last time: at each change, in time."""
    first_us: dict[int, float] = {}
    last_us: dict[int, float] = {}
    for bar in drawn:
        if bar.operator is not None:
            first_us[bar.operator] = min(bar.start_us, first_us.get(bar.operator, bar.start_us))
            last_us[bar.operator] = max(bar.end_us, last_us.get(bar.operator, bar.end_us))
    changes: dict[float, int] = {}
    for tensor in report["memory"]["tensors"]:
        ran = [operator for operator in tensor["operators"] if operator in first_us]
        if ran:
            born_us, dead_us = min(first_us[operator] for operator in ran), max(last_us[operator] for operator in ran)
            changes[born_us] = changes.get(born_us, 0) + tensor["bytes"]
            changes[dead_us] = changes.get(dead_us, 0) - tensor["bytes"]
    found, live = [], 0
    for time_us in sorted(changes):
        live += changes[time_us]
        found.append((round(time_us, 3), live))
    return found
