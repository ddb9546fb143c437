"""What rTasks take in a run of their program: times from its trace, and costs that are made of them.

In place an rTask's operands lie where the rTasks before left them, its code and constants come from wherever the run
has them, and other vEUs use memory meanwhile; so it takes longer or less long than predicted, by a quarter and more.
"""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from rammer.ir.program import Execute, Schedule
from rammer.ir.task import RKernel, TaskGraph, kernels_of
from rammer.ir.vdevice import CostModel, Figure, VDevice
from rammer.schedule.dependencies import find_tagged

_LEAST_US = 1e-3
"""What an rTask takes at least, whatever a coarse clock says."""
_SpansNs = Sequence[Sequence[npt.NDArray[np.int64]]]


def seen_us(graph: TaskGraph, schedule: Schedule, runs: Sequence[_SpansNs]) -> dict[RKernel, float]:
    """The median time of each rKernel's rTasks in some runs, from where all is there to where it is computed, in us.

    rKernels are left out that wait for tagged results while they run, for that is no time of their own, and those that
    keep constants, whose estimates mean another time.

    Args:
        graph: the task graph.
        schedule: what ran.
        runs: of each, `[program][veu][step]` -> (start, end) in nanoseconds, as `Trace.spans_ns` of a device.
    """
    kernels = kernels_of(graph, schedule.choice)
    waiting = {task.operator for task in find_tagged(graph, schedule.choice)}
    found: dict[RKernel, list[float]] = {}
    for spans_ns in runs:
        for program, by_veu in zip(schedule.programs, spans_ns, strict=True):
            for queue, times in zip(program.steps, by_veu, strict=True):
                for step, (start, end) in zip(queue, times.tolist(), strict=True):
                    if isinstance(step, Execute) and step.task.operator not in waiting:
                        found.setdefault(kernels[step.task.operator], []).append((end - start) / 1e3)
    return {
        kernel: max(_LEAST_US, statistics.median(times_us))
        for kernel, times_us in found.items()
        if not kernel.form.kept_bytes
    }


def operator_spans_us(graph: TaskGraph, schedule: Schedule, runs: Sequence[_SpansNs]) -> npt.NDArray[np.float64]:
    """When each rOperator's first rTask began and its last one ended, medians over some runs; float64 [operators, 2].

    Arguments are those of `seen_us`; times are in microseconds from where a run began.
    """
    found = np.empty((len(runs), len(graph.operators), 2))
    found[:] = (np.inf, 0.0)
    for own, spans_ns in zip(found, runs, strict=True):
        for program, by_veu in zip(schedule.programs, spans_ns, strict=True):
            for queue, times in zip(program.steps, by_veu, strict=True):
                for step, (start, end) in zip(queue, times.tolist(), strict=True):
                    if isinstance(step, Execute):
                        span_us = own[step.task.operator]
                        span_us[0], span_us[1] = min(span_us[0], start / 1e3), max(span_us[1], end / 1e3)
    medians: npt.NDArray[np.float64] = np.median(found, axis=0)
    return medians


class InPlaceCosts:
    """`CostModel` by what was seen in runs; of other rKernels by a model, times what was seen over it for like ones."""

    def __init__(self, seen: Mapping[RKernel, float], model: CostModel) -> None:
        """Of times in microseconds, and of a model for the rest."""
        self._seen, self._model = seen, model
        ratios: dict[Hashable, list[float]] = {}
        for kernel, time_us in seen.items():
            predicted_us = model.task_us(kernel).value
            if predicted_us > 0:
                for kind in _kinds(kernel):
                    ratios.setdefault(kind, []).append(time_us / predicted_us)
        self._ratios = {kind: statistics.median(own) for kind, own in ratios.items()}

    def task_us(self, kernel: RKernel) -> Figure:
        """Time of one full rTask in a run, in microseconds."""
        if kernel in self._seen:
            return Figure(self._seen[kernel], "in a traced run")
        predicted = self._model.task_us(kernel)
        if kernel.form.kept_bytes:
            return predicted
        ratio = next((self._ratios[kind] for kind in _kinds(kernel) if kind in self._ratios), 1.0)
        return Figure(predicted.value * ratio, f"{predicted.provenance}, times {ratio:.2f} as seen in a traced run")


def as_seen(device: VDevice) -> VDevice:
    """A device for times seen in place, which have in them what code and constants take that come from far."""
    nothing = Figure(0.0, "in the times of rTasks")
    return replace(device, instruction_fetch_us=(nothing, nothing), streams_constants=False)


def _kinds(kernel: RKernel) -> Iterator[Hashable]:
    """What rKernels have in common that are likely to be off alike: the nearest first."""
    yield kernel.form.skeleton, kernel.expr
    yield kernel.form.skeleton
    yield None
