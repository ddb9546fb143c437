"""Every rule about plans: a plan that breaks it is rejected with its code, and the message says where."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from rammer.errors import VerificationError
from rammer.ir.kernel_form import GemmShape, GemvForm, Instruction, ReduceForm, WarpgroupGemmForm
from rammer.ir.program import Execute, MemoryPlan, Plan, RProgram, Schedule, Signal, Step, Wait
from rammer.ir.task import RTask, RTile, TaskGraph
from rammer.ir.types import DType, Layout, TensorType
from rammer.verify import program, tasks
from rammer.verify.order import happens_before
from rammer.verify.placement import place
from tests.support.expressions import grouped, one_operator
from tests.support.plans import make_plan, with_sources
from tests.support.taskgraphs import TaskGraphMaker, branches, device, random_task_graph, recurrent
from tests.support.updates import cached_plan


def run(operator: int, index: int) -> Execute:
    return Execute(RTask(operator, index))


def plan_of(graph: TaskGraph, *queues: Sequence[Step], offsets: dict[int, int] | None = None) -> Plan:
    """A plan of one rProgram; tensors lie one after another, 64 bytes each, where no offsets are given."""
    if offsets is None:
        ids = [tensor.id for tensor in graph.tensors if tensor.role.value == "intermediate" and tensor.alias_of is None]
        offsets = {number: 64 * place for place, number in enumerate(ids)}
    counters = [step.counter for queue in queues for step in queue if isinstance(step, Wait | Signal)]
    steps = RProgram(steps=tuple(map(tuple, queues)), counter_count=max(counters, default=-1) + 1)
    schedule = Schedule(policy="made", choice=(0,) * len(graph.operators), programs=(steps,))
    memory = MemoryPlan(
        offsets_bytes=offsets, arenas_bytes=(max(offsets.values(), default=0) + 64,), alignment_bytes=64
    )
    return Plan(graph=graph, schedule=schedule, memory=memory)


def base() -> Plan:
    """Two vEUs: 0 -> map0 -> 1 -> map1 -> 2 -> map2 -> 3 -> map3 -> 4, each of 4 x 4 elements in two rTasks.

    map1 and map2 transpose, so each of their rTasks needs both of the rTasks before. Tensor 3 lies where 1 was.
    """
    maker = TaskGraphMaker()
    tiles = [(2, 4)]
    tensor = maker.elementwise([maker.input((4, 4))], tiles=tiles)
    tensor = maker.transpose(maker.transpose(tensor, tiles=tiles), tiles=tiles)
    graph = with_sources(maker.finish([maker.elementwise([tensor], tiles=tiles)]))
    return plan_of(
        graph,
        [run(0, 0), Signal(0), Wait(1, 1), run(1, 0), Signal(2), Wait(3, 1), run(2, 0), run(3, 0)],
        [run(0, 1), Signal(1), Wait(0, 1), run(1, 1), Signal(3), Wait(2, 1), run(2, 1), run(3, 1)],
        offsets={1: 0, 2: 64, 3: 0},
    )


def with_step(plan: Plan, veu: int, position: int, *steps: Step) -> Plan:
    """The plan with one step replaced by others, or by none."""
    (rprogram,) = plan.schedule.programs
    queues = [list(queue) for queue in rprogram.steps]
    queues[veu][position : position + 1] = steps
    changed = replace(rprogram, steps=tuple(map(tuple, queues)))
    return replace(plan, schedule=replace(plan.schedule, programs=(changed,)))


def with_memory(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, memory=replace(plan.memory, **changes))


def with_choice(plan: Plan, *choice: int) -> Plan:
    return replace(plan, schedule=replace(plan.schedule, choice=choice))


def with_kernel(plan: Plan, number: int, **changes: Any) -> Plan:
    operators = list(plan.graph.operators)
    kernels = tuple(replace(kernel, **changes) for kernel in operators[number].kernels)
    operators[number] = replace(operators[number], kernels=kernels)
    return replace(plan, graph=replace(plan.graph, operators=tuple(operators)))


def rejected(plan: Plan, veus: int = 2) -> VerificationError:
    with pytest.raises(VerificationError) as caught:
        program.verify(plan, device(veus))
    return caught.value


def test_the_base_is_accepted() -> None:
    tasks.verify(base().graph)
    program.verify(base(), device(2))


def test_a_state_in_place_is_accepted() -> None:
    tasks.verify(cached_plan().graph)
    program.verify(cached_plan(), device(2))


def two_rprograms(plan: Plan) -> Plan:
    """More queues than vEUs in the second rProgram."""
    (first,) = plan.schedule.programs
    second = RProgram(steps=((), (), ()), counter_count=0)
    return replace(plan, schedule=replace(plan.schedule, programs=(first, second)))


def circular(plan: Plan) -> Plan:
    """Each vEU waits for the other's signal before it gives its own."""
    plan = with_step(with_step(plan, 0, 1), 0, 1, Wait(1, 1), Signal(0))
    return with_step(with_step(plan, 1, 1), 1, 1, Wait(0, 1), Signal(1))


def written_twice(plan: Plan) -> Plan:
    """map0 writes where map1 does: sound as a schedule, not as a graph."""
    operators = list(plan.graph.operators)
    operators[0] = replace(operators[0], writes=operators[1].writes)
    return replace(plan, graph=replace(plan.graph, operators=tuple(operators)))


def half_an_output(plan: Plan) -> Plan:
    maker = TaskGraphMaker()
    source = maker.input((4, 4))
    result = maker.elementwise([source], shape=(2, 4), into=maker.intermediate((4, 4)))
    return plan_of(maker.finish([result]), [run(0, 0)])


def tagged(plan: Plan, number: int) -> Plan:
    """The plan with a tagged tensor, which the made-up device cannot wait for."""
    tensors = list(plan.graph.tensors)
    tensors[number] = replace(tensors[number], layout=replace(tensors[number].layout, tagged=True))
    return replace(plan, graph=replace(plan.graph, tensors=tuple(tensors)))


# Per rule: how the base is broken, and what the message names.
BROKEN: dict[str, tuple[str, Callable[[Plan], Plan], str]] = {
    "no-such-rkernel": ("P01", lambda plan: with_choice(plan, 0, 1, 0, 0), "node-1"),
    "negative-choice": ("P01", lambda plan: with_choice(plan, 0, -1, 0, 0), "node-1"),
    "too-few-choices": ("P01", lambda plan: with_choice(plan, 0, 0, 0), "3 rKernels are chosen for 4"),
    "no-such-roperator": ("P02", lambda plan: with_step(plan, 1, 7, run(4, 0)), "vEU 1, step 7 of rProgram 0"),
    "no-such-rtask": ("P02", lambda plan: with_step(plan, 1, 7, run(3, 2)), "vEU 1, step 7 of rProgram 0"),
    "negative-rtask": ("P02", lambda plan: with_step(plan, 1, 7, run(3, -1)), "vEU 1, step 7 of rProgram 0"),
    "run-twice": ("P03", lambda plan: with_step(plan, 1, 7, run(3, 1), run(3, 0)), "rTask 0 of rOperator 3 'map3'"),
    "never-run": ("P04", lambda plan: with_step(plan, 1, 7), "rTask 1 of rOperator 3 'map3'"),
    "too-many-queues": ("P05", two_rprograms, "rProgram 1 has 3 queues"),
    "no-such-counter": ("P06", lambda plan: with_step(plan, 0, 1, Signal(4)), "vEU 0, step 1 of rProgram 0"),
    "negative-counter": ("P06", lambda plan: with_step(plan, 0, 2, Wait(-1, 1)), "vEU 0, step 2 of rProgram 0"),
    "too-few-signals": ("P07", lambda plan: with_step(plan, 0, 5, Wait(3, 2)), "vEU 0, step 5 of rProgram 0"),
    "a-wait-for-nothing": ("P07", lambda plan: with_step(plan, 0, 5, Wait(3, 0)), "vEU 0, step 5 of rProgram 0"),
    "deadlock": ("P08", circular, "before rTask 1 of rOperator 1 'map1' (map) on vEU 1"),
    "not-placed": ("P09", lambda plan: with_memory(plan, offsets_bytes={1: 0, 2: 64}), "tensor 3"),
    "input-placed": ("P09", lambda plan: with_memory(plan, offsets_bytes={0: 0, 1: 0, 2: 64, 3: 0}), "tensor 0"),
    "below-the-arena": ("P10", lambda plan: with_memory(plan, offsets_bytes={1: -64, 2: 64, 3: 0}), "tensor 1"),
    "beyond-the-arena": ("P10", lambda plan: with_memory(plan, arenas_bytes=(127,)), "tensor 2"),
    "between-alignments": ("P10", lambda plan: with_memory(plan, offsets_bytes={1: 0, 2: 32, 3: 0}), "tensor 2"),
    "in-no-memory": ("P10", lambda plan: with_memory(plan, memories={2: 1}), "tensor 2"),
    "too-many-arenas": ("P10", lambda plan: with_memory(plan, arenas_bytes=(128, 0)), "in 2 memories, test-2 has 1"),
    "another-alignment": ("P10", lambda plan: with_memory(plan, alignment_bytes=32), "asks 64"),
    "no-wait": ("P11", lambda plan: with_step(plan, 0, 2), "rTask 0 of rOperator 1 'map1' (map) on vEU 0, step 2"),
    "read-anew-too-early": ("P11", lambda plan: with_step(cached_plan(), 0, 5), "'after' (map) on vEU 0, step 5"),
    "overwritten-too-early": ("P19", lambda plan: with_step(cached_plan(), 0, 2), "rTask 1 of rOperator 0 'before'"),
    "written-twice": ("P12", written_twice, "'node-0' of m.onnx; Op node 'node-1' of m.onnx"),
    "shared-bytes": ("P13", lambda plan: with_memory(plan, offsets_bytes={1: 0, 2: 0, 3: 64}), "tensor 1"),
    "half-an-output": ("P14", half_an_output, "tensor 1"),
    "too-much-scratch": (
        "P15",
        lambda plan: with_kernel(plan, 2, form=ReduceForm(scratch_bytes=2 << 20)),
        "node-2",
    ),
    "no-such-skeleton": ("P16", lambda plan: with_kernel(plan, 2, form=GemvForm(width=8)), "node-2"),
    "too-many-threads": ("P18", lambda plan: with_kernel(plan, 2, form=ReduceForm(threads=256)), "node-2"),
    "cannot-be-tagged": ("P17", lambda plan: with_memory(tagged(plan, 2), arenas_bytes=(192,)), "tensor 2"),
}


def test_an_instruction_that_the_device_has_not_is_rejected() -> None:
    shape = GemmShape(64, 8, 64)
    form = WarpgroupGemmForm(instruction=Instruction.WGMMA_F16, threadblock=shape, stages=1, swapped=False, finishers=1)
    products = replace(device(2), skeletons=(*device(2).skeletons, form.skeleton))
    with pytest.raises(VerificationError) as caught:
        program.verify(with_kernel(base(), 2, form=form), products)
    assert caught.value.code == "P16"
    assert "needs the instruction wgmma.m64nNk16.f16" in str(caught.value)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plan_is_rejected(name: str) -> None:
    code, break_it, place_named = BROKEN[name]
    error = rejected(break_it(base()))
    assert error.code == code, str(error)
    assert place_named in str(error)


def test_every_rule_has_a_broken_plan() -> None:
    assert {code for code, _, _ in BROKEN.values()} == set(program.RULES)


def test_a_late_reader_keeps_its_bytes() -> None:
    """The second tensor is written where the first one was, and a vEU may still be reading that."""
    maker = TaskGraphMaker()
    source = maker.input((4, 4))
    first = maker.elementwise([source])
    second = maker.elementwise([source])
    graph = maker.finish([maker.elementwise([first]), maker.elementwise([second])])
    queues: list[list[Step]] = [[run(0, 0), Signal(0), run(1, 0), run(3, 0)], [Wait(0, 1), run(2, 0)]]
    program.verify(plan_of(graph, *queues), device(2))
    error = rejected(plan_of(graph, *queues, offsets={first: 0, second: 0}))
    assert error.code == "P13"
    assert "before rTask 0 of rOperator 2 'map2' (map) on vEU 1, step 1" in error.message


def test_bytes_that_are_half_taken_over_stay_with_their_holder() -> None:
    """Tensor 1 loses its first half to 2, its second to 3, and 3 must wait for the readers of 1 as well."""
    maker = TaskGraphMaker()
    source = maker.input((8, 4))
    whole = maker.elementwise([source])
    first = maker.elementwise([whole], shape=(4, 4))
    second = maker.elementwise([source], origins=[(4, 0)], shape=(4, 4))
    graph = maker.finish([maker.elementwise([first]), maker.elementwise([second])])
    offsets = {whole: 0, first: 128, second: 64}
    in_order = plan_of(graph, [run(0, 0), run(1, 0), run(2, 0), run(3, 0), run(4, 0)], offsets=offsets)
    program.verify(with_memory(in_order, arenas_bytes=(192,)), device(1))
    parallel = plan_of(graph, [run(0, 0), run(1, 0), run(3, 0)], [run(2, 0), run(4, 0)], offsets=offsets)
    error = rejected(with_memory(parallel, arenas_bytes=(192,)))
    assert error.code == "P13"
    assert "tensor 1" in str(error)
    assert f"tensor {second}" in str(error)


@pytest.mark.parametrize(("channel", "needed"), [(2, 0), (3, 1), (5, 0), (7, 1), (8, 2)])
def test_interleaved_stores_have_their_own_readers(channel: int, needed: int) -> None:
    """Tile 0 stores channels 0 to 2 and 4 to 6, tile 1 channels 3 and 7, within each other's boxes."""
    graph = one_operator(grouped(3, 4, 5), RTile(task=(2, 3, 5)))
    reader = TaskGraphMaker()
    part = reader.elementwise([reader.input((12, 5))], origins=[(channel, 0)], shape=(1, 5))
    (operator,) = reader.finish([part]).operators
    result = replace(graph.tensors[1], id=2, type=TensorType(DType.FLOAT32, (1, 5)), layout=Layout.row_major((1, 5)))
    operator = replace(
        operator,
        id=1,
        reads=(replace(operator.reads[0], tensor=1),),
        writes=(replace(operator.writes[0], tensor=2),),
    )
    graph = replace(
        graph,
        tensors=(*graph.tensors, result),
        operators=(*graph.operators, operator),
        outputs=(1, 2),
    )
    tasks.verify(graph)
    for veu in range(4):
        queues: list[list[Step]] = [[run(0, tile)] for tile in range(4)]
        queues[veu].append(run(1, 0))
        if veu == needed:
            program.verify(plan_of(graph, *queues), device(4))
        else:
            error = rejected(plan_of(graph, *queues), veus=4)
            assert error.code == "P11"
            assert f"before rTask {needed} of rOperator 0" in error.message


def test_rprograms_order_what_they_hold() -> None:
    """Without any Wait, but with rProgram after rProgram."""
    plan = base()
    queues = [[[run(number, 0)], [run(number, 1)]] for number in range(4)]
    programs = tuple(RProgram(steps=tuple(map(tuple, pair)), counter_count=0) for pair in queues)
    program.verify(replace(plan, schedule=replace(plan.schedule, programs=programs)), device(2))
    backwards = (programs[1], programs[0], *programs[2:])
    error = rejected(replace(plan, schedule=replace(plan.schedule, programs=backwards)))
    assert error.code == "P11"
    assert "step 0 of rProgram 0" in str(error)


def test_counters_start_at_zero_in_every_rprogram() -> None:
    plan = base()
    first = RProgram(steps=((run(0, 0), Signal(0)), (run(0, 1),)), counter_count=1)
    rest: tuple[tuple[Step, ...], ...] = (
        (Wait(0, 1), run(1, 0), run(2, 0), run(3, 0)),
        (run(1, 1), run(2, 1), run(3, 1)),
    )
    second = RProgram(steps=rest, counter_count=1)
    error = rejected(replace(plan, schedule=replace(plan.schedule, programs=(first, second))))
    assert error.code == "P07"


def independent(count: int) -> TaskGraph:
    maker = TaskGraphMaker()
    source = maker.input((2,))
    return maker.finish([maker.elementwise([source]) for _ in range(count)])


# vEU 0 signals after steps 0 and 2, vEU 1 after step 0: how many of their steps surely end before the waiting rTask.
@pytest.mark.parametrize(("threshold", "known"), [(1, [0, 0]), (2, [2, 0]), (3, [4, 2])])
def test_a_wait_for_some_signals_orders_only_those_it_cannot_do_without(threshold: int, known: list[int]) -> None:
    plan = plan_of(
        independent(4),
        [run(0, 0), Signal(0), run(1, 0), Signal(0)],
        [run(2, 0), Signal(0)],
        [Wait(0, threshold), run(3, 0)],
    )
    assert happens_before(place(plan), {}).known[3].tolist() == [*known, 1]


def random_queues(generator: random.Random) -> list[list[Step]]:
    """Two or three short queues, each rTask an rOperator of its own, over two counters."""
    queues: list[list[Step]] = []
    number = 0
    for _ in range(generator.randint(2, 3)):
        queue: list[Step] = []
        for _ in range(generator.randint(1, 4)):
            match generator.randrange(3):
                case 0:
                    queue.append(run(number, 0))
                    number += 1
                case 1:
                    queue.append(Signal(generator.randrange(2)))
                case _:
                    queue.append(Wait(generator.randrange(2), generator.randint(1, 3)))
        queues.append(queue)
    return queues


def reachable(queues: list[list[Step]]) -> tuple[set[tuple[int, ...]], bool]:
    """Every tuple of positions that an execution can come to, and whether some execution halts before its end."""
    start = (0,) * len(queues)
    found, todo, halts = {start}, [start], False
    while todo:
        state = todo.pop()
        done = [step for queue, position in zip(queues, state, strict=True) for step in queue[:position]]
        moved = False
        for veu, queue in enumerate(queues):
            if state[veu] == len(queue):
                continue
            step = queue[state[veu]]
            if isinstance(step, Wait) and done.count(Signal(step.counter)) < step.threshold:
                continue
            moved = True
            after = (*state[:veu], state[veu] + 1, *state[veu + 1 :])
            if after not in found:
                found.add(after)
                todo.append(after)
        halts |= not moved and any(len(queue) > position for queue, position in zip(queues, state, strict=True))
    return found, halts


@pytest.mark.parametrize("seed", range(8))
def test_the_order_holds_in_every_execution(seed: int) -> None:
    """All executions of small programs, one by one: what is said to come first does, and halts are found."""
    generator = random.Random(seed)
    checked = halting = 0
    for _ in range(150):
        queues = random_queues(generator)
        places = {
            step.task.operator: (veu, position)
            for veu, queue in enumerate(queues)
            for position, step in enumerate(queue)
            if isinstance(step, Execute)
        }
        plan = plan_of(independent(len(places)), *queues)
        states, halts = reachable(queues)
        if halts:
            halting += 1
            with pytest.raises(VerificationError, match="wait for each other"):
                happens_before(place(plan), {})
            continue
        order = happens_before(place(plan), {})
        for (first, (veu, position)), (second, (other, later)) in product(places.items(), repeat=2):
            if order.known[second, veu] >= order.end[first]:
                checked += 1
                assert first != second
                assert not any(state[veu] <= position and state[other] > later for state in states)
    assert checked > 0
    assert halting > 0


@pytest.mark.parametrize("policy", ["wavefront", "sequential"])
@pytest.mark.parametrize("veus", [1, 2, 4])
def test_plans_of_the_policies_are_accepted(policy: str, veus: int) -> None:
    graphs = [random_task_graph(random.Random(seed), 8) for seed in range(12)]
    for graph in [*graphs, branches(4, 2), recurrent(2, 4)]:
        program.verify(make_plan(graph, policy, device(veus)), device(veus))


def test_an_empty_plan_is_accepted() -> None:
    maker = TaskGraphMaker()
    graph = maker.finish([maker.elementwise([maker.input((0, 4))])])
    program.verify(plan_of(graph), device(1))
