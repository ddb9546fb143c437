"""Branches that are not taken are skipped, and nobody sees what they have left unwritten."""

import random

import numpy as np
import onnx
import pytest

import rammer
from rammer.devices.reference.device import describe
from rammer.devices.reference.pickers import Lowest
from rammer.errors import VerificationError
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.options import CompileOptions
from rammer.pipelines.planning import lower_graph, rewrite_graph, schedule_tasks
from rammer.roller.model import ModelCosts
from rammer.verify import program as verify_program
from tests.support.agreement import check_agreement, pickers, without_costs
from tests.support.mutations import MUTATIONS
from tests.support.plans import run_orders, run_reference
from tests.support.random_branches import random_branches

X = np.abs(np.random.default_rng(0).standard_normal((8, 8), dtype=np.float32)) / 4

BRANCHES = """
    zero = Constant<value_float = 0.0>() s = ReduceSum<keepdims = 0>(x) c = Greater(s, zero)
    y = If (c) <
        then_branch = a () => (float[8, 8] a) { p = MatMul(x, x) q = Tanh(p) a = MatMul(q, x) },
        else_branch = b () => (float[8, 8] b) { r = Exp(x) b = MatMul(r, r) }
    >
"""
STEPS = """
    n = Constant<value_int = 5>() limit = Constant<value_float = 2.0>()
    first = ReduceMax<keepdims = 0>(x) t = Less(first, limit)
    y = Loop (n, t, x) <
        body = step (int64 i, bool go, float[8, 8] v) => (bool again, float[8, 8] w) {
            w = MatMul(v, x) m = ReduceMax<keepdims = 0>(w) again = Less(m, limit)
        }
    >
"""


def parsed(body):
    header = '<ir_version: 10, opset_import: ["": 21]> test (float[8, 8] x) => (float[8, 8] y)'
    return onnx.parser.parse_model(f"{header} {{{body}}}")


def rewritten(model):
    """The graph behind all passes."""
    return rewrite_graph(load_graph(model), describe(2), CompileOptions(), Dump(None))


def ran(model, x):
    """Which operators compute in a run on one vEU, where an rTask takes two events, a skipped one a single event."""
    operators = rammer.compile(model, "reference", veus=1).trace(x).operators
    assert {operator.busy_us / operator.tasks for operator in operators} <= {1, 2}
    return {operator.name: operator.busy_us == 2 * operator.tasks for operator in operators}


@pytest.mark.parametrize("sign", [1, -1])
def test_a_branch_that_is_not_taken_does_not_run(sign):
    found = ran(parsed(BRANCHES), sign * X)
    branches = {name: runs for name, runs in found.items() if "_branch/" in name}
    taken = "then_branch/" if sign > 0 else "else_branch/"
    assert sorted(branches.values()) == [False, False, True, True]
    assert all(runs is (taken in name) for name, runs in branches.items())
    assert all(runs for name, runs in found.items() if name not in branches)


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_conditions_that_the_caller_gives_and_those_among_others(device):
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        test (float[8, 8] x, bool c, bool[3] d) => (float[8, 8] y, float[8, 8] z) {
            y = If (c) <then_branch = a () => (float[8, 8] a) { a = MatMul(x, x) },
                        else_branch = b () => (float[8, 8] b) { b = Exp(x) }>
            two = Constant<value_int = 2>() e = Gather(d, two)
            z = If (e) <then_branch = f () => (float[8, 8] f) { g = Tanh(x) f = MatMul(g, x) },
                        else_branch = h () => (float[8, 8] h) { h = Identity(x) }>
        }""")
    predicates = {op.name: op.predicate is not None for op in rewritten(model).operators}
    assert {name for name, has in predicates.items() if has} == {
        "If_0/then_branch/MatMul_0",
        "If_0/else_branch/Exp_0",
        "If_3/then_branch/Tanh_0",
        "If_3/then_branch/MatMul_1",
    }
    net = rammer.compile(model, device, veus=2)
    for c in (True, False):
        for e in (True, False):
            y, z = net.run({"x": X, "c": np.array(c), "d": np.array([not e, True, e])}).values()
            np.testing.assert_allclose(y, X @ X if c else np.exp(X), rtol=1e-5)
            np.testing.assert_allclose(z, np.tanh(X) @ X if e else X, rtol=1e-5)


@pytest.mark.parametrize(("scale", "trips"), [(100, 0), (1.5, 2), (0.1, 5)])
def test_trips_behind_the_end_of_a_loop_do_not_run(scale, trips):
    found = ran(parsed(STEPS), np.float32(scale) * X)
    assert [runs for name, runs in sorted(found.items()) if "MatMul" in name] == [True] * trips + [False] * (5 - trips)


@pytest.mark.parametrize("seed", range(4))
def test_random_branches_and_loops_agree_on_every_schedule(seed):
    model, inputs = random_branches(seed)
    check_agreement(model, inputs, spread=seed % 2 == 0, seed=seed, built=(2,) if seed == 1 else ())


@pytest.mark.parametrize("sign", [1, -1])
def test_damaged_plans_that_are_accepted_skip_the_right_branch(sign):
    vdevice, options = without_costs(describe(3)), CompileOptions(veus=3)
    tasks = lower_graph(load_graph(parsed(BRANCHES)), vdevice, options, Dump(None))
    plan = schedule_tasks(tasks, vdevice, ModelCosts(vdevice), options, Dump(None))
    (wanted,) = run_reference(plan, [sign * X], Lowest())
    generator, codes = random.Random(0), set()
    for number in range(120):
        damaged = MUTATIONS[generator.choice(sorted(MUTATIONS))](generator, plan)
        try:
            verify_program.verify(damaged, vdevice)
        except VerificationError as error:
            codes.add(error.code)
            continue
        for (found,) in run_orders(damaged, [sign * X], pickers(3, number)):
            np.testing.assert_array_equal(found, wanted)
    assert "P11" in codes


def test_saved_models_skip_on_another_number_of_execution_units(tmp_path):
    model = parsed(BRANCHES)
    rammer.compile(model, "cpu", veus=1).save(tmp_path / "branches.rammer")
    net = rammer.compile(model, "reference", veus=1)
    for veus in (1, 3):
        loaded = rammer.load(tmp_path / "branches.rammer", veus=veus)
        for x in (X, -X, X):
            np.testing.assert_allclose(loaded(x), net(x), rtol=1e-5)


def test_several_models_each_skip_what_they_do_not_need():
    both = rammer.compile([parsed(BRANCHES), parsed(STEPS)], "cpu", veus=2)
    alone = [rammer.compile(parsed(body), "reference", veus=1) for body in (BRANCHES, STEPS)]
    for a, b in ((X, X), (-X, 100 * X), (X, X / 10)):
        for found, net, x in zip(both(a, b), alone, (a, b), strict=True):
            np.testing.assert_allclose(found, net(np.float32(x)), rtol=1e-4)
