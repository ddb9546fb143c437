"""What a network's programs take: all are loaded together, agree on the outputs, and run in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.evaluation.programs import plans
from benchmarks.networks import LARGER, NETWORKS
from benchmarks.networks.builder import random_inputs
from rammer.devices.base import Clocked, Device, Loaded
from rammer.errors import RammerError
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.ir.graph import Array
from rammer.ir.program import Execute, Plan
from rammer.ir.vdevice import VDevice
from rammer.options import CompileOptions
from rammer.pipelines.planning import lower_graph
from rammer.roller.model import ModelCosts
from rammer.schedule.simulator import simulate

_ROUNDS, _CALLS, _TRACES = 7, 5, 5
_ROUND_S = 0.2  # of a program: what takes longer runs once a round
_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class _Program:
    """A plan that is loaded, with arrays of its own."""

    plan: Plan
    loaded: Loaded
    inputs: Sequence[Array]
    outputs: Sequence[Array]

    def times_us(self) -> list[float]:
        """Some runs in a row."""
        if isinstance(self.loaded, Clocked):
            return list(self.loaded.measure_us(self.inputs, _CALLS))
        times_us: list[float] = []
        end_s = time.perf_counter() + _ROUND_S
        while len(times_us) < _CALLS and (not times_us or time.perf_counter() < end_s):
            start_ns = time.perf_counter_ns()
            self.loaded.run(self.inputs, self.outputs)
            times_us.append((time.perf_counter_ns() - start_ns) / 1e3)
        return times_us

    def busy_share(self, veus: int) -> float:
        """The part of all vEUs' time that rTasks take, in the median of some traced runs."""
        shares = []
        for _ in range(_TRACES):
            spans = self.loaded.trace(self.inputs, self.outputs).spans_ns
            busy_ns, end_ns = 0, 1
            for program, queues in zip(self.plan.schedule.programs, spans, strict=True):
                for steps, times in zip(program.steps, queues, strict=False):
                    ran = np.array([isinstance(step, Execute) for step in steps], np.bool_)
                    taken = times[: len(steps)]
                    busy_ns += int((taken[ran, 1] - taken[ran, 0]).sum())
                    end_ns = max(end_ns, int(taken[:, 1].max(initial=0)))
            shares.append(busy_ns / (veus * end_ns))
        return statistics.median(shares)


def network(
    name: str, batch: int, device: Device, vdevice: VDevice, options: CompileOptions
) -> dict[str, dict[str, float]]:
    """Each program's figures: run and simulated time in microseconds, the busy share of all vEUs' time, and the mean
    time of a vEU outside of rTasks.

    Raises:
        RammerError: a program's outputs are not those of the first.
    """
    model = (NETWORKS | LARGER)[name](seed=0, batch=batch)
    graph = load_graph(model)
    tasks = lower_graph(graph, vdevice, options, Dump(None))
    costs = ModelCosts(vdevice)
    given = random_inputs(model, 0)
    inputs = [np.ascontiguousarray(given[graph.values[value].name]) for value in graph.inputs]
    programs: dict[str, _Program] = {}
    for label, plan in plans(tasks, vdevice, costs).items():
        source = device.emit(plan, vdevice)
        loaded = device.load(source, device.build(source, options), options)
        types = [graph.values[value].type for value in graph.outputs]
        program = _Program(plan, loaded, inputs, [np.zeros(type_.shape, type_.dtype.numpy) for type_ in types])
        loaded.run(inputs, program.outputs)
        programs[label] = program
    first, *others = (program.outputs for program in programs.values())
    if not all(
        np.allclose(right, found, _TOLERANCE, _TOLERANCE)
        for outputs in others
        for right, found in zip(first, outputs, strict=True)
    ):
        raise RammerError(f"the programs of {name} at batch {batch} give different outputs")
    times_us: dict[str, list[float]] = {label: [] for label in programs}
    for _ in range(_ROUNDS):
        for label, program in programs.items():
            times_us[label] += program.times_us()
    figures: dict[str, dict[str, float]] = {}
    for label, program in programs.items():
        run_us, busy = statistics.median(times_us[label]), program.busy_share(vdevice.veu_count)
        simulated_us = simulate(tasks, program.plan.schedule, vdevice, costs).total_us
        figures[label] = {
            "run_us": run_us,
            "simulated_us": simulated_us,
            "busy_share": busy,
            "outside_us": run_us * (1.0 - busy),
        }
    return figures
