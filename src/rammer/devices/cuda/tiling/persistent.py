"""rTiles whose weights stay on a vEU: the fewest rTasks that leave each with no more weights than a vEU keeps.

Only for few vectors times weights. Weights of 16 bits that one vector is multiplied with may be kept as they are, those
for which no registers are left in shared memory: fewer rTasks then, each of which takes longer. Which is best follows
from how many vEUs there are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator

from rammer.devices.cuda.tiling.forms import lane_of, staying_form
from rammer.ir.expr import Axis, Load, TensorExpr, nodes
from rammer.ir.task import RKernel, RTile
from rammer.ir.types import DType
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.roller.tile import scale_out
from rammer.tiling.pattern import Contraction, contraction
from rammer.tiling.persistent_rnn import MOST_COLUMNS, can_be_narrow, column_axes

_LANES = 4  # what an rTask's size is a multiple of: a gate's sums are shared out among lanes evenly
_PAIR = 2  # of 16 bits, in a register
_SHARES = (1.0, 0.875, 0.75, 0.625)  # of the rTasks whose narrow weights all have registers
_LEAST_COLUMNS = 4  # of a part of the vectors
_FORMS = 3  # of as many numbers of units, for each part of the vectors


def persistent_kernels(workload: Workload, vdevice: VDevice) -> tuple[RKernel, ...]:
    """Candidates whose weights stay on their vEUs, if there are any: as float32, then fewer rTasks by 16 bits.

    Of several vectors, they or results have to be tagged: such rKernels are slow where weights do not stay from one to
    the next.
    """
    if not vdevice.stationary_bytes:
        return ()
    expr, layouts = workload.expr, workload.layouts
    found, columns = contraction(expr), column_axes(expr, layouts, workload.constants)
    if found is None or columns is None or not _can_have(columns, found, workload):
        return ()
    lane = lane_of(expr, layouts, found, vdevice)
    if lane is None:  # weights that are states have the layout of the caller; they are loaded once
        lane = next((expr.axes.index(axis) for axis in found.lanes if axis not in columns), None)
    if lane is None:
        return ()
    units = tuple(
        axis.extent if axis in columns else min(_LANES, axis.extent) if i == lane else 1
        for i, axis in enumerate(expr.axes)
    )
    kernels = list(_wide(workload, units, columns, lane, vdevice))
    if can_be_narrow(expr, layouts, workload.constants):
        narrow = _narrow(workload, units, lane, vdevice)
        kernels += [one for one in narrow if not kernels or one.task_count < kernels[0].task_count]
    return tuple(kernels)


def _wide(
    workload: Workload, units: tuple[int, ...], columns: Collection[Axis], lane: int, vdevice: VDevice
) -> Iterator[RKernel]:
    """Candidates with room for weights as float32: of one vector as few rTasks as possible, of several also more.

    More rTasks of several vectors have fewer units each, or fewer of the vectors: then several vEUs keep the same
    weights. Layers are faster so where vEUs are left.
    """
    expr, least = workload.expr, _task_count(workload.expr, columns, vdevice)
    doubled = [least << times for times in range(vdevice.veu_count.bit_length())] if columns else [least]
    for cut in _cuts(columns):
        most = vdevice.veu_count // cut  # of which the fewest leave too many units to some
        wholes = (scale_out(expr, units, count) for count in (*doubled, most) if least <= count <= most)
        tiles = (
            RTile(
                task=tuple(
                    -(-size // cut) if axis in columns else size for axis, size in zip(expr.axes, whole, strict=True)
                ),
                lane=lane,
            )
            for whole in dict.fromkeys(wholes)
        )
        forms = ((tile, staying_form(workload, tile, vdevice)) for tile in tiles)
        kernels = (workload.kernel(tile, form) for tile, form in forms if form is not None)
        yield from itertools.islice(kernels, _FORMS if columns else 1)


def _cuts(columns: Collection[Axis]) -> list[int]:
    """Into how many parts the vectors may be cut."""
    if len(columns) != 1:
        return [1]
    (axis,) = columns
    return [1 << halved for halved in range(axis.extent.bit_length()) if axis.extent >> halved >= _LEAST_COLUMNS] or [1]


def _narrow(workload: Workload, units: tuple[int, ...], lane: int, vdevice: VDevice) -> Iterator[RKernel]:
    """Candidates that keep weights as 16 bits: as many rTasks as registers ask for, and fewer."""
    most = -(-_task_count(workload.expr, (), vdevice) // _PAIR)
    for count in dict.fromkeys(max(1, int(most * share)) for share in _SHARES):
        tile = RTile(task=scale_out(workload.expr, units, count), lane=lane)
        form = staying_form(workload, tile, vdevice, narrow=True)
        if form is not None and count <= vdevice.veu_count:
            yield workload.kernel(tile, form)


def _can_have(columns: Collection[Axis], found: Contraction, workload: Workload) -> bool:
    """Whether an rTask may multiply so many vectors: it waits for them, or is the first that others wait for."""
    count = math.prod(axis.extent for axis in columns)
    multiplied = nodes(*(operand for term in found.terms for operand in term.operands))
    vectors = {load.slot for load in multiplied if isinstance(load, Load) and not found.free[load].isdisjoint(columns)}
    results = range(len(workload.expr.inputs), len(workload.layouts))
    are_tagged = any(workload.layouts[slot].tagged for slot in (*vectors, *results))
    return count == 1 or (count <= MOST_COLUMNS and are_tagged)


def _task_count(expr: TensorExpr, columns: Collection[Axis], vdevice: VDevice) -> int:
    """Into how many rTasks a product of vectors and weights is cut so that its weights stay."""
    units = math.prod(axis.extent for axis in expr.axes if axis not in columns)
    weights = units * sum(math.prod(axis.extent for axis in reduction.axes) for reduction in expr.reductions)
    return -(-weights * DType.FLOAT32.itemsize_bytes // vdevice.stationary_bytes)
