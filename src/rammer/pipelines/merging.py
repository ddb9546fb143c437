"""Merging convolutions where IOS's stages would: the second kind of stage, decided by what the first kind costs.

A stage of IOS runs groups of operators side by side, or merges operators of one input into one. The dynamic program
offers both (`schedule.policies.ios`), a pass merges (`passes.merge_siblings`), and here they meet: the graph is lowered
as it is, stages are found with what each merged convolution would take, by the same costs, and those that are quicker
as one are merged. The policy then schedules what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rammer.ir.graph import Graph, SourceLocation
from rammer.ir.task import TaskGraph
from rammer.ir.vdevice import VDevice
from rammer.lowering.lower import lower
from rammer.passes import merge_siblings
from rammer.passes.merge_siblings import Siblings
from rammer.roller.model import ModelCosts
from rammer.schedule.estimates import Estimates
from rammer.schedule.group_times import GroupTimes
from rammer.schedule.policies.ios import Merges, Sibling, find_stages

Rest = Callable[[Graph, VDevice], Graph]
"""The passes that are still to come."""


def merge_for_stages(graph: Graph, device: VDevice, rest: Rest) -> Graph:
    """A graph with those convolutions merged that are quicker so, in the best stages that there are.

    Args:
        graph: after `merge_products`.
        device: what stages are for.
        rest: the passes that follow.
    """
    classes = merge_siblings.siblings(graph)
    if not classes:
        return graph
    tasks = lower(rest(graph, device), device)
    values = _values_of(tasks, graph, classes)
    times_us: dict[object, float | None] = {}

    def time_us(operators: tuple[int, ...]) -> float | None:
        own = sorted(values[number] for number in operators if number in values)
        siblings = next((one for one in classes if len(own) == len(operators) and one.may_merge(own)), None)
        if siblings is None:
            return None
        chosen = [value for value in siblings.values if value in own]
        work = tuple(tasks.operators[number].kernels for number in operators)
        if work not in times_us:
            times_us[work] = _merged_us(graph, chosen, device, rest)
        return times_us[work]

    kinds = {
        number: Sibling(place, None if one.places is None else one.places[one.values.index(value)])
        for number, value in values.items()
        for place, one in enumerate(classes)
        if value in one.values
    }
    estimates = Estimates(tasks, device, ModelCosts(device))
    found = find_stages(tasks, device.veu_count, estimates, merges=Merges(kinds=kinds, time_us=time_us))
    chosen = [{values[number] for number in operators} for operators in found.merged]
    ordered = [[value for one in classes for value in one.values if value in own] for own in chosen]
    return merge_siblings.merge(graph, ordered)


def _values_of(tasks: TaskGraph, graph: Graph, classes: Sequence[Siblings]) -> dict[int, int]:
    """The rOperators that compute one convolution each, whatever is fused to it, and the value that it makes."""
    makers = graph.producers()
    by_source: dict[SourceLocation, list[int]] = {}
    for operator in tasks.operators:
        for source in operator.sources:
            by_source.setdefault(source, []).append(operator.id)
    found: dict[int, list[int]] = {}
    for one in classes:
        for value in one.values:
            numbers = {number for source in makers[value].sources for number in by_source.get(source, ())}
            if len(numbers) == 1:
                found.setdefault(numbers.pop(), []).append(value)
    return {number: values[0] for number, values in found.items() if len(values) == 1}


def _merged_us(graph: Graph, values: Sequence[int], device: VDevice, rest: Rest) -> float:
    """The time of a stage of the one convolution that several become."""
    tasks = lower(rest(merge_siblings.merged_alone(graph, values), device), device)
    times = GroupTimes(tasks, device.veu_count, Estimates(tasks, device, ModelCosts(device)))
    return times.stage([tuple(operator.id for operator in tasks.operators)]).total_us
