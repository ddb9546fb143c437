"""ONNX models of a few nodes for tests of what users touch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]
Ports = Mapping[str, tuple[int, Sequence[int | str]]]

FLOAT = TensorProto.FLOAT
WEIGHT = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def small_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Ports,
    outputs: Ports,
    constants: Mapping[str, Array] | None = None,
    name: str = "small",
) -> onnx.ModelProto:
    """A model from nodes; ports are name -> (element type, shape)."""
    graph = helper.make_graph(
        list(nodes),
        name,
        [helper.make_tensor_value_info(key, *port) for key, port in inputs.items()],
        [helper.make_tensor_value_info(key, *port) for key, port in outputs.items()],
        [numpy_helper.from_array(array, key) for key, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def layer_model() -> onnx.ModelProto:
    """y[2,4] = relu(x[2,3] @ WEIGHT)."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], name="product"),
        helper.make_node("Relu", ["product"], ["y"], name="relu"),
    ]
    return small_model(nodes, {"x": (FLOAT, (2, 3))}, {"y": (FLOAT, (2, 4))}, {"w": WEIGHT}, name="layer")


def vectors_model(size: int = 512, pad: int = 8, layers: int = 6, rows: int = 1) -> onnx.ModelProto:
    """y[rows,size] from x[rows,size] by products with two matrices in turn; what the second multiplies is padded."""
    rng = np.random.default_rng(0)
    constants: dict[str, Array] = {
        name: (rng.standard_normal((height, size)) / np.sqrt(size)).astype(np.float32)
        for name, height in (("w", size), ("v", size + 2 * pad))
    }
    constants["pads"] = np.array([0, pad, 0, pad], dtype=np.int64)
    nodes, x = [], "x"
    for layer in range(layers):
        nodes += [
            helper.make_node("MatMul", [x, "w"], [f"product{layer}"]),
            helper.make_node("Tanh", [f"product{layer}"], [f"state{layer}"]),
            helper.make_node("Pad", [f"state{layer}", "pads"], [f"padded{layer}"]),
            helper.make_node("MatMul", [f"padded{layer}", "v"], [f"sum{layer}"]),
            helper.make_node("Tanh", [f"sum{layer}"], [x := f"y{layer}"]),
        ]
    return small_model(nodes, {"x": (FLOAT, (rows, size))}, {x: (FLOAT, (rows, size))}, constants, name="vectors")


def streams_model(size: int = 128, layers: int = 3) -> onnx.ModelProto:
    """y[1,size] from x[1,size] by products with one matrix w[size,size], which is an input as well."""
    nodes, x = [], "x"
    for layer in range(layers):
        nodes += [
            helper.make_node("MatMul", [x, "w"], [f"product{layer}"]),
            helper.make_node("Tanh", [f"product{layer}"], [x := f"y{layer}"]),
        ]
    inputs = {"x": (FLOAT, (1, size)), "w": (FLOAT, (size, size))}
    return small_model(nodes, inputs, {x: (FLOAT, (1, size))}, {}, name="streams")


def states_model(size: int = 256, steps: int = 4, *, apart: bool = False) -> onnx.ModelProto:
    """y[steps,size]: all of the vectors that products of x[1,size] with one matrix give in turn; or each `apart`."""
    w = np.random.default_rng(0).standard_normal((size, size)) / np.sqrt(size)
    nodes, x = [], "x"
    for step in range(steps):
        nodes += [
            helper.make_node("MatMul", [x, "w"], [f"product{step}"]),
            helper.make_node("Tanh", [f"product{step}"], [x := f"state{step}"]),
        ]
    states: Ports = {f"state{step}": (FLOAT, (1, size)) for step in range(steps)}
    nodes.append(helper.make_node("Concat", list(states), ["y"], axis=0))
    results: Ports = states if apart else {"y": (FLOAT, (steps, size))}
    constants = {"w": w.astype(np.float32)}
    return small_model(nodes[:-1] if apart else nodes, {"x": (FLOAT, (1, size))}, results, constants, name="states")


def layer_result(x: Array) -> Array:
    """What `layer_model` gives."""
    return np.maximum(x @ WEIGHT, 0)


def pair_model() -> onnx.ModelProto:
    """total[4] = a[4] + b[4], gap[4] = a - b."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["total"], name="add"),
        helper.make_node("Sub", ["a", "b"], ["gap"], name="subtract"),
    ]
    ports = {"a": (FLOAT, (4,)), "b": (FLOAT, (4,))}
    return small_model(nodes, ports, {"total": (FLOAT, (4,)), "gap": (FLOAT, (4,))}, name="pair")


def scale_model(factor: float, shape: Sequence[int | str] = (4,)) -> onnx.ModelProto:
    """y = x * factor, of any static or symbolic shape."""
    nodes = [helper.make_node("Mul", ["x", "factor"], ["y"], name="scale")]
    constants = {"factor": np.array(factor, np.float32)}
    return small_model(nodes, {"x": (FLOAT, shape)}, {"y": (FLOAT, shape)}, constants, name="scale")


def unary_model(op_type: str, element_type: int, shape: Sequence[int]) -> onnx.ModelProto:
    """y = op_type(x), of the same type and shape."""
    nodes = [helper.make_node(op_type, ["x"], ["y"], name="only")]
    return small_model(nodes, {"x": (element_type, shape)}, {"y": (element_type, shape)}, name=op_type.lower())


def recurrent_model(op_type: str, gates: int, *, batch: int, steps: int = 4, inputs: int = 12) -> onnx.ModelProto:
    """A bidirectional recurrent layer of 20 units and its weights, from zero states: x [steps, batch, inputs]."""
    hidden, rng = 20, np.random.default_rng(0)
    shapes = {"w": (2, gates * hidden, inputs), "r": (2, gates * hidden, hidden), "b": (2, 2 * gates * hidden)}
    constants = {name: rng.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
    node = helper.make_node(op_type, ["x", "w", "r", "b"], ["y"], hidden_size=hidden, direction="bidirectional")
    y = {"y": (FLOAT, (steps, 2, batch, hidden))}
    return small_model([node], {"x": (FLOAT, (steps, batch, inputs))}, y, constants)


def mlp_model(width: int = 64, depth: int = 3) -> onnx.ModelProto:
    """A chain of matrix products and ReLUs with several rTasks in each: x[8,width] to y[8,width]."""
    rng = np.random.default_rng(0)
    nodes, constants, value = [], {}, "x"
    for layer in range(depth):
        constants[f"w{layer}"] = rng.standard_normal((width, width)).astype(np.float32) / np.float32(np.sqrt(width))
        made = "y" if layer == depth - 1 else f"hidden{layer}"
        nodes.append(helper.make_node("MatMul", [value, f"w{layer}"], [f"product{layer}"], name=f"product{layer}"))
        nodes.append(helper.make_node("Relu", [f"product{layer}"], [made], name=f"relu{layer}"))
        value = made
    return small_model(nodes, {"x": (FLOAT, (8, width))}, {"y": (FLOAT, (8, width))}, constants, name="mlp")


def trees_model(rows: int, trees: int = 30, depth: int = 4) -> onnx.ModelProto:
    """Full regression trees: x[rows,4] to y[rows,1]."""
    rng, count = np.random.default_rng(0), (2 << depth) - 1
    inner, node = count // 2, np.tile(np.arange(count), trees)
    first = np.where(node < inner, 2 * node + 1, 0)
    leaf = node >= inner
    attributes = {
        "nodes_treeids": np.repeat(np.arange(trees), count),
        "nodes_nodeids": node,
        "nodes_featureids": rng.integers(0, 4, count * trees),
        "nodes_values": rng.normal(size=count * trees).astype(np.float32),
        "nodes_modes": np.where(leaf, "LEAF", "BRANCH_LEQ"),
        "nodes_truenodeids": first,
        "nodes_falsenodeids": np.where(leaf, 0, first + 1),
        "target_treeids": np.repeat(np.arange(trees), count)[leaf],
        "target_nodeids": node[leaf],
        "target_ids": np.zeros(leaf.sum(), int),
        "target_weights": rng.normal(size=leaf.sum()).astype(np.float32),
    }
    lists = {name: values.tolist() for name, values in attributes.items()}
    forest = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, **lists)
    model = small_model([forest], {"x": (FLOAT, (rows, 4))}, {"y": (FLOAT, (rows, 1))}, {}, name="trees")
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    return model


def rows_model(rows: int = 3, length: int = 3000) -> onnx.ModelProto:
    """y[rows,length] = softmax(x * 2)."""
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["scaled"], name="scale"),
        helper.make_node("Softmax", ["scaled"], ["y"], name="softmax", axis=1),
    ]
    shape = (FLOAT, (rows, length))
    return small_model(nodes, {"x": shape}, {"y": shape}, {"two": np.array(2.0, np.float32)}, name="rows")


def long_row_model() -> onnx.ModelProto:
    """The softmax of one row that is long enough for all threads of a block."""
    node = helper.make_node("Softmax", ["x"], ["y"])
    return small_model([node], {"x": (FLOAT, (1, 6000))}, {"y": (FLOAT, (1, 6000))})


def windows_model(channels: int = 32, size: int = 12) -> onnx.ModelProto:
    """Two depthwise convolutions of 5x5 taps, one after another, between convolutions of single pixels."""
    rng = np.random.default_rng(0)
    shapes = {
        "w0": (channels, 3, 1, 1),
        "d0": (channels, 1, 5, 5),
        "d1": (channels, 1, 5, 5),
        "w1": (4, channels, 1, 1),
    }
    constants = {
        name: (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        for name, shape in shapes.items()
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"]),
        helper.make_node("Conv", ["a", "d0"], ["b"], group=channels, pads=[2] * 4),
        helper.make_node("Conv", ["b", "d1"], ["c"], group=channels, pads=[2] * 4),
        helper.make_node("Conv", ["c", "w1"], ["y"]),
    ]
    ports = {"x": (FLOAT, (1, 3, size, size))}, {"y": (FLOAT, (1, 4, size, size))}
    return small_model(nodes, *ports, constants, name="windows")
