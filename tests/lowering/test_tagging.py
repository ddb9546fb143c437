"""Tensors that carry their own hand-over: which they are, and that programs with them are sound without Waits."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from onnx import helper

from benchmarks.networks import NETWORKS
from benchmarks.networks.builder import random_inputs
from rammer.devices.reference.pickers import Behind, Bursts, Highest, Lowest, Random, Starving
from rammer.devices.registry import find_device
from rammer.errors import VerificationError
from rammer.frontends.onnx import load_graph
from rammer.ir.evaluate import evaluate_graph
from rammer.ir.program import Execute, MemoryPlan, Plan, RProgram, Schedule, Signal, Wait
from rammer.ir.task import RTask
from rammer.options import CompileOptions
from rammer.passes import unroll
from rammer.pipelines.planning import plan_graph
from rammer.roller.model import ModelCosts
from rammer.schedule.dependencies import find_tagged
from rammer.schedule.simulator import simulate
from rammer.verify import program
from tests.support.agreement import relative_difference
from tests.support.plans import run_reference
from tests.support.small_models import FLOAT, layer_model, small_model
from tests.support.taskgraphs import TileCosts, chain, device
from tests.support.trained_layers import expected_runs, random_runs, trained_layers

DEVICE = find_device("cuda:sm_90")
OPTIONS = CompileOptions(device=DEVICE.name)
H200 = DEVICE.describe(OPTIONS)
SMALL = replace(H200, veus=H200.veus[:5], stationary_bytes=1 << 12)
MODEL = NETWORKS["lstm_tc"](layers=2, steps=3, hidden=16)


@pytest.fixture(scope="module")
def plan():
    return plan_graph(load_graph(MODEL), SMALL, OPTIONS)


def steps(plan, kind):
    return [step for part in plan.schedule.programs for queue in part.steps for step in queue if isinstance(step, kind)]


def test_states_that_products_read_are_tagged(plan):
    tagged = {tensor.id for tensor in plan.graph.tensors if tensor.layout.tagged}
    # The outputs of all cells but the model's own; their cell states are read where they are made.
    assert len(tagged) == 2 * 3 - 1
    assert all(plan.graph.tensors[tensor].nbytes == 2 * 4 * 16 for tensor in tagged)
    assert len(steps(plan, Execute)) > 5
    assert not steps(plan, Wait)
    assert not steps(plan, Signal)


@pytest.mark.parametrize(("precision", "tagged_bytes"), [("fp32", 8), ("fp16", 4), ("bf16", 4), ("tf32", 4)])
def test_tags_of_a_batch_take_as_much_as_their_elements_but_in_tf32(precision, tagged_bytes):
    options = replace(OPTIONS, precision=precision)
    model = load_graph(NETWORKS["lstm_tc"](batch=8, layers=2, steps=3, hidden=64))
    tensors = plan_graph(model, DEVICE.describe(options), options).graph.tensors
    sizes = {tensor.nbytes for tensor in tensors if tensor.layout.tagged and tensor.alias_of is None}
    assert sizes == {8 * 64 * tagged_bytes}


def test_products_whose_results_are_tagged_may_have_all_units():
    plan = plan_graph(load_graph(NETWORKS["lstm_tc"](layers=2, steps=3, hidden=512)), H200, OPTIONS)
    makers = [
        operator
        for operator in plan.graph.operators
        if all(plan.graph.tensors[binding.tensor].layout.tagged for binding in operator.writes)
    ]
    assert makers
    assert all(max(kernel.task_count for kernel in maker.kernels) > H200.veu_count // 4 for maker in makers)


def test_nothing_is_tagged_where_the_device_cannot_wait_for_it():
    wide = NETWORKS["lstm_tc"](layers=2, steps=3, hidden=64)  # more than one vEU is worth
    for vdevice in (replace(SMALL, tagged_handover_us=None), replace(SMALL, tagged_handover_us=SMALL.handover_us)):
        plan = plan_graph(load_graph(wide), vdevice, OPTIONS)
        assert not any(tensor.layout.tagged for tensor in plan.graph.tensors)
        assert steps(plan, Wait)


def test_nothing_is_tagged_that_others_read():
    graph = plan_graph(load_graph(layer_model()), SMALL, OPTIONS).graph
    assert not any(tensor.layout.tagged for tensor in graph.tensors)


@pytest.mark.parametrize(
    ("batch", "units", "layers", "tagged"), [(4, 64, 2, 5), (65, 64, 2, 0), (4, 1024, 1, 2), (4, 2048, 1, 0)]
)
def test_states_of_a_batch_are_tagged_where_weights_stay(batch, units, layers, tagged):
    """No units keep those of 2,048."""
    model = NETWORKS["lstm_tc"](batch=batch, layers=layers, steps=3, hidden=units)
    found = plan_graph(load_graph(model), H200, OPTIONS)
    assert sum(tensor.layout.tagged for tensor in found.graph.tensors) == tagged


def test_layers_that_follow_others_have_the_units_of_these():
    """Thirty layers of 13 units are three groups; the first step of each layer has no states to multiply."""
    graph = plan_graph(load_graph(NETWORKS["lstm_tc"](batch=4, layers=30, steps=3)), H200, OPTIONS).graph
    assert sum(operator.kind == "MatMul" for operator in graph.operators) == 2
    cells = [operator for operator in graph.operators if "Cell" in operator.kind]
    kept = [any(kernel.form.kept_bytes for kernel in cell.kernels) for cell in cells]
    assert len(cells) == 90
    assert kept.count(False) <= 2  # of inputs that were multiplied at once


@pytest.mark.parametrize(
    ("op_type", "constant", "tagged"), [("Mul", np.linspace(0, 1, 16), {(3, 16)}), ("MatMul", np.eye(16), {(1, 16)})]
)
def test_others_take_tagged_states_or_have_their_own(op_type, constant, tagged):
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((1, 64, 16)), "r": rng.standard_normal((1, 64, 16)), "c": constant}
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r"], ["states"], hidden_size=16),
        helper.make_node(op_type, ["states", "c"], ["y"]),
    ]
    constants = {name: value.astype(np.float32) for name, value in weights.items()}
    model = small_model(nodes, {"x": (FLOAT, (3, 1, 16))}, {"y": (FLOAT, (3, 1, 1, 16))}, constants)
    plan = plan_graph(load_graph(model), SMALL, OPTIONS)
    assert {tensor.type.shape for tensor in plan.graph.tensors if tensor.layout.tagged} == tagged
    x = rng.standard_normal((3, 1, 16)).astype(np.float32)
    (wanted,) = evaluate_graph(unroll.run(load_graph(model)), [x])
    (found,) = run_reference(plan, [x], Starving(1))
    assert relative_difference(found, wanted) < 1e-5


@pytest.mark.parametrize(
    "make", [Lowest, Highest, Behind, partial(Starving, 1), partial(Random, 3), partial(Bursts, 3)]
)
def test_programs_are_right_under_any_interleaving(plan, make):
    x = random_inputs(MODEL, seed=1)["sequence"]
    (wanted,) = evaluate_graph(unroll.run(load_graph(MODEL)), [x])
    (found,) = run_reference(plan, [x], make())
    assert relative_difference(found, wanted) < 1e-5


# --- A chain of two rOperators, the tensor between them tagged --------------------------------------------------------


def two(*queues, offsets=None, counters=0):
    graph = chain(2, shape=(4, 4), tiles=[(4, 4)])
    between = next(tensor for tensor in graph.tensors if tensor.id in {b.tensor for b in graph.operators[1].reads})
    tensors = list(graph.tensors)
    tensors[between.id] = replace(between, layout=replace(between.layout, tagged=True))
    graph = replace(graph, tensors=tuple(tensors))
    schedule = Schedule(policy="made", choice=(0, 0), programs=(RProgram(steps=queues, counter_count=counters),))
    memory = MemoryPlan(offsets_bytes={between.id: 0}, arenas_bytes=(128,), alignment_bytes=64)
    return Plan(graph=graph, schedule=schedule, memory=memory)


FIRST, SECOND = Execute(RTask(0, 0)), Execute(RTask(1, 0))
TAKING = replace(device(2), tagged_handover_us=device(2).handover_us)


def test_no_wait_is_needed_on_another_unit():
    program.verify(two((FIRST,), (SECOND,)), TAKING)


def test_taking_before_it_is_written_on_the_same_unit_is_a_halt():
    with pytest.raises(VerificationError, match="takes tagged results of rTask 0 of rOperator 0") as caught:
        program.verify(two((SECOND, FIRST), ()), TAKING)
    assert caught.value.code == "P08"


def test_taking_tells_nothing_about_other_work():
    """What the second rTask takes is its own: an rTask behind it may not read what the first wrote untagged."""
    plan = two((FIRST,), (SECOND,))
    ((task, (makers,)),) = find_tagged(plan.graph, (0, 0)).items()
    assert (task, makers.tasks) == (RTask(1, 0), (RTask(0, 0),))


def test_simulated_takers_wait_for_a_handover():
    plan = two((FIRST,), (SECOND,))
    timeline = simulate(plan.graph, plan.schedule, TAKING, TileCosts(element_us=1.0))
    first, second = sorted(timeline.spans, key=lambda span: span.start_us)
    assert second.start_us == pytest.approx(first.end_us + TAKING.handover_us.value)
    assert timeline.waiting_us[1] == pytest.approx(second.start_us)


def test_costs_of_a_network_with_tags_are_simulated(plan):
    timeline = simulate(plan.graph, plan.schedule, SMALL, ModelCosts(SMALL))
    assert len(timeline.spans) == len(steps(plan, Execute))


@pytest.mark.parametrize("reverse", [False, True])
def test_layers_that_are_trained(reverse):
    """Both passes hand over by tags, in any order of units; what is read at the end is not tagged."""
    graph = trained_layers(layers=2, steps=4, units=64, reverse=reverse)
    plan = plan_graph(graph, replace(H200, veus=H200.veus[:8]), OPTIONS)
    tagged = [tensor.type.shape for tensor in plan.graph.tensors if tensor.layout.tagged and tensor.alias_of is None]
    # The states of each step but the last one of all, and the gradients by the gates of all that a step follows.
    assert sorted(shape[-1] for shape in tagged) == [64] * 7 + [4 * 64] * 7
    (inputs,) = random_runs(graph, 1)
    ((wanted,), states) = expected_runs(graph, [inputs])
    inputs += [state.initial for state in graph.states]
    for picker in (Lowest(), Highest(), Behind(), Random(0)):
        for found, expected in zip(run_reference(plan, inputs, picker), [wanted, *states], strict=True):
            assert relative_difference(found, expected) < 1e-5
