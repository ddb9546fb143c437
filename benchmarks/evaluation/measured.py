"""What a network's programs take: all are loaded together, agree on the outputs, and run in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx

from benchmarks.evaluation.programs import schedules
from benchmarks.networks import LARGER, NETWORKS
from benchmarks.networks.builder import random_inputs
from rammer.devices.base import Clocked, Device, Early, Loaded, Source
from rammer.devices.cuda.architecture import KIND as CUDA
from rammer.devices.cuda.build import compile_source
from rammer.errors import RammerError
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.ir.graph import Array, Graph
from rammer.ir.program import Execute, Plan, Schedule
from rammer.ir.task import TaskGraph
from rammer.ir.vdevice import VDevice
from rammer.options import CompileOptions
from rammer.pipelines.planning import lower_graph, plan_memory
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


def built(name: str, batch: int, device: Device, vdevice: VDevice, options: CompileOptions) -> Mapping[str, Schedule]:
    """The schedules of a network's programs, whose machine code is in the cache then; a GPU's that writes times, too.

    Arguments are those of `network`.
    """
    _, _, tasks = _lowered(name, batch, vdevice, options)
    found = schedules(tasks, vdevice, ModelCosts(vdevice))
    with ThreadPoolExecutor() as beside:
        list(beside.map(partial(_build, device, options), _sources(tasks, found, device, vdevice)))
    return found


def _sources(tasks: TaskGraph, found: Mapping[str, Schedule], device: Device, vdevice: VDevice) -> list[Source]:
    """What a compiler takes for the programs; programs that differ in tables alone are one to a GPU's."""
    if isinstance(device, Early):
        codes = [device.code(tasks, schedule, vdevice) for schedule in found.values()]
        return list({tuple(map(bytes, code.files.values())): code for code in codes}.values())
    return [device.emit(plan_memory(tasks, schedule, vdevice, Dump(None)), vdevice) for schedule in found.values()]


def _build(device: Device, options: CompileOptions, source: Source) -> None:
    binary = device.build(source, options)
    if binary.device == CUDA:
        compile_source(source, binary.machine["architecture"], options, trace=True)


def network(
    name: str,
    batch: int,
    device: Device,
    vdevice: VDevice,
    options: CompileOptions,
    found: Mapping[str, Schedule],
) -> dict[str, dict[str, float]]:
    """Each program's figures: run and simulated time in microseconds, the busy share of all vEUs' time, and the mean
    time of a vEU outside of rTasks.

    Args:
        name: of the network.
        batch: of its inputs.
        device: where it runs.
        vdevice: its description.
        options: compiler, cache and limits.
        found: the schedules of its programs, by name.

    Raises:
        RammerError: a program's outputs are not those of the first.
    """
    model, graph, tasks = _lowered(name, batch, vdevice, options)
    given = random_inputs(model, 0)
    inputs = [np.ascontiguousarray(given[graph.values[value].name]) for value in graph.inputs]
    programs: dict[str, _Program] = {}
    for label, schedule in found.items():
        plan = plan_memory(tasks, schedule, vdevice, Dump(None))
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
        simulated_us = simulate(tasks, program.plan.schedule, vdevice, ModelCosts(vdevice)).total_us
        figures[label] = {
            "run_us": run_us,
            "simulated_us": simulated_us,
            "busy_share": busy,
            "outside_us": run_us * (1.0 - busy),
        }
    return figures


def _lowered(
    name: str, batch: int, vdevice: VDevice, options: CompileOptions
) -> tuple[onnx.ModelProto, Graph, TaskGraph]:
    model = (NETWORKS | LARGER)[name](seed=0, batch=batch)
    graph = load_graph(model)
    return model, graph, lower_graph(graph, vdevice, options, Dump(None))
