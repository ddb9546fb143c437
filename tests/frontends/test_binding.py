"""Symbolic dimensions are bound by the user or refused with the option to write; declared types must hold."""

import re
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper

import rammer
from rammer.errors import (
    DynamicShapeError,
    InvalidModelError,
    OptionError,
    ShapeDisagreementError,
    TensorSizeError,
)
from rammer.frontends.onnx import load_graph


def add_model(first, second, result=None):
    """`y = a + b` with the given shapes; None: no shape at all."""
    return helper.make_model(
        helper.make_graph(
            [helper.make_node("Add", ["a", "b"], ["y"], name="sum")],
            "g",
            [
                helper.make_tensor_value_info("a", TensorProto.FLOAT, first),
                helper.make_tensor_value_info("b", TensorProto.FLOAT, second),
            ],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )


def shapes(graph):
    return [graph.values[i].type.shape for i in (*graph.inputs, *graph.outputs)]


def test_given_shapes_bind_symbols_everywhere():
    model = add_model(["n", 3], ["n", 1], ["n", 3])
    assert shapes(load_graph(model, input_shapes={"a": (4, 3)})) == [(4, 3), (4, 1), (4, 3)]
    assert shapes(load_graph(model, input_shapes={"b": [0, 1]})) == [(0, 3), (0, 1), (0, 3)]


def test_dimension_without_a_name_and_input_without_a_shape():
    model = add_model([None, 3], None)
    graph = load_graph(model, input_shapes={"a": (2, 3), "b": (1,)})
    assert shapes(graph) == [(2, 3), (1,), (2, 3)]


def test_static_model_needs_nothing():
    assert shapes(load_graph(add_model([2], [2]))) == [(2,), (2,), (2,)]
    assert shapes(load_graph(add_model([2], [2]), input_shapes={"a": (2,)})) == [(2,), (2,), (2,)]


def test_open_dimensions_are_listed_with_the_option_to_write():
    model = add_model(["batch", 3, None], ["batch", 3, 7])
    with pytest.raises(DynamicShapeError) as caught:
        load_graph(model)
    message, hint = caught.value.message, caught.value.hint
    assert "input 'a' float32[batch,3,?] has no value for dimension 0 (batch), 2" in message
    assert "input 'b' float32[batch,3,7] has no value for dimension 0 (batch)" in message
    assert "`--shape a=1,3,1`" in hint  # which gives `batch`, too
    assert "input_shapes={'a': (1, 3, 1)}" in hint
    assert load_graph(model, input_shapes={"a": (1, 3, 1)}).inputs


def test_dimensions_that_have_names_are_asked_for_by_them():
    with pytest.raises(DynamicShapeError) as caught:
        load_graph(add_model(["batch", "n"], ["batch", 1]))
    assert "`--shape batch=1 --shape n=1` or input_shapes={'batch': 1, 'n': 1}" in caught.value.hint
    net = rammer.compile(add_model(["batch", "n"], ["batch", 1]), "reference", input_shapes={"batch": 2, "n": (3,)})
    assert [port.type.shape for port in net.signature.inputs] == [(2, 3), (2, 1)]


def test_input_without_shape_is_open():
    with pytest.raises(DynamicShapeError, match="input 'b' has no declared shape") as caught:
        load_graph(add_model([2], None))
    assert "input_shapes={'b': (1,)}" in caught.value.hint


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": (4, 5)}, "contradicts dimension 1"),
        ({"a": (4,)}, "rank 1"),
        ({"a": (4, -3)}, "negative"),
        ({"a": (4, 3.0)}, "no sequence of integers"),
        ({"a": None}, "no sequence of integers"),
        ({"c": (4, 3)}, "'c', which is no input"),
        ({"a": (4, 3), "b": (5, 1)}, "makes n = 5, but n = 4 from input 'a'"),
    ],
)
def test_shapes_that_do_not_fit(given, message):
    with pytest.raises(OptionError, match=message):
        load_graph(add_model(["n", 3], ["n", 1]), input_shapes=given)


def test_negative_extents():
    with pytest.raises(InvalidModelError, match="'a'"):
        load_graph(add_model([-2], [1]))


@pytest.mark.parametrize("unknown", [-1, "?", "-1"])
def test_extents_that_exporters_know_nothing_of(unknown):
    """As PaddlePaddle's exporter writes them, for extents that differ."""
    model = add_model([unknown, unknown], [1, unknown], [unknown, unknown])
    assert shapes(load_graph(model, input_shapes={"a": (2, 3), "b": (1, 3)})) == [(2, 3), (1, 3), (2, 3)]
    with pytest.raises(DynamicShapeError, match="no value for dimension 0, 1"):
        load_graph(model)


@pytest.mark.parametrize("shape", [[2**50], [2**62, 2**62], [1] * 65])
def test_inputs_that_no_tensor_can_be(shape):
    with pytest.raises(TensorSizeError, match=r"possible|takes") as caught:
        load_graph(add_model(shape, [1]))
    assert "input 'a'" in caught.value.where


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ([2, 4], "dimension 1 differs"),
        ([2], "ranks differ"),
        ([], "ranks differ"),
        (["n", "rows", "m"], "ranks differ"),
        (["rows", 3], "dimension 0 differs: rows = 3 from 'a'"),
    ],
)
def test_what_operators_give_counts_where_another_shape_is_declared(caplog, result, reason):
    """ONNX Runtime takes such models, too: exporters' dynamic axes, and what they say of inner values, may be wrong."""
    graph = load_graph(add_model([2, "rows"], [2, 3], result), input_shapes={"a": (2, 3)})
    assert shapes(graph) == [(2, 3)] * 3
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert all(part in record.getMessage() for part in ("'y'", "its operators give float32[2,3]", reason.split("'")[0]))


@pytest.mark.parametrize("result", [["n", "n"], ["k", "l", "m"]])
def test_names_that_no_input_has_say_nothing(result):
    """PyTorch's TorchScript exporter gives one name to several extents of a result, and may give it too many."""
    graph = load_graph(add_model([2, "rows"], [2, 3], result), input_shapes={"a": (2, 3)})
    assert graph.values[graph.outputs[0]].type.shape == (2, 3)


def test_declared_inner_value_that_disagrees(caplog):
    model = add_model([2], [2])
    model.graph.node.append(helper.make_node("Relu", ["y"], ["z"]))
    model.graph.output[0].name = "z"
    model.graph.value_info.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [3]))
    model.graph.value_info.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 2]))
    load_graph(model)
    (record,) = caplog.records
    assert (
        "declares 'y' as float32[3], its operators give float32[2] (dimension 0 differs), and so of 1 more"
        in record.getMessage()
    )
    model.graph.value_info[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.DOUBLE, [2]))
    with pytest.raises(ShapeDisagreementError, match="element types differ"):
        load_graph(model)


def test_declared_default_that_disagrees():
    model = add_model([2], [2])
    model.graph.initializer.append(helper.make_tensor("b", TensorProto.FLOAT, [1], [1.0]))
    with pytest.raises(ShapeDisagreementError, match="'b'"):
        load_graph(model)


def test_extents_may_be_integers_of_numpy():
    extent: Any = np.int64(2)
    graph = load_graph(add_model(["n"], ["n"], ["n"]), input_shapes={"a": (extent,)})
    assert {type(e) for value in graph.values.values() for e in value.type.shape} == {int}


def test_inputs_that_are_constants():
    model = add_model(["n", 3], ["n", 1])
    graph = load_graph(model, constants={"b": np.array([[1], [2]])})
    assert shapes(graph) == [(2, 3), (2, 3)]
    net = rammer.compile(model, "reference", constants={"b": [[1], [2.5]]})
    np.testing.assert_array_equal(net(np.zeros((2, 3), np.float32)), [[1] * 3, [2.5] * 3])


def test_a_constant_decides_a_branch():
    """The other branch, which does not fit the shapes, is left out; without the constant its error says what to do."""
    body = """
        <ir_version: 8, opset_import: ["" : 17]> g (float[6] x, int64 rate) => (float[N] y) {
            fast = Constant<value = int64 {16000}>()
            is_fast = Equal(rate, fast)
            y = If (is_fast) <
                then_branch = a () => (float[N] u) { u = Neg(x) },
                else_branch = b () => (float[N] v) {
                    shape = Constant<value_ints = [4, 4]>() square = Reshape(x, shape) v = Neg(square) }
            >
        }
    """
    model = onnx.parser.parse_model(body)
    assert shapes(load_graph(model, constants={"rate": np.array(16000)})) == [(6,), (6,)]
    with pytest.raises(InvalidModelError) as caught:
        load_graph(model)
    assert "constants={name: value}" in caught.value.hint


@pytest.mark.parametrize(
    ("constants", "shape", "message"),
    [
        ({"c": 1}, {}, "'c', which is no input"),
        ({"b": "one"}, {}, "holds <U3"),
        ({"b": [[1], [1, 2]]}, {}, "'b'"),
        ({"b": np.zeros((2, 1), np.complex64)}, {}, "complex64"),
        ({"b": [[1, 2]]}, {}, "contradicts dimension 1"),
        ({"b": [[1]]}, {"a": (2, 3)}, "makes n = 1, but n = 2"),
        ({"b": [[1]]}, {"b": (1, 1)}, "a shape and a constant"),
    ],
)
def test_constants_that_do_not_fit(constants, shape, message):
    with pytest.raises(OptionError, match=re.escape(message)):
        rammer.compile(add_model(["n", 3], ["n", 1]), "reference", constants=constants, input_shapes=shape)


@pytest.mark.parametrize("value", [300, 1.5, -129])
def test_constants_of_a_narrow_type(value):
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]> g (int8[2] x, int8 k) => (int8[2] y) { y = Add(x, k) }
    """)
    with pytest.raises(OptionError, match="that int8 does not"):
        load_graph(model, constants={"k": np.array(value)})
    assert shapes(load_graph(model, constants={"k": np.array(-128)})) == [(2,), (2,)]
