"""If, Loop and Scan: branches are chosen or computed both, loops of up to some trips are unrolled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from rammer.frontends.builder import Operand
from rammer.frontends.moves import concatenated, part, reshaped
from rammer.frontends.onnx.converters import loops
from rammer.frontends.onnx.node import Converter, Node

_MOST_TRIPS = 1024
_MOST_NODES = 1 << 16
"""A loop is unrolled up to so many trips and, in all of them, nodes; longer ones stay loops."""


def _if(node: Node) -> Sequence[Operand]:
    """One branch where the condition is known; else both, which have no effects, and a choice between their results."""
    condition = node.operand(0)
    if condition.type.size != 1:
        raise node.invalid(f"its condition {condition.type} is not one element")
    branches = ("then_branch", "else_branch")
    if condition.array is not None:
        taken = branches[0 if condition.array.item() else 1]
        return node.enter(node.graph(taken), (), taken)
    chosen, other = (node.enter(node.graph(name), (), name) for name in branches)
    if len(chosen) != len(other):
        raise node.invalid(f"its branches have {len(chosen)} and {len(other)} results")
    return [_chosen(node, condition, a, b) for a, b in zip(chosen, other, strict=True)]


def _chosen(node: Node, condition: Operand, a: Operand, b: Operand) -> Operand:
    """The first value where the condition holds, else the second."""
    if a is b:
        return a
    if a.type != b.type:
        raise node.unsupported(
            f"a result that is {a.type} or {b.type}, as a condition computed by the model decides",
            "let both have one shape, or let the condition follow from constants and from shapes",
        )
    return node.add("Where", reshaped(node, condition, ()), a, b)


def _loop(node: Node) -> Sequence[Operand]:
    """So many trips as are known at compile time, one after the other.

    Where the model computes whether to go on, trips after the end leave the values as they are.
    """
    count, going = node.optional(0), node.optional(1)
    body, values = node.graph("body"), node.operands_from(2)
    kept = len(values)
    trips = _known_trips(node, count)
    never = going is not None and going.array is not None and not going.array.all()
    if trips is not None and trips > _most_trips(body) and not never:
        return loops.loop(node, body, trips, going, values)
    stacks: list[list[Operand]] = [[] for _ in body.output[1 + kept :]]
    done = 0
    while trips is None or done < trips:
        if going is not None and going.type.size != 1:
            raise node.invalid(f"its condition {going.type} is not one element")
        if going is not None and going.array is not None:
            if not going.array.item():
                break
            going = None
        if going is not None and (trips is None or stacks):
            raise node.unsupported(
                "a loop whose number of trips the model computes",
                "give it a fixed number of trips, and no results that grow with them",
            )
        _check_trips(node, body, done + 1)
        state = node.constant(np.array(True)) if going is None else going
        number = node.constant(np.array(done, np.int64))
        again, *results = node.enter(body, (number, state, *values), str(done))
        if going is None:
            values, going = results[:kept], again
        else:
            active = going
            values = [_chosen(node, active, new, old) for new, old in zip(results, values, strict=True)]
            going = node.add("And", reshaped(node, active, ()), reshaped(node, again, ()))
        for stack, result in zip(stacks, results[kept:], strict=True):
            stack.append(result)
        done += 1
    return [*values, *(_stacked(node, stack, 0, body) for stack in stacks)]


def _known_trips(node: Node, count: Operand | None) -> int | None:
    """The greatest number of trips, None where nothing but the condition ends the loop."""
    if count is None:
        return None
    return node.known_integer(0)


def _most_trips(body: onnx.GraphProto) -> int:
    """How many trips are unrolled at most."""
    return min(_MOST_TRIPS, _MOST_NODES // max(len(body.node), 1))


def _check_trips(node: Node, body: onnx.GraphProto, trips: int) -> None:
    most = _most_trips(body)
    if trips > most:
        raise node.unsupported(
            f"a loop of more than {most} trips, whose number only the loop itself knows",
            "give it a number of trips, which may be the greatest that there can be",
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
            _element(node, x, axis, trips - 1 - trip if backward else trip)
            for x, axis, backward in zip(inputs, axes, backwards, strict=True)
        ]
        results = node.enter(body, (*values, *elements), str(trip))
        values = list(results[:kept])
        for stack, result in zip(stacks, results[kept:], strict=True):
            stack.append(result)
    for stack, backward in zip(stacks, turned, strict=True):
        if backward:
            stack.reverse()
    return [*values, *(_stacked(node, stack, axis, body) for stack, axis in zip(stacks, output_axes, strict=True))]


def _per_value(node: Node, name: str, count: int) -> tuple[int, ...]:
    """A list of integers, zeros where it is absent."""
    values = node.integers(name) or (0,) * count
    if len(values) != count:
        raise node.invalid(f"its attribute '{name}' has {len(values)} elements, not {count}")
    return values


def _element(node: Node, x: Operand, axis: int, position: int) -> Operand:
    """The part at one position of a dimension, without it."""
    return reshaped(node, part(node, x, axis, position, 1), (*x.shape[:axis], *x.shape[axis + 1 :]))


def _stacked(node: Node, parts: Sequence[Operand], axis: int, body: onnx.GraphProto) -> Operand:
    """The results of all trips along a new dimension."""
    if not parts:
        raise node.unsupported(f"a loop without trips, whose results grow with them ('{body.name}')")
    first = parts[0]
    if any(other.type != first.type for other in parts):
        raise node.unsupported(f"results of several trips that are {first.type} and of other types")
    axis = node.axis(axis, first.rank + 1)
    shape = (*first.shape[:axis], 1, *first.shape[axis:])
    return concatenated(node, [reshaped(node, one, shape) for one in parts], axis)


CONVERTERS: Mapping[str, Converter] = {"If": _if, "Loop": _loop, "Scan": _scan}
