"""How long a block takes for a cell of a recurrent layer, whose weights stay on its multiprocessor."""

from __future__ import annotations

from rammer.devices.cuda.tiling.figures import CellFigures
from rammer.ir.kernel_form import PersistentRnnForm
from rammer.ir.task import RKernel
from rammer.ir.vdevice import VDevice
from rammer.tiling.persistent_rnn import PersistentRnn, plan_of

_REGISTER_BYTES = 4
_NARROW_WORDS = 80  # of weights of 16 bits, that registers have room for
_SUBCORES = 4


def cell_us(kernel: RKernel, form: PersistentRnnForm, vdevice: VDevice, figures: CellFigures) -> float:
    """Time of an rTask that keeps its weights and has loaded them first, in microseconds."""
    if form.columns > 1:
        return _batch_us(plan_of(kernel), form.threads, figures) / vdevice.kept_share
    if form.is_narrow:
        fixed_us, word_us, beyond_us = figures.narrow_us
        words = form.weight_bytes / (form.threads * _REGISTER_BYTES)
        return fixed_us + words * word_us + max(0.0, words - _NARROW_WORDS) * beyond_us
    fixed_us, register_us = figures.stationary_us
    return fixed_us + form.weight_registers * register_us


def _batch_us(plan: PersistentRnn, threads: int, figures: CellFigures) -> float:
    """Time of an rTask of several vectors that finds its weights."""
    shares = plan.shares
    instructions = sum(len(part.team) * shares.instructions(part.slots, part.elements) for part in plan.parts)
    elements = plan.columns * sum(part.length for part in plan.parts) * shares.halves
    sums = shares.rows * shares.padded * shares.slices
    return (
        instructions / _SUBCORES * figures.instruction_us
        + elements / threads * figures.element_us
        + sums / threads * figures.sum_us
    )
