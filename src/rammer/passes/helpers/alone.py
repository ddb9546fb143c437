"""What Roller predicts of a part of a graph once the passes that follow are through with it.

A pass that chooses early asks here. At its point values have no layouts, constants are not packed and long sums are
whole; a graph of one operator that goes through the rest of the pipeline has all of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from rammer.ir.graph import Graph, Operator
from rammer.ir.vdevice import VDevice
from rammer.passes import channels_last
from rammer.passes.helpers.predicted import predicted_us
from rammer.passes.helpers.rewrite import PLACED_KINDS


def alone(operator: Operator, graph: Graph) -> Graph:
    """The graph of one operator of a graph. Constants keep their types, but are zeros, which take no memory."""
    constants = {
        value: np.broadcast_to(np.zeros((), graph.constants[value].dtype), graph.constants[value].shape)
        for value in operator.inputs
        if value in graph.constants
    }
    return Graph(
        name=operator.name,
        values=MappingProxyType({value: graph.values[value] for value in (*operator.inputs, *operator.outputs)}),
        operators=(operator,),
        inputs=tuple(value for value in dict.fromkeys(operator.inputs) if value not in constants),
        outputs=operator.outputs,
        constants=MappingProxyType(constants),
    )


def laid_out_alone(part: Graph, fixed: Collection[int]) -> Graph:
    """A graph of a convolution or what stands for it, its images laid out as `channels_last` will in the whole.

    Args:
        part: of these operators alone.
        fixed: its inputs and outputs that are those of the model, which stay as the caller has them.
    """
    dims = channels_last.channel_dims(part, fixed)
    ends = (*part.inputs, *part.outputs)
    return channels_last.laid_out(part, {value: dim for value, dim in dims.items() if value in ends})


def predicted_alone_us(
    graph: Graph, device: VDevice, veus: int, rest: Callable[[Graph, VDevice], Graph], limit_us: float = math.inf
) -> float:
    """The time of operators that follow each other on `veus` units, each with its hand-over, in microseconds.

    Args:
        graph: of these operators alone, its inputs and outputs laid out as they will be in the whole.
        device: the machine.
        veus: so many of its units.
        rest: the passes that these operators have yet to go through.
        limit_us: infinity stands for any time that is not below.
    """
    share = replace(device, veus=device.veus[:veus])
    done = rest(graph, share)
    total_us = 0.0
    for operator in done.operators:
        if operator.expr is not None and operator.kind not in PLACED_KINDS:
            layouts = tuple(done.values[value].storage for value in (*operator.inputs, *operator.outputs))
            constants = [slot for slot, value in enumerate(operator.inputs) if value in done.constants]
            total_us += predicted_us(operator.expr, layouts, constants, share, veus) + device.handover_us.value
            if total_us >= limit_us:
                return math.inf
    return total_us
