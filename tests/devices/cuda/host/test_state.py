"""Models with state on a GPU: whose turn it is, in any order of blocks, and what a run that is given up leaves."""

from typing import Any

import numpy as np
import pytest
from onnx import helper

from rammer.errors import RunTimeoutError, StateError
from rammer.pipelines.kinds import compile_with
from tests.runtime.test_state import STATE
from tests.runtime.test_state_in_place import ROW, cached
from tests.support.host_cuda import ORDERS
from tests.support.small_models import FLOAT, small_model


def records_of(net):
    """The records where the kernel reads them."""
    loaded = net._loaded._model()
    return loaded._driver, loaded._program.records, loaded._records


def turning():
    """present = tanh(x past), y = x present."""
    nodes = [("MatMul", ["x", "past"], ["p"]), ("Tanh", ["p"], ["present"]), ("MatMul", ["x", "present"], ["y"])]
    square = (FLOAT, [32, 32])
    made = [helper.make_node(*node) for node in nodes]
    return small_model(made, {"past": square, "x": square}, {"present": square, "y": square})


def test_every_order_of_blocks(gpu):
    net, rng = compile_with(turning(), gpu.options(states=STATE, veus=5, policy="sequential")), np.random.default_rng(0)
    past: Any = rng.standard_normal((32, 32)).astype(np.float32)
    net.state["past"] = past
    for gpu.api.order in ORDERS:
        x = rng.standard_normal((32, 32)).astype(np.float32) / 4
        past = np.tanh(x @ past)
        np.testing.assert_allclose(net(x), x @ past, rtol=1e-4, atol=1e-5)
        left: Any = net.state["past"]
        np.testing.assert_allclose(left, past, rtol=1e-4, atol=1e-5)


def test_a_run_that_is_given_up_leaves_the_state_as_it_was(gpu):
    net, x = (
        compile_with(turning(), gpu.options(states=STATE, veus=5, policy="sequential")),
        np.eye(32, dtype=np.float32),
    )
    net.state["past"] = np.eye(32, dtype=np.float32)
    net(x)
    state = net.state["past"]
    driver, place, records = records_of(net)
    waiting = np.flatnonzero(records["wait_count"])
    assert len(waiting)
    broken = records.copy()
    broken["waits"]["threshold"][waiting[0], 0] += 1
    driver.call("cuMemcpyHtoD", place, broken.ctypes.data, broken.nbytes)
    with pytest.raises(RunTimeoutError):
        net(x)
    driver.call("cuMemcpyHtoD", place, records.ctypes.data, records.nbytes)
    np.testing.assert_array_equal(net.state["past"], state)
    np.testing.assert_allclose(net(x), np.tanh(state), rtol=1e-5)


def test_a_run_that_is_given_up_may_leave_a_state_in_place_written_in_part(gpu):
    net = compile_with(cached(), gpu.options(states=STATE, veus=3, policy="sequential"))
    assert net.signature.in_place == (0,)
    x, position = np.ones(ROW, np.float32), np.array([2])
    net(x, position)
    driver, place, records = records_of(net)
    broken = records.copy()
    broken["waits"]["threshold"][np.flatnonzero(records["wait_count"])[0], 0] += 1
    driver.call("cuMemcpyHtoD", place, broken.ctypes.data, broken.nbytes)
    with pytest.raises(RunTimeoutError):
        net(x, position)
    driver.call("cuMemcpyHtoD", place, records.ctypes.data, records.nbytes)
    with pytest.raises(StateError, match="may have written a part of it"):
        net(x, position)
    with pytest.raises(StateError, match="may have written a part of it"):
        net.state["past"]
    net.reset()
    net(x, position)
    net.trace({"x": x, "position": position + 1})
    assert net.state["past"].sum() == x.sum()


def test_a_state_in_place_lies_in_one_place(gpu):
    net = compile_with(cached(), gpu.options(states=STATE))
    memory: Any = net.state.memory
    assert memory.read == memory.written
    other = compile_with(turning(), gpu.options(states=STATE))
    memory = other.state.memory
    assert not {*memory.read} & {*memory.written}


def test_a_program_with_state_is_measured_on_values_of_its_own(gpu):
    net, x = compile_with(turning(), gpu.options(states=STATE, veus=5)), np.eye(32, dtype=np.float32)
    loaded: Any = net._loaded
    assert len(loaded._model().measure_us([x, x], 3)) == 3
    assert not net.state["past"].any()
