"""Astra's update tree: in what order the options of variables are tried (Sivathanu et al., ASPLOS 2019, section 4).

A *variable* has numbered options; option 0 is what runs at first. A tree says how its variables are explored:
`parallel` tries an option of each child at once, for children whose outcomes are measured apart; `prefix` explores its
children in order, those before frozen at their best; `exhaustive` tries every combination of a few variables that are
judged together; a leaf, `each`, tries the options of one variable one after another.

A tree is a generator: it yields what to change of the best that is known, and is sent which of these changes gain.
Whoever drives it keeps the best and applies what gains.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """What may be chosen.

    Attributes:
        part: of the program, that tells whether a change gains.
        name: of what is chosen there.
        options: how many there are.
    """

    part: str
    name: str
    options: int


Change = dict[Variable, int]
"""By variable, the option to try."""
Gains = Mapping[Variable, bool]
"""By variable, whether its change gained."""
Tree = Generator[Change, Gains, None]


def each(variable: Variable) -> Tree:
    """Every other option of a variable, one after another."""
    for option in range(1, variable.options):
        yield {variable: option}


def exhaustive(variables: Sequence[Variable]) -> Tree:
    """Every other combination of options, one after another; the variables gain together or not at all."""
    ranges = [range(variable.options) for variable in variables]
    for options in itertools.islice(itertools.product(*ranges), 1, None):
        yield dict(zip(variables, options, strict=True))


def prefix(children: Sequence[Tree]) -> Tree:
    """One child after another."""
    for child in children:
        yield from child


def parallel(children: Sequence[Tree]) -> Tree:
    """All children at once, each as far as it has something to try."""
    waiting = [(child, change) for child in children if (change := next(child, None)) is not None]
    while waiting:
        gains = yield {variable: option for _, change in waiting for variable, option in change.items()}
        going: list[tuple[Tree, Change]] = []
        for child, change in waiting:
            try:
                going.append((child, child.send({variable: gains[variable] for variable in change})))
            except StopIteration:
                continue
        waiting = going
