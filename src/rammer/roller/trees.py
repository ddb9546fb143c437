"""Which strategies for decision trees are left where one was asked for by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from rammer.errors import OptionError
from rammer.ir.task import TaskGraph
from rammer.ir.tree_forms import SharedTreesForm, TreesForm
from rammer.ir.vdevice import VDevice

F = TypeVar("F", TreesForm, SharedTreesForm)


def check_strategy(vdevice: VDevice) -> None:
    """See whether a device has the strategy that was asked for.

    Raises:
        OptionError: it has not.
    """
    if vdevice.trees != "auto" and vdevice.trees not in vdevice.tree_strategies:
        names = ", ".join(vdevice.tree_strategies) or "none of them"
        raise OptionError(
            f"trees='{vdevice.trees}' on {vdevice.kind}", hint=f"it has {names}; or leave the choice to it"
        )


def asked_for(forms: Iterable[F], vdevice: VDevice, trees: str) -> list[F]:
    """The forms with the strategy that was asked for, or all.

    Args:
        forms: those that hold for some trees.
        vdevice: the device, with the strategy.
        trees: what these trees are like, for the error.

    Raises:
        OptionError: none of them has it.
    """
    found = list(forms)
    if vdevice.trees == "auto":
        return found
    found = [form for form in found if form.strategy == vdevice.trees]
    if not found:
        raise OptionError(
            f"trees='{vdevice.trees}' for {trees}",
            hint="docs/sklearn.md says what each strategy holds for; take another, or leave the choice to Roller",
        )
    return found


def check_use(tasks: TaskGraph, vdevice: VDevice) -> None:
    """See whether a strategy was of use, where one was asked for.

    Raises:
        OptionError: nothing in the model has it.
    """
    forms = (kernel.form for operator in tasks.operators for kernel in operator.kernels)
    if vdevice.trees != "auto" and not any(isinstance(form, TreesForm | SharedTreesForm) for form in forms):
        raise OptionError(
            f"trees='{vdevice.trees}' for {tasks.name}, which sums no leaves of decision trees",
            hint="leave it out; leaves that are linear functions have no strategies, either",
        )
