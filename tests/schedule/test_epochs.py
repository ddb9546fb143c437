"""Epochs follow each other, equal ones are known, and parts of several schedules make a right one."""

from dataclasses import replace

from hypothesis import given, settings

from rammer.schedule.epochs import compose, find_classes, find_epochs
from rammer.schedule.estimates import Estimates
from rammer.schedule.exploration import Exploration
from rammer.schedule.happens_before import HappensBefore
from rammer.schedule.policies import POLICIES
from tests.support.agreement import DISTINCT
from tests.support.schedules import all_pairs_dependencies, costs, randoms, task_graphs
from tests.support.taskgraphs import TaskGraphMaker, TileCosts, device

COSTS = TileCosts(element_us=1.0)


def diamonds(count, tiles=((4, 8), (8, 8))):
    """Diamonds in a row: 3 rOperators each behind the first, which all but the sides precede or follow."""
    maker = TaskGraphMaker("diamonds")
    tensor = maker.elementwise([maker.input((8, 8))], tiles=tiles)
    for _ in range(count):
        sides = [maker.elementwise([tensor], tiles=tiles), maker.elementwise([tensor, tensor], tiles=tiles)]
        tensor = maker.elementwise(sides, tiles=tiles)
    return maker.finish([tensor])


def epochs_of(graph, least_us):
    return find_epochs(graph, Estimates(graph, device(2), COSTS), 2, least_us)


def test_graphs_are_cut_where_all_paths_meet():
    graph = diamonds(2)
    assert epochs_of(graph, 0.0) == ((0,), (1, 2, 3), (4, 5, 6))
    assert epochs_of(graph, 90.0) == ((0, 1, 2, 3), (4, 5, 6))
    assert epochs_of(graph, 1e6) == ((0, 1, 2, 3, 4, 5, 6),)


def test_epochs_of_equal_work_are_one_class():
    graph = diamonds(3)
    assert find_classes(graph, epochs_of(graph, 0.0)) == ((0,), (1, 2, 3))


@settings(max_examples=30)
@given(graph=task_graphs, cost=costs, generator=randoms)
def test_parts_of_several_schedules_make_a_right_one(graph, cost, generator):
    target = device(2)
    epochs = find_epochs(graph, Estimates(graph, target, cost), 2, 0.0)
    schedules = [POLICIES[name](graph, target, cost) for name in generator.sample(sorted(DISTINCT), 2)]
    parts = [generator.choice(schedules) for _ in epochs]
    for barriers in (False, True):
        found = compose(graph, epochs, parts, 2, barriers=barriers)
        assert len(found.programs) == (len(epochs) if barriers else 1)
        order = HappensBefore(found)
        for task, earlier in all_pairs_dependencies(graph, found.choice).items():
            assert all(order.ordered(producer, task) for producer in earlier)
        for number, (epoch, part) in enumerate(zip(epochs, parts, strict=True)):
            veus = {task: veu for program in part.programs for veu, _, task in program.tasks()}
            own = [(task, veu) for program in found.programs for veu, _, task in program.tasks()]
            for task, veu in own:
                if task.operator in epoch:
                    assert (veu, found.choice[task.operator]) == (veus[task], part.choice[task.operator])
            if barriers:
                assert {task.operator for _, _, task in found.programs[number].tasks()} <= set(epoch)


def on_one_unit(graph, target, cost):
    """A policy that leaves the other unit idle."""
    schedule = POLICIES["sequential"](graph, device(1), cost)
    programs = tuple(replace(program, steps=(*program.steps, ())) for program in schedule.programs)
    return replace(schedule, programs=programs)


def explore(exploration, is_better):
    """Every change, where parts gain as `is_better` says of their names and options."""
    changes = exploration.changes()
    found = []
    change = next(changes, None)
    while change is not None:
        found.append(change)
        try:
            change = changes.send({part: is_better(part, option) for part, option in change.items()})
        except StopIteration:
            break
    return found


def test_parts_are_explored_side_by_side_and_keep_what_gains(monkeypatch):
    monkeypatch.setattr("rammer.schedule.exploration._EPOCH_US", 0.0)
    graph, target = diamonds(2), device(2)
    first = POLICIES["wavefront"](graph, target, COSTS)
    policies = [on_one_unit, POLICIES["wavefront"]]
    exploration = Exploration(graph, first, target, COSTS, policies, any_bits=False)
    assert exploration.parts == {"epoch 0": (0,), "epochs 1, 2": (1, 2)}
    found = explore(exploration, lambda part, option: part == "epochs 1, 2" and option == (0, 1))
    assert all(option[0] == 0 for change in found for option in change.values())
    assert exploration.best == {"epoch 0": (0, 0), "epochs 1, 2": (0, 1)}
    best = exploration.composed(exploration.best, barriers=False)
    assert {task.operator for veu, _, task in best.programs[0].tasks() if veu == 1} == {0}
    assert found == [{"epoch 0": (0, 1), "epochs 1, 2": (0, 1)}, {"epochs 1, 2": (0, 2)}]


def test_what_makes_no_difference_is_not_tried(monkeypatch):
    monkeypatch.setattr("rammer.schedule.exploration._EPOCH_US", 0.0)
    graph, target = diamonds(2), device(2)
    wavefront = POLICIES["wavefront"]
    exploration = Exploration(
        graph, wavefront(graph, target, COSTS), target, COSTS, [wavefront, wavefront], any_bits=True
    )
    assert explore(exploration, lambda part, option: True) == []


def test_rkernels_are_explored_where_bits_may_differ(monkeypatch):
    monkeypatch.setattr("rammer.schedule.exploration._EPOCH_US", 0.0)
    graph, target = diamonds(1), device(2)
    first = POLICIES["wavefront-fast"](graph, target, COSTS)
    exploration = Exploration(graph, first, target, COSTS, [on_one_unit], any_bits=True)
    assert exploration.wholes(lambda schedule: 1.0) == [(1, 0), (0, 1)]
    tried = {option for change in explore(exploration, lambda part, option: False) for option in change.values()}
    assert tried <= {(0, 1), (1, 0), (1, 1)}
    assert (1, 0) in tried


def test_what_is_predicted_to_end_first_is_tried_first():
    """A policy's own rKernels go before its places for those of others, and each by what is predicted."""
    graph, target = diamonds(1), device(2)

    def named(name):
        return lambda *given: replace(POLICIES["wavefront"](*given), policy=name)

    exploration = Exploration(
        graph, named("first")(graph, target, COSTS), target, COSTS, list(map(named, "abc")), any_bits=True
    )
    times_us = {"first": 1.0, "a": 4.0, "b": 2.0, "c": 3.0}
    wholes = exploration.wholes(lambda schedule: times_us[schedule.policy])
    assert wholes == [(2, 0), (3, 0), (1, 0), (0, 2), (0, 3), (0, 1)]
