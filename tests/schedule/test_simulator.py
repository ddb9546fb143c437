"""The simulator's clock, rule by rule."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rammer.devices.vector.rules import VectorRules
from rammer.ir.kernel_form import GemmShape, Instruction, WarpgroupGemmForm
from rammer.ir.program import Execute, RProgram, Schedule, Signal, Wait
from rammer.ir.task import RTask
from rammer.ir.types import DType, TensorType
from rammer.ir.vdevice import Brought, Figure
from rammer.schedule.estimates import Estimates
from rammer.schedule.happens_before import HappensBefore
from rammer.schedule.policies import POLICIES
from rammer.schedule.simulator import simulate
from tests.support.schedules import costs, task_graphs
from tests.support.taskgraphs import RESIDENT, TaskGraphMaker, TileCosts, chain, device


def _independent(*elements: int):
    """rOperators of one rTask each, on tensors of so many elements."""
    maker = TaskGraphMaker()
    return maker.finish([maker.elementwise([maker.input((1, count))]) for count in elements])


def _run(graph, *programs, handover_us=0.5, overhead_us=0.0):
    """A timeline where an element takes a microsecond."""
    schedule = Schedule(
        policy="made",
        choice=(0,) * len(graph.operators),
        programs=tuple(RProgram(steps=steps, counter_count=2) for steps in programs),
    )
    target = device(max(map(len, programs)), handover_us=handover_us, task_overhead_us=overhead_us)
    return simulate(graph, schedule, target, TileCosts(element_us=1.0))


def _execute(number: int) -> Execute:
    return Execute(RTask(number, 0))


class _Bringing(VectorRules):
    """Rules of a device on which an rTask copies 20 KB of constants before it waits, reads 40 KB and has much code."""

    def brought(self, kernel):
        return Brought(early_bytes=20_000, constant_bytes=40_000, instructions=300.0, straight_instructions=100.0)


class _Beside(VectorRules):
    """Rules of a device on which something else copies 20 KB of constants while an rTask waits."""

    def brought(self, kernel):
        return Brought(beside_bytes=20_000)


def _times(timeline) -> dict[int, tuple[float, float]]:
    return {span.task.operator: (span.start_us, span.end_us) for span in timeline.spans}


def test_a_queue_runs_in_order_with_the_overhead_of_each_task():
    timeline = _run(_independent(2, 3), ((_execute(1), _execute(0)),), overhead_us=0.25)
    assert _times(timeline) == {1: (0.0, 3.25), 0: (3.25, 5.5)}
    assert timeline.total_us == 5.5
    assert timeline.waiting_us == (0.0,)
    assert timeline.busy_us == (5.5,)


def test_a_unit_that_others_have_first_begins_later():
    """One that runs nothing does not count."""
    schedule = Schedule(
        policy="made",
        choice=(0, 0),
        programs=(RProgram(steps=((_execute(0),), (_execute(1),), ()), counter_count=0),),
    )
    target = replace(device(3), busy_us=(0.0, 4.0, 9.0))
    timeline = simulate(_independent(2, 3), schedule, target, TileCosts(element_us=1.0))
    assert _times(timeline) == {0: (0.0, 2.0), 1: (4.0, 7.0)}
    assert (timeline.total_us, timeline.waiting_us) == (7.0, (0.0, 0.0, 0.0))


@pytest.mark.parametrize(("last_us", "start_us"), [(0.75, 2.75), (0.25, 2.5)])
def test_hand_overs_take_what_they_take_the_last_of_many_units(last_us, start_us):
    schedule = Schedule(
        policy="made",
        choice=(0, 0, 0),
        programs=(
            RProgram(
                steps=((_execute(0), Signal(0), Wait(0, 1), _execute(2)), (Wait(0, 1), _execute(1))), counter_count=1
            ),
        ),
    )
    target = replace(device(2, handover_us=0.5), last_handover_us=Figure(last_us, "assumed"))
    timeline = simulate(_independent(2, 3, 1), schedule, target, TileCosts(element_us=1.0))
    assert _times(timeline) == {0: (0.0, 2.0), 2: (2.0, 3.0), 1: (start_us, start_us + 3.0)}


@pytest.mark.parametrize(("waiting", "late_us"), [(1, 0.0), (2, 0.5), (4, 1.0)])
def test_the_fewer_units_wait_for_the_same_the_sooner_the_last_goes_on(waiting, late_us):
    """By logarithms: of two units half as late as of all four."""
    makers = [(_execute(unit), Signal(0)) if unit == 0 else () for unit in range(4)]
    steps = tuple((*own, Wait(0, 1), _execute(1 + unit)) if unit < waiting else own for unit, own in enumerate(makers))
    schedule = Schedule(policy="made", choice=(0,) * 5, programs=(RProgram(steps=steps, counter_count=1),))
    target = replace(device(4, handover_us=0.5), last_handover_us=Figure(1.5, "assumed"))
    timeline = simulate(_independent(2, 3, 3, 3, 3), schedule, target, TileCosts(element_us=1.0))
    expected = 2.5 + late_us if waiting > 1 else 2.0  # a unit alone waits for itself
    assert _times(timeline)[waiting] == pytest.approx((expected, expected + 3.0))


_EARLY = device(2, task_overhead_us=0.25, starts_early=True)
_LOOKING = replace(_EARLY, own_handover_us=Figure(1.0, "assumed"))
_COPYING = replace(_LOOKING, early_bytes_per_us=Figure(1e4, "assumed"))


@pytest.mark.parametrize(
    ("target", "held_us"), [(_EARLY, 0.0), (_LOOKING, 0.75), (_COPYING, 2.75)], ids=["no", "look", "copy"]
)
@pytest.mark.parametrize("first_us", [2.0, 9.0])
def test_an_rtask_that_has_waits_is_held_up_on_its_own_unit_by_looks_and_copies(target, held_us, first_us):
    """Where others end later, that passes meanwhile; without Waits nothing is held up."""
    program = RProgram(
        steps=((_execute(0), Signal(0), _execute(3)), (_execute(1), Wait(0, 1), _execute(2))), counter_count=1
    )
    graph = _independent(int(first_us), 3, 4, 1)
    schedule = Schedule(policy="made", choice=(0,) * 4, programs=(program,))
    times = _times(simulate(graph, schedule, replace(target, rules=_Bringing()), TileCosts(element_us=1.0)))
    ready_us = max(first_us + 0.25 + 0.5, 3.25 + 0.25 + held_us)
    assert times[2][1] == ready_us + 4.0
    assert times[3] == (first_us + 0.25, first_us + 0.25 + 1.25)


# Constants of 160 bytes, and 8 and 8, or 12 and 12, that an rOperator reads and writes.
@pytest.mark.parametrize(("memory_bytes", "copies", "longer_us"), [(184, 1, 1.0), (184, 2, 1.0), (183, 1, 6.0)])
def test_code_that_is_new_to_a_unit_comes_from_afar(memory_bytes, copies, longer_us):
    """Where what a run comes back to leaves it no room all of it does, else what is in no loop."""
    maker = TaskGraphMaker()
    maker.constant((40, 1))
    x = maker.input((1, 2))
    graph = maker.finish([maker.elementwise([x]), maker.elementwise([x]), maker.elementwise([maker.input((1, 3))])])
    assert graph.operators[0].kernels == graph.operators[1].kernels
    schedule = Schedule(
        policy="made", choice=(0,) * 3, programs=(RProgram(steps=(tuple(map(_execute, range(3))),), counter_count=0),)
    )
    plain = device(1)
    levels = (plain.levels[0], replace(plain.levels[1], capacity_bytes=memory_bytes, copies=copies))
    target = replace(
        plain,
        rules=_Bringing(),
        levels=levels,
        instruction_fetch_us=(Figure(0.01, "assumed"), Figure(0.02, "assumed")),
        streams_constants=True,
    )
    times = _times(simulate(graph, schedule, target, TileCosts(element_us=8.0)))
    assert [end - start for start, end in times.values()] == [16.0 + longer_us, 16.0, 24.0 + longer_us]


def test_code_that_is_run_before_and_behind_many_constants_stays_near():
    """An rKernel of the first and the last of three rOperators, the second of which reads nearly all constants."""
    maker = TaskGraphMaker()
    x = maker.input((1, 2))
    first = maker.elementwise([x])
    middle = maker.elementwise([maker.input((1, 40)), maker.constant((1, 40))])
    graph = maker.finish([first, middle, maker.elementwise([x])])
    steps = tuple(map(_execute, range(3)))
    schedule = Schedule(policy="made", choice=(0,) * 3, programs=(RProgram(steps=(steps,), counter_count=0),))
    plain = device(1)
    target = replace(
        plain,
        rules=_Bringing(),
        levels=(plain.levels[0], replace(plain.levels[1], capacity_bytes=479)),
        instruction_fetch_us=(Figure(0.01, "assumed"), Figure(0.02, "assumed")),
        streams_constants=True,
    )
    times = _times(simulate(graph, schedule, target, TileCosts(element_us=8.0)))
    near_us, far_us = 1.0, 6.0
    assert [end - start for start, end in times.values()] == [16.0 + near_us, 320.0 + far_us, 16.0]


@pytest.mark.parametrize(("element_us", "share", "task_us"), [(0.01, 1.0, 4.0), (0.01, 0.5, 8.0), (5.0, 1.0, 50.0)])
def test_constants_that_no_level_has_room_for_come_from_the_outermost(element_us, share, task_us):
    """40 KB at 10 KB a microsecond, or at a share of that, take 4 or more, unless the rTask takes longer anyway."""
    maker = TaskGraphMaker()
    graph = maker.finish([maker.elementwise([maker.input((1, 10)), maker.constant((1, 10))])])
    kernel = replace(graph.operators[0].kernels[0], constants=frozenset({1}))
    wide = replace(kernel.expr, inputs=(kernel.expr.inputs[0], TensorType(DType.FLOAT32, (1, 100_000))))
    graph = replace(graph, operators=(replace(graph.operators[0], kernels=(replace(kernel, expr=wide),)),))
    schedule = Schedule(policy="made", choice=(0,), programs=(RProgram(steps=((_execute(0),),), counter_count=0),))
    plain = device(1)
    levels = (plain.levels[0], replace(plain.levels[1], capacity_bytes=39))
    target = replace(plain, rules=_Bringing(), levels=levels, streams_constants=True)
    target = replace(target, streamed_share=Figure(share, "assumed"))
    assert simulate(graph, schedule, target, TileCosts(element_us=element_us)).total_us == pytest.approx(task_us)


def test_a_signal_reaches_another_unit_a_hand_over_later():
    timeline = _run(_independent(2, 3), ((_execute(0), Signal(0)), (Wait(0, 1), _execute(1))))
    assert _times(timeline) == {0: (0.0, 2.0), 1: (2.5, 5.5)}
    assert timeline.waiting_us == (0.0, 2.5)
    assert timeline.veus == 2


@pytest.mark.parametrize("overhead_us", [0.25, 0.75])
def test_an_rtask_that_waits_by_itself_starts_early(overhead_us):
    """Its overhead passes during the hand-over: its end is that of the signal, the hand-over and its own work."""
    graph = _independent(2, 3)
    program = RProgram(steps=((_execute(0), Signal(0)), (Wait(0, 1), _execute(1))), counter_count=1)
    target = device(2, task_overhead_us=overhead_us, starts_early=True, start_us=1.0)
    schedule = Schedule(policy="made", choice=(0, 0), programs=(program,))
    timeline = simulate(graph, schedule, target, TileCosts(element_us=1.0))
    given_us = 1.0 + 2.0 + overhead_us
    assert _times(timeline) == {0: (1.0, given_us), 1: (given_us + 0.5 - overhead_us, given_us + 0.5 + 3.0)}
    assert timeline.waiting_us == (0.0, given_us + 0.5 - overhead_us - 1.0)


def test_no_rtask_starts_before_the_one_ahead_has_ended():
    graph = _independent(2, 3, 3)
    program = RProgram(steps=((_execute(0), Signal(0)), (_execute(1), Wait(0, 1), _execute(2))), counter_count=1)
    target = device(2, task_overhead_us=0.75, starts_early=True)
    schedule = Schedule(policy="made", choice=(0, 0, 0), programs=(program,))
    times = _times(simulate(graph, schedule, target, TileCosts(element_us=1.0)))
    assert times[2] == (3.75, 7.5)


def test_a_signal_that_came_before_costs_no_waiting():
    steps = ((_execute(0), Signal(0)), (_execute(1), Wait(0, 1), _execute(2)))
    timeline = _run(_independent(1, 5, 1), steps)
    assert _times(timeline)[2] == (5.0, 6.0)
    assert timeline.waiting_us == (0.0, 0.0)


def test_a_units_own_signal_is_seen_at_once():
    timeline = _run(_independent(2, 3), ((_execute(0), Signal(0), Wait(0, 1), _execute(1)),))
    assert _times(timeline)[1] == (2.0, 5.0)


def test_tagged_results_are_seen_a_tagged_hand_over_later():
    maker = TaskGraphMaker()
    made = maker.elementwise([maker.input((1, 2))])
    graph = maker.finish([maker.elementwise([made])])
    tensors = [replace(t, layout=replace(t.layout, tagged=t.id == made)) for t in graph.tensors]
    graph = replace(graph, tensors=tuple(tensors))
    program = RProgram(steps=((_execute(0),), (_execute(1),)), counter_count=0)
    schedule = Schedule(policy="made", choice=(0, 0), programs=(program,))
    target = replace(device(2, handover_us=0.5), tagged_handover_us=Figure(0.125, "assumed"))
    assert _times(simulate(graph, schedule, target, TileCosts(element_us=1.0)))[1] == (2.125, 4.125)


LATE = WarpgroupGemmForm(
    instruction=Instruction.WGMMA_F16, threadblock=GemmShape(64, 64, 64), stages=2, swapped=False, finishers=384
)


class _Late(VectorRules):
    """Rules of a device on which what takes elements late takes 0.5 us from then on, beside its overhead."""

    def late_us(self, kernel):
        return 0.5


@pytest.mark.parametrize(("busy_us", "times"), [(0.0, (0.0, 3.125)), (9.0, (9.0, 11.25))])
def test_what_takes_tagged_results_late_makes_its_own_when_it_sees_them(busy_us, times):
    """They are seen after 2.375 us."""
    maker = TaskGraphMaker()
    made = maker.elementwise([maker.input((1, 2))])
    graph = maker.finish([maker.elementwise([made])])
    tensors = [replace(t, layout=replace(t.layout, tagged=t.id == made)) for t in graph.tensors]
    first, last = graph.operators
    last = replace(last, kernels=(replace(last.kernels[0], form=LATE),))
    graph = replace(graph, tensors=tuple(tensors), operators=(first, last))
    program = RProgram(steps=((_execute(0),), (_execute(1),)), counter_count=0)
    target = device(2, handover_us=0.5, task_overhead_us=0.25)
    target = replace(target, rules=_Late(), tagged_handover_us=Figure(0.125, "assumed"), busy_us=(0.0, busy_us))
    schedule = Schedule(policy="made", choice=(0, 0), programs=(program,))
    assert _times(simulate(graph, schedule, target, TileCosts(element_us=1.0)))[1] == times


def test_what_may_take_results_late_is_held_up_by_a_look_without_waits_too():
    graph = _independent(2, 3, 3)
    late = replace(graph.operators[2], kernels=(replace(graph.operators[2].kernels[0], form=LATE),))
    graph = replace(graph, operators=(*graph.operators[:2], late))
    program = RProgram(steps=((_execute(0), _execute(1)), (_execute(2),)), counter_count=0)
    schedule = Schedule(policy="made", choice=(0,) * 3, programs=(program,))
    times = _times(simulate(graph, schedule, _LOOKING, TileCosts(element_us=1.0)))
    assert times == {0: (0.0, 2.25), 1: (2.25, 5.5), 2: (0.0, 4.0)}


def test_constants_that_are_copied_beside_a_look_hold_an_rtask_up_where_they_take_longer():
    """20 KB at 10 KB a microsecond, beside a look of 0.75 us and the overhead of 0.25 us before it."""
    program = RProgram(steps=((_execute(0), Signal(0)), (_execute(1), Wait(0, 1), _execute(2))), counter_count=1)
    schedule = Schedule(policy="made", choice=(0,) * 3, programs=(program,))
    target = replace(_COPYING, rules=_Beside())
    times = _times(simulate(_independent(2, 3, 4), schedule, target, TileCosts(element_us=1.0)))
    assert times[2] == (3.25, 3.25 + 1.75 + 4.25)


KEEPING = replace(device(1, task_overhead_us=0.25), kept_share=0.5)
"""A unit where an rTask takes half its time if its weights are there, else all of it and the overhead."""


def _with_weights(*constants: int):
    """rOperators of one rTask of 2 elements each, which keep the weights with these numbers."""
    maker = TaskGraphMaker()
    weights = [maker.constant((1, 2)) for _ in range(1 + max(constants))]
    graph = maker.finish([maker.elementwise([weights[number]]) for number in constants])
    kernels = [replace(one.kernels[0], form=RESIDENT, constants=frozenset({0})) for one in graph.operators]
    operators = [replace(one, kernels=(kernel,)) for one, kernel in zip(graph.operators, kernels, strict=True)]
    return replace(graph, operators=tuple(operators))


@pytest.mark.parametrize("shared", [True, False])
def test_weights_that_another_operator_has_too_are_there_already(shared):
    estimates = Estimates(_with_weights(0, 0 if shared else 1), KEEPING, TileCosts(element_us=1.0))
    assert estimates.task_us == (((1.0,),) * 2 if shared else ((2.25,),) * 2)


@pytest.mark.parametrize("element_us", [1.0, 20.0])
@pytest.mark.parametrize(("capacity_bytes", "load_us"), [(1 << 30, 4.0), (1, 8.0)], ids=["near", "far"])
def test_the_first_weights_that_a_unit_keeps_come_while_it_waits(element_us, capacity_bytes, load_us):
    """4 registers of 512 threads, 8 KB: at 2 KB a microsecond, or at 1 KB from memory, beside what fetching them takes.

    The next rTask finds them. Each looks at what others made: the overhead of 0.25 us.
    """
    program = RProgram(steps=((_execute(0), Signal(0)), (Wait(0, 1), _execute(1), _execute(2))), counter_count=1)
    level = replace(KEEPING.levels[-1], bandwidth_bytes_per_us=Figure(1024.0, "assumed"), capacity_bytes=capacity_bytes)
    target = replace(
        KEEPING,
        veus=device(2).veus,
        levels=(KEEPING.levels[0], level),
        early_bytes_per_us=Figure(2048.0, "assumed"),
        streams_constants=True,
    )
    schedule = Schedule(policy="made", choice=(0,) * 3, programs=(program,))
    times = _times(simulate(_with_weights(1, 0, 0), schedule, target, TileCosts(element_us=element_us)))
    ready_us, fetch_us = times[0][1] + 0.5, 2 * element_us + 0.25
    kept_us = times[2][1] - times[2][0]
    assert kept_us == element_us + 0.25
    assert times[1][1] == max(load_us + fetch_us, ready_us) + kept_us
    assert times[2][0] == times[1][1]


@pytest.mark.parametrize(("order", "total_us"), [((0, 2, 1, 3), 9.5), ((0, 1, 2, 3), 14.0)])
def test_weights_are_fetched_again_where_others_took_their_place(order, total_us):
    """Each rTask takes 1.25 us, and 2.25 where it has to fetch its weights first."""
    schedule = Schedule(
        policy="made",
        choice=(0,) * 4,
        programs=(RProgram(steps=(tuple(map(_execute, order)),), counter_count=0),),
    )
    timeline = simulate(_with_weights(0, 1, 0, 1), schedule, KEEPING, TileCosts(element_us=1.0))
    assert timeline.total_us == total_us


@pytest.mark.parametrize(("first_us", "end_us"), [(2, 7.0), (9, 11.25)])
def test_weights_are_fetched_while_an_rtask_waits(first_us, end_us):
    """It keeps others from 0 to 3.5 us, fetches its own until 5.75 or waits longer, and takes 1.25 us from then on."""
    maker = TaskGraphMaker()
    weights = [maker.constant((1, 2)) for _ in range(2)]
    outputs = [maker.elementwise([weights[number]]) for number in (0, 1, 0, 1)]
    graph = maker.finish([*outputs, maker.elementwise([maker.input((1, first_us))])])
    *keeping, plain = graph.operators
    kept = [replace(one.kernels[0], form=RESIDENT, constants=frozenset({0})) for one in keeping]
    keeping = [replace(one, kernels=(kernel,)) for one, kernel in zip(keeping, kept, strict=True)]
    graph = replace(graph, operators=(*keeping, plain))
    program = RProgram(steps=((_execute(4), Signal(0)), (_execute(0), Wait(0, 1), _execute(1))), counter_count=1)
    schedule = Schedule(policy="made", choice=(0,) * 5, programs=(program,))
    target = replace(KEEPING, veus=device(2, handover_us=0.75).veus, handover_us=Figure(0.75, "assumed"))
    times = _times(simulate(graph, schedule, target, TileCosts(element_us=1.0)))
    assert times[0] == (0.0, 3.5)
    assert times[1][1] == end_us


def test_weights_that_a_unit_fetches_for_the_first_time_come_from_afar():
    """8 KB of each weight take 4 us more at first, whatever the unit kept before; not when they are fetched again."""
    program = RProgram(steps=(tuple(map(_execute, range(4))),), counter_count=0)
    schedule = Schedule(policy="made", choice=(0,) * 4, programs=(program,))
    target = replace(KEEPING, early_bytes_per_us=Figure(2048.0, "assumed"))
    timeline = simulate(_with_weights(0, 1, 0, 1), schedule, target, TileCosts(element_us=1.0))
    assert [span.end_us - span.start_us for span in timeline.spans] == [7.5, 7.5, 3.5, 3.5]


@pytest.mark.parametrize(("behind", "end_us"), [(False, 4.5), (True, 4.75)])
def test_a_look_at_tagged_results_takes_its_time_where_they_are_there(behind, end_us):
    """They are seen after 3.5 us, with the look; on a unit that comes to it just then the look follows."""
    maker = TaskGraphMaker()
    weight = maker.constant((1, 2))
    made = maker.elementwise([maker.input((1, 2))])
    graph = maker.finish([maker.elementwise([weight, made]), maker.elementwise([weight])])
    tensors = [replace(t, layout=replace(t.layout, tagged=t.id == made)) for t in graph.tensors]
    first, *keeping = graph.operators
    kept = [replace(one.kernels[0], form=RESIDENT, constants=frozenset({0})) for one in keeping]
    keeping = [replace(one, kernels=(kernel,)) for one, kernel in zip(keeping, kept, strict=True)]
    graph = replace(graph, tensors=tuple(tensors), operators=(first, *keeping))
    queue = (_execute(2), _execute(1)) if behind else (_execute(1),)
    program = RProgram(steps=((_execute(0),), queue), counter_count=0)
    schedule = Schedule(policy="made", choice=(0,) * 3, programs=(program,))
    target = replace(
        KEEPING, veus=device(2).veus, handover_us=Figure(2.0, "assumed"), tagged_handover_us=Figure(1.25, "assumed")
    )
    times = _times(simulate(graph, schedule, target, TileCosts(element_us=1.0)))
    assert times[1][1] == end_us


def test_a_wait_ends_with_the_signal_that_reaches_its_threshold():
    steps = (
        (_execute(0), Signal(0)),
        (_execute(1), Signal(0)),
        (_execute(2), Signal(0)),
        (Wait(0, 2), _execute(3)),
    )
    assert _times(_run(_independent(9, 1, 4, 1), steps))[3] == (4.5, 5.5)


def test_signals_beyond_the_threshold_do_not_matter():
    steps = ((_execute(0), Signal(0)), (_execute(1), Signal(0)), (_execute(2), Wait(0, 1), _execute(3)))
    assert _times(_run(_independent(1, 2, 2, 1), steps))[3] == (2.0, 3.0)


def test_programs_follow_each_other_after_two_hand_overs():
    timeline = _run(_independent(2, 3), ((_execute(0),), ()), ((), (_execute(1),)))
    assert _times(timeline) == {0: (0.0, 2.0), 1: (3.0, 6.0)}
    assert [span.program for span in timeline.spans] == [0, 1]
    assert timeline.total_us == 6.0


def test_a_deadlock_is_refused():
    with pytest.raises(ValueError, match="deadlock: vEU 0 stands at step 0"):
        _run(_independent(1), ((Wait(0, 1), _execute(0)),))


def test_no_program_takes_no_time():
    timeline = simulate(chain(0), Schedule(policy="made", choice=(), programs=()), device(2), TileCosts())
    assert timeline.total_us == 0.0
    assert timeline.waiting_us == (0.0, 0.0)


@given(graph=task_graphs, policy=st.sampled_from(sorted(POLICIES)), veus=st.integers(1, 4), cost=costs)
def test_a_timeline_keeps_the_order_of_its_schedule(graph, policy, veus, cost):
    target = device(veus)
    schedule = POLICIES[policy](graph, target, cost)
    timeline = simulate(graph, schedule, target, cost)
    order = HappensBefore(schedule)
    times = {span.task: span for span in timeline.spans}
    assert times.keys() == order.places.keys()
    for task, span in times.items():
        assert span.veu == order.places[task][0]
        for other, later in times.items():
            if order.ordered(task, other):
                assert span.end_us <= later.start_us
    assert timeline.total_us == max((span.end_us for span in timeline.spans), default=0.0)
    for busy_us, waiting_us in zip(timeline.busy_us, timeline.waiting_us, strict=True):
        assert busy_us + waiting_us <= timeline.total_us + 1e-9
