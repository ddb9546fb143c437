"""batch_inputs: recurrent layers multiply the inputs of all their steps at once, where their weights do not stay near.

    y = LSTM(x, w, r, ...)  ->  y = LSTM{batched_inputs}(x, w, r, ...)

One product over all steps reads w once and runs at the speed of arithmetic; only r is left for every step to read. But
it has to wait for the whole layer below, so layers no longer run as a wavefront.

Where execution units keep weights from step to step, layers that run as a wavefront form a *group*, whose weights are
kept at the same time. The first layer that there is no room for begins another group: it multiplies its inputs at once
and so waits for the group before, which leaves its units free. Layers that go through time the other way wait for all
steps anyway, and begin a group as they are. The first layers of a group have nothing to gain from the wavefront. They
multiply their inputs at once where that spares much room, or makes room for one more layer.

Elsewhere a layer is batched if its weights are more than its share of the private memories of all units: below that
nothing is read again and the wavefront is worth more. Of a single layer, or on a single unit, there is none, and the
smallest of these memories decides: from there steps read weights as fast as they multiply. Weights of a layer that is
trained are states, which are not packed: where no unit keeps them, products by themselves read them best.

Ordering restriction: before unroll.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from rammer.ir.graph import Graph, Operator
from rammer.ir.types import DType
from rammer.ir.vdevice import VDevice
from rammer.operators.recurrent import LAYERS, steps_of
from rammer.operators.recurrent_gradients import TRAINED_LAYERS
from rammer.passes.helpers.rewrite import Rewriter
from rammer.passes.round_products import ROUNDED

_UNITS = 4  # of a layer: what its part on an execution unit is a multiple of, as GPUs cut layers
_STORED = 1.6  # times as many weights of 16 bits are kept where there is one vector: the rest in shared memory
_MUCH = 0.5  # of the float32 that a unit keeps: steps are quicker by more than the product of all inputs takes

Outputs = tuple[int, ...]
"""Of a layer, by which it is known."""


def run(graph: Graph, device: VDevice) -> Graph:
    """Mark the layers of more than one step; see the module.

    Args:
        graph: as imported, recurrent layers still whole.
        device: whose memories decide.
    """
    layers = [operator for operator in graph.operators if operator.kind in (*LAYERS, *TRAINED_LAYERS)]
    staying = [layer for layer in layers if device.stationary_bytes and layer.kind in LAYERS]
    others = [layer for layer in layers if layer not in staying]
    batched = {*_beyond_room(staying, graph, device), *_beyond_share(others, graph, device)}
    if not batched:
        return graph
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        rewriter.insert(_batched(operator) if operator.outputs in batched else operator)
    return rewriter.finish()


def _beyond_share(layers: Sequence[Operator], graph: Graph, device: VDevice) -> list[Outputs]:
    """Layers whose weights are more than their share of the private memories, or better off apart."""
    private = [level.capacity_bytes for level in device.levels if not level.shared]
    weights = {_weights(layer) for layer in layers}
    room_bytes = max(private, default=0) * device.veu_count / max(1, len(weights))
    if not device.stationary_bytes and (device.veu_count == 1 or not _are_stacked(layers, graph)):
        room_bytes = min([room_bytes, *private])
    heavy = {pair for pair in weights if sum(_kept_bytes(value, graph, device) for value in pair) > room_bytes}
    return [
        layer.outputs
        for layer in layers
        if _steps(layer, graph) > 1 and (_weights(layer) in heavy or _is_apart(layer, device))
    ]


def _are_stacked(layers: Sequence[Operator], graph: Graph) -> bool:
    """Whether some layers read others' states, so that they could run as a wavefront."""
    return len(_levels([layer for layer in layers if layer.kind in LAYERS], graph)) > 1


def _is_apart(layer: Operator, device: VDevice) -> bool:
    """Whether products by weights are better off apart from the rest of a cell."""
    return layer.kind in TRAINED_LAYERS and not device.stationary_bytes


# --- Where units keep weights -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Level:
    """Layers with as many layers below them. They all `turn` if they go through time another way than those below."""

    layers: tuple[Operator, ...]
    turns: bool


def _beyond_room(layers: Sequence[Operator], graph: Graph, device: VDevice) -> list[Outputs]:
    """Layers that are batched, so that there is room for all weights of a group."""
    batched: list[Operator] = []
    first: tuple[Operator, ...] = ()  # of a group, if they are not batched
    taken = spared = 0.0  # execution units: by the group, and by `first` if these were batched
    for level in _levels([layer for layer in layers if _steps(layer, graph) > 1], graph):
        own, begins = level.layers, level.turns or not taken
        whole, states = (_veus(own, graph, device, inputs=inputs) for inputs in (True, False))
        if begins and whole <= device.veu_count and not _spares_much(own, graph, device):
            first, taken, spared = own, whole, whole - states
        elif not begins and taken + whole <= device.veu_count:
            taken += whole
        elif not begins and taken - spared + whole <= device.veu_count:
            batched += first
            first, taken, spared = (), taken - spared + whole, 0.0
        else:
            batched += own
            first, taken, spared = (), states if states <= device.veu_count else 0.0, 0.0
    return [layer.outputs for layer in batched]


def _spares_much(layers: Iterable[Operator], graph: Graph, device: VDevice) -> bool:
    """Whether each execution unit would keep many weights of inputs, of as many units as layers can be cut for."""
    inputs, parts = 0, 0
    for w, r in {_weights(layer) for layer in layers}:
        directions, _, units = graph.values[r].type.shape
        inputs += graph.values[w].type.size
        parts += directions * math.ceil(units / _UNITS)
    most = device.stationary_bytes / DType.FLOAT32.itemsize_bytes * min(parts, device.veu_count)
    return inputs > _MUCH * most


def _levels(layers: Iterable[Operator], graph: Graph) -> list[_Level]:
    """Layers by how many are below them, the lowest first."""
    wanted = {layer.outputs for layer in layers}
    depths: dict[int, int] = {}
    ways: dict[int, frozenset[object]] = {}  # through time, of the layers that a value follows from
    levels: dict[int, list[Operator]] = {}
    turning: set[Outputs] = set()
    for operator in graph.operators:
        depth = max((depths.get(value, 0) for value in operator.inputs), default=0)
        way = frozenset[object]().union(*(ways.get(value, ()) for value in operator.inputs))
        if operator.outputs in wanted:
            own = frozenset([operator.attributes["direction"]])
            if way and (way != own or own == {"bidirectional"}):
                turning.add(operator.outputs)
            levels.setdefault(depth, []).append(operator)
            depth, way = depth + 1, own
        depths.update(dict.fromkeys(operator.outputs, depth))
        ways.update(dict.fromkeys(operator.outputs, way))
    return [
        _Level(tuple(level), all(layer.outputs in turning for layer in level)) for _, level in sorted(levels.items())
    ]


def _veus(layers: Iterable[Operator], graph: Graph, device: VDevice, *, inputs: bool) -> float:
    """The fewest execution units that keep the weights of layers, also those of `inputs`; infinite if none do."""
    by_weights = {_weights(layer): layer for layer in layers}
    return sum(_veus_of(layer, graph, device, inputs=inputs) for layer in by_weights.values())


def _veus_of(layer: Operator, graph: Graph, device: VDevice, *, inputs: bool) -> float:
    """The same of one layer."""
    w, r = _weights(layer)
    directions, _, units = graph.values[r].type.shape
    all_bytes = sum(_kept_bytes(value, graph, device) for value in ((w, r) if inputs else (r,))) / directions
    is_narrow = _kept_bytes(r, graph, device) < graph.values[r].type.nbytes and _batch(layer, graph) == 1
    room_bytes = device.stationary_bytes * (_STORED if is_narrow else 1.0)
    if all_bytes <= room_bytes:
        return directions
    most = int(room_bytes * units / all_bytes) // _UNITS * _UNITS
    return directions * math.ceil(units / most) if most else math.inf


# --- What layers have ---------------------------------------------------------------------------------------------


def _weights(layer: Operator) -> tuple[int, ...]:
    """Those of inputs and of states."""
    return layer.inputs[3:5] if layer.kind in TRAINED_LAYERS else layer.inputs[1:3]


def _kept_bytes(value: int, graph: Graph, device: VDevice) -> int:
    """What weights take where they stay: constants in the precision that was asked for, if that is one of 16 bits."""
    type_ = graph.values[value].type
    kept = ROUNDED.get(device.precision, type_.dtype)
    is_narrowed = kept.is_half and value in graph.constants and device.stationary_bytes > 0
    return type_.size * (kept if is_narrowed else type_.dtype).itemsize_bytes


def _batch(layer: Operator, graph: Graph) -> int:
    return graph.values[layer.inputs[0]].type.shape[not layer.attributes["layout"]]


def _steps(layer: Operator, graph: Graph) -> int:
    first = graph.values[layer.inputs[0]].type
    return first.shape[0] if layer.kind in TRAINED_LAYERS else steps_of(layer, first)


def _batched(operator: Operator) -> Operator:
    return replace(operator, attributes=MappingProxyType({**operator.attributes, "batched_inputs": True}))
