"""The policy `auto`: the best schedule of several other policies, by simulation.

Where programs are to be measured, `schedule_graph` measures those that may be the quickest; where a device can be
divided in other ways, those of its divisions, too. Simulation does not tell programs apart that are within a few
percent, and `critical-path` finds others if it believes something else of hand-overs: it then searches several times.
By times that rTasks were seen to take in a run it searches again, longer, for these are worth it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rammer.ir.program import Schedule
from rammer.ir.task import TaskGraph
from rammer.ir.vdevice import CostModel, Figure, VDevice
from rammer.schedule.policies import critical_path, ios, sequential, wavefront, wavefront_fast
from rammer.schedule.simulator import simulate

_WORTH = 1.25
"""How much longer than the best a schedule may take by simulation, which is right within 12 %, to be measured."""
_CLEAR = 0.01
"""What a schedule has to gain over that of `wavefront` by simulation, to be taken without measuring it."""
_BELIEVED = (0.8, 1.25)
"""Of the time of hand-overs, what `critical-path` believes in other searches."""
SEARCHES = len(_BELIEVED) + 2
"""In how many parts `search` finds what is to be measured."""

_IN_PLACE = ((False, (1, 2, 1)), (True, (1, 3)), (True, (2,)), (True, (4,)))
"""By times seen in a run, the searches of `critical-path`: whether held up, and how many waves ahead in each sweep."""
_MOST_PLACED = 2_500_000
"""rTasks that such a search places in trials: half a minute."""
_CLOSE = 1.02
"""How much longer than the best such a schedule may take by simulation, to be measured."""
SEARCHES_IN_PLACE = len(_IN_PLACE)
"""In how many parts `search_in_place` finds what is to be measured."""


def search(graph: TaskGraph, device: VDevice, costs: CostModel, number: int) -> Sequence[Schedule]:
    """Some schedules that may be worth measuring, in the order of preference; some may be equal.

    Args:
        graph: the task graph, whose constants are not looked at.
        device: what it is for.
        costs: the times of rTasks.
        number: of the search, below `SEARCHES`.
    """
    if number == 0:
        return [wavefront.schedule(graph, device, costs), *critical_path.sweeps(graph, device, costs)]
    if number <= len(_BELIEVED):
        return [critical_path.schedule(graph, _believing(device, _BELIEVED[number - 1]), costs)]
    others = wavefront_fast.schedule, ios.schedule_by_tiles, sequential.schedule
    return [policy(graph, device, costs) for policy in others]


def search_in_place(graph: TaskGraph, device: VDevice, costs: CostModel, number: int) -> tuple[Schedule, float]:
    """The best schedule of a search by times seen in a run, with its simulated time in microseconds.

    Args:
        graph: the task graph, whose constants are not looked at.
        device: what it is for.
        costs: the times of rTasks.
        number: of the search, below `SEARCHES_IN_PLACE`.
    """
    is_held, ahead = _IN_PLACE[number]
    found = critical_path.sweeps(graph, device, costs, ahead=ahead, is_held=is_held, most_placed=_MOST_PLACED)
    times_us = [simulate(graph, one, device, costs).total_us for one in found]
    return min(zip(found, times_us, strict=True), key=lambda one: one[1])


def worth_measuring_in_place(found: Iterable[tuple[Schedule, float]], known: Sequence[Schedule]) -> list[Schedule]:
    """Of what `search_in_place` finds, what may be the quickest and is not known, each once."""
    found = list(found)
    most_us = _CLOSE * min(time_us for _, time_us in found)
    return unknown([one for one, time_us in found if time_us <= most_us], known)


def unknown(found: Sequence[Schedule], known: Sequence[Schedule]) -> list[Schedule]:
    """Those that are not known, each once."""
    return _different([*known, *found])[len(_different(known)) :]


def all_searched(graph: TaskGraph, device: VDevice, costs: CostModel) -> list[Schedule]:
    """What all searches find, one after another."""
    return [one for number in range(SEARCHES) for one in search(graph, device, costs, number)]


def worth_measuring(
    graph: TaskGraph, device: VDevice, costs: CostModel, found: Iterable[Schedule]
) -> list[tuple[Schedule, float]]:
    """Those of some schedules that may be the quickest, each once, with their simulated times in microseconds."""
    different = _different(found)
    times_us = [simulate(graph, one, device, costs).total_us for one in different]
    most_us = _WORTH * min(times_us)
    return [(one, time_us) for one, time_us in zip(different, times_us, strict=True) if time_us <= most_us]


def schedule(graph: TaskGraph, device: VDevice, costs: CostModel) -> Schedule:
    """That of `wavefront`, or one that clearly ends sooner, named after the policy that it is of."""
    found = _different([*search(graph, device, costs, 0), *search(graph, device, costs, SEARCHES - 1)])
    return critical_path.clearly_quickest(found, graph, device, costs, _CLEAR)


def _different(schedules: Iterable[Schedule]) -> list[Schedule]:
    """Each once, the first of equals as the policy that is preferred."""
    found: list[Schedule] = []
    for one in schedules:
        if all((one.choice, one.programs) != (other.choice, other.programs) for other in found):
            found.append(one)
    return found


def _believing(device: VDevice, factor: float) -> VDevice:
    """A device whose hand-overs take so many times as long."""

    def times(figure: Figure) -> Figure:
        return replace(figure, value=figure.value * factor)

    tagged = device.tagged_handover_us
    return replace(
        device,
        handover_us=times(device.handover_us),
        tagged_handover_us=None if tagged is None else times(tagged),
    )
