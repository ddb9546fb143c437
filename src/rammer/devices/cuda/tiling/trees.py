"""rTiles and times of sums of leaves by blocks of threads (`skeletons/trees.cuh`).

Many rows: threads have rows of their own, and nodes pass through shared memory. Few: pairs of a tree and a row are
shared out, so that a block has enough to do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from rammer.devices.cuda.tiling.figures import TreeFigures
from rammer.ir.task import RKernel, RTile
from rammer.ir.tree_forms import SharedTreesForm
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.tiling.gemm import WARP
from rammer.tiling.trees import TreeSum, tree_sum

_BANK_BYTES = 4
_PATHS = 8  # of a thread at a time: their nodes and codes are on their way together
_LEAST_WARPS = 4  # of a block whose threads have rows of their own
_MOST_PAIR_ROWS = 128
_LEAST_TREES = 4  # in the mean, that nodes have room for
_FULL = 1.4  # of trees whose depth is at most so many times that of full ones of their size, all paths are as long


def tree_kernels(workload: Workload, vdevice: VDevice, room_bytes: int) -> list[RKernel]:
    """Candidates, in no order; none where the workload is no such sum, or operands do not lie as the code has them."""
    expr = workload.expr
    found = tree_sum(expr)
    if found is None:
        return []
    slots = found.slots
    constants = (slots.roots, slots.node, slots.value)
    if not all(workload.layouts[slot].is_row_major(expr.inputs[slot].shape) for slot in constants):
        return []
    codes = workload.layouts[slots.codes]
    if codes.panel is not None or codes.tagged:
        return []
    kernels = []
    for form in _forms(workload, found, vdevice, room_bytes):
        sizes = {found.rows: form.rows, found.groups: 1}
        task = tuple(min(sizes.get(axis, axis.extent), axis.extent) for axis in expr.axes)
        kernels.append(workload.kernel(RTile(task=task), form))
    return list(dict.fromkeys(kernels))


def _forms(workload: Workload, found: TreeSum, vdevice: VDevice, room_bytes: int) -> Iterator[SharedTreesForm]:
    rows = 1 if found.rows is None else found.rows.extent
    groups = 1 if found.groups is None else found.groups.extent
    type_of = workload.expr.inputs
    codes, value = type_of[found.slots.codes], type_of[found.slots.value]
    stops = found.depth > _FULL * math.log2(_nodes(workload, found) + 1)
    of_row = codes.shape[0] * codes.dtype.itemsize_bytes
    word, real = type_of[found.slots.node].dtype.itemsize_bytes, value.dtype.itemsize_bytes * value.shape[1]
    all_nodes = type_of[found.slots.node].shape[0]
    needed = min(all_nodes, math.ceil(_LEAST_TREES * _nodes(workload, found)))
    each = _BANK_BYTES // codes.dtype.itemsize_bytes
    while each:
        unit = WARP * each
        for most in (vdevice.threads * each, (room_bytes - needed * (word + real)) // of_row // unit * unit):
            if most >= _LEAST_WARPS * unit:
                chunk = min(_share(rows, groups, vdevice, min(most, vdevice.threads * each)), most)
                chunk = -(-chunk // unit) * unit
                room = min(all_nodes, (room_bytes - chunk * of_row) // (word + real))
                if room >= needed and chunk >= _LEAST_WARPS * unit:
                    scratch = chunk * of_row + room * (word + real)
                    side = max(1, _PATHS // each // 2)
                    yield SharedTreesForm(
                        threads=vdevice.threads,
                        scratch_bytes=scratch,
                        rows=chunk,
                        each=each,
                        side=side,
                        nodes=room,
                        stops=stops,
                    )
        each //= 2
    few = min(_share(rows, groups, vdevice, _MOST_PAIR_ROWS), _MOST_PAIR_ROWS, vdevice.threads // value.shape[1])
    if few:
        trees = type_of[found.slots.roots].shape[1]
        for staged in (False, True):
            left = room_bytes - few * of_row
            room = min(trees, left // (few * real) if not staged else left // 2 // (few * real))
            nodes = min(all_nodes, (left - room * few * real) // word) if staged else 0
            if room and (not staged or nodes >= needed):
                yield SharedTreesForm(
                    threads=vdevice.threads,
                    scratch_bytes=few * of_row + room * few * real + nodes * word,
                    rows=few,
                    each=0,
                    side=min(_PATHS, -(-room * few // vdevice.threads)),
                    nodes=nodes,
                    room=room,
                    stops=stops,
                )


def _share(rows: int, groups: int, vdevice: VDevice, most: int) -> int:
    """Rows of an rTask, so that vEUs have equally many rTasks of at most so many."""
    rounds = max(1, -(-rows * groups // (vdevice.veu_count * most)))
    return max(1, -(-rows * groups // (vdevice.veu_count * rounds)))


def _nodes(workload: Workload, found: TreeSum) -> float:
    """Nodes of a tree, in the mean."""
    roots, node = (workload.expr.inputs[slot] for slot in (found.slots.roots, found.slots.node))
    return node.shape[0] / math.prod(roots.shape)


def trees_us(kernel: RKernel, form: SharedTreesForm, vdevice: VDevice, figures: TreeFigures) -> float:
    """Time of one full rTask, in microseconds."""
    found = tree_sum(kernel.expr)
    assert found is not None  # it has the form
    workload = Workload(kernel.expr, kernel.layouts)
    type_of = kernel.expr.inputs
    trees = type_of[found.slots.roots].shape[1]
    value = type_of[found.slots.value]
    steps = min(found.depth, _FULL * math.log2(_nodes(workload, found) + 1))
    paths = trees * form.rows
    busy = min(form.threads, form.rows // form.each) if form.each else min(form.threads, paths)
    at_a_time = busy * form.side * max(form.each, 1)
    of_step = figures.near_step_cycles if form.nodes else figures.far_step_cycles
    latency = figures.near_latency_cycles if form.nodes else figures.far_latency_cycles
    cycles = max(paths / WARP * (steps * of_step + value.shape[1] * of_step), -(-paths // at_a_time) * steps * latency)
    real_bytes = value.dtype.itemsize_bytes * value.shape[1] * bool(form.each)
    if form.nodes:
        nodes = _nodes(workload, found) * trees
        groups = math.ceil(nodes / form.nodes)
        bytes_ = nodes * (type_of[found.slots.node].dtype.itemsize_bytes + real_bytes)
        cycles += groups * figures.group_cycles + bytes_ / figures.bytes_per_cycle
    if not form.each:
        cycles += trees * figures.sum_cycles
    codes = type_of[found.slots.codes]
    cycles += figures.group_cycles + codes.shape[0] * form.rows / WARP
    return cycles / figures.cycles_per_us
