"""If, Loop and Scan: branches are chosen between, loops of up to some trips are unrolled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import onnx

from rammer.errors import ModelError, UnsupportedFeatureError
from rammer.frontends.builder import Operand
from rammer.frontends.counts.count import counted, one_of_two
from rammer.frontends.moves import concatenated, converted, element, reshaped, stacked
from rammer.frontends.onnx.converters import loops
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.sequences import Value, combined, described
from rammer.ir.types import DType

_MOST_TRIPS = 1024
_MOST_NODES = 1 << 16
"""A loop is unrolled up to so many trips and, in all of them, nodes; longer ones stay loops."""

_NO_BOUND = 1 << 24
"""From here on a number of trips stands for none, as exporters write it for loops that a condition ends."""


_FIXED = "or, if an input decides whether this branch is taken, give its value: constants={name: value}, --constant"


def _if(node: Node) -> Sequence[Value]:
    """One branch where the condition is known; else both, which have no effects, and a choice between their results.

    What only one of them needs is skipped where the other one is taken (`passes/predicate.py`).
    """
    condition = node.operand(0)
    if condition.type.size != 1:
        raise node.invalid(f"its condition {condition.type} is not one element")
    branches = ("then_branch", "else_branch")
    if condition.array is not None:
        taken = branches[0 if condition.array.item() else 1]
        return node.enter(node.graph(taken), (), taken)
    chosen, other = (_branch(node, name) for name in branches)
    if len(chosen) != len(other):
        raise node.invalid(f"its branches have {len(chosen)} and {len(other)} results")
    return [_chosen(node, condition, a, b) for a, b in zip(chosen, other, strict=True)]


def _branch(node: Node, name: str) -> Sequence[Value]:
    """The results of a branch that may be taken."""
    try:
        return node.enter(node.graph(name), (), name)
    except ModelError as error:
        if _FIXED not in error.hint:
            error.hint = "; ".join(filter(None, (error.hint, _FIXED)))
        raise


def _chosen(node: Node, condition: Operand, a: Value, b: Value) -> Value:
    """The first value where the condition holds, else the second; of sequences, each tensor by itself."""
    chosen = combined(partial(_chosen_tensor, node, condition), a, b)
    if chosen is None:
        raise _unlike(node, a, b)
    return chosen


def _chosen_tensor(node: Node, condition: Operand, a: Operand, b: Operand) -> Operand:
    if a is b:
        return a
    scalar = reshaped(node, condition, ())
    if a.count is not None or b.count is not None:
        chosen = one_of_two(node, scalar, a, b)
        if chosen is None:
            raise _unlike(node, a, b)
        return chosen
    if a.type != b.type:
        raise _unlike(node, a, b)
    return node.add("Branch", scalar, a, b)


def _unlike(node: Node, a: Value, b: Value) -> UnsupportedFeatureError:
    return node.unsupported(
        f"a result that is {described(a)} or {described(b)}, as a condition computed by the model decides",
        "let both have one shape, or let the condition follow from constants and from shapes",
    )


def _loop(node: Node) -> Sequence[Value]:
    """Trips one after the other, up to a number that is known at compile time.

    It is that of the trips, or the condition fails from some trip on, whatever else it depends on. Where the model
    computes whether to go on, each trip is a branch of an `If` in the one before, and skipped as those are: it
    takes what the trip before has made, and the loop's results are chosen once, behind the last trip. Results that
    grow with the trips are then as large as they can be.
    """
    body, values = node.graph("body"), node.values_from(2)
    kept = len(values)
    count, again = node.optional(0), node.optional(1)
    most = None if count is None else node.builder.most(count)
    if count is not None and count.array is not None and most is not None and _stays(body, most, again):
        return loops.loop(node, body, most, again, _tensors_carried(node, body, values))
    true = node.constant(np.array(True))
    before: list[tuple[Operand, list[Value]]] = []
    alive: list[Operand] = []
    stacks: list[list[Operand]] = [[] for _ in body.output[1 + kept :]]
    done = 0
    while most is None or done < most:
        happens = _happens(node, count, again, done)
        if happens.array is None:
            before.append((happens, values))
            alive.append(_and(node, alive[-1], happens) if alive else happens)
        elif not happens.array.item():
            break
        _check_trips(node, body, done + 1)
        number = node.constant(np.array(done, np.int64))
        goes_on, *results = node.enter(body, (number, true, *values), str(done))
        values = results[:kept]
        again, *rows = node.tensors([goes_on, *results[kept:]])
        for stack, row in zip(stacks, rows, strict=True):
            stack.append(_chosen_tensor(node, alive[-1], row, _zeros(node, row)) if alive else row)
        done += 1
    for happened, old in reversed(before):
        values = [_chosen(node, happened, a, b) for a, b in zip(values, old, strict=True)]
    grown = [_grown(node, stack, 0, body) for stack in stacks]
    if alive and grown:
        trips = _total(node, alive, done - len(alive))
        grown = [counted(node, one, 0, trips) for one in grown]
    return [*values, *grown]


def _stays(body: onnx.GraphProto, most: int, again: Operand | None) -> bool:
    """Whether a loop has a number of trips that is too great to unroll it; the first one may not happen."""
    happens = again is None or again.array is None or bool(again.array.all())
    return happens and _most_trips(body) < most < _NO_BOUND


def _tensors_carried(node: Node, body: onnx.GraphProto, values: Sequence[Value]) -> list[Operand]:
    """What a loop that stays one carries."""
    tensors = [value for value in values if isinstance(value, Operand)]
    if len(tensors) < len(values):
        raise node.unsupported(
            f"a loop of more than {_most_trips(body)} trips that carries a sequence or an optional",
            "let it carry a tensor, of which each trip writes a part, or give the elements as results that grow",
        )
    return tensors


def _happens(node: Node, count: Operand | None, again: Operand | None, done: int) -> Operand:
    """Whether a trip happens behind `done` others, all of which did; one bool."""
    if again is not None and again.type.size != 1:
        raise node.invalid(f"its condition {again.type} is not one element")
    happens = node.constant(np.array(True)) if again is None else reshaped(node, again, ())
    if count is None or count.array is not None:
        return happens
    if count.type.size != 1:
        raise node.invalid(f"its number of trips {count.type} is not one element")
    number = node.constant(np.array(done, count.dtype.numpy))
    is_left = node.add("Less", number, reshaped(node, count, ()))
    return is_left if happens.array is not None and happens.array.item() else node.add("And", happens, is_left)


def _and(node: Node, before: Operand, happens: Operand) -> Operand:
    """Whether a trip happens for which the one before has to: else nobody knows `happens`."""
    return node.add("Branch", before, happens, node.constant(np.array(False)))


def _zeros(node: Node, like: Operand) -> Operand:
    return node.constant(np.zeros(like.shape, like.dtype.numpy))


def _total(node: Node, alive: Sequence[Operand], others: int) -> Operand:
    """How many bools hold, and so many more."""
    bools = concatenated(node, [reshaped(node, one, (1,)) for one in alive], 0)
    total = node.add("ReduceSum", converted(node, bools, DType.INT64), axes=(0,), keepdims=False)
    return node.add("Add", total, node.constant(np.array(others, np.int64))) if others else total


def _most_trips(body: onnx.GraphProto) -> int:
    """How many trips are unrolled at most."""
    return min(_MOST_TRIPS, _MOST_NODES // max(len(body.node), 1))


def _check_trips(node: Node, body: onnx.GraphProto, trips: int) -> None:
    most = _most_trips(body)
    if trips > most:
        raise node.unsupported(
            f"a loop of more than {most} trips",
            f"at most {_MOST_TRIPS} trips, of {_MOST_NODES} nodes in all, are unrolled. If the model computes when it "
            "ends, let its number of trips be a constant or the Min of one and what is computed, or its condition be "
            "an And with one on the trip's number",
        )


def _scan(node: Node) -> Sequence[Operand]:
    """A trip for each element along the scanned dimensions."""
    body, scanned = node.graph("body"), node.integer("num_scan_inputs")
    operands = node.operands_from(0)
    kept = len(operands) - scanned
    values, inputs = list(operands[:kept]), operands[kept:]
    outputs = len(body.output) - kept
    if kept < 0 or outputs < 0 or not inputs:
        raise node.invalid(f"{scanned} scanned inputs and {len(body.output)} results of {len(operands)} operands")
    input_axes = _per_value(node, "scan_input_axes", scanned)
    axes = [node.axis(axis, x.rank) for axis, x in zip(input_axes, inputs, strict=True)]
    backwards = _per_value(node, "scan_input_directions", scanned)
    trips = inputs[0].shape[axes[0]]
    if any(x.shape[axis] != trips for x, axis in zip(inputs, axes, strict=True)):
        raise node.invalid("its scanned inputs differ in length")
    output_axes = _per_value(node, "scan_output_axes", outputs)
    turned = _per_value(node, "scan_output_directions", outputs)
    if trips > _most_trips(body):
        along = loops.Along(inputs=axes, outputs=output_axes, scanned=backwards, stacked=turned)
        return loops.scan(node, body, values, inputs, along)
    stacks: list[list[Operand]] = [[] for _ in range(outputs)]
    for trip in range(trips):
        elements = [
            element(node, x, axis, trips - 1 - trip if backward else trip)
            for x, axis, backward in zip(inputs, axes, backwards, strict=True)
        ]
        results = node.tensors(node.enter(body, (*values, *elements), str(trip)))
        values = list(results[:kept])
        for stack, result in zip(stacks, results[kept:], strict=True):
            stack.append(result)
    for stack, backward in zip(stacks, turned, strict=True):
        if backward:
            stack.reverse()
    return [*values, *(_grown(node, stack, axis, body) for stack, axis in zip(stacks, output_axes, strict=True))]


def _per_value(node: Node, name: str, count: int) -> tuple[int, ...]:
    """A list of integers, zeros where it is absent."""
    values = node.integers(name) or (0,) * count
    if len(values) != count:
        raise node.invalid(f"its attribute '{name}' has {len(values)} elements, not {count}")
    return values


def _grown(node: Node, parts: Sequence[Operand], axis: int, body: onnx.GraphProto) -> Operand:
    """The results of all trips along a new dimension."""
    if not parts:
        raise node.unsupported(f"a loop without trips, whose results grow with them ('{body.name}')")
    first = parts[0]
    if any(other.type != first.type for other in parts):
        raise node.unsupported(f"results of several trips that are {first.type} and of other types")
    return stacked(node, parts, node.axis(axis, first.rank + 1))


CONVERTERS: Mapping[str, Converter] = {"If": _if, "Loop": _loop, "Scan": _scan}
