"""Sums of leaves on units with vectors: which blocks of rows, and how long their rTasks take.

A tree taken whole costs comparisons with all its nodes, for 64 rows in a few vector operations; a path costs its length
for every row. So small trees and many rows are taken whole, a few rows and large trees by paths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rammer.ir.expr import Axis
from rammer.ir.task import RKernel, RTile
from rammer.ir.tree_forms import TreesForm
from rammer.ir.types import DType
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.roller.tile import scale_out
from rammer.tiling.trees import TreeSum, tree_sum

_WORD_ROWS = 64
_WORDS = (8, 4, 2, 1)
_MOST_NODES = 511
"""Of a tree that is taken whole: beyond, paths are shorter than the tree is large."""
_SCRATCH_BYTES = 56 << 10
"""Of a block's codes, words and sums: it is on the stack."""
_NODE_OPERATIONS = 4.0
"""Vector operations for a node and 64 codes of a byte: a comparison, and what becomes of its word."""
_LEAF_OPERATIONS = 32.0
"""For the values of 64 rows' leaves: numbers from bits, a gather, a sum."""
_STEP_OPERATIONS = 6.0
"""For a row's step along its path, beside those of other rows of the block."""
_SIDE_BY_SIDE = 8
"""Rows of a block that are followed together."""
_FULL = 1.4
"""Of trees whose depth is at most so many times that of full ones of their size, all paths take as many steps."""
_APART = 1.5
"""How much longer a step takes row by row: the next row finds no tree in the nearest cache."""


def tree_kernels(workload: Workload, found: TreeSum, counts: Sequence[int]) -> list[RKernel]:
    """Blocks of rows, with trees taken whole or by paths, in about each number of rTasks.

    None where operands do not lie in order, as the code has them.
    """
    expr = workload.expr
    slots = (found.slots.codes, found.slots.roots, found.slots.node, found.slots.value)
    if not all(workload.layouts[slot].is_row_major(expr.inputs[slot].shape) for slot in slots[1:]):
        return []
    if workload.layouts[slots[0]].panel is not None:
        return []
    kernels: dict[RKernel, None] = {}
    for form in _forms(workload, found):
        units = [form.rows if axis is found.rows else axis.extent for axis in expr.axes]
        lane = None if found.rows is None else expr.axes.index(found.rows)
        for count in counts:
            kernels[workload.kernel(RTile(task=scale_out(expr, units, count), lane=lane), form)] = None
    return list(kernels)


def _forms(workload: Workload, found: TreeSum) -> list[TreesForm]:
    """Row by row; and the largest block that leaves room for trees of the size there are, or for none."""
    steps = found.depth if found.depth <= _FULL * math.log2(_nodes(workload, found) + 1) else None
    forms = [TreesForm(rows=1, nodes=0, steps=steps)]
    rows = 1 if found.rows is None else found.rows.extent
    largest = min((2 << found.depth) - 1, _MOST_NODES)
    mean = _nodes(workload, found)
    for nodes in dict.fromkeys((largest if mean <= _MOST_NODES else 0, 0)):
        for words in _WORDS:
            bytes_ = _scratch_bytes(workload, found, words, nodes)
            if bytes_ <= _SCRATCH_BYTES and (words == 1 or rows > _WORD_ROWS * words // 2):
                forms.append(TreesForm(rows=_WORD_ROWS * words, nodes=nodes, steps=steps, scratch_bytes=bytes_))
                break
    return forms


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
        codes = kernel.expr.inputs[found.slots.codes].dtype.itemsize_bytes * _WORD_ROWS / vdevice.vector_bytes
        operations = nodes / 2 * (_NODE_OPERATIONS * codes + 4.0 / (form.rows // _WORD_ROWS))
        operations = (operations + width * _LEAF_OPERATIONS) * -(-rows // _WORD_ROWS)
    else:
        steps = min(found.depth, 1.4 * math.log2(nodes + 1)) * _STEP_OPERATIONS
        side_by_side = -(-rows // _SIDE_BY_SIDE) * _SIDE_BY_SIDE
        operations = rows * (steps * _APART + width) if form.rows == 1 else side_by_side * (steps + width)
    return trees * operations * 2 * lanes / vdevice.flops_per_us[DType.FLOAT32].value
