"""Where every rTask of a plan runs: the first proof about an rProgram, and what the others count with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from rammer.errors import VerificationError
from rammer.ir.program import Plan
from rammer.ir.task import ROperator, RTask
from rammer.verify.footprints import IntArray
from rammer.verify.naming import describe_step, describe_task, sources_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """All rTasks of a plan, numbered by rOperator and tile, with the place of each; every array is int64 [rTasks].

    `first[i]` is the number of rOperator i's first rTask, with one entry more for the total.
    """

    plan: Plan
    first: tuple[int, ...]
    program: IntArray
    veu: IntArray
    step: IntArray

    @property
    def count(self) -> int:
        """Number of rTasks."""
        return self.first[-1]

    def number(self, task: RTask) -> int:
        """The number of an rTask."""
        return self.first[task.operator] + task.tile

    def numbers(self, operator: int) -> IntArray:
        """The numbers of an rOperator's rTasks, ascending."""
        return np.arange(self.first[operator], self.first[operator + 1], dtype=np.int64)

    def operator(self, number: int) -> ROperator:
        """The rOperator that an rTask belongs to."""
        place = int(np.searchsorted(np.array(self.first), number, side="right")) - 1
        return self.plan.graph.operators[place]

    def describe(self, number: int) -> str:
        """An rTask and its place, for messages."""
        operator = self.operator(number)
        task = describe_task(operator, number - self.first[operator.id])
        return f"{task} on {describe_step(*(int(part[number]) for part in (self.program, self.veu, self.step)))}"

    def where(self, numbers: Iterable[int]) -> str:
        """The places in the user's model that rTasks come from."""
        return sources_of(*(self.operator(number) for number in numbers))


def place(plan: Plan) -> Placement:
    """Find every rTask's place.

    Raises:
        VerificationError: P02 an rTask that does not exist, P03 one that is placed twice, P04 one that is not placed.
    """
    operators = plan.graph.operators
    first = [0]
    for kernel in plan.kernels:
        first.append(first[-1] + kernel.task_count)
    where = np.full((3, first[-1]), -1, dtype=np.int64)
    placement = Placement(plan=plan, first=tuple(first), program=where[0], veu=where[1], step=where[2])
    for program_number, program in enumerate(plan.schedule.programs):
        for veu, step, task in program.tasks():
            here = describe_step(program_number, veu, step)
            if not 0 <= task.operator < len(operators):
                raise VerificationError("P02", f"{here} runs an rTask of rOperator {task.operator}, which is none")
            operator = operators[task.operator]
            number = placement.number(task)
            if not first[task.operator] <= number < first[task.operator + 1]:
                count = first[task.operator + 1] - first[task.operator]
                message = f"{here} runs {describe_task(operator, task.tile)}, which has {count} rTasks"
                raise VerificationError("P02", message, where=sources_of(operator))
            if placement.veu[number] >= 0:
                message = f"{placement.describe(number)} runs again on {here}"
                raise VerificationError("P03", message, where=sources_of(operator))
            where[:, number] = program_number, veu, step
    absent = np.flatnonzero(placement.veu < 0)
    if absent.size:
        operator = placement.operator(int(absent[0]))
        name = describe_task(operator, int(absent[0]) - first[operator.id])
        message = f"{name} is never run ({absent.size} rTasks are not)"
        raise VerificationError("P04", message, where=sources_of(operator))
    return placement
