"""Rules about what may be skipped: a graph or plan that breaks one is rejected with its code."""

from dataclasses import replace

import onnx
import pytest

from rammer.devices.reference.device import describe
from rammer.errors import VerificationError
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.ir.task import Binding
from rammer.options import CompileOptions
from rammer.pipelines.planning import lower_graph, schedule_tasks
from rammer.roller.model import ModelCosts
from rammer.schedule.policies import POLICIES
from rammer.verify import graph as verify_graph
from rammer.verify import program as verify_program
from rammer.verify import tasks as verify_tasks

MODEL = """<ir_version: 10, opset_import: ["": 21]> test (float[8, 8] x) => (float[8, 8] y) {
    zero = Constant<value_float = 0.0>() s = ReduceSum<keepdims = 0>(x) c = Greater(s, zero)
    y = If (c) <
        then_branch = a () => (float[8, 8] a) { p = MatMul(x, x) a = MatMul(p, x) },
        else_branch = b () => (float[8, 8] b) { q = Exp(x) b = MatMul(q, q) }
    >
}"""


def tasks_of(veus=2):
    return lower_graph(
        load_graph(onnx.parser.parse_model(MODEL)), describe(veus), CompileOptions(veus=veus), Dump(None)
    )


TASKS = tasks_of()
NUMBERS = {operator.name: operator.id for operator in TASKS.operators}
FIRST, SECOND = NUMBERS["If_3/then_branch/MatMul_0"], NUMBERS["If_3/then_branch/MatMul_1"]
OTHER, CHOICE, CONDITION, INVERSE = (
    NUMBERS[name] for name in ("If_3/else_branch/MatMul_1", "If_3", "Greater_2", "c.else")
)


def changed(number, **changes):
    operators = list(TASKS.operators)
    operators[number] = replace(operators[number], **changes)
    return replace(TASKS, operators=tuple(operators))


def refused(tasks, code, message):
    verify_tasks.verify(TASKS)
    with pytest.raises(VerificationError, match=message) as caught:
        verify_tasks.verify(tasks)
    assert caught.value.code == code


def test_an_rtask_that_runs_may_not_read_what_may_be_skipped():
    refused(changed(SECOND, predicate=None), "T21", "may have been skipped")


def test_an_rtask_of_the_other_branch_may_not_read_it():
    refused(changed(SECOND, predicate=TASKS.operators[OTHER].predicate), "T21", "may have been skipped")


def test_a_choice_takes_the_side_that_ran():
    condition, a, b = TASKS.operators[CHOICE].reads
    refused(changed(CHOICE, reads=(condition, b, a)), "T21", "may have been skipped")


def test_a_choice_by_another_bool_is_none():
    choice, inverse = TASKS.operators[CHOICE], TASKS.operators[INVERSE].writes[0]
    refused(changed(CHOICE, reads=(inverse, *choice.reads[1:])), "T21", "may have been skipped")
    swapped = (inverse, choice.reads[2], choice.reads[1])
    refused(changed(CHOICE, reads=swapped), "T21", "may have been skipped")


def test_a_predicate_is_one_bool():
    floats, bools = Binding(tensor=TASKS.inputs[0], origin=(0, 0)), TASKS.operators[FIRST].predicate
    refused(changed(FIRST, predicate=floats), "T07", "its predicate binds .* of another element type")
    refused(changed(FIRST, predicate=replace(bools, origin=(1,))), "T05", "its predicate binds .* of another rank")
    refused(changed(FIRST, predicate=replace(bools, tensor=99)), "T01", "names tensor 99")


def test_a_predicate_is_always_there():
    inverse = TASKS.operators[INVERSE]
    refused(changed(INVERSE, predicate=inverse.reads[0]), "T20", "which has one itself")


def test_outputs_are_always_written():
    refused(changed(CHOICE, predicate=TASKS.operators[FIRST].predicate), "T20", "whose elements others count on")


def test_a_predicate_is_written_before():
    late = TASKS.operators[INVERSE].writes[0]
    refused(changed(INVERSE, predicate=late), "T16", "reads an element")


def test_a_predicate_of_a_graph_is_one_bool_that_is_there():
    plain = load_graph(onnx.parser.parse_model(MODEL))
    verify_graph.verify(plain)
    for value, code, message in (
        (plain.inputs[0], "G13", "has the predicate"),
        (plain.outputs[0], "G03", "made later"),
    ):
        operators = tuple(replace(operator, predicate=value) for operator in plain.operators)
        with pytest.raises(VerificationError, match=message) as caught:
            verify_graph.verify(replace(plain, operators=operators))
        assert caught.value.code == code


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy != "auto"])
def test_a_plan_that_does_not_wait_for_predicates_is_refused(policy):
    without = replace(TASKS, operators=tuple(replace(operator, predicate=None) for operator in TASKS.operators))
    vdevice, options = describe(2), CompileOptions(veus=2, policy=policy)
    plan = schedule_tasks(without, vdevice, ModelCosts(vdevice), options, Dump(None))
    verify_program.verify(plan, vdevice)
    with pytest.raises(VerificationError) as caught:
        verify_program.verify(replace(plan, graph=TASKS), vdevice)
    assert caught.value.code in ("P11", "P13")
