"""Random models with branches and loops inside of each other, whose conditions they compute."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.support.model_maker import Array

_SHAPE = (4, 8)
_NUMBERS = {
    "shape": [4, 8],
    "margins": [0, 0, 1, 2],
    "starts": [1, 1],
    "ends": [5, 9],
    "ones": [1],
    "zeros": [0],
    "four": [4],
}
_MOST_DEPTH = 2
_TRIPS = 3


def random_branches(seed: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of values `float32[4, 8]`, and inputs for it."""
    maker = _Maker(np.random.default_rng(seed))
    nodes: list[onnx.NodeProto] = []
    results = maker.block(nodes, ["x", "z"], 0)
    nodes.append(helper.make_node("Add", [results[-1], results[-2]], ["y"]))
    graph = helper.make_graph(
        nodes, f"branches{seed}", [_port("x"), _port("z")], [_port("y")], initializer=maker.constants
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    inputs = {name: maker.random.standard_normal(_SHAPE, dtype=np.float32) for name in ("x", "z")}
    return model, inputs


def products_by_branch(rows: int, inner: int) -> onnx.ModelProto:
    """x by one weight or by two others, by the sum of x; both are added to what is there in any case."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array((rng.standard_normal((inner, inner)) / np.sqrt(inner)).astype(np.float32), f"w{n}")
        for n in range(3)
    ]
    header = f'<ir_version: 10, opset_import: ["": 21]> test (float[{rows}, {inner}] x) => (float[{rows}, {inner}] y)'
    model = onnx.parser.parse_model(f"""{header} {{
        zero = Constant<value_float = 0.0>() axes = Constant<value_ints = [0, 1]>()
        s = ReduceSum<keepdims = 0>(x, axes) c = Greater(s, zero) t = Tanh(x)
        z = If (c) <
            then_branch = one () => (float[{rows}, {inner}] a) {{ a = MatMul(t, w0) }},
            else_branch = two () => (float[{rows}, {inner}] b) {{ h = MatMul(t, w1) r = Relu(h) b = MatMul(r, w2) }}
        >
        y = Add(z, t)
    }}""")
    model.graph.initializer.extend(weights)
    return model


def layer_in_a_branch(batch: int, hidden: int = 32, steps: int = 5) -> onnx.ModelProto:
    """An LSTM layer in one branch, by the sum of its input; its weights are used once more behind it."""
    rng = np.random.default_rng(0)
    shape = f"float[{steps}, {batch}, {hidden}]"
    header = f'<ir_version: 10, opset_import: ["": 21]> test ({shape} x) => ({shape} y)'
    model = onnx.parser.parse_model(f"""{header} {{
        zero = Constant<value_float = 0.0>() s = ReduceSum<keepdims = 0>(x) c = Greater(s, zero)
        axes = Constant<value_ints = [1]>()
        z = If (c) <
            then_branch = layer () => ({shape} a) {{
                h = LSTM<hidden_size = {hidden}>(x, w, r) a = Squeeze(h, axes)
            }},
            else_branch = none () => ({shape} b) {{ b = Neg(x) }}
        >
        g = LSTM<hidden_size = {hidden}>(z, w, r) y = Squeeze(g, axes)
    }}""")
    for name in ("w", "r"):
        weight = rng.standard_normal((1, 4 * hidden, hidden), dtype=np.float32) / np.float32(np.sqrt(hidden))
        model.graph.initializer.append(numpy_helper.from_array(weight, name))
    return model


def _port(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, _SHAPE)


def _bool(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.BOOL, ())


class _Maker:
    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self.constants = [
            numpy_helper.from_array(np.array(_TRIPS, np.int64), "trips"),
            numpy_helper.from_array(np.array([0, 1], np.int64), "axes"),
        ]
        for name, numbers in _NUMBERS.items():
            self.constants.append(numpy_helper.from_array(np.array(numbers, np.int64), name))
        for number in range(2):
            weight = random.standard_normal((8, 8), dtype=np.float32) / 4
            self.constants.append(numpy_helper.from_array(weight, f"w{number}"))
        self._count = 0

    def block(self, nodes: list[onnx.NodeProto], scope: Sequence[str], depth: int) -> list[str]:
        """Add some nodes behind the values of a scope; the values that there are then."""
        known = list(scope)
        for _ in range(int(self.random.integers(2, 5))):
            kind = self.random.choice(["MatMul", "Tanh", "Mul", "Sub", "Roll", "Turn", "Pad", "If", "If", "If", "Loop"])
            if kind in ("If", "Loop") and depth == _MOST_DEPTH:
                kind = "MatMul"
            known.append(self._node(nodes, known, str(kind), depth))
        return known

    def _name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def _node(self, nodes: list[onnx.NodeProto], known: Sequence[str], kind: str, depth: int) -> str:
        a, b = (known[int(self.random.integers(len(known)))] for _ in range(2))
        result = self._name()
        if kind == "If":
            node = helper.make_node("If", [self._condition(nodes, a)], [result])
            for name in ("then_branch", "else_branch"):
                node.attribute.append(helper.make_attribute(name, self._branch(known, depth)))
            nodes.append(node)
        elif kind == "Loop":
            body = self._body(known, depth)
            nodes.append(helper.make_node("Loop", ["trips", self._condition(nodes, a), b], [result], body=body))
        elif kind in ("Roll", "Turn", "Pad"):
            self._move(nodes, kind, a, result)
        else:
            operands = {"MatMul": [a, f"w{self.random.integers(2)}"], "Tanh": [a]}.get(kind, [a, b])
            nodes.append(helper.make_node(kind, operands, [result]))
        return result

    def _move(self, nodes: list[onnx.NodeProto], kind: str, value: str, result: str) -> None:
        """The elements of a value in other places: rows rolled, read by columns, or moved with zeros behind."""
        first, second = self._name(), self._name()
        if kind == "Turn":
            nodes.append(helper.make_node("Transpose", [value], [first]))
            nodes.append(helper.make_node("Reshape", [first, "shape"], [result]))
        elif kind == "Pad":
            nodes.append(helper.make_node("Pad", [value, "margins"], [first]))
            nodes.append(helper.make_node("Slice", [first, "starts", "ends"], [result]))
        else:
            nodes.append(helper.make_node("Slice", [value, "ones", "four", "zeros"], [first]))
            nodes.append(helper.make_node("Slice", [value, "zeros", "ones", "zeros"], [second]))
            nodes.append(helper.make_node("Concat", [first, second], [result], axis=0))

    def _condition(self, nodes: list[onnx.NodeProto], value: str) -> str:
        """Whether the sum of a value is greater than some number."""
        total, limit, condition = self._name(), self._name(), self._name()
        self.constants.append(numpy_helper.from_array(np.array(self.random.normal(), np.float32), limit))
        nodes.append(helper.make_node("ReduceSum", [value, "axes"], [total], keepdims=0))
        nodes.append(helper.make_node("Greater", [total, limit], [condition]))
        return condition

    def _branch(self, known: Sequence[str], depth: int) -> onnx.GraphProto:
        nodes: list[onnx.NodeProto] = []
        self.block(nodes, known, depth + 1)
        (result,) = nodes[-1].output
        return helper.make_graph(nodes, self._name(), [], [_port(result)])

    def _body(self, known: Sequence[str], depth: int) -> onnx.GraphProto:
        number, going, value = self._name(), self._name(), self._name()
        nodes: list[onnx.NodeProto] = []
        result = self.block(nodes, [*known, value], depth + 1)[-1]
        again = self._condition(nodes, result)
        inputs = [helper.make_tensor_value_info(number, TensorProto.INT64, ()), _bool(going), _port(value)]
        return helper.make_graph(nodes, self._name(), inputs, [_bool(again), _port(result)])
