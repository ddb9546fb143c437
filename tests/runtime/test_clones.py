"""Models once more: clones, copies and pickles, and calls of one model at the same time."""

import asyncio
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx.parser
import pytest

import rammer
from rammer.devices.cpu import launch
from rammer.devices.cpu.device import CpuDevice
from rammer.errors import ArtifactWriteError, OutOfMemoryError
from tests.runtime.test_state import running_sum
from tests.support.copies import COPIES
from tests.support.small_models import layer_model, mlp_model

ONE = np.ones(3, np.float32)


@pytest.fixture(scope="module")
def mlp():
    """One vEU, so that calls run side by side."""
    return rammer.compile(mlp_model(), "cpu", veus=1)


@pytest.fixture(scope="module")
def batches():
    return [np.random.default_rng(i).standard_normal((8, 64)).astype(np.float32) for i in range(16)]


@pytest.mark.parametrize("again", COPIES.values(), ids=COPIES)
def test_a_copy_gives_the_same_bits(mlp, batches, again):
    twin = again(mlp)
    assert (twin.name, twin.device, twin.signature, twin.report) == (mlp.name, mlp.device, mlp.signature, mlp.report)
    for x in batches:
        assert twin(x).tobytes() == mlp(x).tobytes()


@pytest.mark.parametrize("again", COPIES.values(), ids=COPIES)
def test_the_state_of_a_copy_goes_on_by_itself(again):
    net = rammer.compile(running_sum(), "cpu", state={"past": "present"})
    net(ONE)
    twin = again(net)
    assert [twin(ONE)[0], twin(ONE)[0]] == [4, 6]
    assert net.state["past"].tolist() == [1, 1, 1]
    twin.reset()
    assert twin(ONE)[0] == 2


@pytest.mark.parametrize("again", COPIES.values(), ids=COPIES)
def test_copies_of_models_of_several_shapes(again):
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 22]> g (float[N, 3] x) => (float[N, 3] y) { y = Softmax <axis = 1> (x) }'
    )
    net = rammer.compile(model, "cpu", veus=1, dynamic={"x": {0: (1, 4)}})
    twin = again(net)
    assert (twin.plan.dimensions, list(twin.programs.programs)) == (net.plan.dimensions, list(net.programs.programs))
    rows = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)
    assert twin(rows).tobytes() == net(rows).tobytes()


@pytest.mark.parametrize("again", COPIES.values(), ids=COPIES)
def test_copies_of_sets_have_programs_and_states_of_their_own(again):
    programs = rammer.ProgramSet()
    programs.add(rammer.compile(running_sum(), "cpu", veus=1, state={"past": "present"}), "sum")
    net = programs.select(((3,),), "sum")
    net(ONE)
    twin = again(programs).select(((3,),), "sum")
    assert [twin(ONE)[0], twin(ONE)[0], net(ONE)[0]] == [4, 6, 4]


def test_a_pickle_says_nothing_of_cores(mlp, monkeypatch, caplog):
    monkeypatch.setattr(CpuDevice, "usual_veus", lambda self: 64)
    assert isinstance(COPIES["pickle"](mlp), rammer.Executable)
    assert not [record for record in caplog.records if record.name == "rammer.runtime.artifact"]


def test_a_clone_outlives_the_model(batches):
    net = rammer.compile(mlp_model(), "cpu", veus=2)
    expected = net(batches[0])
    twin = net.clone()
    del net
    np.testing.assert_array_equal(twin(batches[0]), expected)


def test_the_reference_device_clones_and_does_not_pickle():
    net = rammer.compile(layer_model(), "reference")
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(net.clone()(x), net(x))
    with pytest.raises(ArtifactWriteError):
        pickle.dumps(net)


def test_calls_that_overlap_give_what_they_give_alone(mlp, batches):
    expected = [mlp(x) for x in batches]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            for found, right in zip(pool.map(mlp, batches), expected, strict=True):
                np.testing.assert_array_equal(found, right)


def test_calls_that_overlap_take_instances(mlp, batches, monkeypatch):
    loaded = mlp.clone()._loaded
    loaded._most_instances = 2
    y = np.empty((8, mlp.signature.outputs[0].type.shape[1]), np.float32)

    def call():
        loaded.run([batches[0]], [y])
        return len(loaded._instances), len(loaded._idle)

    assert call() == (1, 1)
    first = loaded._idle.pop()  # as a call under way does
    assert call() == (2, 1)
    second = loaded._idle.pop()
    assert second is not first
    assert call() == (2, 0)  # it queued
    loaded._idle += [first, second]
    assert call() == (2, 2)


def test_calls_queue_where_there_is_no_memory_for_another_instance(mlp, batches, monkeypatch):
    loaded = mlp.clone()._loaded
    loaded._most_instances = 8

    def fail(image):
        raise OutOfMemoryError("no memory")

    monkeypatch.setattr(launch, "Instance", fail)
    taken = loaded._idle.pop()
    y = np.empty((8, mlp.signature.outputs[0].type.shape[1]), np.float32)
    loaded.run([batches[0]], [y])
    np.testing.assert_array_equal(y, mlp(batches[0]))
    assert loaded._instances == [taken]


def test_a_model_of_several_units_has_one_instance():
    net = rammer.compile(mlp_model(), "cpu", veus=2)
    loaded: Any = net._loaded
    taken = loaded._idle.pop()
    assert loaded._further() == (taken, False)


def test_awaited_calls(mlp, batches):
    async def all_at_once():
        return await asyncio.gather(*(mlp.async_run(x) for x in batches))

    for found, x in zip(asyncio.run(all_at_once()), batches, strict=True):
        np.testing.assert_array_equal(found, mlp(x))
