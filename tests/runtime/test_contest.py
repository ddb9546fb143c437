"""Programs that are judged part by part, by the times of their rPrograms; and models that explore their epochs."""

import time
from collections.abc import Mapping
from contextlib import nullcontext

import numpy as np
import pytest

import rammer
from benchmarks.networks import NETWORKS, SMALL
from rammer.runtime import contest
from rammer.runtime.adaptive import AdaptiveModel
from rammer.runtime.contest import Arm, Contest, Parts
from rammer.runtime.executable import Executable
from rammer.runtime.learnt import Learnt
from rammer.runtime.recorded import record
from rammer.runtime.trials import Verdict
from tests.support.small_models import layer_model

DEADLINE_S = 300.0
NAMES = {"a": (0,), "b": (1, 2)}


class Fake(Executable):
    """A program whose rPrograms take given times, in microseconds."""

    def __init__(self, *programs_us):
        self.times_us = list(programs_us)
        self.calls = 0
        self._loaded = None  # type: ignore[assignment]

    def __call__(self, x):  # type: ignore[override]
        self.calls += 1
        return x


class FakeLap:
    """The time of a call, which is known when the call is over, or not before it is said to be."""

    def __init__(self, told_us):
        self.told_us = told_us

    def times_us(self):
        return self.told_us


def told_by_fakes(program, by_program):
    return lambda: nullcontext(FakeLap(program.times_us))


def arm_of(newcomer, known, learn=lambda gains: None, predicted=1.0):
    parts = Parts(programs=NAMES, digest="known", beside=lambda: known)
    arm: Arm[Executable] = Arm(
        name="new", digest="new", predicted=predicted, build=lambda: newcomer, learn=learn, parts=parts
    )
    return arm


def verdicts(newcomer, known, max_slowdown=3.0):
    found = Contest(arm_of(newcomer, known), newcomer, known, max_slowdown, told_by_fakes)
    while not found.is_decided:
        found.call(lambda program: program(7))
        found.judge()
    return found.verdicts


def test_each_part_has_its_own_verdict():
    known = Fake(10.0, 5.0, 5.0)
    assert verdicts(Fake(5.0, 5.0, 8.0), known) == {"a": Verdict.QUICKER, "b": Verdict.NO_QUICKER}
    assert verdicts(Fake(10.0, 2.0, 7.0), known) == {"a": Verdict.NO_QUICKER, "b": Verdict.QUICKER}


def test_a_part_that_is_far_too_slow_ends_it_all():
    assert verdicts(Fake(5.0, 50.0, 5.0), Fake(10.0, 5.0, 5.0)) == {"a": Verdict.NO_QUICKER, "b": Verdict.TOO_SLOW}


@pytest.mark.parametrize(("new_us", "verdict"), [(97.0, Verdict.QUICKER), (103.0, Verdict.NO_QUICKER)])
def test_calls_behind_the_other_program_are_compared_with_such(new_us, verdict):
    """A program whose constants another has displaced takes a tenth longer, whichever it is."""
    known, newcomer = Fake(), Fake()
    usual_us, last = {known: 100.0, newcomer: new_us}, None
    arm: Arm[Executable] = Arm(name="new", digest="new", predicted=1.0, build=lambda: newcomer)
    found = Contest(arm, newcomer, known, 1.5, told_by_fakes)

    def work(program):
        program.times_us[:] = [usual_us[program] * (1.0 if program is last else 1.1)]
        return program

    while not found.is_decided:
        last = found.call(work)
        found.judge()
    (trial,) = found.trials.values()
    assert (found.verdicts[contest.WHOLE], len(trial.ratios)) == (verdict, 16)
    assert trial.ratio == pytest.approx(new_us / 100.0)


def settle(model):
    deadline_s = time.monotonic() + DEADLINE_S
    while not model.is_settled:
        assert time.monotonic() < deadline_s, "it goes on trying"
        assert model(7) == 7
        time.sleep(1e-3)


def test_parts_that_gain_are_told_and_take_no_place(tmp_path):
    """Nor are they tried again by a model that has the same store."""
    told: list[Mapping[str, bool]] = []
    learnt = Learnt(tmp_path / "learnt.json")
    newcomer, known = Fake(5.0, 5.0, 8.0), Fake(10.0, 5.0, 5.0)
    calls: list[int] = []
    for _ in range(2):
        first = Fake(1.0)
        calls.append(newcomer.calls + known.calls)
        model = AdaptiveModel(
            first, iter([arm_of(newcomer, known, told.append)]), 1000, 3.0, learnt=learnt, timer_of=told_by_fakes
        )
        settle(model)
        assert model.freeze() is first
        assert [(one.name, one.verdict) for one in model.history] == [("new: a", "quicker"), ("new: b", "no quicker")]
    assert told == [{"a": True, "b": False}] * 2
    assert newcomer.calls + known.calls == calls[1]


def test_calls_of_both_programs_count():
    first, newcomer, known = Fake(1.0), Fake(10.0, 5.0, 5.0), Fake(10.0, 5.0, 5.0)
    model = AdaptiveModel(first, iter([arm_of(newcomer, known)]), 20, 3.0, timer_of=told_by_fakes)
    settle(model)
    assert newcomer.calls + known.calls == 20


def test_what_is_predicted_to_be_slow_gains_nothing():
    told: list[Mapping[str, bool]] = []
    model = AdaptiveModel(Fake(1.0), iter([arm_of(Fake(1.0), Fake(1.0), told.append, predicted=9.0)]), 100, 2.0)
    settle(model)
    assert told == [{"a": False, "b": False}]


def test_recorded_programs_know_how_long_their_rprograms_took():
    x = np.ones((2, 3), np.float32)
    program = rammer.compile(layer_model(), "cpu", veus=2)
    expected = program(x)
    recorded = record(program)
    np.testing.assert_array_equal(program(x), expected)
    assert len(recorded.programs_us()) == len(program.report["programs"])
    assert sum(recorded.programs_us()) > 0


def test_a_network_explores_its_epochs_and_every_call_is_right():
    network = NETWORKS["resnext"](seed=0, **SMALL["resnext"])
    net = rammer.compile(network, "cpu", veus=2)
    (port,) = net.signature.inputs
    x = np.random.default_rng(0).standard_normal(port.type.shape).astype(np.float32)
    expected = net(x)
    model = rammer.adapt(network, "cpu", veus=2, budget_runs=600, max_slowdown=20.0)
    deadline_s = time.monotonic() + DEADLINE_S
    while not model.is_settled:
        assert time.monotonic() < deadline_s, "it goes on trying"
        np.testing.assert_array_equal(model(x), expected)
    assert any("epoch" in one.name for one in model.history)


def test_no_call_waits_for_times_and_those_without_keep_the_order():
    """With no time told, calls go to the known program, untimed, where it was called last; told, it is decided."""
    known, newcomer = Fake(), Fake()
    laps, calls = [], []

    def timer_of(program, by_program):
        def timed():
            laps.append((program, FakeLap(None)))
            return nullcontext(laps[-1][1])

        return timed

    arm: Arm[Executable] = Arm(name="new", digest="new", predicted=1.0, build=lambda: newcomer)
    found = Contest(arm, newcomer, known, 1.5, timer_of)
    for _ in range(200):
        found.judge()
        wanted = found.program
        calls.append(found.call(lambda program: program))
        assert calls[-1] is wanted
    assert not found.is_idle
    assert len(laps) <= 66
    assert calls[len(laps) :] == [known] * (200 - len(laps))
    assert calls[len(laps) - 1] is known
    for program, lap in laps:
        lap.told_us = (97.0 if program is newcomer else 100.0,)
    found.judge()
    assert found.verdicts == {contest.WHOLE: Verdict.QUICKER}
