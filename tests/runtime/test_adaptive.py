"""Models that try other programs of themselves: every call right, the quicker one kept, no more than was allowed."""

import threading
import time

import numpy as np
import pytest

import rammer
from examples.two_branches import build_model
from rammer.errors import CacheError, OptionError
from rammer.runtime.adaptive import AdaptiveModel, Arm
from rammer.runtime.executable import Executable


class Slept(Executable):
    """Has nothing of an executable but its type: a call sleeps and says who was called."""

    def __init__(self, name, milliseconds):
        self.name = name
        self.seconds = milliseconds / 1e3
        self.calls = 0

    def __call__(self, x):  # type: ignore[override]
        self.calls += 1
        time.sleep(self.seconds)
        return self.name, x


def _arm(program, predicted=1.0, failing=None):
    def build():
        if failing is not None:
            raise failing
        return program

    return Arm(name=program.name, predicted=predicted, build=build)


def _settled(model, most=2000):
    """Call a model until it tries nothing any more."""
    for _ in range(most):
        if model.is_settled:
            return
        model(0)
    raise AssertionError("it goes on trying")


def test_the_quickest_program_is_kept():
    first, slower, quicker = Slept("first", 2.0), Slept("slower", 2.6), Slept("quicker", 1.0)
    model = AdaptiveModel(first, iter([_arm(slower), _arm(quicker)]), budget_runs=1000, max_slowdown=3.0)
    _settled(model)
    assert [(one.name, one.verdict) for one in model.history] == [("slower", "no quicker"), ("quicker", "quicker")]
    assert model.history[1].ratio == pytest.approx(0.5, abs=0.3)
    assert model.freeze() is quicker
    assert model(7) == ("quicker", 7)


def test_what_is_far_slower_is_called_a_few_times():
    first, awful = Slept("first", 1.0), Slept("awful", 8.0)
    model = AdaptiveModel(first, iter([_arm(awful)]), budget_runs=1000, max_slowdown=2.0)
    _settled(model)
    assert model.history[0].verdict == "too slow"
    assert awful.calls <= 6
    assert model.freeze() is first


def test_what_is_predicted_to_be_slow_is_not_built():
    first, slow = Slept("first", 0.1), Slept("slow", 0.1)
    model = AdaptiveModel(first, iter([_arm(slow, predicted=1.6)]), budget_runs=100, max_slowdown=1.5)
    _settled(model)
    assert (model.history[0].verdict, slow.calls) == ("predicted too slow", 0)


def test_what_cannot_be_built_is_passed_over():
    first, broken, quicker = Slept("first", 2.0), Slept("broken", 1.0), Slept("quicker", 1.0)
    arms = iter([_arm(broken, failing=CacheError("no room", hint="make room")), _arm(quicker)])
    model = AdaptiveModel(first, arms, budget_runs=1000, max_slowdown=3.0)
    _settled(model)
    assert [one.verdict for one in model.history] == ["failed", "quicker"]


def test_what_cannot_be_scheduled_ends_trying_and_no_call(caplog):
    def arms():
        yield from ()
        raise OptionError("no schedule", hint="none")

    model = AdaptiveModel(Slept("first", 0.1), arms(), budget_runs=100, max_slowdown=1.5)
    _settled(model)
    assert model(7) == ("first", 7)
    assert "nothing more can be tried: [R100] no schedule" in caplog.text


def test_no_more_calls_are_tried_than_allowed():
    first, other = Slept("first", 0.2), Slept("other", 0.2)
    model = AdaptiveModel(first, iter([_arm(other)]), budget_runs=5, max_slowdown=50.0)
    _settled(model)
    assert other.calls == 5
    assert model.freeze() is first


def test_frozen_models_try_nothing():
    first, other = Slept("first", 0.1), Slept("other", 0.1)
    model = AdaptiveModel(first, iter([_arm(other)]), budget_runs=100, max_slowdown=2.0)
    assert model.freeze() is first
    model(0)
    assert (model.is_settled, other.calls) == (True, 0)


def test_calls_from_several_threads_are_right():
    first, other = Slept("first", 0.1), Slept("other", 0.1)
    model = AdaptiveModel(first, iter([_arm(other)]), budget_runs=50, max_slowdown=50.0)
    results = {}

    def call(number):
        results[number] = [model((number, i))[1] for i in range(40)]

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [(number, i) for i in range(40)] for number in range(4)}


@pytest.mark.parametrize("bits", ["same", "any"])
def test_every_call_of_a_model_is_right(bits):
    x = np.random.default_rng(0).standard_normal((1, 8, 8, 8)).astype(np.float32)
    expected = rammer.compile(build_model(), "cpu", veus=2)(x)
    model = rammer.adapt(build_model(), "cpu", veus=2, budget_runs=400, max_slowdown=20.0, bits=bits)
    for _ in range(4000):
        if model.is_settled:
            break
        got = model(x)
        if bits == "same":
            np.testing.assert_array_equal(got, expected)
        else:
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    assert model.is_settled
    assert model.history
    assert all("places and order" in one.name or bits == "any" for one in model.history)
    np.testing.assert_allclose(rammer.load(model.freeze().to_bytes())(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"bits": "some"}, "choose one of same, any"),
        ({"budget_runs": -1}, "a number of calls"),
        ({"max_slowdown": 0.5}, "a factor of at least 1"),
        ({"device": "cuda:sm_90"}, "policy='auto'"),
        ({"policy": "none"}, "wavefront"),
    ],
)
def test_options_that_cannot_be_used(given, says):
    with pytest.raises(OptionError, match=says):
        rammer.adapt(build_model(), **{"device": "cpu", **given})
