"""What follows from shapes and small constants is computed during import and leaves no trace in the graph."""

from typing import Any

import numpy as np
import pytest
from onnx import helper

from rammer.errors import UnsupportedFeatureError
from rammer.frontends.onnx import load_graph
from tests.support.onnx_reference import check_model, model_of

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def node(op_type, inputs, outputs, **attributes):
    return helper.make_node(op_type, inputs.split(), outputs.split(), **attributes)


def integers(*values):
    return np.array(values, dtype=np.int64)


def kinds(model):
    return [operator.kind for operator in load_graph(model).operators]


def test_shape_arithmetic_of_exporters():
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "batch"),
        node("Gather", "shape one", "rows"),
        node("Mul", "rows two", "doubled"),
        node("Unsqueeze", "batch axis", "b"),
        node("Unsqueeze", "doubled axis", "r"),
        node("Concat", "b r minus", "target", axis=0),
        node("Cast", "target", "wide", to=7),
        node("Reshape", "x wide", "y"),
    ]
    constants = {
        "zero": np.array(0),
        "one": np.array(1),
        "two": np.array(2),
        "axis": integers(0),
        "minus": integers(-1),
    }
    model = model_of(nodes, {"x": X}, ["y"], constants=constants)
    graph = load_graph(model)
    assert [operator.kind for operator in graph.operators] == ["Reshape"]
    assert graph.constants == {}
    assert graph.values[graph.outputs[0]].type.shape == (2, 6, 2)
    check_model(model, {"x": X})


def test_shape_of_a_computed_value_is_known():
    nodes = [node("Transpose", "x", "t"), node("Shape", "t", "s"), node("Reshape", "x s", "y")]
    model = model_of(nodes, {"x": X}, ["y"])
    check_model(model, {"x": X})
    assert kinds(model) == ["Transpose", "Reshape"]


def test_ranges_masks_and_comparisons_fold():
    nodes = [
        node("Shape", "x", "s", start=-1),
        node("Squeeze", "s", "n"),
        node("Range", "zero n one", "positions"),
        node("Less", "positions two", "early"),
        node("Where", "early low high", "bias"),
        node("Add", "x bias", "y"),
    ]
    constants: dict[str, Any] = {
        "zero": np.array(0),
        "one": np.array(1),
        "two": np.array(2),
        "low": np.float32(-1),
        "high": np.float32(1),
    }
    model = model_of(nodes, {"x": X}, ["y"], constants=constants)
    graph = load_graph(model)
    assert [operator.kind for operator in graph.operators] == ["Add"]
    assert [array.tolist() for array in graph.constants.values()] == [[-1, -1, 1, 1]]
    check_model(model, {"x": X})


def test_large_constants_are_left_to_the_passes():
    model = model_of(
        [node("Neg", "w", "m"), node("Add", "x m", "y")],
        {"x": X},
        ["y"],
        constants={"w": np.ones((5000, 1, 1, 1), np.float32)},
    )
    assert kinds(model) == ["Neg", "Add"]
    model = model_of(
        [node("Expand", "w shape", "m"), node("Add", "x m", "y")],
        {"x": X},
        ["y"],
        constants={"w": np.float32(1), "shape": integers(5000, 1, 1, 1)},
    )
    assert kinds(model) == ["Expand", "Add"]


def test_constants_enter_the_graph_once_and_only_if_read():
    model = model_of(
        [node("Add", "x w", "a"), node("Mul", "a w", "y")],
        {"x": X},
        ["y"],
        constants={"w": np.float32(3), "unused": X},
    )
    graph = load_graph(model)
    assert [graph.values[i].name for i in graph.constants] == ["w"]
    assert sorted(graph.values) == list(range(len(graph.values)))


def test_operators_that_do_nothing_disappear():
    nodes = [
        node("Identity", "x", "a"),
        node("Dropout", "a", "b"),
        node("Cast", "b", "c", to=1),
        node("Concat", "c", "d", axis=1),
        node("Sum", "d", "e"),
        node("Transpose", "e", "f", perm=[0, 1, 2]),
        node("Slice", "f start end", "g"),
        node("Relu", "g", "y"),
    ]
    constants = {"start": integers(0, 0), "end": integers(2**62, 3)}
    model = model_of(nodes, {"x": X}, ["y"], constants=constants)
    assert kinds(model) == ["Relu"]
    check_model(model, {"x": X})


@pytest.mark.parametrize(
    ("operator", "inputs", "given", "name"),
    [
        ("Reshape", "x shape", integers(6, 4), "shape"),
        ("Expand", "x shape", integers(2, 3, 4), "shape"),
        ("Tile", "x repeats", integers(1, 1, 2), "repeats"),
        ("ReduceSum", "x axes", integers(0), "axes"),
        ("Unsqueeze", "x axes", integers(0), "axes"),
        ("Squeeze", "x axes", integers(0), "axes"),
        ("CumSum", "x axis", np.array(0), "axis"),
        ("Pad", "x pads", integers(*[1] * 6), "pads"),
        ("ConstantOfShape", "shape", integers(2, 3), "input"),
    ],
)
def test_operand_that_is_not_known(operator, inputs, given, name):
    name_in_model = inputs.split()[-1]
    model = model_of([node("Relu", "x", "y")], {"x": X, name_in_model: given}, ["y"], opset=18)
    model.graph.node[0].CopyFrom(helper.make_node(operator, inputs.split(), ["y"], name="here"))
    with pytest.raises(UnsupportedFeatureError, match=f"input '{name}' is computed as the model runs") as caught:
        load_graph(model)
    assert f"{operator} node 'here'" in caught.value.where
    assert "constants" in caught.value.hint
