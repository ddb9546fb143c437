"""Which vEUs keep the constants of rOperators that use the same ones wave after wave."""

import json
from collections import Counter
from dataclasses import replace
from operator import ne

import numpy as np
import pytest

from benchmarks.networks import NETWORKS
from rammer.devices.cuda.source_files import DEVICE_RECORDS, LAUNCH
from rammer.devices.cuda.tables import record_dtype
from rammer.devices.registry import find_device
from rammer.errors import VerificationError
from rammer.frontends.onnx import load_graph
from rammer.ir.kernel_form import PersistentRnnForm
from rammer.ir.program import Execute
from rammer.ir.task import TensorRole
from rammer.options import CompileOptions
from rammer.pipelines.planning import plan_graph
from rammer.verify.program import verify
from tests.support.trained_layers import trained_layers

DEVICE = find_device("cuda:sm_90")
OPTIONS = CompileOptions(device=DEVICE.name)
H200 = DEVICE.describe(OPTIONS)
LAYERS, STEPS, HIDDEN = 3, 6, 64


@pytest.fixture(scope="module")
def graph():
    return load_graph(NETWORKS["lstm_tc"](layers=LAYERS, steps=STEPS, hidden=HIDDEN))


def homes(plan):
    """Per vEU, the weights that each of its rTasks reads: the largest of the constants."""
    constants = {tensor.id: tensor.nbytes for tensor in plan.graph.tensors if tensor.role is TensorRole.CONSTANT}
    found = []
    for queue in zip(*(program.steps for program in plan.schedule.programs), strict=True):
        tasks = [step.task for part in queue for step in part if isinstance(step, Execute)]
        reads = [[binding.tensor for binding in plan.graph.operators[task.operator].reads] for task in tasks]
        found.append([max((i for i in slots if i in constants), key=lambda i: constants[i]) for slots in reads])
    return found


def test_each_layer_has_units_of_its_own(graph):
    few = replace(H200, veus=H200.veus[:8])
    by_veu = [set(own) for own in homes(plan_graph(graph, few, OPTIONS)) if own]
    assert all(len(own) == 1 for own in by_veu)
    assert len(set.union(*by_veu)) == LAYERS
    plain = plan_graph(graph, replace(few, stationary_bytes=0), OPTIONS)
    assert any(len(set(own)) > 1 for own in homes(plain))


def test_a_sequence_that_is_larger_than_the_weights_keeps_none_from_staying():
    """A step reads its part of the sequence alone."""
    sequence = load_graph(NETWORKS["lstm_tc"](layers=2, steps=80, hidden=8))
    assert sequence.values[sequence.inputs[0]].type.size > 4 * 8 * (8 + 8 + 2)
    few = replace(H200, veus=H200.veus[:2])
    by_veu = [set(own) for own in homes(plan_graph(sequence, few, OPTIONS)) if own]
    assert all(len(own) == 1 for own in by_veu)


def test_what_is_left_of_all_shares_goes_to_the_first_layer(graph):
    few = replace(H200, veus=H200.veus[:8])
    units = Counter(next(iter(set(own))) for own in homes(plan_graph(graph, few, OPTIONS)) if own)
    # A layer's share is two; there are rKernels of two rTasks and of four.
    assert [units[weights] for weights in sorted(units)] == [4, 2, 2]


def test_layers_on_few_units_keep_weights_of_16_bits_as_they_are():
    """Of 256 units, 13 rTasks keep float32, 7 or fewer 16 bits."""
    graph = load_graph(NETWORKS["lstm_tc"](layers=3, steps=3))
    for veus, chosen in ((39, {(13, False)}), (21, {(7, True)}), (15, {(5, True)})):
        options = replace(OPTIONS, precision="fp16")
        few = replace(H200, veus=H200.veus[:veus], precision="fp16")
        plan = plan_graph(graph, few, options)
        verify(plan, few)
        kept = [(one.task_count, one.form) for one in plan.kernels if isinstance(one.form, PersistentRnnForm)]
        assert {(count, form.is_narrow) for count, form in kept} == chosen
        assert len(kept) == 9
        by_veu = [set(own) for own in homes(plan) if own]
        assert len(by_veu) == veus
        assert all(len(own) == 1 for own in by_veu)


def test_cells_of_a_layer_are_one_run(graph):
    source = DEVICE.emit(plan_graph(graph, H200, OPTIONS), H200)
    launch = json.loads(bytes(source.files[LAUNCH]))
    records = np.frombuffer(source.files[DEVICE_RECORDS], dtype=record_dtype(launch["slots"]))
    # The first cell of a layer reads other constants, its states, and the last one of all writes the result.
    runs, joins = records["run"].reshape(LAYERS, -1, STEPS), records["joins"].reshape(LAYERS, -1, STEPS)
    assert (runs[:-1] == [1, *range(STEPS - 1, 0, -1)]).all()
    assert (joins[:-1] == [1, *[0] * (STEPS - 1)]).all()
    assert (runs[-1] == [1, *range(STEPS - 2, 0, -1), 1]).all()
    assert (joins[-1] == [1, *[0] * (STEPS - 3), 1, 0]).all()
    assert not records["busy"].any()


def test_what_keeps_nothing_has_no_runs(graph):
    plain = replace(H200, stationary_bytes=0)
    source = DEVICE.emit(plan_graph(graph, plain, OPTIONS), plain)
    launch = json.loads(bytes(source.files[LAUNCH]))
    assert not np.frombuffer(source.files[DEVICE_RECORDS], dtype=record_dtype(launch["slots"]))["run"].any()


def test_too_many_units_for_the_constants_leave_them_where_they_are(graph):
    few = replace(H200, veus=H200.veus[:2], stationary_bytes=1024)
    source = DEVICE.emit(plan_graph(graph, few, OPTIONS), few)
    launch = json.loads(bytes(source.files[LAUNCH]))
    assert not np.frombuffer(source.files[DEVICE_RECORDS], dtype=record_dtype(launch["slots"]))["run"].any()


def test_a_plan_that_keeps_more_than_a_unit_has_is_refused(graph):
    plan = plan_graph(graph, H200, OPTIONS)
    with pytest.raises(VerificationError, match="bytes in registers of 1024") as caught:
        verify(plan, replace(H200, stationary_bytes=1024))
    assert caught.value.code == "P15"


def test_both_passes_of_layers_that_are_trained_keep_their_weights():
    """Weights are states there. A unit that is used by both passes has those of one layer in each."""
    few = replace(H200, veus=H200.veus[:8])
    plan = plan_graph(trained_layers(layers=2, steps=6, units=64), few, OPTIONS)
    verify(plan, few)
    cells = {
        operator.id: operator
        for operator, pick in zip(plan.graph.operators, plan.schedule.choice, strict=True)
        if isinstance(operator.kernels[pick].form, PersistentRnnForm)
    }
    assert Counter(operator.kind for operator in cells.values()) == {
        "LSTMGatesCell": 11,  # the last one of all is fused with what it gives
        "LSTMGatesCell+Sub": 1,
        "LSTMGradientCell": 6,
        "MatMul+LSTMGradientCell": 6,
    }
    states = set(plan.graph.inputs[-plan.graph.states :])
    for queue in (queue for program in plan.schedule.programs for queue in program.steps):
        tasks = [step.task.operator for step in queue if isinstance(step, Execute)]
        runs = [
            ("Gradient" in operator.kind, frozenset(binding.tensor for binding in operator.reads) & states)
            for operator in (cells[number] for number in tasks if number in cells)
        ]
        assert len(set(runs)) <= 2


def test_a_last_cell_of_other_rkernels_leaves_its_layer_where_it_is():
    """The encoder's last cell gives its state alone, and would be cut otherwise than those before it."""
    graph = load_graph(NETWORKS["seq2seq"](batch=4, steps=6, layers=2, decoder_layers=1, decoder_steps=2))
    changes = [sum(map(ne, own, own[1:])) for own in homes(plan_graph(graph, H200, OPTIONS))]
    assert max(changes) <= 1
