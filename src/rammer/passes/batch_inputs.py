"""batch_inputs: recurrent layers multiply the inputs of all their steps at once, where their weights do not stay near.

    y = LSTM(x, w, r, ...)  ->  y = LSTM{batched_inputs}(x, w, r, ...)

One product over all steps reads w once and runs at the speed of arithmetic; only r is left for every step to read. But
it has to wait for the whole layer below, so layers no longer run as a wavefront. Where a layer's share of the private
memories of all execution units holds its weights, nothing is read again and the wavefront is worth more. Weights of a
layer that is trained are states, which are not packed: where no unit keeps them, products by themselves read them best.

Ordering restriction: before unroll.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from rammer.ir.graph import Graph, Operator
from rammer.ir.vdevice import VDevice
from rammer.operators.recurrent import LAYERS, steps_of
from rammer.operators.recurrent_gradients import TRAINED_LAYERS
from rammer.passes.helpers.rewrite import Rewriter
from rammer.passes.round_products import ROUNDED


def run(graph: Graph, device: VDevice) -> Graph:
    """Mark the layers of more than one step; see the module.

    Args:
        graph: as imported, recurrent layers still whole.
        device: whose memories decide.
    """
    layers = [operator for operator in graph.operators if operator.kind in (*LAYERS, *TRAINED_LAYERS)]
    private_bytes = max((level.capacity_bytes for level in device.levels if not level.shared), default=0)
    weights = {_weights(layer) for layer in layers}
    share_bytes = private_bytes * device.veu_count / max(1, len(weights))
    heavy = {pair for pair in weights if sum(_kept_bytes(value, graph, device) for value in pair) > share_bytes}
    batched = [
        layer for layer in layers if _steps(layer, graph) > 1 and (_weights(layer) in heavy or _is_apart(layer, device))
    ]
    if not batched:
        return graph
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        rewriter.insert(_batched(operator) if operator in batched else operator)
    return rewriter.finish()


def _weights(layer: Operator) -> tuple[int, ...]:
    """Those of inputs and of states."""
    return layer.inputs[3:5] if layer.kind in TRAINED_LAYERS else layer.inputs[1:3]


def _kept_bytes(value: int, graph: Graph, device: VDevice) -> int:
    """What weights take where they stay: constants in the precision that was asked for, if that is one of 16 bits."""
    type_ = graph.values[value].type
    kept = ROUNDED.get(device.precision, type_.dtype)
    is_narrowed = kept.is_half and value in graph.constants and device.stationary_bytes > 0
    return type_.size * (kept if is_narrowed else type_.dtype).itemsize_bytes


def _is_apart(layer: Operator, device: VDevice) -> bool:
    """Whether products by weights are better off apart from the rest of a cell."""
    return layer.kind in TRAINED_LAYERS and not device.stationary_bytes


def _steps(layer: Operator, graph: Graph) -> int:
    first = graph.values[layer.inputs[0]].type
    return first.shape[0] if layer.kind in TRAINED_LAYERS else steps_of(layer, first)


def _batched(operator: Operator) -> Operator:
    return replace(operator, attributes=MappingProxyType({**operator.attributes, "batched_inputs": True}))
