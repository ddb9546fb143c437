"""Sums of leaves on units with vectors: which blocks of rows, and how long their rTasks take.

A tree taken whole costs comparisons with all its nodes, for 64 rows in a few vector operations; a path costs its length
for every row. So small trees and many rows are taken whole, a few rows and large trees by paths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from rammer.ir.expr import Axis
from rammer.ir.task import RKernel, RTile
from rammer.ir.tree_forms import TreesForm, TreeStrategy
from rammer.ir.types import DType
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.roller.tile import scale_out
from rammer.roller.trees import asked_for
from rammer.tiling.trees import TreeSum, tree_sum

_WORD_ROWS = 64
_WORDS = (8, 4, 2, 1)
_MOST_NODES = 511
"""Of a tree that is taken whole: a leaf's number is a byte."""
_WHOLE_DEPTH = 8
"""Of trees that have no more nodes than that, whatever they are like."""
_SCRATCH_BYTES = 56 << 10
"""Of a block's codes, words and sums: it is on the stack."""
_NODE_OPERATIONS = 8.0
"""Vector operations for a node of a tree that is taken whole, in a block of rows. These and the next figures were made
to fit 500 trees of depth 3 to 10 on an AMD EPYC with AVX-512."""
_WORD_OPERATIONS = 1.0
"""More for each vector of codes."""
_IRREGULAR_OPERATIONS = 45.0
"""More where a guess is wrong which nodes are leaves: times the share of a full tree's nodes that are not there."""
_LEAF_OPERATIONS = 120.0
"""For the values of 64 rows' leaves by numbers: those from bits, a gather, a sum."""
_TABLE_VECTORS = 4
_TABLE_OPERATIONS = (20.0, 8.0)
"""For them from a table of so many vectors of 64 bytes, which are permuted: in all, and for each vector of values."""
_BLEND_OPERATIONS = (40.0, 1.3)
"""For them by choosing among all leaves: in all, and for each leaf and vector of values."""
_STEP_OPERATIONS = {TreeStrategy.PERFECT: 3.4, TreeStrategy.TRAVERSAL: 5.1, TreeStrategy.PERMUTES: 3.6}
"""For a row's step along its path, beside those of other rows of the block."""
_PATH_OPERATIONS = {TreeStrategy.PERFECT: 2.0, TreeStrategy.TRAVERSAL: 5.0, TreeStrategy.PERMUTES: 2.0}
"""For its beginning and its end, which is guessed wrong where it is not known."""
_PERMUTED_STEPS = 5
_PERMUTED_BYTES = 64
_PERMUTED_OPERATIONS = 2.5
"""Of such a step, with vectors of 64 bytes; shorter ones load what they would permute."""
_SIDE_BY_SIDE = {TreeStrategy.PERFECT: 8, TreeStrategy.TRAVERSAL: 8, TreeStrategy.PERMUTES: 32}
"""Rows of a block that are followed together."""
_LONGEST = 2.0
"""Of eight paths, beside the mean of all."""
_APART = 1.5
"""How much longer a step takes row by row: the next row finds no tree in the nearest cache."""


def tree_kernels(workload: Workload, found: TreeSum, vdevice: VDevice, counts: Sequence[int]) -> list[RKernel]:
    """Every strategy that holds, in about each number of rTasks.

    None where operands do not lie in order, as the code has them.

    Raises:
        OptionError: the strategy that was asked for does not hold.
    """
    expr = workload.expr
    slots = (found.slots.codes, found.slots.roots, found.slots.node, found.slots.value)
    if not all(workload.layouts[slot].is_row_major(expr.inputs[slot].shape) for slot in slots[1:]):
        return []
    if workload.layouts[slots[0]].panel is not None:
        return []
    forms = _forms(workload, found)
    if vdevice.trees != "auto" and found.depth > _WHOLE_DEPTH:  # larger ones would go along paths
        forms = [form for form in forms if not form.nodes]
    word = expr.inputs[found.slots.node].dtype
    kernels: dict[RKernel, None] = {}
    for form in asked_for(forms, vdevice, f"trees of depth {found.depth} whose nodes are of {word}"):
        units = [form.rows if axis is found.rows else axis.extent for axis in expr.axes]
        lane = None if found.rows is None else expr.axes.index(found.rows)
        for count in counts:
            kernels[workload.kernel(RTile(task=scale_out(expr, units, count), lane=lane), form)] = None
    return list(kernels)


def _forms(workload: Workload, found: TreeSum) -> list[TreesForm]:
    """Paths, row by row; and each strategy with the largest block that there is room for."""
    paths = [TreeStrategy.PERFECT, TreeStrategy.TRAVERSAL]
    forms = [TreesForm(strategy=strategy, rows=1) for strategy in paths]
    if workload.expr.inputs[found.slots.node].dtype is DType.UINT32:
        paths.append(TreeStrategy.PERMUTES)
    forms += [_largest(workload, found, TreesForm(strategy=strategy, rows=_WORD_ROWS)) for strategy in paths]
    if _nodes(workload, found) <= _MOST_NODES:
        nodes = min((2 << found.depth) - 1, _MOST_NODES)
        whole = [TreesForm(strategy=TreeStrategy.QUICKSCORER, rows=_WORD_ROWS, nodes=nodes)]
        if found.depth <= _WHOLE_DEPTH:
            whole.append(TreesForm(strategy=TreeStrategy.GEMM, rows=_WORD_ROWS, nodes=nodes))
        forms += [_largest(workload, found, form) for form in whole]
    return [form for form in forms if form.scratch_bytes <= _SCRATCH_BYTES]


def _largest(workload: Workload, found: TreeSum, form: TreesForm) -> TreesForm:
    """The form with the largest block of rows that has room, and is half full at least."""
    rows = 1 if found.rows is None else found.rows.extent
    for words in _WORDS:
        bytes_ = _scratch_bytes(workload, found, words, form.nodes)
        if words == 1 or (bytes_ <= _SCRATCH_BYTES and rows > _WORD_ROWS * words // 2):
            form = replace(form, rows=_WORD_ROWS * words, scratch_bytes=bytes_)
            break
    return form


def _nodes(workload: Workload, found: TreeSum) -> float:
    """Nodes of a tree, in the mean."""
    groups, trees = workload.expr.inputs[found.slots.roots].shape
    return workload.expr.inputs[found.slots.node].shape[0] / (groups * trees)


def _scratch_bytes(workload: Workload, found: TreeSum, words: int, nodes: int) -> int:
    """What a block has on the stack; see `devices.cpu.emit.trees`."""
    codes, value = workload.expr.inputs[found.slots.codes], workload.expr.inputs[found.slots.value]
    of_rows = codes.shape[0] * codes.dtype.itemsize_bytes + value.shape[1] * value.dtype.itemsize_bytes
    of_nodes = words * 8 * 2 + 1 + 2 + value.dtype.itemsize_bytes
    return of_rows * _WORD_ROWS * words + of_nodes * (nodes + 2)


def trees_us(kernel: RKernel, vdevice: VDevice) -> float:
    """The time of the arithmetic of one full rTask."""
    found, form = tree_sum(kernel.expr), kernel.form
    assert found is not None  # it has the form
    assert isinstance(form, TreesForm)
    sizes: dict[Axis | None, int] = dict(zip(kernel.expr.axes, kernel.tile.task, strict=True))
    rows = sizes.get(found.rows, 1)
    workload = Workload(kernel.expr, kernel.layouts)
    trees = kernel.expr.inputs[found.slots.roots].shape[1] * sizes.get(found.groups, 1)
    nodes, width = _nodes(workload, found), sizes.get(found.places, 1)
    lanes = vdevice.vector_bytes // DType.FLOAT32.itemsize_bytes
    if form.nodes:
        of_codes = kernel.expr.inputs[found.slots.codes].dtype.itemsize_bytes * form.rows / vdevice.vector_bytes
        irregular = max(0.0, 1 - nodes / form.nodes)
        operations = _NODE_OPERATIONS + _WORD_OPERATIONS * of_codes + _IRREGULAR_OPERATIONS * irregular
        operations *= nodes * -(-rows // form.rows)
        vectors = _WORD_ROWS * kernel.expr.inputs[found.slots.value].dtype.itemsize_bytes / vdevice.vector_bytes
        of_leaves = _LEAF_OPERATIONS
        if form.strategy is TreeStrategy.GEMM:
            of_leaves = _BLEND_OPERATIONS[0] + nodes / 2 * vectors * _BLEND_OPERATIONS[1]
        elif vdevice.vector_bytes == _PERMUTED_BYTES and nodes / 2 <= _TABLE_VECTORS * _WORD_ROWS / vectors:
            of_leaves = _TABLE_OPERATIONS[0] + vectors * _TABLE_OPERATIONS[1]
        operations += width * of_leaves * -(-rows // _WORD_ROWS)
    else:
        together = 1 if form.rows == 1 else _SIDE_BY_SIDE[form.strategy]
        operations = _path_operations(form, found.depth, nodes, vdevice) + width
        operations *= -(-rows // together) * together
    return trees * operations * 2 * lanes / vdevice.flops_per_us[DType.FLOAT32].value


def _path_operations(form: TreesForm, depth: int, nodes: float, vdevice: VDevice) -> float:
    """For a row's path through one tree."""
    steps = min(depth, _LONGEST * math.log2(nodes + 1)) if form.strategy is TreeStrategy.TRAVERSAL else depth
    operations = _STEP_OPERATIONS[form.strategy] * steps
    if form.strategy is TreeStrategy.PERMUTES and vdevice.vector_bytes == _PERMUTED_BYTES:
        near = min(depth, _PERMUTED_STEPS)
        operations -= near * (_STEP_OPERATIONS[form.strategy] - _PERMUTED_OPERATIONS)
    return _PATH_OPERATIONS[form.strategy] + (operations * _APART if form.rows == 1 else operations)
