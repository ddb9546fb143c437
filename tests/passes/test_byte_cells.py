"""LSTM layers by quantised weights: what becomes of them, and how far results move."""

from dataclasses import replace

import numpy as np
import pytest

from rammer.devices.reference.device import describe
from rammer.ir.evaluate import evaluate_graph
from rammer.ir.types import DType
from rammer.ir.vdevice import ByteProducts
from rammer.options import CompileOptions
from rammer.passes import byte_cells, byte_products, unroll
from rammer.pipelines.compiler import compile_graph
from rammer.verify.graph import verify
from tests.support.passes import Net

WITH = replace(describe(2), byte_products=ByteProducts.QUADS)
TOLERANCE = 0.02
"""Inputs are rounded to 127 steps."""


def layer(
    *, direction="forward", units=16, steps=5, batch=1, by_row=True, turned=True, zero=0, state=0.0, layout=0, **own
):
    random = np.random.default_rng(8)
    net = Net()
    directions = 1 + (direction == "bidirectional")
    x = net.input(*((batch, steps, 6) if layout else (steps, batch, 6)))

    def weights(columns):
        shape = (directions, columns, 4 * units) if turned else (directions, 4 * units, columns)
        integers = net.constant(random.integers(-100, 101, shape).astype(np.int8))
        centred = net.add("Centre", integers, net.constant(np.array(zero, np.int8)))
        scales = (directions, 1, 4 * units) if turned else (directions, 4 * units, 1)
        scale = random.uniform(0.001, 0.004, scales if by_row else (directions, 1, 1)).astype(np.float32)
        numbers = net.add("Mul", net.add("Cast", centred, to=DType.FLOAT32), net.constant(scale))
        return net.add("Transpose", numbers, perm=(0, 2, 1)) if turned else numbers

    whole = (batch, directions, units) if layout else (directions, batch, units)
    first = [net.constant(np.full(whole, value, np.float32)) for value in (state, 0.3)]
    attributes = {"direction": direction, "layout": layout, "activations": (), "input_forget": False, **own}
    operands = (x, weights(6), weights(units), net.weight(directions, 8 * units), *first)
    return net.build(*net.add_all("LSTM", *operands, activation_alpha=(), activation_beta=(), **attributes))


def assert_near(found, wanted, apart):
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), atol=apart)


def inputs_of(graph):
    return [
        np.random.default_rng(2).standard_normal(graph.values[i].type.shape).astype(np.float32) for i in graph.inputs
    ]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"direction": "reverse", "by_row": False},
        {"direction": "bidirectional", "batch": 3},
        {"direction": "bidirectional", "by_row": False, "turned": False, "zero": 3},
        {"activations": ("Sigmoid", "Tanh", "Tanh"), "turned": False, "units": 20},
    ],
)
def test_layers(options):
    graph = layer(**options)
    whole = byte_cells.run(graph, WITH)
    assert {operator.kind for operator in whole.operators} >= {"LSTMOfBytes", "MatMul"}
    after = unroll.run(byte_products.run(whole, WITH))
    verify(after)
    kinds = [operator.kind for operator in after.operators]
    assert kinds.count("LSTMCellOfBytes") == 5 * (1 + (options.get("direction") == "bidirectional"))
    assert "MatMulBytes" in kinds
    inputs = inputs_of(graph)
    for found, wanted in zip(evaluate_graph(after, inputs), evaluate_graph(unroll.run(graph), inputs), strict=True):
        assert_near(found, wanted, TOLERANCE)


def test_states_keep_four_digits():
    """Of inputs that 127 steps hold exactly."""
    graph = layer(units=64, steps=9)
    inputs = [np.random.default_rng(3).integers(-127, 128, (9, 1, 6)).astype(np.float32)]
    inputs[0][0] = 127
    after = unroll.run(byte_cells.run(graph, WITH))
    for found, wanted in zip(evaluate_graph(after, inputs), evaluate_graph(unroll.run(graph), inputs), strict=True):
        assert_near(found, wanted, 2e-4)


@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e6])
def test_inputs_of_any_size(scale):
    graph = layer()
    inputs = [scale * array for array in inputs_of(graph)]
    after = unroll.run(byte_cells.run(graph, WITH))
    for found, wanted in zip(evaluate_graph(after, inputs), evaluate_graph(unroll.run(graph), inputs), strict=True):
        assert np.isfinite(found).all()
        if scale < 1:
            assert_near(found, wanted, 2e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"state": 0.5},
        {"layout": 1},
        {"clip": 3.0},
        {"input_forget": True},
        {"activations": ("HardSigmoid", "Tanh", "Tanh")},
        {"units": 12},
        {"units": 18},
        {"steps": 1},
        {"zero": -60},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_stays_as_it_is(options):
    after = byte_cells.run(layer(**options), WITH)
    assert [operator.kind for operator in after.operators if "LSTM" in operator.kind] == ["LSTM"]


def test_a_device_without_the_instruction_keeps_numbers():
    graph = layer()
    assert byte_cells.run(graph, describe(2)) is graph


def test_on_a_processor():
    graph = layer(units=32, direction="bidirectional")
    (x,) = inputs_of(graph)
    net = compile_graph(graph, CompileOptions(device="cpu", veus=2))
    found = net.run({net.signature.inputs[0].name: x})
    for array, wanted in zip(found.values(), evaluate_graph(unroll.run(graph), [x]), strict=True):
        assert_near(array, wanted, TOLERANCE)
