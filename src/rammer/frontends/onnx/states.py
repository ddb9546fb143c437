"""Inputs and outputs that are a cache: what a run gives as the one, the next takes as the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rammer.errors import OptionError
from rammer.ir.graph import Graph, State
from rammer.printable import listing


def with_states(graph: Graph, states: Mapping[str, str]) -> Graph:
    """The graph that keeps some of its values, which begin as zeros.

    Args:
        graph: with the caches among its inputs and outputs; what it keeps already, it goes on keeping.
        states: the output that becomes each input in the next run, by the names of both.

    Raises:
        OptionError: there is no such input or output, one is named twice, or their types differ.
    """
    if len(set(states.values())) < len(states):
        raise OptionError(f"outputs {list(states.values())} for states", hint="give each state an output of its own")
    kept = len(graph.states)
    inputs, outputs = (
        {graph.values[value].name: value for value in values[: len(values) - kept]}
        for values in (graph.inputs, graph.outputs)
    )
    for read, written in states.items():
        if read not in inputs or written not in outputs:
            wrong, side, names = (read, "input", inputs) if read not in inputs else (written, "output", outputs)
            raise OptionError(f"state '{read}': there is no {side} '{wrong}'", hint=f"there are {listing(list(names))}")
        if graph.values[inputs[read]].type != graph.values[outputs[written]].type:
            raise OptionError(
                f"state '{read}' is read as {graph.values[inputs[read]].type}, but '{written}' is "
                f"{graph.values[outputs[written]].type}",
                hint="a state keeps its type from run to run",
            )
    types = {name: graph.values[inputs[name]].type for name in states}
    return replace(
        graph,
        inputs=(
            *(v for name, v in inputs.items() if name not in states),
            *(inputs[name] for name in states),
            *graph.inputs[len(inputs) :],
        ),
        outputs=(
            *(v for name, v in outputs.items() if name not in states.values()),
            *(outputs[name] for name in states.values()),
            *graph.outputs[len(outputs) :],
        ),
        states=(
            *(State(name=name, initial=np.zeros(t.shape, t.dtype.numpy)) for name, t in types.items()),
            *graph.states,
        ),
    )
