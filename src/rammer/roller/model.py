"""The micro-performance model: how long an rTask takes, from a vDevice's figures alone (Roller, section 3.3).

An rTask's time is the larger of its arithmetic, by the vDevice's rules, and its traffic through the memory levels, and
behind both what it makes of sums that traffic may hold up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rammer.ir.expr import TensorExpr
from rammer.ir.kernel_form import ExternForm
from rammer.ir.task import RKernel
from rammer.ir.vdevice import Figure, VDevice
from rammer.roller.tile import TaskTile, footprint_bytes, task_count


class ModelCosts:
    """`CostModel` by this model: no measurement."""

    def __init__(self, vdevice: VDevice) -> None:
        self._vdevice = vdevice
        self._known: dict[RKernel, Prediction] = {}

    def task_us(self, kernel: RKernel) -> Figure:
        """Time of one full rTask alone on a vEU, in microseconds."""
        return Figure(self._predict(kernel).task_us, f"predicted from the figures of {self._vdevice.name}")

    def bound(self, kernel: RKernel) -> str:
        """What the time goes to: "compute" or "memory"."""
        prediction = self._predict(kernel)
        return "compute" if prediction.compute_us > prediction.memory_us else "memory"

    def _predict(self, kernel: RKernel) -> Prediction:
        if kernel not in self._known:
            self._known[kernel] = predict(kernel, self._vdevice)
        return self._known[kernel]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Times of one full rTask on a vEU: what its arithmetic, its memory traffic and all of it take.

    What the interpreter adds to each rTask is not in it.
    """

    compute_us: float
    memory_us: float
    task_us: float


def predict(kernel: RKernel, vdevice: VDevice) -> Prediction:
    """The time of one full rTask of `kernel` on a vEU, from the vDevice's figures, where all guards hold.

    Of a user's own code nothing is known but what it moves: until it is measured, it is taken to wait for nothing else.
    """
    compute, moved = instructions_us(kernel, vdevice), moved_us(kernel, vdevice)
    results = 0.0 if isinstance(kernel.form, ExternForm) else vdevice.rules.results_us(_usual(kernel), vdevice)
    return Prediction(compute_us=compute, memory_us=moved, task_us=max(compute - results, moved) + results)


def instructions_us(kernel: RKernel, vdevice: VDevice) -> float:
    """Time of one full rTask's instructions, in microseconds."""
    if isinstance(kernel.form, ExternForm):
        return 0.0
    return vdevice.rules.compute_us(_usual(kernel), vdevice)


def _usual(kernel: RKernel) -> RKernel:
    """The rKernel where all guards hold."""
    return replace(kernel, expr=kernel.expr.usual) if kernel.expr.guards else kernel


def moved_us(kernel: RKernel, vdevice: VDevice) -> float:
    """Time to move what one full rTask reads and writes, in microseconds; 0 where its instructions' time has it."""
    if kernel.form.kept_bytes > 0 or kernel.form.brings_operands:
        return 0.0  # what keeps its weights moves next to nothing else
    return memory_us(_usual(kernel).expr, kernel.tile.task, vdevice)


def memory_us(expr: TensorExpr, task: TaskTile, vdevice: VDevice) -> float:
    """Time to move an rTask's data tiles from the innermost level that holds what a vEU has of all operands.

    A level of its own holds the vEU's share of the rTasks, one that is shared all of them, a scratchpad nothing. As
    many rTasks as there are vEUs move data side by side.
    """
    whole_bytes = footprint_bytes(expr, tuple(axis.extent for axis in expr.axes))
    task_bytes = footprint_bytes(expr, task)
    tasks = task_count(expr, task)
    own_bytes = min(whole_bytes, task_bytes * -(-tasks // vdevice.veu_count))
    levels = [level for level in vdevice.levels if not level.scratchpad]
    level = next(
        (level for level in levels if (whole_bytes if level.shared else own_bytes) <= level.capacity_bytes), levels[-1]
    )
    return task_bytes / level.share_bytes_per_us(min(tasks, vdevice.veu_count))
