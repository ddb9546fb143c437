"""Tiles of the skeleton `attention` on GPUs, and how long their rTasks take."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from rammer.devices.cuda.tiling.figures import AttentionFigures, Figures
from rammer.devices.cuda.tiling.forms import room_bytes
from rammer.ir.expr import Axis, Cast, Expr, Load, nodes
from rammer.ir.kernel_form import ATTENTION_ROWS, FlashAttentionForm, Instruction, Skeleton
from rammer.ir.region import box_size, read_boxes
from rammer.ir.task import RKernel, RTile
from rammer.ir.types import DType, Layout
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.tiling.flash_attention import AttentionBlock, block_of
from rammer.tiling.gemm import WARP, of_float32
from rammer.tiling.pattern import joint_of, stride_along

_TEAM_KEYS = (8, 16, 32, 48, 64)
_MOST_HELD = 96  # registers of a thread for sums and scores
_MOST_COLUMNS = 4 * _MOST_HELD // 3  # of a warp, in registers of four bytes: scores take the rest
_STAGES = (2, 3)  # fewer if there are fewer steps
_QUARTER_THREADS = 128  # that quarter a multiprocessor's blocks


def attention_kernels(workload: Workload, vdevice: VDevice, time: AttentionTime) -> list[RKernel]:
    """The best rKernel of each number of rows, in no order; none where the expression is no attention."""
    of_float = of_float32(vdevice.instructions)
    block = block_of(workload.expr, of_float) if Skeleton.ATTENTION in vdevice.skeletons else None
    if block is None or not block.found.has_affine_loads:
        return []
    best: dict[tuple[int, ...], tuple[float, FlashAttentionForm]] = {}
    for row_warps in range(1, vdevice.threads // WARP + 1):
        task = _task(workload, block, row_warps * ATTENTION_ROWS)
        for form in _forms(block, vdevice, row_warps):
            time_us = time.task_us(block, form, workload.layouts, vdevice)
            if task not in best or time_us < best[task][0]:
                best[task] = (time_us, form)
    return [workload.kernel(RTile(task=task), form) for task, (_, form) in best.items()]


def _task(workload: Workload, block: AttentionBlock, rows: int) -> tuple[int, ...]:
    """One head's columns and at most so many rows, cut into equal parts; the innermost axis of rows is cut last."""
    axes, found = workload.expr.axes, block.found
    sizes = dict.fromkeys(axes, 1) | {axis: axis.extent for axis in found.columns}
    for axis in reversed(found.rows):
        parts = -(-axis.extent // max(1, rows))
        sizes[axis] = -(-axis.extent // parts)
        rows //= sizes[axis]
    return tuple(sizes[axis] for axis in axes)


def _forms(block: AttentionBlock, vdevice: VDevice, row_warps: int) -> Iterator[FlashAttentionForm]:
    """Forms with so many warps along rows, whose operands have room, with as many teams as have keys or fewer."""
    columns = math.prod(axis.extent for axis in block.found.columns)
    words = _words(block.instruction)
    column_warps = -(-columns * words // _MOST_COLUMNS)
    keys, room = block.found.keys.extent, room_bytes(vdevice)
    most = vdevice.threads // WARP // (row_warps * column_warps)
    team_keys = [size for size in _TEAM_KEYS if size % block.tile.keys == 0]
    teams = [most >> halved for halved in range(most.bit_length())]
    for size, limit, most_stages in itertools.product(team_keys, teams, _STAGES):
        steps = -(-keys // (limit * size))
        form = FlashAttentionForm(
            threads=vdevice.threads,
            instruction=block.instruction,
            row_warps=row_warps,
            column_warps=column_warps,
            teams=-(-keys // (steps * size)),
            team_keys=size,
            stages=min(most_stages, steps),
        )
        form = replace(form, scratch_bytes=block.scratch_bytes(form))
        held = ATTENTION_ROWS * (size + block.warp_columns(form)) * words // WARP
        if held <= _MOST_HELD and form.scratch_bytes <= room:
            yield form


def _words(instruction: Instruction) -> int:
    """Registers of a sum."""
    return 2 if instruction is Instruction.MMA_F64 else 1


def cached_bytes(kernel: RKernel, form: FlashAttentionForm, unwritten: Collection[int]) -> int:
    """Bytes of keys and values, as many as are staged together, that lie in slots which are `unwritten`."""
    block = block_of(kernel.expr, of_float32([form.instruction]))
    assert block is not None  # it has the form
    boxes = read_boxes(kernel.expr, kernel.tile_ranges(0))
    loads = (node for operand in (block.key, block.value) for node in nodes(operand) if isinstance(node, Load))
    found = {load.slot: box for load in loads if load.slot in unwritten and (box := boxes[load.slot]) is not None}
    whole_bytes = sum(box_size(box) * kernel.expr.inputs[slot].dtype.itemsize_bytes for slot, box in found.items())
    return whole_bytes * min(block.found.keys.extent, form.stages * form.keys) // block.found.keys.extent


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionTime:
    """How long rTasks take, by figures of a GPU."""

    figures: Figures
    own: AttentionFigures

    def task_us(
        self, block: AttentionBlock, form: FlashAttentionForm, layouts: Sequence[Layout], vdevice: VDevice
    ) -> float:
        """Time of one full rTask, in microseconds; `layouts` are those of slots and outputs."""
        quarters = form.threads // _QUARTER_THREADS
        cycles_per_us = vdevice.flops_per_us[DType.FLOAT32].value / 2 / (quarters * WARP)
        steps = -(-block.found.keys.extent // form.keys)
        columns = form.column_warps * block.warp_columns(form)
        step_cycles = -(-form.warps // quarters) * self._warp_cycles(block, form)
        joined = form.rows * columns * (form.teams * self.figures.partial_sum_cycles + self.figures.result_cycles)
        keys = steps * form.keys
        found = block.found
        rows = min(form.rows, math.prod(axis.extent for axis in found.rows))
        brought = (form.rows * block.depth, keys * block.depth, keys * columns)
        computed = (
            rows * block.depth * (not _is_stored(block.query, found.depth, layouts))
            + _computed_keys(block.key, keys, found.depth, layouts) * block.depth
            + _computed_keys(block.value, keys, found.columns, layouts) * columns
        )
        copy_us = sum(brought) * block.query.dtype.itemsize_bytes / self.own.bytes_per_us
        multiply_us = steps * (step_cycles / cycles_per_us + self.own.step_us)
        overlapped_us = max(multiply_us, copy_us) + joined / quarters / cycles_per_us
        return self.own.latency_us + overlapped_us + computed / self.own.computed_per_us

    def _warp_cycles(self, block: AttentionBlock, form: FlashAttentionForm) -> float:
        """Cycles of a quarter for a step of one warp."""
        keys, depth, columns = form.team_keys, block.depth, block.warp_columns(form)
        elements = ATTENTION_ROWS * keys / WARP * self.own.score_cycles
        if form.instruction is Instruction.MMA_F64:
            return elements + keys / 8 * (depth + columns) / 8 * self.own.double_cycles
        if form.instruction is not Instruction.FFMA:
            return elements + keys / 8 * (depth + columns) / 16 * self.own.product_cycles
        multiply_adds = ATTENTION_ROWS * keys / WARP * (depth + columns) * self.figures.multiply_add_cycles
        held = ATTENTION_ROWS // 4
        reads = depth / 4 * (held + keys / 8) + keys / 4 * held + keys * columns / WARP
        return elements + multiply_adds + reads * self.figures.read_cycles


def _computed_keys(operand: Expr, keys: int, axes: Sequence[Axis], layouts: Sequence[Layout]) -> int:
    """For how many of the keys an operand has to be computed."""
    joint = joint_of(operand)
    if joint is None or not _is_stored(joint.before, axes, layouts):
        return 0 if _is_stored(operand, axes, layouts) else keys
    return 0 if _is_stored(joint.behind, axes, layouts) else joint.axis.extent - joint.start


def _is_stored(operand: Expr, axes: Sequence[Axis], layouts: Sequence[Layout]) -> bool:
    """Whether an operand lies in memory as it is staged, or will once what is only read rounded is stored so."""
    match operand:
        case (Load() as load) | Cast(_, Load() as load):
            return any(stride_along(load.indices, layouts[load.slot], axis) == 1 for axis in axes)
    return False
