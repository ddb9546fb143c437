"""Random cells, as in NAS-Bench-101: fine Waits against global barriers, by simulation (section 5.4 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from benchmarks.evaluation.programs import with_barriers
from benchmarks.networks.builder import GraphBuilder, Value
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.ir.vdevice import VDevice
from rammer.options import CompileOptions
from rammer.pipelines.planning import lower_graph
from rammer.roller.model import ModelCosts
from rammer.schedule.policies import sequential, wavefront
from rammer.schedule.simulator import simulate

COUNT = 200
_VERTICES = range(4, 8)
_EDGES = 0.45
_CHANNELS, _SIZE = 64, 16
_KINDS = ("conv3x3", "conv1x1", "maxpool3x3")


def cell_model(seed: int) -> onnx.ModelProto:
    """A directed graph of convolutions and poolings, each on the sum of what it reads; unread results are added up."""
    rng = np.random.default_rng(seed)
    graph = GraphBuilder(f"cell{seed}")
    shape = (1, _CHANNELS, _SIZE, _SIZE)
    values = [graph.input("image", shape)]
    unread = {0}
    for number in range(1, int(rng.choice(_VERTICES)) + 1):
        read = [place for place in range(number) if rng.random() < _EDGES] or [int(rng.integers(number))]
        unread -= {*read}
        unread.add(number)
        values.append(
            _vertex(graph, f"v{number}", _summed(graph, f"v{number}", [values[place] for place in read]), rng)
        )
    return graph.build(_summed(graph, "y", [values[place] for place in sorted(unread)], last=True))


def _vertex(graph: GraphBuilder, name: str, x: Value, rng: np.random.Generator) -> Value:
    kind = _KINDS[int(rng.integers(len(_KINDS)))]
    if kind == "maxpool3x3":
        return graph.node("MaxPool", name, [x], x.shape, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    size = 3 if kind == "conv3x3" else 1
    scale = np.float32(1 / (size * np.sqrt(_CHANNELS)))
    weights = rng.standard_normal((_CHANNELS, _CHANNELS, size, size), np.float32) * scale
    pads = [size // 2] * 4
    convolved = graph.node("Conv", f"{name}.conv", [x, graph.parameter(f"{name}.w", weights)], x.shape, pads=pads)
    return graph.node("Relu", name, [convolved], x.shape)


def _summed(graph: GraphBuilder, name: str, values: list[Value], *, last: bool = False) -> Value:
    if len(values) == 1:
        return graph.node("Relu", name, values, values[0].shape) if last else values[0]
    total = values[0]
    for number, value in enumerate(values[1:], start=1):
        end = last and number == len(values) - 1
        total = graph.node("Add", name if end else f"{name}.sum{number}", [total, value], value.shape)
    return total


def several(seeds: Sequence[int], vdevice: VDevice, options: CompileOptions) -> dict[str, dict[str, float]]:
    """The figures of some cells, by seed."""
    return {str(seed): cell(seed, vdevice, options) for seed in seeds}


def cell(seed: int, vdevice: VDevice, options: CompileOptions) -> dict[str, float]:
    """Simulated times of a cell, in microseconds: operator after operator, with barriers, with Waits between tiles."""
    costs = ModelCosts(vdevice)
    tasks = lower_graph(load_graph(cell_model(seed)), vdevice, options, Dump(None))
    fine = wavefront.schedule(tasks, vdevice, costs)
    schedules = {
        "base_us": sequential.schedule(tasks, vdevice, costs),
        "barriers_us": with_barriers(tasks, fine),
        "waits_us": fine,
    }
    return {name: simulate(tasks, schedule, vdevice, costs).total_us for name, schedule in schedules.items()}
