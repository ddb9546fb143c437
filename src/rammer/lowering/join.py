"""Task graphs of several models as one: they share equal constants, and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

from rammer.ir.graph import Array, fingerprint
from rammer.ir.recipe import Recipe
from rammer.ir.task import Binding, ROperator, TaskGraph, Tensor

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A model that is to be joined with others.

    Attributes:
        name: what its rOperators and tensors are named after.
        tasks: the model.
    """

    name: str
    tasks: TaskGraph


def join(name: str, members: Sequence[Member]) -> TaskGraph:
    """One task graph of several: the rOperators of the first member, then those of the second, and so on.

    Inputs and outputs are in the members' order, the states of all of them last. Names have the member's name and a
    colon in front. Constants of equal type, layout and content are one tensor.
    """
    tensors: list[Tensor] = []
    constants: dict[int, Array] = {}
    recipes: dict[int, Recipe] = {}
    operators: list[ROperator] = []
    inputs: list[tuple[int, ...]] = []
    outputs: list[tuple[int, ...]] = []
    known: dict[Hashable, int] = {}
    for member in members:
        places = _places(member.tasks, len(tensors), known)
        for tensor, place in zip(member.tasks.tensors, places, strict=True):
            if place == len(tensors):
                root = None if tensor.alias_of is None else places[tensor.alias_of]
                tensors.append(replace(tensor, id=place, name=named(member.name, tensor.name), alias_of=root))
                if tensor.id in member.tasks.constants:
                    constants[place] = member.tasks.constants[tensor.id]
                if tensor.id in member.tasks.recipes:
                    recipes[place] = member.tasks.recipes[tensor.id]
        first = len(operators)
        operators += [_moved(operator, first, member.name, places) for operator in member.tasks.operators]
        inputs.append(tuple(places[tensor] for tensor in member.tasks.inputs))
        outputs.append(tuple(places[tensor] for tensor in member.tasks.outputs))
    counts = [member.tasks.states for member in members]
    firsts = itertools.accumulate(counts, initial=0)
    return TaskGraph(
        name=name,
        tensors=tuple(tensors),
        constants=MappingProxyType(constants),
        operators=tuple(operators),
        inputs=states_last(inputs, counts),
        outputs=states_last(outputs, counts),
        states=sum(counts),
        in_place=tuple(
            first + i for first, member in zip(firsts, members, strict=False) for i in member.tasks.in_place
        ),
        recipes=MappingProxyType(recipes),
    )


def named(member: str, name: str) -> str:
    """What something of a member is called among those of others."""
    return f"{member}:{name}"


def states_last(sides: Sequence[Sequence[T]], states: Sequence[int]) -> tuple[T, ...]:
    """All inputs or outputs of some models, in order, and behind them those of states, the last `states` of each."""
    counts = [len(side) - count for side, count in zip(sides, states, strict=True)]
    plain = [item for side, count in zip(sides, counts, strict=True) for item in side[:count]]
    return (*plain, *(item for side, count in zip(sides, counts, strict=True) for item in side[count:]))


def _places(tasks: TaskGraph, first: int, known: dict[Hashable, int]) -> list[int]:
    """The new number of each tensor: from `first` on, or that of an equal constant among the `known`."""
    places = []
    for tensor in tasks.tensors:
        place = first
        if tensor.id in tasks.constants:
            place = known.setdefault((tensor.type, tensor.layout, fingerprint(tasks.constants[tensor.id])), first)
        places.append(place)
        first += place == first
    return places


def _moved(operator: ROperator, first: int, member: str, places: Sequence[int]) -> ROperator:
    """An rOperator of a member behind `first` others, over the tensors' new numbers."""
    reads, writes = (
        tuple(Binding(tensor=places[binding.tensor], origin=binding.origin) for binding in bindings)
        for bindings in (operator.reads, operator.writes)
    )
    predicate = operator.predicate and replace(operator.predicate, tensor=places[operator.predicate.tensor])
    return replace(
        operator,
        id=first + operator.id,
        name=named(member, operator.name),
        reads=reads,
        writes=writes,
        predicate=predicate,
    )
