"""Models that keep values from call to call: what is read, what is left, and whose state it is."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

import rammer
from rammer.errors import ArtifactCorruptError, OptionError, RunTimeoutError, StateError
from rammer.options import CompileOptions
from rammer.pipelines.kinds import compile_with
from tests.devices.cuda.conftest import gpu, libraries  # noqa: F401 - fixtures
from tests.support.small_models import FLOAT, layer_model, small_model

ONE = np.ones(3, np.float32)
STATE = {"past": "present"}
DEVICES = ["reference", "cpu", "cuda on the host", pytest.param("cuda", marks=pytest.mark.gpu)]


def running_sum():
    """y = sum of all x so far, twice; the sum is `present`, `past` in the next run."""
    nodes = [
        helper.make_node("Add", ["x", "past"], ["present"]),
        helper.make_node("Add", ["present", "present"], ["y"]),
    ]
    ports = {"past": (FLOAT, [3]), "x": (FLOAT, [3])}
    return small_model(nodes, ports, {"present": (FLOAT, [3]), "y": (FLOAT, [3])})


@pytest.fixture(params=DEVICES)
def options(request):
    """How to compile for a device."""
    if request.param == "cuda on the host":
        return request.getfixturevalue("gpu").options(states=STATE)
    return CompileOptions(device=request.param, states=STATE)


@pytest.fixture
def net(options):
    return compile_with(running_sum(), options)


def test_what_a_run_leaves_the_next_one_reads(net):
    assert str(net.signature) == "(x: float32[3]) -> (y: float32[3]), keeps (past: float32[3])"
    assert [net(ONE)[0] for _ in range(5)] == [2, 4, 6, 8, 10]
    np.testing.assert_array_equal(net.state["past"], ONE * 5)
    net.reset()
    assert net.run({"x": ONE})["y"][0] == 2


def test_states_side_by_side(net):
    mine, other = net.new_state(), net.new_state()
    net(ONE)
    assert net(ONE * 3, state=mine)[0] == 6
    assert net(ONE, state=mine)[0] == 8
    assert net.run({"x": ONE}, state=other)["y"][0] == 2
    assert net(ONE)[0] == 4
    mine.reset()
    assert mine["past"].tolist() == [0, 0, 0]


def test_a_state_can_be_written(net):
    net.state["past"] = ONE * 10
    assert net(ONE)[0] == 22
    copied = net.new_state()
    for name, value in net.state.items():
        copied[name] = value
    assert net(ONE, state=copied)[0] == net(ONE)[0]
    assert dict(net.state)["past"].flags.owndata


def test_bound_calls_and_traces(net):
    x = ONE.copy()
    bound = net.bind({"x": x})
    assert bound()[0] == 2
    x *= 2
    assert bound()[0] == 6
    net.trace({"x": x})
    assert net.state["past"][0] == 3
    assert net(ONE)[0] == 8


def test_saved_models_keep_their_initial_state(net, tmp_path):
    if net.device == "reference":
        pytest.skip("its programs live in memory only")
    net(ONE)
    net.save(tmp_path / "sum.rammer")
    loaded = rammer.load(tmp_path / "sum.rammer")
    assert loaded.signature == net.signature
    assert loaded(ONE)[0] == 2
    assert loaded(ONE)[0] == 4


def test_a_state_of_another_size_in_a_file_is_refused(tmp_path, monkeypatch):
    net = rammer.compile(running_sum(), "cpu", state={"past": "present"})
    net._initial = (np.zeros(2, np.float32),)
    net.save(tmp_path / "bad.rammer")
    with pytest.raises(ArtifactCorruptError, match="initial value of 'past'"):
        rammer.load(tmp_path / "bad.rammer")


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_a_run_that_fails_leaves_the_state_as_it_was(device, monkeypatch):
    net = rammer.compile(running_sum(), device, state=STATE)
    net(ONE)

    def fail(inputs, outputs):
        outputs[-1][...] = 99
        raise RunTimeoutError("stalled")

    with monkeypatch.context() as patched:
        patched.setattr(net._loaded, "run", fail)
        with pytest.raises(RunTimeoutError):
            net(ONE)
    assert net(ONE)[0] == 4


def test_calls_from_several_threads_take_turns(net):
    seen: list[float] = []

    def work():
        for _ in range(50):
            seen.append(float(net(ONE)[0]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [2.0 * i for i in range(1, 201)]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"gone": "present"}, "no input 'gone'"),
        ({"past": "gone"}, "no output 'gone'"),
        ({"past": "present", "x": "present"}, "output of its own"),
    ],
)
def test_states_that_do_not_fit_the_model(state, reason):
    with pytest.raises(OptionError) as caught:
        rammer.compile(running_sum(), "reference", state=state)
    assert reason in str(caught.value)


def test_a_state_keeps_its_type():
    with pytest.raises(OptionError, match="is read as"):
        rammer.compile(layer_model(), "reference", state={"x": "y"})


def test_a_state_of_another_device_is_refused(options):
    device = "cpu" if options.device == "reference" else "reference"
    with pytest.raises(StateError, match="no state of this model"):
        compile_with(running_sum(), options)(ONE, state=rammer.compile(running_sum(), device, state=STATE).new_state())


def test_names_are_asked_for_without_an_error(net):
    assert all(name in net.state for name in net.state)
    assert "no such" not in net.state


def test_a_clone_goes_on_by_itself(net):
    net(ONE)
    twin = net.clone()
    assert [twin(ONE)[0], twin(ONE)[0]] == [4, 6]
    assert net.state["past"].tolist() == [1, 1, 1]
    twin.reset()
    assert twin(ONE)[0] == 2


def test_one_state_for_calls_of_two_models(options):
    one, other = (compile_with(running_sum(), replace(options, veus=veus)) for veus in (1, 3))
    state = one.new_state()
    assert [(one if i % 3 else other)(ONE, state=state)[0] for i in range(7)] == [2, 4, 6, 8, 10, 12, 14]


def test_states_that_are_not_the_models(net):
    plain = rammer.compile(layer_model(), "reference")
    assert dict(plain.state) == {}
    for call in (
        lambda: net.state["gone"],
        lambda: net.state.__setitem__("past", np.zeros(4, np.float32)),
        lambda: net.state.__setitem__("past", np.zeros(3)),
        lambda: net(ONE, state=plain.new_state()),
        lambda: net(ONE, state=3),
        lambda: plain.run({"x": np.ones((2, 3), np.float32)}, state=net.new_state()),
    ):
        with pytest.raises(StateError):
            call()
