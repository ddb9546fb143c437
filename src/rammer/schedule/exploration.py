"""What an adaptive model explores: for each epoch the schedule that is quickest there, out of several policies'.

An *option* is a pair: whose rKernels, and who places them. Both are variables of each epoch; equal epochs are one
part, with the same variables. Parts are explored side by side, for each is measured apart; in a part every combination
is tried where there are few, else first the rKernels, then, with the best of these, who places them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from rammer.ir.program import Execute, Schedule
from rammer.ir.task import RTask, TaskGraph
from rammer.ir.vdevice import CostModel, VDevice
from rammer.schedule.epochs import Epoch, compose, find_classes, find_epochs
from rammer.schedule.estimates import Estimates
from rammer.schedule.update_tree import Tree, Variable, each, exhaustive, parallel, prefix

Policy = Callable[[TaskGraph, VDevice, CostModel], Schedule]
Option = tuple[int, int]
"""Whose rKernels: 0 those of the first schedule, else a policy's; and who places them: 0 the same, else a policy."""
Options = Mapping[str, Option]
"""By part."""

_EPOCH_US = 20.0
"""Of work: what is shorter says nothing about what is quicker, for a barrier and a clock take part of it."""
_FEW = 12
"""Options of a part that are all tried."""


class Exploration:
    """The options of a model's parts.

    Attributes:
        parts: the epochs of each part, by number.
        best: the best known option of each part.
    """

    def __init__(
        self,
        graph: TaskGraph,
        first: Schedule,
        device: VDevice,
        costs: CostModel,
        policies: Sequence[Policy],
        *,
        any_bits: bool,
    ) -> None:
        """Begin with a schedule.

        Args:
            graph: the rOperators.
            first: what runs now.
            device: on what.
            costs: of rKernels.
            policies: whose rKernels and places may be taken.
            any_bits: whether other rKernels may be taken at all.
        """
        self._graph, self._first, self._device, self._costs = graph, first, device, costs
        self._policies = tuple(policies)
        self._sources = 1 + (len(policies) if any_bits else 0)
        self._epochs = find_epochs(graph, Estimates(graph, device, costs), device.veu_count, _EPOCH_US)
        self.parts = {
            f"epoch{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}": numbers
            for numbers in find_classes(graph, self._epochs)
        }
        self.best: dict[str, Option] = dict.fromkeys(self.parts, (0, 0))
        self._schedule = cache(self._scheduled)

    @property
    def has_epochs(self) -> bool:
        """Whether there are several."""
        return len(self._epochs) > 1

    def wholes(self, predicted_us: Callable[[Schedule], float]) -> list[Option]:
        """Options that make a policy's schedule of the whole model, in the order in which they are predicted to end.

        Those with rKernels of the policy's own come first, for `auto` chooses from these.
        """

        def order(option: Option) -> tuple[bool, float]:
            return not option[0], predicted_us(self._schedule(option))

        own = [(source, 0) for source in range(1, self._sources)]
        return sorted([*own, *((0, place) for place in range(1, 1 + len(self._policies)))], key=order)

    def take(self, options: Options) -> None:
        """Options are better than those that were the best."""
        self.best.update(options)

    def whole(self, option: Option) -> Schedule:
        """The schedule in which all parts have an option."""
        return self._schedule(option)

    def composed(self, options: Options, *, barriers: bool) -> Schedule:
        """The schedule in which parts have these options; with `barriers` each epoch is an rProgram."""
        parts = [self._first] * len(self._epochs)
        for name, numbers in self.parts.items():
            for number in numbers:
                parts[number] = self._schedule(options[name])
        return compose(self._graph, self._epochs, parts, self._device.veu_count, barriers=barriers)

    def changes(self) -> Generator[Options, Mapping[str, bool], None]:
        """What to try beside the best, options of some parts; it is sent whose gain, and takes those."""
        tree = parallel([self._tree(part) for part in self.parts])
        step = next(tree, None)
        while step is not None:
            wanted = dict(self.best)
            for variable, number in step.items():
                source = wanted[variable.part][0]
                wanted[variable.part] = (number, 0) if variable.name == "rKernels" else (source, number)
            fresh = {part: wanted[part] for part in self.parts if self._differs(part, wanted[part])}
            gains = (yield fresh) if fresh else {}
            self.take({part: option for part, option in fresh.items() if gains[part]})
            try:
                step = tree.send({variable: gains.get(variable.part, False) for variable in step})
            except StopIteration:
                return

    def _tree(self, part: str) -> Tree:
        kernels = Variable(part=part, name="rKernels", options=self._sources)
        places = Variable(part=part, name="places", options=1 + len(self._policies))
        variables = [variable for variable in (kernels, places) if variable.options > 1]
        if math.prod(variable.options for variable in variables) <= _FEW:
            return exhaustive(variables)
        return prefix([each(variable) for variable in variables])

    def _scheduled(self, option: Option) -> Schedule:
        source, place = option
        if source:
            first = self._policies[source - 1](self._graph, self._device, self._costs)
        else:
            first = self._first
        if not place:
            return first
        operators = tuple(
            replace(operator, kernels=(operator.kernels[pick],))
            for operator, pick in zip(self._graph.operators, first.choice, strict=True)
        )
        placed = self._policies[place - 1](replace(self._graph, operators=operators), self._device, self._costs)
        return replace(placed, choice=first.choice)

    def _differs(self, part: str, option: Option) -> bool:
        """Whether an option makes anything of a part that the best option does not."""
        one, other = self._schedule(option), self._schedule(self.best[part])
        return any(_within(one, self._epochs[n]) != _within(other, self._epochs[n]) for n in self.parts[part])


def _within(schedule: Schedule, epoch: Epoch) -> tuple[list[int], list[list[RTask]]]:
    """The rKernels of an epoch and, for each vEU, its rTasks in order."""
    own = set(epoch)
    queues: list[list[RTask]] = []
    for program in schedule.programs:
        queues += [[] for _ in range(program.veus - len(queues))]
        for veu, queue in enumerate(program.steps):
            queues[veu] += [step.task for step in queue if isinstance(step, Execute) and step.task.operator in own]
    return [schedule.choice[operator] for operator in epoch], queues
