"""Quantised operators against ONNX Runtime: integer sums are equal, what is rounded differs by a quantum at most."""

import numpy as np
import pytest
from onnx import helper

import rammer
from rammer.errors import UnsupportedFeatureError
from rammer.frontends.onnx import load_graph
from tests.support.onnx_node import run_node
from tests.support.onnx_reference import evaluate_model, model_of

RNG = np.random.default_rng(0)


def integers(dtype, *shape):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def scales(*shape):
    return RNG.uniform(0.01, 0.1, shape).astype(np.float32)


def run(op_type, inputs, outputs=1, opset=22, run=evaluate_model, **attributes):
    """The node's outputs by Rammer and by ONNX Runtime; an input that is None is left out."""
    expected = run_node(op_type, inputs, outputs, attributes, opset)
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    given = {name: x for name, x in zip(names, inputs, strict=True) if x is not None}
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, results, **attributes)
    found = run(model_of([node], given, results, opset=opset), list(given.values()))
    assert [y.dtype for y in found] == [y.dtype for y in expected]
    return found, expected


def check_quanta(found, expected):
    difference = np.abs(found.astype(np.int32) - expected.astype(np.int32))
    assert difference.max(initial=0) <= 1
    assert (difference > 0).mean() < 0.01


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
@pytest.mark.parametrize("axis", [None, 1, -1])
def test_numbers_to_integers_and_back(dtype, axis):
    x = RNG.normal(0, 3, (3, 4, 5)).astype(np.float32)
    shape = () if axis is None else (x.shape[axis],)
    scale, zero = scales(*shape), integers(dtype, *shape)
    attributes = {} if axis is None else {"axis": axis}
    (found,), (expected,) = run("QuantizeLinear", [x, scale, zero], **attributes)
    np.testing.assert_array_equal(found, expected)
    (found,), (expected,) = run("DequantizeLinear", [expected, scale, zero], **attributes)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("extent", [8, 7])
def test_blocks(extent):
    x, scale = RNG.normal(0, 3, (2, extent, 3)).astype(np.float32), scales(2, 4, 3)
    node = helper.make_node("QuantizeLinear", ["x", "s"], ["y"], axis=1, block_size=2, output_dtype=3)
    (found,) = evaluate_model(model_of([node], {"x": x, "s": scale}, ["y"], opset=22), [x, scale])
    spread = np.repeat(scale, 2, axis=1)[:, :extent]
    np.testing.assert_array_equal(found, np.clip(np.rint(x / spread), -128, 127).astype(np.int8))


@pytest.mark.parametrize("scale", [1.0, 0.0, -5.0])
def test_the_range_of_numbers_decides(scale):
    x = (RNG.uniform(-1, 3, (4, 5)) * scale).astype(np.float32)
    (found, *rest), (expected, *others) = run("DynamicQuantizeLinear", [x], outputs=3)
    check_quanta(found, expected)
    for ours, theirs in zip(rest, others, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("b_type", [np.uint8, np.int8])
@pytest.mark.parametrize("zeros", [(), (4,)])
def test_matmul_integer(b_type, zeros):
    a, b = integers(np.uint8, 2, 3, 300), integers(b_type, 300, 4)
    inputs = [a, b, integers(np.uint8), integers(b_type, *zeros)]
    (found,), (expected,) = run("MatMulInteger", inputs)
    np.testing.assert_array_equal(found, expected)


def test_zero_points_for_each_row():
    a, b, zero = integers(np.uint8, 3, 5), integers(np.uint8, 5, 2), integers(np.uint8, 3)
    node = helper.make_node("MatMulInteger", ["a", "b", "z"], ["y"])
    (found,) = evaluate_model(model_of([node], {"a": a, "b": b, "z": zero}, ["y"]), [a, b, zero])
    np.testing.assert_array_equal(found, (a.astype(np.int32) - zero[:, None]) @ b.astype(np.int32))


@pytest.mark.parametrize("columns", [(), (4,)])
def test_qlinear_matmul(columns):
    a, b = integers(np.uint8, 2, 3, 30), integers(np.int8, 30, 4)
    inputs = [a, scales(), integers(np.uint8), b, scales(*columns), integers(np.int8, *columns)]
    inputs += [np.array(3.0, np.float32), integers(np.uint8)]
    (found,), (expected,) = run("QLinearMatMul", inputs)
    check_quanta(found, expected)


CONV = {"pads": [1, 0, 1, 1], "strides": [2, 1], "group": 2}


def test_conv_integer():
    x, w = integers(np.uint8, 2, 4, 6, 5), integers(np.uint8, 6, 2, 3, 3)
    (found,), (expected,) = run("ConvInteger", [x, w, integers(np.uint8), integers(np.uint8)], **CONV)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("group", [1, 4])
def test_convolutions_by_weights_of_uint8_on_the_processor(group):
    """As the dynamic quantiser makes them: the zero point of the weights lies beside 128, that of x is computed."""
    x, w = integers(np.uint8, 1, 16, 9, 9), integers(np.uint8, 32, 16 // group, 3, 3)
    attributes = {"pads": [1, 1, 1, 1], "group": group}
    expected = run_node("ConvInteger", [x, w, np.array(99, np.uint8), np.array(117, np.uint8)], 1, attributes, 22)[0]
    node = helper.make_node("ConvInteger", ["x", "w", "xz", "wz"], ["c"], **attributes)
    nodes = [node, helper.make_node("Cast", ["c"], ["y"], to=1)]
    constants = {"w": w, "wz": np.array(117, np.uint8)}
    model = model_of(nodes, {"x": x, "xz": np.array(99, np.uint8)}, ["y"], constants=constants, opset=22)
    found = rammer.compile(model, "cpu", veus=2)(x, np.array(99, np.uint8))
    np.testing.assert_array_equal(found, expected.astype(np.float32))


@pytest.mark.parametrize("kernels", [(), (6,)])
@pytest.mark.parametrize("bias", [True, False])
def test_qlinear_conv(kernels, bias):
    x, w = integers(np.uint8, 2, 4, 6, 5), integers(np.int8, 6, 2, 3, 3)
    zeros = np.zeros(kernels, np.int8)
    inputs = [
        x,
        scales(),
        integers(np.uint8),
        w,
        scales(*kernels),
        zeros,
        np.array(0.5, np.float32),
        integers(np.uint8),
    ]
    inputs += [RNG.integers(-5000, 5000, 6).astype(np.int32)] if bias else []
    (found,), (expected,) = run("QLinearConv", inputs, **CONV)
    check_quanta(found, expected)


def test_a_quantised_network_on_the_processor():
    """Weights and activations quantised and dequantised, as quantisers write it."""
    x, w = RNG.normal(size=(2, 3, 8, 8)).astype(np.float32), integers(np.int8, 4, 3, 3, 3)
    constants = {"w": w, "ws": scales(4), "wz": np.zeros(4, np.int8), "xs": np.float32(0.03), "xz": np.uint8(120)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["dw"], axis=0),
        helper.make_node("Conv", ["d", "dw"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "xs", "xz"], ["y"]),
    ]
    model = model_of(nodes, {"x": x}, ["y"], constants=constants, opset=22)
    y = rammer.compile(model, "cpu", veus=1)(x)
    (expected,) = evaluate_model(model, [x])
    check_quanta(y, expected)


def test_a_type_that_nothing_is_quantised_to():
    node = helper.make_node("QuantizeLinear", ["x", "s"], ["y"], output_dtype=7)
    with pytest.raises(UnsupportedFeatureError, match="int64"):
        load_graph(model_of([node], {"x": np.ones(3, np.float32), "s": np.ones((), np.float32)}, ["y"], opset=23))
