"""One schedule of parts of several that ran, each part from where it took least.

Programs of a model that take about as long are quick in different parts. They can change over where a wave (see
`find_waves`) ends before anything behind it begins: what follows there does not know who made what it reads. Such a
cut is *clean* in a program where what is behind it began at most about half a hand-over earlier, as seen in its runs.

A part of another program takes a little more or less time than it did there, for its code lies elsewhere and its
inputs on other vEUs. So a change has to gain more than that; what is put together is measured like any schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rammer.ir.program import Schedule
from rammer.ir.task import TaskGraph
from rammer.ir.vdevice import VDevice
from rammer.schedule.dependencies import Dependencies, find_waves
from rammer.schedule.epochs import compose
from rammer.schedule.regions import Regions

_CLEAN = 0.7
"""Of a hand-over: how long before a wave's end what is behind it may have begun."""
_GAIN = 0.003
"""Of a run, what each change has to gain; on an H200 parts of NASNet of 5 to 55 us took up to 0.6 us more or less."""

_Numbers = npt.NDArray[np.int64]
_Times = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ran:
    """A schedule of one rProgram that ran.

    Attributes:
        schedule: with a single rProgram.
        spans_us: when each rOperator began and ended, float64 [operators, 2].
    """

    schedule: Schedule
    spans_us: _Times


def spliced(graph: TaskGraph, device: VDevice, ran: Sequence[Ran]) -> Schedule | None:
    """The parts with which a run is expected to end first; None where these are all of one schedule.

    Args:
        graph: the task graph.
        device: what it is for.
        ran: at least one.
    """
    dependencies = Dependencies(graph, Regions(graph))
    waves = find_waves(graph, [dependencies.producers(operator.id) for operator in graph.operators])
    if not waves:
        return None
    members = [np.array([operator.id for operator in wave], dtype=np.int64) for wave in waves]
    ends_us, early_us = (np.array(rows) for rows in zip(*(_cuts(members, one.spans_us) for one in ran), strict=True))
    owners = _owners(ends_us, early_us <= _CLEAN * device.handover_us.value)
    starts = [0, *(int(place) + 1 for place in np.flatnonzero(np.diff(owners)))]
    if len(starts) == 1:
        return None
    parts = [
        tuple(sorted(int(operator) for wave in members[start:end] for operator in wave))
        for start, end in zip(starts, [*starts[1:], len(members)], strict=True)
    ]
    schedules = [ran[owners[start]].schedule for start in starts]
    return compose(graph, parts, schedules, device.veu_count, barriers=False)


def _cuts(waves: Sequence[_Numbers], spans_us: _Times) -> tuple[_Times, _Times]:
    """For the cut behind each wave: when all before it has ended, and how long before that anything behind it began."""
    firsts_us = [spans_us[wave, 0].min() for wave in waves[1:]]
    behind_us = np.minimum.accumulate([np.inf, *reversed(firsts_us)])[::-1]
    ends_us: _Times = np.maximum.accumulate([spans_us[wave, 1].max() for wave in waves])
    return ends_us, ends_us - behind_us


def _owners(ends_us: _Times, clean: npt.NDArray[np.bool_]) -> _Numbers:
    """Whose wave each is, such that the sum of what they took is least: by dynamic programming over the cuts.

    Args:
        ends_us: when all up to a wave had ended, [schedules, waves].
        clean: whether the cut behind it is clean, [schedules, waves].
    """
    took_us = np.diff(ends_us, axis=1, prepend=0.0)
    change_us = _GAIN * ends_us[:, -1].min()
    stay = np.arange(len(ends_us))
    least_us, before = took_us[:, 0], []
    for wave in range(1, ends_us.shape[1]):
        leaving_us = np.where(clean[:, wave - 1], least_us, np.inf)
        best = leaving_us.argmin()
        changed_us = np.where(clean[:, wave - 1], leaving_us[best] + change_us, np.inf)
        before.append(np.where(changed_us < least_us, best, stay))
        least_us = np.minimum(changed_us, least_us) + took_us[:, wave]
    owners = [int(least_us.argmin())]
    for came_from in reversed(before):
        owners.append(int(came_from[owners[-1]]))
    return np.array(owners[::-1], dtype=np.int64)
