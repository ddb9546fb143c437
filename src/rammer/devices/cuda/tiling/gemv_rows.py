"""rTiles and times of matrix-vector products that stream rows (`tiling.gemv_rows`)."""

from __future__ import annotations

import math

from rammer.devices.cuda.tiling.figures import ThreadFigures
from rammer.ir.kernel_form import GemvRowsForm
from rammer.ir.task import RKernel, RTile
from rammer.ir.types import DType
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.roller.tile import scale_out
from rammer.tiling.gemv_rows import gemv_rows_form, matrix_vector, streams_rows

_TASKS_PER_VEU = (0.25, 0.5, 15 / 16, 1, 2, 3, 4, 8)  # with 15/16, some vEUs are left to what comes next
_INSTRUCTIONS = 4.5  # of a thread for an element, with its share of what adds up and stores
_PACKED_INSTRUCTIONS = 2.6  # likewise, of few bits


def row_kernels(workload: Workload, vdevice: VDevice) -> list[RKernel]:
    """Candidates that stream rows, in no order; none where the workload is anything else, or lies otherwise."""
    expr = workload.expr
    if streams_rows(expr, workload.constants, vdevice, once=workload.constants) is None:
        return []
    lane = max(range(len(expr.axes)), key=lambda i: expr.axes[i].extent)
    counts = [math.ceil(vdevice.veu_count * factor) for factor in _TASKS_PER_VEU]
    tiles = dict.fromkeys(RTile(task=scale_out(expr, (1,) * len(expr.axes), count), lane=lane) for count in counts)
    forms = {tile: gemv_rows_form(expr, workload.layouts, tile, vdevice.threads, workload.alignments) for tile in tiles}
    return [workload.kernel(tile, form) for tile, form in forms.items() if form is not None]


def row_us(kernel: RKernel, form: GemvRowsForm, vdevice: VDevice, figures: ThreadFigures) -> float:
    """Time of one full rTask's instructions and of the loads that wait for each other, in microseconds."""
    found = matrix_vector(kernel.expr)
    assert found is not None  # it has the form
    elements = math.prod(kernel.tile.task) * len(found.rows) * form.across * form.turns * form.vector
    lanes_per_us = vdevice.flops_per_us[DType.FLOAT32].value / 2
    barriers, instructions = (5, _PACKED_INSTRUCTIONS) if found.is_packed else (4, _INSTRUCTIONS)
    latency_us = figures.start_us + 3 * figures.wait_us + barriers * figures.barrier_us
    return latency_us + elements * instructions / (lanes_per_us * figures.issued)
