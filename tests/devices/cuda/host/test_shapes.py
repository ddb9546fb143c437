"""Models of several shapes on a GPU: their constants are there once, and calls are padded and cut where arrays lie."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from rammer.devices.codegen.constants import CONSTANTS
from rammer.devices.cuda.arrays import CudaArray, Exchange
from rammer.frontends.dispatch import Example
from rammer.ir.dimensions import Dim
from rammer.ir.types import DType, TensorType
from rammer.pipelines.kinds import compile_dynamic
from tests.support.agreement import run_onnx_runtime
from tests.support.small_models import FLOAT, small_model

WIDTH = 64


def layers(*shape):
    """y = softmax(tanh(x a) b), with two large constants and a small one."""
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 8 for name in "ab"}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"]),
        helper.make_node("Add", ["p", "bias"], ["q"]),
        helper.make_node("Tanh", ["q"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"], axis=-1),
    ]
    initial: dict[str, Any] = {**weights, "bias": rng.standard_normal(WIDTH).astype(np.float32)}
    return small_model(nodes, {"x": (FLOAT, [*shape, WIDTH])}, {"y": (FLOAT, [*shape, WIDTH])}, initial)


def dynamic(gpu, shape, axes, *, buckets=(2, 4), **settings):
    """A model whose axes go from 1 to the last bucket."""
    dims = {axis: Dim(name=f"d{axis}", low=1, high=buckets[-1], buckets=buckets) for axis in axes}
    options = gpu.options(**settings)
    return compile_dynamic(layers(*shape), options, Example(), {"x": dims}, "ahead")


@pytest.fixture
def resident(monkeypatch):
    """Makes an array of the GPU of one of the host."""
    seen = Exchange.view

    def view(self, array, stream):
        if isinstance(array, CudaArray):
            return array.address, array.dtype, array.shape, None, True
        return seen(self, array, stream)

    monkeypatch.setattr(Exchange, "view", view)

    def place(net, array):
        loaded = next(iter(net.programs.programs.values()))._loaded
        found = loaded.room(TensorType(DType.of(array), array.shape))(1)
        loaded.fill(found.address, array)
        return found

    return place


def constants_of(net):
    """What each program has on the GPU."""
    return [program._loaded._model()._constants for program in net.programs.programs.values()]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_constants_are_there_once(gpu, precision):
    net = dynamic(gpu, ("n",), (0,), buckets=(2, 3), precision=precision)
    x = np.random.default_rng(1).standard_normal((3, WIDTH)).astype(np.float32)
    tolerance = {"fp32": 1e-5, "fp16": 2e-3}[precision]
    for rows in (1, 2, 3):
        (expected,) = run_onnx_runtime(layers(rows), {"x": x[:rows]})
        np.testing.assert_allclose(net(x[:rows]), expected, atol=tolerance)
    first, second = constants_of(net)
    large = [name for name in first._blocks if name != CONSTANTS]
    assert len(large) == 2
    assert all(first._places[name] == second._places[name] for name in large)
    assert first.segment == second.segment
    assert not second.added_bytes
    copy = net.clone()
    np.testing.assert_array_equal(copy(x), net(x))


def test_some_constants_are_those_of_other_programs(gpu):
    """Products of three rows and of four have their weights in another layout, but rows are taken from one table."""

    def model(rows):
        rng = np.random.default_rng(0)
        nodes = [
            helper.make_node("Gather", ["table", "x"], ["rows"]),
            helper.make_node("MatMul", ["rows", "a"], ["y"]),
        ]
        weights = {name: rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) for name in ("table", "a")}
        return small_model(nodes, {"x": (TensorProto.INT64, [rows])}, {"y": (FLOAT, [rows, WIDTH])}, weights)

    dims = {0: Dim(name="rows", low=1, high=4, buckets=(3, 4))}
    net = compile_dynamic(model("rows"), gpu.options(), Example(), {"x": dims}, "ahead")
    x = np.array([5, 0, 63, 7])
    for rows in (1, 3, 4):
        (expected,) = run_onnx_runtime(model(rows), {"x": x[:rows]})
        np.testing.assert_allclose(net(x[:rows]), expected, atol=1e-4)
    first, second = constants_of(net)
    shared = [name for name in first._blocks if first._places[name] == second._places.get(name)]
    assert len(set(shared) - {CONSTANTS}) == 1
    assert first.segment
    assert not second.segment
    assert WIDTH * WIDTH * 4 <= second.added_bytes < 2 * WIDTH * WIDTH * 4


@pytest.mark.parametrize(("shape", "axes"), [(("n",), (0,)), (("n", 3), (0,)), ((3, "n"), (1,)), (("n", "m"), (0, 1))])
def test_arrays_stay_on_the_gpu(gpu, resident, shape, axes):
    net = dynamic(gpu, shape, axes)
    rng = np.random.default_rng(2)
    for extent in (1, 2, 3, 4):
        shapes = [extent if isinstance(size, str) else size for size in shape]
        x = rng.standard_normal((*shapes, WIDTH)).astype(np.float32)
        y = net(resident(net, x))
        assert isinstance(y, CudaArray)
        assert y.shape == x.shape
        (expected,) = run_onnx_runtime(layers(*shapes), {"x": x})
        np.testing.assert_allclose(net(x), expected, atol=1e-5)
        np.testing.assert_array_equal(net(x), y.numpy())


def test_a_part_keeps_the_memory_of_the_whole(gpu, resident):
    net = dynamic(gpu, ("n",), (0,))
    x = np.random.default_rng(3).standard_normal((3, WIDTH)).astype(np.float32)
    y = net(resident(net, x))
    before = y.numpy()
    for _ in range(3):
        net(resident(net, -x))
    np.testing.assert_array_equal(y.numpy(), before)
