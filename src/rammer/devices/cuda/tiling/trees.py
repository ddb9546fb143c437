"""rTiles and times of sums of leaves by blocks of threads (`skeletons/trees.cuh`).

Many rows: threads have rows of their own, and nodes pass through shared memory. Few: pairs of a tree and a row are
shared out, so that a block has enough to do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from rammer.devices.cuda.tiling.figures import TreeFigures
from rammer.ir.task import RKernel, RTile
from rammer.ir.tree_forms import SharedTreesForm, TreeStrategy
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.roller.trees import asked_for
from rammer.tiling.gemm import WARP
from rammer.tiling.trees import TreeSum, tree_sum

STRATEGIES = (TreeStrategy.GEMM, TreeStrategy.PERFECT, TreeStrategy.TRAVERSAL)

_BANK_BYTES = 4
_PATHS = 8  # of a thread at a time: their nodes and codes are on their way together
_LEAST_WARPS = 4  # of a block whose threads have rows of their own
_MOST_PAIR_ROWS = 128
_LEAST_TREES = 4  # in the mean, that nodes have room for
_FULL = 1.4  # the longest of a thread's paths, beside that of full trees of their size
_WATCHED = 1.02  # how much longer steps take that ask whether all are at leaves
_COMPARED_DEPTH = 4  # of trees that a word has a bit for each node of


def tree_kernels(workload: Workload, vdevice: VDevice, room_bytes: int) -> list[RKernel]:
    """Candidates, in no order; none where the workload is no such sum, or operands do not lie as the code has them.

    Raises:
        OptionError: the strategy that was asked for does not hold.
    """
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
    forms = _forms(workload, found, vdevice, room_bytes)
    for form in asked_for(forms, vdevice, f"trees of depth {found.depth}"):
        sizes = {found.rows: form.rows, found.groups: 1}
        task = tuple(min(sizes.get(axis, axis.extent), axis.extent) for axis in expr.axes)
        kernels.append(workload.kernel(RTile(task=task), form))
    return list(dict.fromkeys(kernels))


def _strategies(found: TreeSum) -> Iterator[TreeStrategy]:
    yield TreeStrategy.PERFECT
    yield TreeStrategy.TRAVERSAL
    if found.depth <= _COMPARED_DEPTH:
        yield TreeStrategy.GEMM


def _forms(workload: Workload, found: TreeSum, vdevice: VDevice, room_bytes: int) -> Iterator[SharedTreesForm]:
    for strategy in _strategies(found):
        yield from _row_forms(workload, found, strategy, vdevice, room_bytes)
        yield from _pair_forms(workload, found, strategy, vdevice, room_bytes)


def _row_forms(
    workload: Workload, found: TreeSum, strategy: TreeStrategy, vdevice: VDevice, room_bytes: int
) -> Iterator[SharedTreesForm]:
    """Threads with rows of their own: several, and more rTasks of fewer rows where all nodes have no room."""
    sizes = _sizes(workload, found)
    each = _BANK_BYTES // sizes.code_bytes
    while each:
        unit = WARP * each
        room_rows = (room_bytes - sizes.needed * (sizes.word + sizes.real)) // sizes.of_row // unit * unit
        for most in (vdevice.threads * each, room_rows):
            if most >= _LEAST_WARPS * unit:
                chunk = min(_share(sizes.rows, sizes.groups, vdevice, min(most, vdevice.threads * each)), most)
                chunk = -(-chunk // unit) * unit
                room = min(sizes.nodes, (room_bytes - chunk * sizes.of_row) // (sizes.word + sizes.real))
                if room >= sizes.needed and chunk >= _LEAST_WARPS * unit:
                    yield SharedTreesForm(
                        strategy=strategy,
                        threads=vdevice.threads,
                        scratch_bytes=chunk * sizes.of_row + room * (sizes.word + sizes.real),
                        rows=chunk,
                        each=each,
                        side=max(1, _PATHS // each // 2),
                        nodes=room,
                    )
        each //= 2


def _pair_forms(
    workload: Workload, found: TreeSum, strategy: TreeStrategy, vdevice: VDevice, room_bytes: int
) -> Iterator[SharedTreesForm]:
    """Pairs of a tree and a row: nodes where they are, or brought."""
    sizes = _sizes(workload, found)
    most = min(_MOST_PAIR_ROWS, vdevice.threads // sizes.width)
    few = min(_share(sizes.rows, sizes.groups, vdevice, _MOST_PAIR_ROWS), most)
    if not few:
        return
    for staged in (False, True):
        left = room_bytes - few * sizes.of_row
        room = min(sizes.trees, left // (few * sizes.real) if not staged else left // 2 // (few * sizes.real))
        nodes = min(sizes.nodes, (left - room * few * sizes.real) // sizes.word) if staged else 0
        if room and (not staged or nodes >= sizes.needed):
            yield SharedTreesForm(
                strategy=strategy,
                threads=vdevice.threads,
                scratch_bytes=few * sizes.of_row + room * few * sizes.real + nodes * sizes.word,
                rows=few,
                each=0,
                side=min(_PATHS, -(-room * few // vdevice.threads)),
                nodes=nodes,
                room=room,
            )


class _Sizes(NamedTuple):
    """How many rows, groups, trees of a group, nodes of all, values of a leaf, and nodes that have to have room.

    And the bytes of a code, of a row's codes, of a node's word and of a leaf's values.
    """

    rows: int
    groups: int
    trees: int
    nodes: int
    width: int
    needed: int
    code_bytes: int
    of_row: int
    word: int
    real: int


def _sizes(workload: Workload, found: TreeSum) -> _Sizes:
    slots, type_of = found.slots, workload.expr.inputs
    codes, value, node = type_of[slots.codes], type_of[slots.value], type_of[slots.node]
    return _Sizes(
        rows=1 if found.rows is None else found.rows.extent,
        groups=1 if found.groups is None else found.groups.extent,
        trees=type_of[slots.roots].shape[1],
        nodes=node.shape[0],
        width=value.shape[1],
        needed=min(node.shape[0], math.ceil(_LEAST_TREES * _nodes(workload, found))),
        code_bytes=codes.dtype.itemsize_bytes,
        of_row=codes.shape[0] * codes.dtype.itemsize_bytes,
        word=node.dtype.itemsize_bytes,
        real=value.dtype.itemsize_bytes * value.shape[1],
    )


def _share(rows: int, groups: int, vdevice: VDevice, most: int) -> int:
    """Rows of an rTask, so that vEUs have equally many rTasks of at most so many."""
    rounds = max(1, -(-rows * groups // (vdevice.veu_count * most)))
    return max(1, -(-rows * groups // (vdevice.veu_count * rounds)))


def _nodes(workload: Workload, found: TreeSum) -> float:
    """Nodes of a tree, in the mean."""
    roots, node = (workload.expr.inputs[slot] for slot in (found.slots.roots, found.slots.node))
    return node.shape[0] / math.prod(roots.shape)


def _steps(strategy: TreeStrategy, depth: int, nodes: float) -> float:
    """How many nodes a path looks at."""
    if strategy is TreeStrategy.GEMM:
        return nodes
    return depth if strategy is TreeStrategy.PERFECT else min(depth, _FULL * math.log2(nodes + 1)) * _WATCHED


def trees_us(kernel: RKernel, form: SharedTreesForm, vdevice: VDevice, figures: TreeFigures) -> float:
    """Time of one full rTask, in microseconds."""
    found = tree_sum(kernel.expr)
    assert found is not None  # it has the form
    workload = Workload(kernel.expr, kernel.layouts)
    type_of = kernel.expr.inputs
    trees = type_of[found.slots.roots].shape[1]
    value = type_of[found.slots.value]
    steps = _steps(form.strategy, found.depth, _nodes(workload, found))
    paths = trees * form.rows
    busy = min(form.threads, form.rows // form.each) if form.each else min(form.threads, paths)
    at_a_time = busy * form.side * max(form.each, 1)
    share = min(1.0, kernel.task_count / vdevice.veu_count)
    far = figures.far_alone_cycles + share * (figures.far_step_cycles - figures.far_alone_cycles)
    of_step = figures.near_step_cycles if form.nodes else far
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
