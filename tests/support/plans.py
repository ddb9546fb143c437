"""Plans from task graphs, and their results on the reference device."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np

from rammer.devices.reference.execution import Interpreter
from rammer.devices.reference.pickers import Picker
from rammer.ir.expr import Axis, TensorExpr
from rammer.ir.graph import Array, SourceLocation
from rammer.ir.program import Plan
from rammer.ir.region import Interval
from rammer.ir.task import TaskGraph
from rammer.ir.vdevice import VDevice
from rammer.schedule import memory
from rammer.schedule.policies import POLICIES
from tests.support.taskgraphs import TileCosts


def make_plan(graph: TaskGraph, policy: str, vdevice: VDevice) -> Plan:
    """What the compiler would make of a task graph."""
    schedule = POLICIES[policy](graph, vdevice, TileCosts())
    plan = memory.plan(graph, schedule, vdevice.alignment_bytes, vdevice.homes)
    return Plan(graph=graph, schedule=schedule, memory=plan)


def with_sources(graph: TaskGraph) -> TaskGraph:
    """The graph with a node of some model behind each rOperator: node-0, node-1, ..."""
    operators = tuple(
        replace(operator, sources=(SourceLocation(model="m.onnx", node=f"node-{operator.id}", op_type="Op"),))
        for operator in graph.operators
    )
    return replace(graph, operators=operators)


def with_exact_constants(graph: TaskGraph) -> TaskGraph:
    """The graph with constants that pick and negate: products by them and sums of few integers are exact.

    So results do not depend on the order of additions, and may be compared bit by bit.
    """
    constants = {}
    for number, array in graph.constants.items():
        generator = np.random.default_rng(number)
        rows, columns = array.shape
        exact = np.zeros(array.shape, dtype=array.dtype)
        exact[generator.integers(rows, size=columns), np.arange(columns)] = generator.choice([-1, 1], size=columns)
        constants[number] = exact
    return replace(graph, constants=constants)


def integer_inputs(graph: TaskGraph, seed: int = 0) -> list[Array]:
    """Inputs of small integers, all different as far as possible."""
    generator = np.random.default_rng(seed)
    types = [graph.tensors[number].type for number in graph.inputs]
    return [generator.permutation(type_.size).reshape(type_.shape).astype(type_.dtype.numpy) for type_ in types]


class _Remembering(Interpreter):
    """An interpreter whose runs share what an rTask computes from the same operands, poison included."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._found: dict[Hashable, list[tuple[tuple[Array, ...], Array]]] = {}

    def evaluate(
        self, expr: TensorExpr, slots: Sequence[Array], ranges: Mapping[Axis, Interval]
    ) -> list[tuple[tuple[Array, ...], Array]]:
        """What a tile of an expression stores."""
        key = (expr, tuple(ranges.items()), *(blake2b(slot.tobytes()).digest() for slot in slots))
        if key not in self._found:
            self._found[key] = super().evaluate(expr, slots, ranges)
        return self._found[key]


def run_reference(plan: Plan, inputs: Sequence[Array], picker: Picker) -> list[Array]:
    """The outputs of a plan on the reference device."""
    return _outputs_of(Interpreter(plan), plan, inputs, picker)


def run_orders(plan: Plan, inputs: Sequence[Array], pickers: Iterable[Picker]) -> list[list[Array]]:
    """The outputs of a plan on the reference device, for each picker."""
    interpreter = _Remembering(plan)
    return [_outputs_of(interpreter, plan, inputs, picker) for picker in pickers]


def _outputs_of(interpreter: Interpreter, plan: Plan, inputs: Sequence[Array], picker: Picker) -> list[Array]:
    types = [plan.graph.tensors[number].type for number in plan.graph.outputs]
    outputs: list[Array] = [np.empty(type_.shape, type_.dtype.numpy) for type_ in types]
    interpreter.run(inputs, outputs, picker)
    return outputs
