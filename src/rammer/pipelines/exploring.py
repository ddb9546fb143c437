"""Other programs of a model: what is tried of it, and how each is written, which takes long and no machine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from rammer.devices.base import Device, Placing, Source
from rammer.inspection.dump import Dump
from rammer.ir.program import Plan, Schedule
from rammer.ir.saved_tasks import saved_tasks
from rammer.ir.task import RKernel, TaskGraph
from rammer.ir.vdevice import Figure, VDevice
from rammer.pipelines.compiler import explain
from rammer.pipelines.planning import plan_memory
from rammer.profiler.costs import MeasuredCosts
from rammer.roller.model import ModelCosts
from rammer.runtime.contest import WHOLE, Arm, Parts
from rammer.schedule.exploration import Exploration, Options
from rammer.schedule.policies import POLICIES
from rammer.schedule.simulator import simulate

Program = TypeVar("Program")

_TRIED = ("wavefront", "critical-path", "ios-tiles", "wavefront-fast", "sequential")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A proved program, ready to be built and loaded.

    Attributes:
        source: of the program, without files that are as in the first one.
        report: what runs where and why.
        tasks: its rOperators, where the device needs them.
        by_program: whether each of its rPrograms is to be timed apart.
        as_first: the names of files that are as in the first program.
    """

    source: Source
    report: bytes
    tasks: bytes
    by_program: bool = False
    as_first: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """A model that other programs are sought for.

    Attributes:
        tasks: its rOperators.
        first: the schedule of the first program.
        measured: times of rKernels.
        device: what it is for.
        vdevice: the device's description.
        any_bits: whether other rKernels may be taken.
    """

    tasks: TaskGraph
    first: Schedule
    measured: Mapping[RKernel, Figure]
    device: Device
    vdevice: VDevice
    any_bits: bool

    def written(self, schedule: Schedule, *, by_program: bool = False) -> Written:
        """The program of a schedule.

        Raises:
            OutOfMemoryError: it takes more memory than the device has.
            VerificationError: it cannot be proved.
        """
        plan = plan_memory(self.tasks, schedule, self.vdevice, Dump(None))
        return Written(
            source=self.device.emit(plan, self.vdevice),
            report=explain(plan, self.measured, self.vdevice),
            tasks=saved_tasks(plan, self.measured) if isinstance(self.device, Placing) else b"",
            by_program=by_program,
        )

    def arms(self) -> Iterator[Arm[Written]]:
        """What is tried, see `_Arms`."""
        costs = MeasuredCosts(self.measured, ModelCosts(self.vdevice))
        policies = [POLICIES[name] for name in _TRIED]
        exploration = Exploration(self.tasks, self.first, self.vdevice, costs, policies, any_bits=self.any_bits)

        def predicted_us(schedule: Schedule) -> float:
            return simulate(self.tasks, schedule, self.vdevice, costs).total_us

        def build(schedule: Schedule, by_program: bool) -> Written:
            return self.written(schedule, by_program=by_program)

        return _Arms(exploration, self.first, predicted_us, build).all()


class _Arms(Generic[Program]):
    """What is tried of a model: schedules by other policies, then for each epoch the best of any of them."""

    def __init__(
        self,
        exploration: Exploration,
        first: Schedule,
        predicted_us: Callable[[Schedule], float],
        build: Callable[[Schedule, bool], Program],
    ) -> None:
        self._exploration, self._predicted_us, self._build = exploration, predicted_us, build
        self._first_us = predicted_us(first) or 1.0
        self._known = [first]

    def all(self) -> Iterator[Arm[Program]]:
        """Every arm; which comes next may depend on what became of those before."""
        for option in self._exploration.wholes(self._predicted_us):
            source, place = option
            name = f"{_TRIED[place - 1]}, places and order" if place else f"{_TRIED[source - 1]}, rKernels"
            options = dict.fromkeys(self._exploration.parts, option)
            yield from self._whole(self._exploration.whole(option), name, options)
        if self._exploration.has_epochs:
            yield from self._by_epochs()
            best = self._exploration.composed(self._exploration.best, barriers=False)
            yield from self._whole(best, "each epoch's best", {})

    def _whole(self, schedule: Schedule, name: str, options: Options) -> Iterator[Arm[Program]]:
        """A schedule that is judged as a whole, unless it was before; if it gains, parts have these options."""
        if any((schedule.choice, schedule.programs) == (one.choice, one.programs) for one in self._known):
            return
        self._known.append(schedule)

        def learn(gains: Mapping[str, bool]) -> None:
            if gains[WHOLE]:
                self._exploration.take(options)

        yield self._arm(schedule, name, learn)

    def _by_epochs(self) -> Iterator[Arm[Program]]:
        """Programs with a barrier behind each epoch, so that each part is judged apart."""
        exploration = self._exploration
        changes = exploration.changes()
        change = next(changes, None)
        while change is not None:
            gains: dict[str, bool] = {}
            beside = exploration.composed(exploration.best, barriers=True)
            schedule = exploration.composed({**exploration.best, **change}, barriers=True)
            parts = Parts(
                programs={part: exploration.parts[part] for part in change},
                digest=digest_of(beside),
                beside=partial(self._build, beside, True),
            )
            yield self._arm(schedule, "other options", gains.update, parts)
            try:
                change = changes.send(gains)
            except StopIteration:
                return

    def _arm(
        self,
        schedule: Schedule,
        name: str,
        learn: Callable[[Mapping[str, bool]], None],
        parts: Parts[Program] | None = None,
    ) -> Arm[Program]:
        return Arm(
            name=name,
            digest=digest_of(schedule),
            predicted=self._predicted_us(schedule) / self._first_us,
            build=partial(self._build, schedule, parts is not None),
            learn=learn,
            parts=parts,
        )


def digest_of(schedule: Schedule) -> str:
    """Equal for equal programs of a model."""
    return hashlib.sha256(repr((schedule.choice, schedule.programs)).encode()).hexdigest()


def digest_of_model(first: Plan, vdevice: VDevice) -> str:
    """Equal for equal work, whatever the weights, on alike machines with the same compiler."""
    machine = repr((vdevice.kind, vdevice.name, vdevice.veu_count, vdevice.compiler))
    return hashlib.sha256(machine.encode() + saved_tasks(first, {})).hexdigest()
