"""LSTM layers as one step of training has them, without PyTorch: forward and backward pass, and new weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rammer.ir.evaluate import evaluate_graph
from rammer.ir.graph import Array, Graph, State
from rammer.ir.types import DType, TensorType
from rammer.operators.builder import GraphBuilder
from rammer.passes import unroll

RATE = 0.1


def trained_layers(*, layers: int = 2, steps: int = 4, batch: int = 1, units: int = 16, reverse: bool = False) -> Graph:
    """A step that brings what the last layer gives at the last step nearer to a target.

    Inputs: x `[t, b, n]` and the target `[b, n]`. The output is what the last layer gives; weights and biases are
    states.
    """
    rng = np.random.default_rng(0)
    builder = GraphBuilder("trained")
    x = first = builder.input("x", _type(steps, batch, units))
    target = builder.input("target", _type(batch, units))
    shapes = [(4 * units, units), (4 * units, units), (4 * units,), (4 * units,)]
    states = [
        State(name=f"{letter}{layer}", initial=(rng.standard_normal(shape) * 0.3).astype(np.float32))
        for layer in range(layers)
        for letter, shape in zip("wrbc", shapes, strict=True)
    ]
    weights = [builder.input(state.name, _type(*state.initial.shape)) for state in states]
    zero = builder.constant(np.zeros((batch, units), np.float32), "zero")
    order = {"reverse": reverse}
    kept = []
    for layer in range(layers):
        own = weights[4 * layer : 4 * layer + 4]
        h, c, gates = builder.add("LSTMWithGates", [x, zero, zero, *own], order, name=f"layer{layer}")
        kept.append((x, h, c, gates))
        x = h
    last = 0 if reverse else steps - 1
    result = _row(builder, x, last)
    (error,) = builder.add("Sub", [result, target], name="error")
    by_h = _scattered(builder, error, last, steps)
    following: list[int] = []
    for layer in reversed(range(layers)):
        x, h, c, gates = kept[layer]
        own = weights[4 * layer : 4 * layer + 4]
        operands = [gates, c, zero, *own[:2], by_h]
        by_gates, by_h, _, _ = builder.add("LSTMGradient", operands, {**order, "has_cells": False}, name=f"back{layer}")
        before = _before(builder, h, zero, reverse=reverse)
        following = [*_updated(builder, own, by_gates, x, before), *following]
    assert x == first
    return builder.build([result, *following], states)


def expected_runs(graph: Graph, runs: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """The outputs of runs one after another, and the states behind the last one."""
    operators, states = unroll.run(graph), [state.initial for state in graph.states]
    results: list[list[Array]] = []
    for inputs in runs:
        (*outputs,) = evaluate_graph(operators, [*inputs, *states])
        states = outputs[len(outputs) - len(states) :]
        results.append(outputs[: len(outputs) - len(states)])
    return [*results, states]


def random_runs(graph: Graph, count: int) -> list[list[Array]]:
    """Inputs for some runs."""
    rng = np.random.default_rng(1)
    inputs = graph.inputs[: len(graph.inputs) - len(graph.states)]
    return [[rng.standard_normal(graph.values[i].type.shape).astype(np.float32) for i in inputs] for _ in range(count)]


def _type(*shape: int) -> TensorType:
    return TensorType(DType.FLOAT32, shape)


def _part(builder: GraphBuilder, value: int, first: int, count: int) -> int:
    shape = builder.type(value).shape
    attributes = {"starts": (first, 0, 0), "steps": (1, 1, 1), "sizes": (count, *shape[1:])}
    return builder.add("Slice", [value], attributes, name="part")[0]


def _row(builder: GraphBuilder, value: int, step: int) -> int:
    shape = builder.type(value).shape[1:]
    return builder.add("Reshape", [_part(builder, value, step, 1)], {"shape": shape}, name="row")[0]


def _lifted(builder: GraphBuilder, value: int) -> int:
    shape = (1, *builder.type(value).shape)
    return builder.add("Reshape", [value], {"shape": shape}, name="lifted")[0]


def _scattered(builder: GraphBuilder, value: int, step: int, steps: int) -> int:
    """The gradient by all steps, 0 but at one."""
    if steps == 1:
        return _lifted(builder, value)
    zeros = builder.constant(np.zeros((steps - 1, *builder.type(value).shape), np.float32), "zeros")
    parts = [zeros, _lifted(builder, value)] if step else [_lifted(builder, value), zeros]
    return builder.add("Concat", parts, {"axis": 0}, name="by_h")[0]


def _before(builder: GraphBuilder, h: int, first: int, *, reverse: bool) -> int:
    """The states that steps begin with."""
    steps = builder.type(h).shape[0]
    if steps == 1:
        return _lifted(builder, first)
    others, own = _part(builder, h, 1 if reverse else 0, steps - 1), _lifted(builder, first)
    return builder.add("Concat", [others, own] if reverse else [own, others], {"axis": 0}, name="before")[0]


def _updated(builder: GraphBuilder, own: Sequence[int], by_gates: int, x: int, before: int) -> list[int]:
    """The next weights and biases of a layer."""

    def flat(value: int) -> int:
        *outer, width = builder.type(value).shape
        return builder.add("Reshape", [value], {"shape": (int(np.prod(outer)), width)}, name="flat")[0]

    rows = flat(by_gates)
    (columns,) = builder.add("Transpose", [rows], {"perm": (1, 0)}, name="columns")
    gradients = [builder.add("MatMul", [columns, flat(value)], name="by_weights")[0] for value in (x, before)]
    gradients += [builder.add("ReduceSum", [rows], {"axes": (0,), "keepdims": False}, name="by_biases")[0]] * 2
    rate = builder.constant(np.array(RATE, np.float32), "rate")
    steps = [builder.add("Mul", [gradient, rate], name="step")[0] for gradient in gradients]
    return [builder.add("Sub", [one, step], name="next")[0] for one, step in zip(own, steps, strict=True)]
