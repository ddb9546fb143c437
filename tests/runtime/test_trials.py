"""When one program counts as quicker than another."""

import random

import pytest

from rammer.runtime.trials import LEAST_GAIN, Trial, Verdict, tail


def _run(ratios, max_slowdown=2.0):
    """The verdict after pairs of these ratios, and after how many."""
    trial = Trial(max_slowdown)
    for number, ratio in enumerate(ratios, 1):
        verdict = trial.pair(100.0, 100.0 * ratio)
        if verdict is not None:
            return verdict, number
    return None, len(trial.ratios)


def test_the_chance_of_wins_among_equals():
    assert tail(4, 4) == 1 / 16
    assert tail(4, 3) == 5 / 16
    assert tail(4, 0) == 1.0


def test_one_that_always_wins_is_quicker_at_the_first_look():
    assert _run([0.9] * 200) == (Verdict.QUICKER, 16)
    assert _run([1.1] * 200) == (Verdict.NO_QUICKER, 16)


def test_a_gain_below_one_in_a_hundred_is_none():
    assert _run([1 - LEAST_GAIN / 2] * 200) == (Verdict.NO_QUICKER, 128)
    assert _run([1 - 1.5 * LEAST_GAIN] * 200) == (Verdict.QUICKER, 16)


def test_two_slow_pairs_end_a_trial_and_one_may_be_an_interruption():
    assert _run([2.5, *[0.9] * 200]) == (Verdict.QUICKER, 16)
    assert _run([0.9, 2.5, 0.9, 2.5, *[0.9] * 200]) == (Verdict.TOO_SLOW, 4)


@pytest.mark.parametrize("noise", [0.02, 0.2])
def test_equals_are_rarely_taken_for_quicker(noise):
    taken = 0
    for seed in range(500):
        draw = random.Random(seed)
        verdict, _ = _run([draw.gauss(1.0, noise) for _ in range(128)], max_slowdown=10.0)
        taken += verdict is Verdict.QUICKER
    assert taken <= 8  # four looks at a chance of 0.002 each would be 4


@pytest.mark.parametrize(("gain", "noise"), [(0.05, 0.05), (0.1, 0.15)])
def test_a_gain_is_found_within_the_pairs_that_there_are(gain, noise):
    found = 0
    for seed in range(100):
        draw = random.Random(seed)
        verdict, _ = _run([draw.gauss(1.0 - gain, noise) for _ in range(128)], max_slowdown=10.0)
        found += verdict is Verdict.QUICKER
    assert found >= 95
