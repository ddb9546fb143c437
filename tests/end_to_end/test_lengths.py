"""Batches whose sequences differ in length, compiled for the processor, against ONNX Runtime."""

import numpy as np
import pytest
from onnx import helper

import rammer
from tests.frontends.test_microsoft import GROUPS, TOTAL, groups
from tests.support.microsoft_node import model as node_of_microsoft
from tests.support.onnx_reference import Array, check_model, model_of


def compiled(model, inputs):
    net = rammer.compile(model, "cpu", veus=2)
    outputs = net.run({port.name: x for port, x in zip(net.signature.inputs, inputs, strict=True)})
    return list(outputs.values())


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3)])
def test_recurrent_layers(kind, gates):
    rng = np.random.default_rng(0)
    shapes = {"x": (6, 3, 8), "w": (2, gates * 16, 8), "r": (2, gates * 16, 16), "b": (2, 2 * gates * 16)}
    arrays = {name: rng.normal(size=shape).astype(np.float32) / 4 for name, shape in shapes.items()}
    inputs: dict[str, Array] = {"x": arrays.pop("x"), "n": np.array([6, 2, 0], np.int32)}
    node = helper.make_node(kind, list("xwrbn"), ["y", "h"], hidden_size=16, direction="bidirectional", clip=1.0)
    check_model(model_of([node], inputs, ["y", "h"], constants=arrays), inputs, run=compiled)


def test_heads_with_caches():
    inputs = groups(3, 1, 6, [7, 4, 1], 7)
    attributes = {**GROUPS, "do_rotary": 1}
    model, given = node_of_microsoft("GroupQueryAttention", inputs, (True,) * 3, attributes, (TOTAL,))
    check_model(model, given, run=compiled)
