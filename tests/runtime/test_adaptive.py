"""Models that try other programs of themselves: every call right, the quicker one kept, no more than was allowed."""

import gc
import threading
import time

import numpy as np
import pytest

import rammer
from examples.two_branches import build_model
from rammer.errors import CacheError, OptionError
from rammer.runtime.adaptive import AdaptiveModel
from rammer.runtime.contest import Arm
from rammer.runtime.executable import Executable
from rammer.runtime.laps import host_timer
from rammer.runtime.learnt import Learnt, Outcome

DEADLINE_S = 300.0
"""For whoever builds in the background: far more than the slowest machine takes."""


class Clock:
    """Time that passes only while a fake program runs."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


class Fake(Executable):
    """Has nothing of an executable but its type: a call takes its time on a clock and says who was called."""

    def __init__(self, clock, name, milliseconds=1.0):
        self.clock = clock
        self.name = name
        self._loaded = None  # type: ignore[assignment]
        self.seconds = milliseconds / 1e3
        self.calls = 0

    def __call__(self, x):  # type: ignore[override]
        self.calls += 1
        self.clock.now_s += self.seconds
        return self.name, x


def _arm(program, predicted=1.0, failing=None):
    def build():
        if failing is not None:
            raise failing
        return program

    return Arm(name=program.name, digest=program.name, predicted=predicted, build=build)


def _by_clock(program, by_program):
    return host_timer(program.clock)


def _adaptive(first, arms, budget_runs=1000, max_slowdown=3.0):
    return AdaptiveModel(first, iter(arms), budget_runs, max_slowdown, timer_of=_by_clock)


def _call_until(done, call):
    """Call again and again, with pauses in which the background may build."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < deadline_s, "it goes on trying"
        call()
        time.sleep(1e-3)


def _settled(model):
    """Call a model until it tries nothing any more."""
    _call_until(lambda: model.is_settled, lambda: model(0))


def test_the_quickest_program_is_kept():
    clock = Clock()
    first, slower, quicker = Fake(clock, "first", 2.0), Fake(clock, "slower", 2.6), Fake(clock, "quicker", 1.0)
    model = _adaptive(first, [_arm(slower), _arm(quicker)])
    _settled(model)
    assert [(one.name, one.verdict) for one in model.history] == [("slower", "no quicker"), ("quicker", "quicker")]
    assert [one.pairs for one in model.history] == [16, 16]
    assert [one.ratio for one in model.history] == pytest.approx([1.3, 0.5])
    assert model.freeze() is quicker
    assert model(7) == ("quicker", 7)


class Noisy(Fake):
    """Its calls take more or less, by 2 % in the mean."""

    def __init__(self, clock, name, milliseconds, rng):
        super().__init__(clock, name, milliseconds)
        self.usual_s, self.rng = self.seconds, rng

    def __call__(self, x):  # type: ignore[override]
        self.seconds = self.usual_s * self.rng.lognormal(sigma=0.02)
        return super().__call__(x)


@pytest.mark.parametrize("seed", range(6))
def test_what_auto_would_gain_is_reached_within_two_thousand_calls(seed):
    """Of five policies, whatever is predicted, where each is some percent from the next and calls are noisy."""
    clock, rng = Clock(), np.random.default_rng(seed)
    first = Noisy(clock, "first", 1.0, rng)
    programs = [
        Noisy(clock, f"arm {number}", milliseconds, rng)
        for number, milliseconds in enumerate(rng.permutation([0.86, 0.9, 0.95, 1.0, 1.4]))
    ]
    arms = [_arm(program) for program in programs]
    model = _adaptive(first, arms, budget_runs=10_000)
    _settled(model)
    pairs = [outcome.pairs for outcome in model.history]
    assert 2 * sum(pairs) + 4 * len(pairs) <= 2_000
    best = min(first, *programs, key=lambda program: program.usual_s)
    gained, possible = (first.usual_s - program.usual_s for program in (model.freeze(), best))
    assert gained >= 0.95 * possible


def test_what_is_far_slower_is_called_a_few_times():
    clock = Clock()
    first, awful = Fake(clock, "first", 1.0), Fake(clock, "awful", 8.0)
    model = _adaptive(first, [_arm(awful)], max_slowdown=2.0)
    _settled(model)
    assert model.history[0].verdict == "too slow"
    assert awful.calls == 3  # once cold, then twice
    assert model.freeze() is first


def test_what_is_predicted_to_be_slow_is_not_built():
    clock = Clock()
    first, slow = Fake(clock, "first"), Fake(clock, "slow")
    model = _adaptive(first, [_arm(slow, predicted=1.6)], max_slowdown=1.5)
    _settled(model)
    assert (model.history[0].verdict, slow.calls) == ("predicted too slow", 0)


def test_what_cannot_be_built_is_passed_over():
    clock = Clock()
    first, broken, quicker = Fake(clock, "first", 2.0), Fake(clock, "broken", 1.0), Fake(clock, "quicker", 1.0)
    model = _adaptive(first, [_arm(broken, failing=CacheError("no room", hint="make room")), _arm(quicker)])
    _settled(model)
    assert [one.verdict for one in model.history] == ["failed", "quicker"]


def test_what_cannot_be_scheduled_ends_trying_and_no_call(caplog):
    def arms():
        yield from ()
        raise OptionError("no schedule", hint="none")

    model = _adaptive(Fake(Clock(), "first"), arms())
    _settled(model)
    assert model(7) == ("first", 7)
    assert "nothing more can be tried: [R100] no schedule" in caplog.text


def test_no_more_calls_are_tried_than_allowed():
    clock = Clock()
    first, other = Fake(clock, "first"), Fake(clock, "other")
    model = _adaptive(first, [_arm(other)], budget_runs=5)
    _settled(model)
    assert other.calls == 5
    assert model.freeze() is first


def test_frozen_models_try_nothing():
    clock = Clock()
    first, other = Fake(clock, "first"), Fake(clock, "other")
    model = _adaptive(first, [_arm(other)])
    assert model.freeze() is first
    model(0)
    assert (model.is_settled, other.calls) == (True, 0)


def test_calls_from_several_threads_are_right():
    clock = Clock()
    first, other = Fake(clock, "first"), Fake(clock, "other")
    model = _adaptive(first, [_arm(other)])
    _call_until(lambda: other.calls, lambda: model(0))
    results = {}

    def call(number):
        results[number] = [model((number, i))[1] for i in range(40)]

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [(number, i) for i in range(40)] for number in range(4)}
    assert [one.pairs for one in model.history] == [16]


def test_what_was_learnt_is_not_tried_again(tmp_path):
    """A second model takes over what was quicker, without a trial, and tries only what the first did not."""
    path = tmp_path / "learnt" / "model.json"

    def settled(*names):
        clock = Clock()
        takes = {"a": 0.5, "b": 2.0, "c": 0.25}
        programs = [Fake(clock, name, takes[name]) for name in names]
        arms = iter([_arm(program) for program in programs])
        first = Fake(clock, "first")
        model = AdaptiveModel(first, arms, 1000, 9.0, digest="first", learnt=Learnt(path), timer_of=_by_clock)
        _settled(model)
        return model, programs

    one, _ = settled("a", "b")
    assert [(found.name, found.verdict) for found in one.history] == [("a", "quicker"), ("b", "no quicker")]
    another, _ = settled("a", "b", "c")
    assert another.history[:2] == one.history
    assert [(found.name, found.verdict) for found in another.history[2:]] == [("c", "quicker")]
    third, (_, b, c) = settled("a", "b", "c")
    assert third.history == another.history
    assert third.freeze() is c
    assert b.calls == 0


@pytest.mark.parametrize("text", ["", "{}", '{"outcomes": [{"arm": 1}]}'])
def test_damaged_stores_are_not_used(tmp_path, text):
    path = tmp_path / "model.json"
    path.write_text(text)
    learnt = Learnt(path)
    assert learnt.find("a", "first") is None
    outcome = Outcome(name="a", verdict="quicker", pairs=16, ratio=0.5)
    learnt.keep("a", "first", outcome)
    assert Learnt(path).find("a", "first") == outcome


def test_stores_are_shared(tmp_path):
    """What another process added meanwhile stays."""
    path = tmp_path / "model.json"
    one, other = Learnt(path), Learnt(path)
    a, b = (Outcome(name=name, verdict="no quicker", pairs=128, ratio=1.0) for name in "ab")
    one.keep("a", "first", a)
    other.keep("b", "first", b)
    assert (Learnt(path).find("a", "first"), Learnt(path).find("b", "first")) == (a, b)


def test_stores_that_cannot_be_written_cost_a_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    learnt = Learnt(tmp_path / "file" / "model.json")
    learnt.keep("a", "first", Outcome(name="a", verdict="failed", pairs=0, ratio=None))
    assert "is not kept" in caplog.text


@pytest.mark.parametrize("bits", ["same", "any"])
def test_every_call_of_a_model_is_right(bits):
    x = np.random.default_rng(0).standard_normal((1, 8, 8, 8)).astype(np.float32)
    expected = rammer.compile(build_model(), "cpu", veus=2)(x)
    model = rammer.adapt(build_model(), "cpu", veus=2, budget_runs=200, max_slowdown=20.0, bits=bits)

    def call():
        if bits == "same":
            np.testing.assert_array_equal(model(x), expected)
        else:
            np.testing.assert_allclose(model(x), expected, rtol=1e-5, atol=1e-5)

    _call_until(lambda: model.is_settled, call)
    assert model.history
    assert all("places and order" in one.name or bits == "any" for one in model.history)
    np.testing.assert_allclose(rammer.load(model.freeze().to_bytes())(x), expected, rtol=1e-5, atol=1e-5)


def test_bound_calls_write_the_same_arrays_whichever_program_runs():
    x = np.zeros((1, 8, 8, 8), np.float32)
    net, rng = rammer.compile(build_model(), "cpu", veus=2), np.random.default_rng(0)
    model = rammer.adapt(build_model(), "cpu", veus=2, budget_runs=200, max_slowdown=20.0)
    (name,) = (port.name for port in model.signature.outputs)
    y = np.empty(model.signature.outputs[0].type.shape, np.float32)
    bound, own = model.bind({"x": x}, outputs={name: y}), model.bind({"x": x})

    def call():
        x[...] = rng.standard_normal(x.shape)
        expected = net(x)
        assert bound() is y
        np.testing.assert_array_equal(y, expected)
        np.testing.assert_array_equal(own(), expected)
        np.testing.assert_array_equal(model.run({"x": x})[name], expected)

    _call_until(lambda: model.is_settled, call)
    assert any(one.pairs for one in model.history)
    assert not model.is_trying
    call()


def test_what_is_tried_and_left_is_let_go_of_by_the_background():
    """No call does so: on a GPU that waits for runs."""
    clock, freed = Clock(), []

    class Freed(Fake):
        def __del__(self):
            freed.append((self.name, threading.current_thread().name))

    def arms():
        for name, milliseconds in (("slower", 2.0), ("quicker", 0.5), ("slow", 3.0)):
            program = Freed(clock, name, milliseconds)
            arm = _arm(program)
            del program
            yield arm

    model = _adaptive(Freed(clock, "first"), arms(), max_slowdown=9.0)
    _settled(model)
    _call_until(lambda: len(freed) == 3, gc.collect)
    assert {name for name, _ in freed} == {"first", "slower", "slow"}
    assert all(thread.startswith("rammer-adapt") for _, thread in freed)


def test_a_model_begins_with_what_another_one_learnt(tmp_path):
    """Equal models on one machine have one file; another number of units has its own."""
    x = np.ones((1, 8, 8, 8), np.float32)

    def settled(veus):
        model = rammer.adapt(build_model(), "cpu", veus=veus, budget_runs=300, max_slowdown=20.0, store=tmp_path)
        _call_until(lambda: model.is_settled, lambda: model(x))
        return model.history

    histories = [settled(2), settled(2)]
    assert len(list(tmp_path.glob("*.json"))) == 1
    tried = [{one for one in history if one.pairs} for history in histories]
    assert tried[0] <= tried[1]
    settled(1)
    assert len(list(tmp_path.glob("*.json"))) <= 2


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"bits": "some"}, "choose one of same, any"),
        ({"budget_runs": -1}, "a number of calls"),
        ({"max_slowdown": 0.5}, "a factor of at least 1"),
        ({"budget_bytes": -1}, "a number of bytes"),
        ({"policy": "none"}, "wavefront"),
    ],
)
def test_options_that_cannot_be_used(given, says):
    with pytest.raises(OptionError, match=says):
        rammer.adapt(build_model(), **{"device": "cpu", **given})
