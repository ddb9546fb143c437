"""Models with recurrent layers and loops, each with inputs and what ONNX Runtime makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[np.generic]
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def layer(
    kind: str,
    steps: int,
    *,
    batch: int = 2,
    width: int = 2,
    hidden: int = 3,
    direction: str = "forward",
    initial: bool = False,
    lengths: Sequence[int] = (),
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A recurrent layer with all its outputs, between a `Neg` and a `Tanh`."""
    rng = np.random.default_rng(steps)
    directions, rows = 2 if direction == "bidirectional" else 1, _GATES[kind] * hidden
    states = "hc" if kind == "LSTM" else "h"

    def normal(*shape: int, scale: float = 0.5) -> Array:
        return np.asarray(scale * rng.standard_normal(shape), np.float32)

    weights = {"w": (rows, width), "r": (rows, hidden), "b": (2 * rows,)}
    # Small enough for sums of any length to forget what they began with: differences do not grow from step to step.
    constants = [
        numpy_helper.from_array(normal(directions, *shape, scale=0.5 / shape[-1] ** 0.5), name)
        for name, shape in weights.items()
    ]
    inputs: dict[str, Array] = {"x": normal(steps, batch, width)}
    operands = ["negative", "w", "r", "b", "", *([""] * len(states) if not initial else states)]
    if initial:
        inputs |= {state: normal(directions, batch, hidden) for state in states}
    if lengths:
        operands[4] = "lengths"
        inputs["lengths"] = np.array(lengths, np.int32)
    outputs = ["y", *(f"last_{state}" for state in states)]
    nodes = [
        helper.make_node("Neg", ["x"], ["negative"]),
        helper.make_node(kind, operands, outputs, hidden_size=hidden, direction=direction, **attributes),
        helper.make_node("Tanh", ["y"], ["z"]),
    ]
    return model(nodes, inputs, ["z", *outputs[1:]], constants), inputs


def stack(steps: int, layers: int, *, bidirectional: bool = False) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """LSTM layers on top of each other, every second one in both directions if `bidirectional`."""
    rng = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    constants = [numpy_helper.from_array(np.array([0, 0, -1]), "shape")]
    value, width, hidden = "x", 2, 3
    for number in range(layers):
        directions = 1 + (bidirectional and number % 2)
        for name, shape in (("w", (4 * hidden, width)), ("r", (4 * hidden, hidden))):
            array = np.asarray(0.5 * rng.standard_normal((directions, *shape)), np.float32)
            constants.append(numpy_helper.from_array(array, f"{name}{number}"))
        direction = "bidirectional" if directions == 2 else "forward"
        operands = [value, f"w{number}", f"r{number}"]
        nodes += [
            helper.make_node("LSTM", operands, [f"y{number}"], hidden_size=hidden, direction=direction),
            helper.make_node("Transpose", [f"y{number}"], [f"t{number}"], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", [f"t{number}", "shape"], [f"v{number}"]),
        ]
        value, width = f"v{number}", directions * hidden
    inputs: dict[str, Array] = {"x": np.asarray(rng.standard_normal((steps, 2, 2)), np.float32)}
    return model(nodes, inputs, [value], constants), inputs


def scan(
    trips: int, *, axis: int = 0, backward: Sequence[bool] = (False, False)
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A scan of two inputs along an axis, which carries a value, and reads one from around it.

    Args:
        trips: how many.
        axis: of the inputs and the output.
        backward: the directions of the first input and of the output; the second input goes forwards.
    """
    shape = f"{trips}, 3" if axis == 0 else f"3, {trips}"
    text = f"""
        <ir_version: 10, opset_import: ["": 21]>
        scanned (float[3] s, float[{shape}] x, float[{shape}] v, float[3] u) => (float[3] last, float[{shape}] rows) {{
            twice = Add(u, u)
            last, rows = Scan <
                num_scan_inputs = 2, scan_input_axes = [{axis}, {axis}], scan_output_axes = [{axis}],
                scan_input_directions = [{int(backward[0])}, 0], scan_output_directions = [{int(backward[1])}],
                body = trip (float[3] before, float[3] a, float[3] b) => (float[3] after, float[3] row) {{
                    half = Constant<value_float = 0.5>() c = Mul(before, half) d = Mul(a, b) e = Add(c, d)
                    after = Add(e, twice) row = Sin(after)
                }}
            > (s, x, v)
        }}
    """
    rng = np.random.default_rng(trips)
    whole = (trips, 3) if axis == 0 else (3, trips)
    shapes = {"s": (3,), "x": whole, "v": whole, "u": (3,)}
    return onnx.parser.parse_model(text), {
        name: np.asarray(rng.standard_normal(shape), np.float32) for name, shape in shapes.items()
    }


def loop(trips: int, *, again: str = "again = Identity(go)", row: bool = True) -> onnx.ModelProto:
    """A loop that reads the number of its trip and a value around it; input x, float32 `[3]`.

    Args:
        trips: how many.
        again: nodes that compute whether there is another one.
        row: whether it stacks a result.
    """
    kept, given = ("y, rows", f", float[{trips}, 3] rows") if row else ("y", "")
    more, nodes = (", float[3] row", "row = Sin(w)") if row else ("", "")
    return onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 21]>
        looped (float[3] x) => (float[3] y{given}) {{
            n = Constant<value_int = {trips}>() t = Constant<value = bool {{1}}>() around = Cos(x)
            {kept} = Loop (n, t, x) <
                body = trip (int64 i, bool go, float[3] v) => (bool again, float[3] w{more}) {{
                    half = Constant<value_float = 0.5>() f = Cast<to = 1>(i) g = Sin(f) h = Mul(v, half)
                    k = Add(g, h) w = Add(k, around) {nodes} {again}
                }}
            >
        }}
    """)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Array],
    outputs: Sequence[str],
    constants: Sequence[onnx.TensorProto],
) -> onnx.ModelProto:
    """A model of float32 outputs, whose shapes are left to the operators."""
    taken = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(list(nodes), "loops", taken, given, list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
