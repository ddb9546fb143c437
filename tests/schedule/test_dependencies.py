"""Tile-level dependencies against all pairs of the boxes that `TaskGraph.accesses` gives."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from rammer.ir.expr import Load, rebuild
from rammer.ir.region import Interval, boxes_overlap
from rammer.ir.task import RTask, kernels_of
from rammer.schedule.dependencies import find_dependencies
from rammer.schedule.overlaps import distinct_rows, overlaps
from rammer.schedule.regions import Boxes, Region, Regions, regions_of
from tests.support.schedules import all_pairs_dependencies, choices, task_graphs
from tests.support.taskgraphs import TaskGraphMaker, branches, chain, recurrent


def _tasks(predecessors) -> list[RTask]:
    return [task for tasks in predecessors for task in tasks.tasks]


def _boxes(region: Region) -> list[tuple[Interval, ...]]:
    rows = zip(region.boxes.lo.tolist(), region.boxes.hi.tolist(), strict=True)
    return [tuple(Interval(*ends) for ends in zip(lo, hi, strict=True)) for lo, hi in rows]


@given(task_graphs)
def test_regions_are_the_accesses_of_every_task(graph):
    regions = Regions(graph)
    for operator in graph.operators:
        for kernel in operator.kernels:
            reads = [region for region in regions.reads(operator, kernel) if region is not None]
            writes = regions.writes(operator, kernel)
            read_rows, write_rows = [_boxes(region) for region in reads], [_boxes(region) for region in writes]
            for index in range(kernel.task_count):
                expected_reads, expected_writes = graph.accesses(operator, kernel, index)
                assert [access.tensor for access in expected_reads] == [region.tensor for region in reads]
                assert [access.tensor for access in expected_writes] == [region.tensor for region in writes]
                assert [access.box for access in expected_reads] == [rows[index] for rows in read_rows]
                assert [access.box for access in expected_writes] == [rows[index] for rows in write_rows]


@given(task_graphs)
def test_a_whole_operators_boxes_hold_those_of_its_tiles(graph):
    regions = Regions(graph)
    for operator in graph.operators:
        for kernel in operator.kernels:
            pairs = [
                *zip(regions.whole_reads(operator), regions.reads(operator, kernel), strict=True),
                *zip(regions.whole_writes(operator), regions.writes(operator, kernel), strict=True),
            ]
            for whole, tiles in pairs:
                assert whole is not None
                assert tiles is not None
                assert (whole.boxes.lo <= tiles.boxes.lo).all()
                assert (whole.boxes.hi >= tiles.boxes.hi).all()


@given(task_graphs)
def test_dependencies_are_those_of_all_pairs(graph):
    for choice in choices(graph):
        found = find_dependencies(graph, choice)
        expected = all_pairs_dependencies(graph, choice)
        assert [len(own) for own in found] == [kernel.task_count for kernel in kernels_of(graph, choice)]
        for number, own in enumerate(found):
            for index, predecessors in enumerate(own):
                assert set(_tasks(predecessors)) == expected[RTask(number, index)]


def test_aligned_tiles_depend_on_one_task_each():
    found = find_dependencies(chain(3, shape=(8, 8), tiles=((2, 8),)), (0, 0, 0))
    assert [_tasks(predecessors) for predecessors in found[0]] == [[]] * 4
    assert [_tasks(predecessors) for predecessors in found[2]] == [[RTask(1, index)] for index in range(4)]


def test_neighbours_of_a_window_are_depended_on():
    maker = TaskGraphMaker()
    first = maker.elementwise([maker.input((1, 16))], tiles=[(1, 4)])
    graph = maker.finish([maker.window(first, 2, tiles=[(1, 4)])])
    found = find_dependencies(graph, (0, 0))
    indices = [[task.tile for task in _tasks(predecessors)] for predecessors in found[1]]
    assert indices == [[0, 1], [0, 1, 2], [1, 2, 3], [2, 3]]


def test_all_writers_of_a_concatenation_form_one_set():
    found = find_dependencies(branches(5, 1), [0] * 11)
    (predecessors,) = found[-1]
    (tasks,) = predecessors
    assert [task.operator for task in tasks.tasks] == [1, 3, 5, 7, 9]


def test_a_part_of_a_concatenation_depends_on_its_writer_only():
    maker = TaskGraphMaker()
    joined = maker.intermediate((4, 12))
    for part in range(3):
        maker.elementwise([maker.input((4, 4))], into=joined, at=(0, 4 * part))
    maker.elementwise([joined], origins=[(0, 4)], shape=(4, 4))
    maker.elementwise([joined], origins=[(0, 3)], shape=(4, 2))
    found = find_dependencies(maker.finish([joined]), [0] * 5)
    assert _tasks(found[3][0]) == [RTask(1, 0)]
    assert _tasks(found[4][0]) == [RTask(0, 0), RTask(1, 0)]


def test_a_reshaped_tensor_depends_on_the_writers_of_its_storage():
    maker = TaskGraphMaker()
    first = maker.elementwise([maker.input((4, 6))], tiles=[(1, 6)])
    flat = maker.alias(first, (24,))
    found = find_dependencies(maker.finish([maker.elementwise([flat], tiles=[(8,)])]), (0, 0))
    indices = [[task.tile for task in _tasks(predecessors)] for predecessors in found[1]]
    assert indices == [[0, 1], [1, 2], [2, 3]]


def test_tasks_that_need_the_same_share_one_set():
    found = find_dependencies(recurrent(2, 3, size=8, tiles=((1, 2),)), [0] * 12)
    for own in found[1::2]:
        assert len({id(tasks) for predecessors in own for tasks in predecessors}) == 1
        assert [len(predecessors) for predecessors in own] == [1] * 4


def test_a_slot_that_is_never_loaded_makes_no_dependency():
    graph = chain(2, tiles=((4, 8),))
    first, last = graph.operators
    (kernel,) = last.kernels
    expr = replace(kernel.expr, inputs=kernel.expr.inputs * 2)
    body = rebuild(expr.roots, lambda node: Load(1, node.indices, node.type) if isinstance(node, Load) else None)
    expr = replace(expr, outputs=tuple(replace(o, body=b) for o, b in zip(expr.outputs, body, strict=True)))
    deaf = replace(last, kernels=(replace(kernel, expr=expr),), reads=(*last.reads, *first.reads))
    assert find_dependencies(replace(graph, operators=(first, deaf)), (0, 0))[1] == ((), ())


def test_an_operator_without_elements_takes_no_part():
    maker = TaskGraphMaker()
    first = maker.elementwise([maker.input((0, 4))], tiles=[(1, 4)])
    graph = maker.finish([maker.elementwise([first], tiles=[(2, 2)])])
    assert find_dependencies(graph, (0, 0)) == ((), ())


_intervals = st.tuples(st.integers(0, 8), st.integers(0, 4)).map(lambda ends: (ends[0], ends[0] + ends[1]))
_spans = st.tuples(st.integers(0, 8), st.integers(1, 4)).map(lambda ends: (ends[0], ends[0] + ends[1]))


def _as_boxes(rows) -> Boxes:
    bounds = np.array(rows, dtype=np.int64).reshape(len(rows), -1, 2)
    return Boxes(bounds[..., 0], bounds[..., 1])


def _check_overlaps(reads, writes):
    found = overlaps(_as_boxes(reads), _as_boxes(writes))
    for place, read in enumerate(reads):
        box = tuple(Interval(*ends) for ends in read)
        expected = [
            number
            for number, write in enumerate(writes)
            if boxes_overlap(box, tuple(Interval(*ends) for ends in write))
        ]
        assert list(found.tiles[found.groups[place]]) == expected


@given(
    st.lists(st.tuples(_intervals, _intervals), min_size=1, max_size=6),
    st.lists(st.tuples(_spans, _spans), min_size=1, max_size=12),
)
def test_overlaps_of_any_boxes(reads, writes):
    _check_overlaps(reads, writes)


@given(
    st.lists(st.tuples(_intervals, _intervals), min_size=1, max_size=6),
    st.lists(_spans, min_size=1, max_size=4),
    st.lists(_spans, min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
@example([((2, 3), (0, 9))], [(0, 4), (1, 2)], [(0, 1)], random.Random(0))
def test_overlaps_of_a_grid_in_any_order(reads, rows, columns, generator):
    writes = [(row, column) for row in dict.fromkeys(rows) for column in dict.fromkeys(columns)]
    generator.shuffle(writes)
    _check_overlaps(reads, writes)


@given(st.integers(0, 40), st.integers(1, 5), st.integers(1, 4), st.randoms(use_true_random=False))
def test_distinct_rows_are_those_of_numpy(count, width, values, rng):
    rows = np.array([[rng.randrange(-values, values) for _ in range(width)] for _ in range(count)], dtype=np.int64)
    rows = rows.reshape(count, width)
    found, place = distinct_rows(rows)
    expected, inverse = np.unique(rows, axis=0, return_inverse=True)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(place, inverse.reshape(-1))


@given(task_graphs, st.randoms(use_true_random=False))
def test_what_a_graph_keeps_does_not_depend_on_choices(graph, rng):
    assert regions_of(graph) is regions_of(graph)
    for _ in range(3):
        choice = [rng.randrange(len(operator.kernels)) for operator in graph.operators]
        again = replace(graph)
        assert regions_of(again) is not regions_of(graph)
        kept, fresh = find_dependencies(graph, choice), find_dependencies(again, choice)
        assert [[_tasks(one) for one in each] for each in kept] == [[_tasks(one) for one in each] for each in fresh]
