"""rTiles and times of depthwise convolutions (`tiling.depthwise`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from rammer.devices.cuda.tiling.figures import DepthwiseFigures
from rammer.devices.cuda.tiling.instructions import epilogue_instructions
from rammer.ir.expr import TensorExpr
from rammer.ir.kernel_form import DepthwiseForm
from rammer.ir.task import RKernel, RTile
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.roller.tile import task_count
from rammer.tiling.depthwise import CHANNELS, Depthwise, chunks, depthwise, depthwise_form
from rammer.tiling.gemm import WARP

_CHANNELS = (16, 128)  # of an rTask, at least and at most
_MOST_POINTS = 8  # of a thread: their sums and what they read stay in registers
_MOST_CUTS = 16  # of an axis


def depthwise_kernels(workload: Workload, vdevice: VDevice, room_bytes: int) -> list[RKernel]:
    """Candidates, in no order; none where the workload is no such convolution."""
    expr = workload.expr
    found = depthwise(expr, workload.layouts, workload.alignments)
    if found is None:
        return []
    kernels = []
    for tile in _tiles(found, workload, vdevice):
        size = dict(zip(expr.axes, tile.task, strict=True))[found.along]
        for points in (number for number in range(1, min(_MOST_POINTS, size) + 1) if size % number == 0):
            form = depthwise_form(found, expr, tile, vdevice.threads, points, room_bytes)
            if form is not None:
                kernels.append(workload.kernel(tile, form))
    return kernels


def _tiles(found: Depthwise, workload: Workload, vdevice: VDevice) -> Iterator[RTile]:
    """Boxes of channels and points, about as many as there are vEUs or fewer."""
    expr = workload.expr
    of_copies = chunks(found, expr, workload.layouts, workload.alignments)
    assert of_copies is not None  # it is a depthwise convolution
    unit, extent = max(CHANNELS, *of_copies), found.channel.extent
    least, most = _CHANNELS
    channels = [size for size in range(unit, extent + 1, unit) if extent % size == 0 and least <= size <= most]
    sizes = {found.channel: channels or [min(extent, most // unit * unit)]}
    sliding = {window.axis for window in found.windows if window.tap is not None}
    for axis in expr.axes:
        if axis is not found.channel:
            cuts = range(1, min(axis.extent, _MOST_CUTS) + 1) if axis in sliding else (axis.extent,)
            sizes[axis] = sorted({-(-axis.extent // cut) for cut in cuts})
    lane = expr.axes.index(found.channel)
    for task in itertools.product(*(sizes[axis] for axis in expr.axes)):
        if task_count(expr, task) <= _most_tasks(expr, found, vdevice):
            yield RTile(task=task, lane=lane)


def _most_tasks(expr: TensorExpr, found: Depthwise, vdevice: VDevice) -> int:
    """Smaller rTasks than one for each vEU only repeat what windows share."""
    batch = math.prod(window.axis.extent for window in found.windows if window.tap is None and window.axis is not None)
    return max(vdevice.veu_count, batch * -(-vdevice.veu_count // batch))


def depthwise_us(kernel: RKernel, form: DepthwiseForm, vdevice: VDevice, figures: DepthwiseFigures) -> float:
    """Time of one full rTask, in microseconds."""
    found = depthwise(kernel.expr, kernel.layouts, kernel.alignments)
    assert found is not None  # it has the form
    sizes = dict(zip(kernel.expr.axes, kernel.tile.task, strict=True))
    of_copies = chunks(found, kernel.expr, kernel.layouts, kernel.alignments)
    assert of_copies is not None
    results = math.prod(sizes.values())
    threads = results // (form.points * form.vector)
    warps = -(-threads // WARP)
    taps = math.prod(window.taps for window in found.windows)
    rows = taps // found.run.taps
    read = found.run.reach(form.points) + found.run.taps
    converted = sum(one.type.itemsize_bytes < 4 for one in (found.image, found.weight)) / 2
    of_row = read * (1 + form.vector * converted) + form.points * found.run.taps * form.vector
    of_results = form.points * form.vector * (2 + epilogue_instructions(kernel.expr))
    instructions = figures.item_instructions + rows * (figures.row_instructions + of_row) + of_results
    schedulers = 4
    rounds = -(-warps // schedulers)
    busy = min(rounds, form.threads // WARP // schedulers)
    cycles = instructions * max(rounds, figures.alone * rounds / busy)
    patch = math.prod(found.patch(sizes)) * sizes[found.channel]
    copies = patch / of_copies[0] + taps * sizes[found.channel] / of_copies[1]
    return figures.latency_us + cycles / figures.cycles_per_us + copies * figures.copy_us
