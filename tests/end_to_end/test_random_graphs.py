"""Random models from file to answer: every plan is accepted, and all of its runs agree with ONNX Runtime.

Each model is compiled with all policies for 1 to 4 vEUs. The reference device runs each plan under random and unkind
interleavings, the processor runs those of one number of vEUs (of all four in the long run) several times. One model in
three mixes in integers, truth values and 16-bit floats; every other one is compiled for a processor so slow that even
the smallest operator spreads over all vEUs. Those of `WITH_PARTS` have branches, loops, scans and quantised parts.
"""

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial

import numpy as np
import onnx.parser
import pytest

from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.ir.program import Plan, Wait
from rammer.options import CompileOptions
from rammer.pipelines.planning import plan_graph
from tests.support.agreement import (
    VEUS,
    WITH_PARTS,
    Agreement,
    attempt_seed,
    check_seed,
    compare,
    made_of_halves,
    pickers,
    run_onnx_runtime,
    without_costs,
)
from tests.support.float64 import run_in_float64
from tests.support.onnx_reference import evaluate_model
from tests.support.plans import run_orders
from tests.support.random_graphs import random_model

GRAPHS = (*range(16), 1003, 1024, 1862, 3926, 5195)
"""1003 reads what none of several writers wrote; 1024 has reductions that share a border, not all of whose taps are
few; 1862 rounds to 16 bits and widens again.

3926 gives 16-bit floats as float32; 5195 the logarithm of sums of probabilities, which are 1.
"""
PARTS = (2_000, 2_001, 2_049, 2_004, 2_009, 2_016, 2_017)
MANY_GRAPHS = (*range(16, 100), *range(1_000, 2_000))


@pytest.mark.parametrize("seed", GRAPHS)
def test_compiled_model_agrees(seed):
    check_seed(seed, built=[1 + seed // 2 % 4] if seed < 100 else VEUS)


@pytest.mark.parametrize("seed", PARTS)
def test_compiled_model_with_parts_agrees(seed):
    check_seed(seed, built=[1 + seed // 2 % 4])


@pytest.mark.parametrize("first", WITH_PARTS[:60:20])
def test_models_with_parts_agree_as_graphs(first):
    check_graphs(range(first, first + 20))


@pytest.mark.long
def test_many_models_with_parts_agree_as_graphs():
    check_graphs(WITH_PARTS)


def check_graphs(seeds):
    """The graphs that models become, evaluated."""
    for seed in seeds:
        model, inputs = random_model(seed, mixed=seed % 3 == 2, parts=True)
        with np.errstate(all="ignore"):
            found = evaluate_model(model, [inputs[value.name] for value in model.graph.input])
        exact, halves = partial(run_in_float64, model, inputs), made_of_halves(model)
        list(compare(found, run_onnx_runtime(model, inputs), f"seed {seed}", exact, halves))


@pytest.mark.long
@pytest.mark.parametrize("seeds", [MANY_GRAPHS, WITH_PARTS], ids=["plain", "parts"])
def test_many_compiled_models_agree(seeds, capsys):
    start = time.monotonic()
    total, failures = Agreement(), {}
    # Fresh processes: a fork would inherit locks that a thread of this one holds.
    pool = ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn"))
    futures = {pool.submit(attempt_seed, seed): seed for seed in seeds}
    try:
        for done, future in enumerate(as_completed(futures), start=1):
            found = future.result()
            if isinstance(found, Agreement):
                total += found
            else:
                failures[futures[future]] = found
            if done % 50 == 0 or not isinstance(found, Agreement):
                with capsys.disabled():
                    news = "" if isinstance(found, Agreement) else f"seed {futures[future]} {found}"
                    print(f"\n{news}{time.monotonic() - start:.0f} s: {len(failures)} failures, {total}")
    finally:
        pool.shutdown(cancel_futures=True)
    assert not failures, sorted(failures)


def test_models_cover_operators_and_types():
    op_types, dtypes = set(), set()
    parts = {
        "If",
        "Loop",
        "Scan",
        "QuantizeLinear",
        "QLinearMatMul",
        "MatMulInteger",
        "ConvInteger",
        "DynamicQuantizeLinear",
    }
    assert parts <= {node.op_type for seed in range(100) for node in random_model(seed, parts=True)[0].graph.node}
    for seed in range(300):
        model, _ = random_model(seed, mixed=True)
        op_types |= {node.op_type for node in model.graph.node}
        dtypes |= {value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)}
    assert len(op_types) > 50
    assert len(dtypes) == 6  # float32, float16, int32, int64, uint8, bool


def test_float64_judges_where_two_float32_results_differ():
    exact = np.array([1.0, 2.0])
    ours, theirs = exact.astype(np.float32), (exact * (1 + 1e-4)).astype(np.float32)
    ((_, error),) = compare([ours], [theirs], "ours", lambda: [exact])
    assert error == 0.0
    for judge in (None, lambda: [exact]):
        with pytest.raises(AssertionError, match="output 0"):
            list(compare([theirs], [ours], "theirs", judge))


def test_where_values_cancel_no_more_is_asked_than_of_onnx_runtime():
    """Up to a bound: where ONNX Runtime is beside the truth, that says nothing of ours."""
    exact = np.array([1e-3, 2e-3])
    near, far, lost = ((exact * (1 + off)).astype(np.float32) for off in (1.3e-5, 5.8e-5, 2e-3))
    ((_, error),) = compare([near], [far], "ours", lambda: [exact])
    assert 1e-5 < error < 2e-5
    for ours, theirs in ((far, near), (2 * lost, lost)):
        with pytest.raises(AssertionError, match="output 0"):
            list(compare([ours], [theirs], "theirs", lambda: [exact]))


def test_what_is_made_of_halves_is_as_exact_as_they_are():
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 22]>
        halves (float[2] x, float16[2] h, bool b) => (float[2] direct, float[2] cast, float[2] inside, float[2] plain) {
            direct = Cast<to = 1>(h)
            rounded = Cast<to = 10>(x)
            cast = Cast<to = 1>(rounded)
            inside = If(b) <
                then_branch = one () => (float[2] i) { i = Add(x, cast) },
                else_branch = other () => (float[2] j) { j = Identity(x) }>
            plain = Neg(x)
        }""")
    assert made_of_halves(model) == {0, 1, 2}
    expected = np.ones(2, np.float32)
    ((name, _),) = compare([expected * np.float32(1 + 1e-3)], [expected], "halves", halves=[0])
    assert name == "float16"
    with pytest.raises(AssertionError, match="output 0"):
        list(compare([expected * np.float32(1 + 1e-3)], [expected], "others", halves=[1]))


def test_what_is_left_of_ones_is_compared_with_ones():
    """The logarithm of 1 is 0, or what rounding left."""
    ours, theirs, exact = (np.full(2, value, np.float32) for value in (0, 1e-7, 1e-17))
    ((_, error),) = compare([ours], [theirs], "ours", lambda: [exact])
    assert error < 1e-9
    with pytest.raises(AssertionError, match="output 0"):
        list(compare([theirs], [ours + exact], "theirs", lambda: [exact]))


def test_interleavings_show_what_a_missing_wait_does():
    """The tests above mean something only if a plan that is wrong gives wrong results."""
    shown = []
    for seed in range(1, 30, 2):
        model, feeds = random_model(seed)
        options = CompileOptions(veus=4)
        plan = plan_graph(load_graph(model), without_costs(find_device("cpu").describe(options)), options)
        careless = without_waits(plan)
        if careless == plan:
            continue
        inputs = [feeds[plan.graph.tensors[number].name] for number in plan.graph.inputs]
        right, *others = (
            [array.tobytes() for array in outputs]
            for tried in (plan, careless)
            for outputs in run_orders(tried, inputs, pickers(4, seed))
        )
        shown.append(any(other != right for other in others))
    assert len(shown) >= 10
    assert all(shown)


def without_waits(plan: Plan) -> Plan:
    programs = []
    for program in plan.schedule.programs:
        steps = tuple(tuple(step for step in queue if not isinstance(step, Wait)) for queue in program.steps)
        programs.append(replace(program, steps=steps))
    return replace(plan, schedule=replace(plan.schedule, programs=tuple(programs)))
