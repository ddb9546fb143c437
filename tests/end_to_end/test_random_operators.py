"""Random models of one operator, compiled or not, give what ONNX Runtime or the standard's reference gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rammer
from rammer.errors import UnsupportedFeatureError
from tests.support.onnx_reference import evaluate_model
from tests.support.random_operators import RULES, Case

SEEDS = st.integers(0, 2**32 - 1)


def check(case: Case, found):
    expected = case.expected()
    if expected is None:
        return
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        if case.quantum:
            assert np.abs(ours.astype(np.int64) - theirs.astype(np.int64)).max(initial=0) <= case.quantum
        else:
            ours, theirs = (x if x.dtype.kind in "iub" else x.astype(np.float64) for x in (ours, theirs))
            np.testing.assert_allclose(ours, theirs, rtol=case.tolerance, atol=case.tolerance)


def evaluated(case: Case):
    with np.errstate(all="ignore"):
        return evaluate_model(case.model(), list(case.inputs.values()))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_graph(rule, seed):
    case = rule(np.random.default_rng(seed))
    check(case, evaluated(case))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@settings(max_examples=1, deadline=None)
@given(seed=SEEDS)
def test_processor(rule, seed):
    case = rule(np.random.default_rng(seed))
    check(case, list(rammer.compile(case.model(), "cpu", veus=2).run(case.inputs).values()))


@pytest.mark.long
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@settings(max_examples=5000, deadline=None)
@given(seed=SEEDS)
def test_many_graphs(rule, seed):
    case = rule(np.random.default_rng(seed))
    try:
        check(case, evaluated(case))
    except UnsupportedFeatureError:
        pytest.fail("a form that was drawn is refused")
