"""What PyTorch assumes of numbers that it cannot know, so that operands fit: here it might be wrong in silence.

As `x[:n] + y` meets a `y` of three rows, PyTorch takes `n` for 3 and writes a check of that, which a static program
leaves out. In eager PyTorch one row would be added to all three.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch
from torch.fx import Node as FxNode

from rammer.errors import DataDependentError
from rammer.frontends.torch.importer import is_call_of
from rammer.frontends.torch.private import Formula, formula_of
from rammer.frontends.torch.sizes import ONE_SIZE, TAKEN_FOR_ANOTHER
from rammer.frontends.torch.sources import location_of

_ITEMS = ("_local_scalar_dense", "item")


def check_assumptions(nodes: Sequence[FxNode], model: str, checks: Collection[FxNode] = ()) -> None:
    """Check that each number that is read from a tensor is one of its own, if anything but a check uses it.

    Args:
        nodes: of a program as PyTorch captured it.
        model: what messages call it.
        checks: what computes nothing else; in a program without mutation, nobody can tell.

    Raises:
        DataDependentError: PyTorch takes it for another.
    """
    seen: dict[str, FxNode] = {}
    for node in nodes:
        number = node.meta.get("val")
        if is_call_of(node, *_ITEMS) and isinstance(number, torch.SymInt) and not node.users.keys() <= set(checks):
            formula = formula_of(number)
            first = seen.get(str(formula.value))
            if formula.kind != "symbol" or (first is not None and first.args != node.args):
                raise DataDependentError(TAKEN_FOR_ANOTHER, where=str(location_of(node, model)), hint=ONE_SIZE)
        for name in _symbols_of(number):
            seen.setdefault(name, node)


def _symbols_of(value: object) -> Iterator[str]:
    """The symbols in what PyTorch captured of a result."""
    if isinstance(value, torch.SymInt | torch.SymFloat):
        yield from _symbols_in(formula_of(value))
    elif isinstance(value, torch.Tensor):
        yield from (name for extent in value.shape for name in _symbols_of(extent))
    elif isinstance(value, tuple | list):
        yield from (name for each in value for name in _symbols_of(each))


def _symbols_in(formula: Formula) -> Iterator[str]:
    if formula.kind == "symbol":
        yield str(formula.value)
    yield from (name for each in formula.operands for name in _symbols_in(each))
