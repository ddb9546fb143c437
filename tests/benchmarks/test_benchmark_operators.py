"""The benchmark of single operators: its models are what they say, and floors are the machine's."""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from benchmarks.harness import single
from benchmarks.harness.single import SINGLES, Single
from benchmarks.operators import floor
from rammer.ir.vdevice import Figure
from tests.support.kernels import machine


@pytest.mark.parametrize("name", SINGLES)
def test_models_have_the_shapes_that_they_declare(name):
    for case in SINGLES[name]().cases:
        onnx.shape_inference.infer_shapes(case.model, strict_mode=True)
        assert set(case.inputs) == {value.name for value in case.model.graph.input}
        assert all(array.ctypes.data % 64 == 0 for array in case.inputs.values())


@pytest.mark.parametrize("name", ["_conv", "_transposed", "_pool"])
def test_both_forms_of_an_image_compute_the_same(name):
    builders = {
        "_conv": lambda: single._conv(4, 9, 4, 3, stride=2, group=4),
        "_transposed": lambda: single._transposed(3, 4, 5, 4, 2),
        "_pool": lambda: single._pool("MaxPool", 3, 9, 3, 2),
    }
    planes, channels_last = builders[name]().cases
    (x,) = channels_last.inputs.values()
    last: Any = ReferenceEvaluator(channels_last.model).run(None, {"x": x})
    plain: Any = ReferenceEvaluator(planes.model).run(None, {"x": x.transpose(0, 3, 1, 2)})
    np.testing.assert_allclose(last[0].transpose(0, 3, 1, 2), plain[0], rtol=1e-5, atol=1e-6)


def test_operations_and_traffic_of_a_convolution():
    found = single._conv(8, 10, 16, 3, stride=2)
    assert found.flops == 2 * 5 * 5 * 16 * 8 * 9
    assert found.traffic_bytes == 4 * (8 * 100 + 16 * 8 * 9 + 16 * 25)


def of(flops, traffic_bytes):
    return Single(name="one", forms={}, flops=flops, traffic_bytes=traffic_bytes)


def test_the_floor_is_the_longer_of_arithmetic_and_traffic():
    two = machine(64, 32, veus=2)
    flops_per_us = next(iter(two.flops_per_us.values())).value
    assert floor(of(round(2 * flops_per_us), 0), two) == (1.0, "arithmetic")
    # Each unit has an L1 of its own; a cache that does not hold its part does not set the floor.
    fits, level = floor(of(0, 2 * (32 << 10)), two)
    assert (fits, level) == ((32 << 10) / 200e3, "L1")
    spills, level = floor(of(0, 2 * (32 << 10) + 2), two)
    assert spills > fits
    assert level == "L2"


def test_units_share_the_bandwidth_that_they_get_together():
    two = machine(64, 32, veus=2)
    *caches, memory = two.levels
    shared = replace(two, levels=(*caches, replace(memory, total_bandwidth_bytes_per_us=Figure(20e3, "a test"))))
    bytes_of_memory = 16 << 20
    assert floor(of(0, bytes_of_memory), two) == (bytes_of_memory / 2 / 15e3, "memory")
    assert floor(of(0, bytes_of_memory), shared) == (bytes_of_memory / 20e3, "memory")
