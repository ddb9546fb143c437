"""Loops that are not over lanes stay as they are: gcc makes wrong vector code of some, see `rammer_kernel.h`."""

import re

import numpy as np
import pytest
from onnx import helper

import rammer
from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.options import CompileOptions
from rammer.pipelines.planning import plan_graph
from tests.support.random_graphs import random_model
from tests.support.small_models import FLOAT, small_model


@pytest.mark.parametrize("width", [2, 3, 4])
def test_groups_of_conditional_loads(width: int) -> None:
    """The rows of a padded matrix multiply each other, so that one condition guards the loads of a row."""
    nodes = [
        helper.make_node("Pad", ["x", "pads", "value"], ["p"]),
        helper.make_node("Transpose", ["p"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["p", "t"], ["y"]),
    ]
    constants = {"pads": np.array([2, 0, 1, 0]), "value": np.array(0.5, np.float32)}
    model = small_model(nodes, {"x": (FLOAT, (3, width))}, {"y": (FLOAT, (6, 6))}, constants)
    x = np.arange(3 * width, dtype=np.float32).reshape(3, width)
    padded = np.pad(x, [(2, 1), (0, 0)], constant_values=0.5)
    np.testing.assert_array_equal(rammer.compile(model, "cpu", veus=1)(x), padded @ padded.T)


def test_every_loop_is_over_lanes_or_in_order() -> None:
    options, device = CompileOptions(veus=2), find_device("cpu")
    loops = 0
    for seed in range(12):
        vdevice = device.describe(options)
        source = device.emit(plan_graph(load_graph(random_model(seed)[0]), vdevice, options), vdevice)
        kernels = [bytes(text).decode() for name, text in source.files.items() if name.endswith(".c")]
        for text in kernels:
            for before, after in re.findall(r"(.*)\n *for \(.*\n(.*)", text):
                loops += 1
                assert ("RAMMER_LANES" in before) != ("RAMMER_IN_ORDER;" in after), text
    assert loops > 100
