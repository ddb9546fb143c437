"""Behind activations that give nothing negative, ranges that are found as a model runs begin at 0."""

import numpy as np
import onnx.parser
import onnxruntime
import pytest

import rammer
from rammer.ir.evaluate import evaluate_graph
from rammer.ir.types import DType
from rammer.passes import eliminate_dead, fold_constants, known_ranges
from rammer.verify.graph import verify
from tests.support.passes import Net

RNG = np.random.default_rng(0)


def dynamically_quantised(net, x, axes):
    """As the frontend reads `DynamicQuantizeLinear`: integers, scale and zero point."""
    zero, steps = (net.constant(np.array(value, np.float32)) for value in (0, 255))
    least = net.add("Min", net.add("ReduceMin", x, axes=axes, keepdims=False), zero)
    greatest = net.add("Max", net.add("ReduceMax", x, axes=axes, keepdims=False), zero)
    spread = net.add("Sub", greatest, least)
    spread = net.add("Where", net.add("Equal", spread, zero), steps, spread)
    scale = net.add("Div", spread, steps)
    quanta = net.add("Clip", net.add("Div", net.add("Neg", least), scale), lower=0.0, upper=255.0)
    point = net.add("Cast", net.add("Round", quanta), to=DType.UINT8)
    moved = net.add("Add", net.add("Round", net.add("Div", x, scale)), net.add("Cast", point, to=DType.FLOAT32))
    return net.add("Cast", net.add("Clip", moved, lower=0.0, upper=255.0), to=DType.UINT8), scale, point


def quantised(make):
    """A graph that quantises what `make` adds to an input."""
    net = Net()
    x = make(net, net.input(2, 3, 4, 5))
    return net.build(*dynamically_quantised(net, x, (0, 1, 2, 3)))


NEVER_NEGATIVE = {
    "Relu": lambda net, x: net.add("Relu", x),
    "Clip": lambda net, x: net.add("Clip", x, lower=0.0, upper=6.0),
    "Sigmoid": lambda net, x: net.add("Sigmoid", x),
    "Softmax": lambda net, x: net.add("Softmax", x, axis=3),
    "a sum": lambda net, x: net.add("Add", net.add("Relu", x), net.add("Abs", x)),
    "a view": lambda net, x: net.add("Transpose", net.add("Relu", x), perm=(0, 2, 3, 1)),
}
OTHERS = {
    "an input": lambda net, x: x,
    "Clip": lambda net, x: net.add("Clip", x, lower=-1.0, upper=6.0),
    "a sum": lambda net, x: net.add("Add", net.add("Relu", x), x),
    "a difference": lambda net, x: net.add("Sub", net.add("Relu", x), net.add("Abs", x)),
}


def kinds(graph):
    return [operator.kind for operator in eliminate_dead.run(fold_constants.run(graph)).operators]


@pytest.mark.parametrize("make", NEVER_NEGATIVE.values(), ids=NEVER_NEGATIVE)
@pytest.mark.parametrize("sign", [0, 1, -1])
def test_the_least_is_not_looked_for(make, sign):
    graph = quantised(make)
    after = known_ranges.run(graph)
    verify(after)
    assert "ReduceMin" in kinds(graph)
    assert "ReduceMin" not in kinds(after)
    assert "Neg" not in kinds(after)
    x = sign * np.abs(RNG.standard_normal((2, 3, 4, 5))).astype(np.float32)
    for found, wanted in zip(evaluate_graph(after, [x]), evaluate_graph(graph, [x]), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_what_may_be_negative_keeps_its_range(make):
    graph = quantised(make)
    assert kinds(known_ranges.run(graph)) == kinds(graph)
    assert "ReduceMin" in kinds(graph)


def test_integers_wrap_around():
    """The sum of two that are not negative may be, and so is the least one's absolute value."""
    net = Net()
    x = net.input(4, dtype=DType.INT8)
    zero = net.constant(np.zeros((), np.int8))
    y = net.add("Abs", x)
    least = net.add("Min", net.add("ReduceMin", y, axes=(0,), keepdims=False), zero)
    greatest = net.add("Max", net.add("ReduceMax", y, axes=(0,), keepdims=False), zero)
    graph = net.build(net.add("Sub", greatest, least))
    assert kinds(known_ranges.run(graph)) == kinds(graph)


def test_a_least_that_is_read_by_itself_may_be_no_number():
    net = Net()
    x = net.add("Relu", net.input(4))
    least = net.add("Min", net.add("ReduceMin", x, axes=(0,), keepdims=False), net.constant(np.zeros((), np.float32)))
    graph = net.build(least)
    assert kinds(known_ranges.run(graph)) == kinds(graph)


def test_another_clipping_is_no_zero_point():
    """-0 clipped from 3 on is 3."""
    net = Net()
    x = net.add("Relu", net.input(4))
    least = net.add("Min", net.add("ReduceMin", x, axes=(0,), keepdims=False), net.constant(np.zeros((), np.float32)))
    quanta = net.add("Clip", net.add("Div", net.add("Neg", least), net.input()), lower=3.0, upper=255.0)
    graph = net.build(net.add("Cast", net.add("Round", quanta), to=DType.UINT8))
    inputs = [np.ones(4, np.float32), np.ones((), np.float32)]
    for one in (graph, known_ranges.run(graph)):
        assert [int(array) for array in evaluate_graph(one, inputs)] == [3]


@pytest.mark.parametrize("sign", [0, 1, -1])
def test_convolutions_behind_activations_are_those_of_onnx_runtime(sign):
    """One depthwise, one that is not; sums are exact, so that every bit is the same."""
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 22]>
        dynamic (float[1,8,9,7] x, int8[8,1,3,3] d, int8[16,8,1,1] w)
        => (int32[1,8,9,7] y, int32[1,16,9,7] z, float s) {
            six = Constant<value = float {6}>()
            none = Constant<value = float {0}>()
            r = Clip(x, none, six)
            q, s, p = DynamicQuantizeLinear(r)
            y = ConvInteger<group = 8, pads = [1, 1, 1, 1]>(q, d, p)
            z = ConvInteger(q, w, p)
        }""")
    for name, shape in (("d", (8, 1, 3, 3)), ("w", (16, 8, 1, 1))):
        array = RNG.integers(-127, 128, shape).astype(np.int8)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    del model.graph.input[1:]
    x = sign * np.abs(RNG.standard_normal((1, 8, 9, 7))).astype(np.float32)
    found = rammer.compile(model, "cpu", veus=2).run({"x": x})
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for array, wanted in zip(found.values(), session.run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(array, wanted)
