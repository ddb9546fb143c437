"""The form of a tile on a GPU, and the axis along which neighbouring threads take neighbouring points."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rammer.ir.expr import Axis, Load, TensorExpr, nodes
from rammer.ir.kernel_form import GemmForm, Instruction, KernelForm, PersistentRnnForm
from rammer.ir.task import RTile
from rammer.ir.types import Layout
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.tiling.gemm import LEAST_ROWS, WARP, gemm_forms, of_float32, whole_form
from rammer.tiling.gemv import gemv_form, vector_slots
from rammer.tiling.patches import window_product
from rammer.tiling.pattern import Contraction, chosen_axes, is_gathered, stride_along
from rammer.tiling.persistent_rnn import persistent_rnn_form
from rammer.tiling.reduce import map_form, reduce_form
from rammer.tiling.rows import outer_reductions

_SECTOR_LANES = 8  # of float32
_STAYING = 0.93  # of shared memory, for what stays and what it is multiplied with: the rest has records
_WHOLE = 0.85  # of shared memory, for whole sums: what is copied once needs no cache
_STAGED = 0.7  # of shared memory, for operands: what is left caches those that are copied again


def general_form(workload: Workload, tile: RTile, vdevice: VDevice) -> KernelForm:
    """The form of what is no product."""
    form_of = reduce_form if workload.expr.reductions else map_form
    return form_of(workload.expr, workload.layouts, tile, vdevice.threads, workload.alignments)


def product_form(workload: Workload, tile: RTile, vdevice: VDevice) -> KernelForm:
    """The form of a product: in tiles if it has enough rows, else weights stream, or those of one vector stay."""
    expr, layouts, threads = workload.expr, workload.layouts, vdevice.threads
    form: KernelForm | None = staged_form(workload, tile, vdevice)
    if form is None and vector_slots(expr) is not None:
        form = staying_form(workload, tile, vdevice)
    return form or gemv_form(expr, layouts, tile, threads, workload.alignments)


def staying_form(
    workload: Workload, tile: RTile, vdevice: VDevice, *, narrow: bool = False
) -> PersistentRnnForm | None:
    """The form of a product whose weights stay, `narrow` ones as 16 bits; None where they cannot."""
    form = persistent_rnn_form(
        workload.expr,
        workload.layouts,
        tile,
        workload.constants,
        vdevice.threads,
        vdevice.stationary_bytes,
        _shared_bytes(vdevice, _STAYING),
        narrow=narrow,
    )
    if form is not None and form.instruction is Instruction.MMA_3XF16 and vdevice.numerics == "strict":
        return None
    return form


def staged_form(workload: Workload, tile: RTile, vdevice: VDevice) -> GemmForm | None:
    """The form of a product in tiles, None where it has too few rows or columns, or is of tagged elements."""
    return None if tile.lane is None else staged_forms(workload, tile.lane, [tile.task], vdevice)[0]


def staged_forms(
    workload: Workload, lane: int, tasks: Sequence[tuple[int, ...]], vdevice: VDevice
) -> list[GemmForm | None]:
    """As `staged_form`, of what rTasks of tiles along one lane compute."""
    if any(layout.tagged for layout in workload.layouts[: len(workload.expr.inputs)]):
        return [None] * len(tasks)  # lanes would wait one by one where a block stages together
    of_float, room = of_float32(vdevice.instructions), room_bytes(vdevice)
    return list(gemm_forms(workload.expr, workload.layouts, lane, tasks, vdevice.threads, room, of_float))


def whole_sums_form(workload: Workload, tile: RTile, vdevice: VDevice) -> GemmForm | None:
    """The form of a product of 16 bits in tiles whose whole sums are in shared memory, windows as a patch; or None."""
    expr, layouts = workload.expr, workload.layouts
    if any(layout.tagged for layout in layouts[: len(expr.inputs)]):
        return None
    windows = window_product(expr, layouts, workload.alignments, tile.lane)
    sizes = dict(zip(expr.axes, tile.task, strict=True))
    patch_bytes = None if windows is None else windows.patch_bytes(sizes)
    return whole_form(expr, layouts, tile, vdevice.threads, _shared_bytes(vdevice, _WHOLE), patch_bytes)


def room_bytes(vdevice: VDevice) -> int:
    """Shared memory of a block for operands that are staged."""
    return _shared_bytes(vdevice, _STAGED)


def _shared_bytes(vdevice: VDevice, share: float) -> int:
    shared = next(level for level in vdevice.levels if not level.shared)
    return int(shared.capacity_bytes * share)


def lane_of(expr: TensorExpr, layouts: Sequence[Layout], found: Contraction | None, vdevice: VDevice) -> int | None:
    """The position of the axis along which neighbouring threads take neighbouring points.

    Where a contraction has rows, its operands are staged in shared memory, and the axis must be one of its lanes; what
    is stored matters most, for operands are copied in any order. Else it is the axis along which most of what is loaded
    and stored lies side by side, or of what is gathered that along which results are stored; None if only sums lie so.
    """
    in_reductions = {node for reduction in expr.reductions for node in nodes(reduction.body) if isinstance(node, Load)}
    heavy = [load for load in expr.loads if load in in_reductions] or list(expr.loads)

    def score(axis: Axis) -> tuple[int, int, int]:
        loads = sum(abs(stride_along(load.indices, layouts[load.slot], axis)) == 1 for load in heavy)
        outputs = zip(expr.outputs, layouts[len(expr.inputs) :], strict=True)
        stores = sum(abs(stride_along(output.indices, layout, axis)) == 1 for output, layout in outputs)
        return (loads, stores, min(axis.extent, busy_threads(vdevice)))

    def stored_first(axis: Axis) -> tuple[int, int, int]:
        loads, stores, extent = score(axis)
        return (stores, loads, extent)

    staged = [
        axis
        for axis in (() if found is None else found.lanes)
        if found is not None and min(axis.extent, _height(expr, found, axis)) >= LEAST_ROWS
    ]
    by_stores = staged or (not expr.reductions and is_gathered(expr))
    best = max(staged or reversed(expr.axes), key=stored_first if by_stores else score, default=None)
    if best is None or (expr.reductions and not staged and score(best)[0] == 0):
        return None
    return expr.axes.index(best)


def map_lanes(expr: TensorExpr, layouts: Sequence[Layout], lane: int | None) -> tuple[int | None, ...]:
    """`lane`, and where no results lie side by side along it, the longest axis along which most do."""

    def stores(axis: Axis) -> int:
        outputs = zip(expr.outputs, layouts[len(expr.inputs) :], strict=True)
        return sum(abs(stride_along(output.indices, layout, axis)) == 1 for output, layout in outputs)

    best = max(expr.axes, key=lambda axis: (stores(axis), axis.extent), default=None)
    if lane is None or best is None or stores(expr.axes[lane]) or not stores(best):
        return (lane,)
    return (lane, expr.axes.index(best))


def _height(expr: TensorExpr, found: Contraction, lane: Axis) -> int:
    """Points of a contraction's rows."""
    return math.prod(axis.extent for axis in found.rows(expr.axes, lane))


def units_of(expr: TensorExpr, lane: int | None, *, is_stream: bool) -> tuple[int, ...]:
    """What the sizes of an rTask are multiples of."""
    whole = () if expr.reductions else chosen_axes(expr)
    if expr.reductions and lane is None:  # along a row, neighbouring threads have neighbouring elements
        whole = tuple(axis for axis in expr.axes if axis not in outer_reductions(expr)[1])
    units = [axis.extent if axis in whole else 1 for axis in expr.axes]
    if lane is not None:
        units[lane] = _SECTOR_LANES if is_stream else WARP
    return tuple(min(unit, max(1, axis.extent)) for unit, axis in zip(units, expr.axes, strict=True))


def busy_threads(vdevice: VDevice) -> int:
    """Threads that keep a vEU busy."""
    return vdevice.threads // 2
