"""Lower bounds on how soon any schedule of a task graph can end, by linear programming.

For each rOperator the linear program has the start of its first rTask, the end of its last one, and a convex mixture
of its candidate rKernels. It asks that

- an rOperator of `n` rTasks of `t` microseconds takes at least `ceil(n / vEUs) * t`;
- where each rTask of a consumer reads a tile of a producer, the consumer starts a producer's rTask after the producer;
- where each tile of a producer is read by a consumer, the consumer ends an rTask after the producer;
- all work together fits the vEUs.

A schedule satisfies all of these, whatever its order and its places, so none ends before the optimum. A synchronisation
costs nothing here, because rTasks on one vEU need none. `with_handovers_us` charges one on each dependency, which is no
bound, but says what a schedule could reach that never keeps a chain on one vEU.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rammer.ir.task import TaskGraph
from rammer.ir.vdevice import CostModel, VDevice
from rammer.schedule.dependencies import Dependencies, TaskSet
from rammer.schedule.estimates import Estimates
from rammer.schedule.regions import regions_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How soon schedules of a task graph can end at best, in microseconds.

    Attributes:
        chosen_us: no schedule of the chosen rKernels ends before.
        any_us: no schedule of any candidates ends before.
        with_handovers_us: as `any_us`, with a synchronisation on every dependency between rOperators.
    """

    chosen_us: float
    any_us: float
    with_handovers_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """All that bounds follow from: of a task graph, or of the report of what became of one.

    Attributes:
        candidates: per rOperator and candidate rKernel, its rTasks and the time of one, in microseconds.
        edges: the dependencies between rOperators.
        veus: execution units.
        handover_us: what a synchronisation adds to a chain; below 0 where rTasks that wait start so much early.
    """

    candidates: Sequence[Sequence[tuple[int, float]]]
    edges: Sequence[Edge]
    veus: int
    handover_us: float


def problem_of(graph: TaskGraph, device: VDevice, costs: CostModel) -> Problem:
    """The problem of scheduling a task graph on a device."""
    estimates = Estimates(graph, device, costs)
    return Problem(
        candidates=[
            [(kernel.task_count, task_us) for kernel, task_us in zip(operator.kernels, times, strict=True)]
            for operator, times in zip(graph.operators, estimates.task_us, strict=True)
        ],
        edges=find_edges(graph),
        veus=device.veu_count,
        handover_us=estimates.step_us,
    )


def find_bounds(problem: Problem, choice: Sequence[int]) -> Bounds:
    """The bounds of a problem, given the chosen candidate of each rOperator.

    Raises:
        RuntimeError: the solver does not find the optimum.
        ModuleNotFoundError: there is no solver: the extra `bound` is not installed.
    """
    every = [range(len(candidates)) for candidates in problem.candidates]
    return Bounds(
        chosen_us=_solve(problem, [(pick,) for pick in choice], min(0.0, problem.handover_us)),
        any_us=_solve(problem, every, min(0.0, problem.handover_us)),
        with_handovers_us=_solve(problem, every, problem.handover_us),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """How a consumer depends on a producer, both by the number of their rOperators.

    Attributes:
        starts: each rTask of the consumer reads a tile of the producer.
        ends: each tile of the producer is read by an rTask of the consumer.
    """

    producer: int
    consumer: int
    starts: bool
    ends: bool


def find_edges(graph: TaskGraph) -> list[Edge]:
    """All dependencies between rOperators, looked at under the candidates with the most rTasks.

    Coarser tiles read hulls of what finer ones read, so what holds for the finest holds for all.
    """
    dependencies = Dependencies(graph, regions_of(graph))
    finest = [max(operator.kernels, key=lambda kernel: kernel.task_count) for operator in graph.operators]
    tiles: dict[TaskSet, dict[int, set[int]]] = {}
    edges = []
    for operator, kernel in zip(graph.operators, finest, strict=True):
        dependencies.commit(operator.id, kernel)
        found = dependencies.predecessors(operator, kernel)
        read: dict[int, set[int]] = {producer: set() for producer in dependencies.producers(operator.id)}
        starts = dict.fromkeys(read, True)
        for sets in dict.fromkeys(found):
            met: set[int] = set()
            for tasks in sets:
                if tasks not in tiles:
                    tiles[tasks] = _tiles_of(tasks)
                met |= tiles[tasks].keys()
                for producer, own in tiles[tasks].items():
                    read[producer] |= own
            for producer in read.keys() - met:
                starts[producer] = False
        edges += [
            Edge(
                producer=producer,
                consumer=operator.id,
                starts=starts[producer],
                ends=len(own) == finest[producer].task_count,
            )
            for producer, own in read.items()
        ]
    return edges


def _tiles_of(tasks: TaskSet) -> dict[int, set[int]]:
    """The tiles of each rOperator that some rTasks are."""
    found: dict[int, set[int]] = {}
    for task in tasks.tasks:
        found.setdefault(task.operator, set()).add(task.tile)
    return found


def _solve(problem: Problem, picks: Sequence[Sequence[int]], handover_us: float) -> float:
    """The least end of all, where rOperator `i` mixes its candidates `picks[i]`."""
    busy = [number for number, candidates in enumerate(problem.candidates) if candidates[0][0]]
    if not busy:
        return 0.0
    program = _Program()
    end = program.variable(cost=1.0)
    columns = {
        number: _columns(program, [problem.candidates[number][pick] for pick in picks[number]], problem.veus)
        for number in busy
    }
    work = [term for column in columns.values() for term in column.work]
    program.at_least(0.0, [(end, float(problem.veus)), *((variable, -us) for variable, us in work)])
    for column in columns.values():
        program.at_least(1.0, [(variable, 1.0) for variable, _ in column.task])
        program.at_least(0.0, [(column.end, 1.0), (column.start, -1.0), *_negative(column.whole)])
        program.at_least(0.0, [(end, 1.0), (column.end, -1.0)])
    for edge in problem.edges:
        if edge.producer in columns and edge.consumer in columns:
            producer, consumer = columns[edge.producer], columns[edge.consumer]
            if edge.starts:
                program.at_least(
                    handover_us, [(consumer.start, 1.0), (producer.start, -1.0), *_negative(producer.task)]
                )
            if edge.ends:
                program.at_least(handover_us, [(consumer.end, 1.0), (producer.end, -1.0), *_negative(consumer.task)])
    return program.minimum()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """The variables of an rOperator; the mixture's with the time of an rTask, of all side by side, of all in a row."""

    start: int
    end: int
    task: tuple[tuple[int, float], ...]
    whole: tuple[tuple[int, float], ...]
    work: tuple[tuple[int, float], ...]


def _columns(program: _Program, candidates: Sequence[tuple[int, float]], veus: int) -> _Columns:
    start, end = program.variable(), program.variable()
    shares = [(program.variable(), count, task_us) for count, task_us in candidates]
    return _Columns(
        start=start,
        end=end,
        task=tuple((share, task_us) for share, _, task_us in shares),
        whole=tuple((share, -(-count // veus) * task_us) for share, count, task_us in shares),
        work=tuple((share, count * task_us) for share, count, task_us in shares),
    )


def _negative(terms: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    return [(variable, -factor) for variable, factor in terms]


class _Program:
    """A linear program over variables of at least 0, as HiGHS takes it: sparse rows of least values."""

    def __init__(self) -> None:
        self._costs: list[float] = []
        self._least: list[float] = []
        self._starts: list[int] = [0]
        self._variables: list[int] = []
        self._factors: list[float] = []

    def variable(self, cost: float = 0.0) -> int:
        """A new variable, which adds so much to what is minimised for each unit."""
        self._costs.append(cost)
        return len(self._costs) - 1

    def at_least(self, least: float, terms: Sequence[tuple[int, float]]) -> None:
        """Ask that the sum of variables times factors be no less."""
        self._least.append(least)
        self._variables += [variable for variable, _ in terms]
        self._factors += [factor for _, factor in terms]
        self._starts.append(len(self._variables))

    def minimum(self) -> float:
        """The least cost.

        Raises:
            RuntimeError: the solver does not find it.
        """
        import highspy

        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self._costs), len(self._least)
        model.col_cost_ = np.array(self._costs)
        model.col_lower_, model.col_upper_ = np.zeros(len(self._costs)), np.full(len(self._costs), highspy.kHighsInf)
        model.row_lower_, model.row_upper_ = np.array(self._least), np.full(len(self._least), highspy.kHighsInf)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.array(self._starts)
        model.a_matrix_.index_ = np.array(self._variables)
        model.a_matrix_.value_ = np.array(self._factors)
        with _silent():
            solver = highspy.Highs()
        solver.silent()
        solver.passModel(model)
        solver.run()
        status = solver.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise RuntimeError(f"HiGHS ends with {solver.modelStatusToString(status)}")
        return float(solver.getInfo().objective_function_value)


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing goes to the standard output, where version 1.16 of the solver prints its name as it is made."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 1)
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
