"""What Roller predicts of an expression: passes that compare forms of an operator ask here."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rammer.ir.expr import TensorExpr
from rammer.ir.kernel_form import WarpgroupGemmForm
from rammer.ir.types import Layout
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.roller.construct import construct
from rammer.roller.model import predict
from rammer.tiling.packing import preferred_layouts

_ALIGNMENT = 16  # elements: of what is no part of a tensor


def predicted_us(
    expr: TensorExpr, layouts: tuple[Layout, ...], constants: Collection[int], device: VDevice, veus: int
) -> float:
    """The time of an operator that has `veus` units to itself and is bound to whole tensors, in microseconds.

    Args:
        expr: what it computes.
        layouts: of what its slots and outputs are bound to, slots first.
        constants: the slots that are constants.
        device: the machine.
        veus: so many of its units.
    """
    overhead_us = device.task_overhead_us.value
    kernels = construct(Workload(expr, layouts, (_ALIGNMENT,) * len(layouts), frozenset(constants)), device)
    return min(-(-kernel.task_count // veus) * (predict(kernel, device).task_us + overhead_us) for kernel in kernels)


def evenly_us(
    expr: TensorExpr, layouts: tuple[Layout, ...], constants: Collection[int], device: VDevice, veus: int
) -> float:
    """As `predicted_us`, of the work alone: that of the most efficient rKernel, in equal shares."""
    kernels = construct(Workload(expr, layouts, (_ALIGNMENT,) * len(layouts), frozenset(constants)), device)
    return min(kernel.task_count * predict(kernel, device).task_us for kernel in kernels) / veus


def by_warpgroups(expr: TensorExpr, layouts: tuple[Layout, ...], constants: frozenset[int], device: VDevice) -> bool:
    """Whether Roller has warpgroups multiply, where nothing that an operator is bound to is a part of a tensor.

    Args:
        expr: what it computes.
        layouts: of what its slots and outputs are bound to, slots first.
        constants: the slots that are constants.
        device: the machine.
    """
    workload = Workload(expr, layouts, (_ALIGNMENT,) * len(layouts), constants)
    return any(isinstance(kernel.form, WarpgroupGemmForm) for kernel in construct(workload, device))


def laid_out(
    expr: TensorExpr, layouts: Sequence[Layout], constants: Collection[int], device: VDevice
) -> tuple[Layout, ...]:
    """The layouts of slots and outputs once the pass `layout` has laid out the slots that are `constants`."""
    preferred = preferred_layouts(expr, constants, layouts[: len(expr.inputs)], device)
    return tuple(preferred.get(slot, layout) for slot, layout in enumerate(layouts))
