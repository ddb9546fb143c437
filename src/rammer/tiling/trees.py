"""What a walk through decision trees looks like: for each row the sum of the leaves that it comes to.

    leaf(t) = root[t], followed `depth` times by  p + step[p] + (bound[p] < code[column[p]][row])  from node p to node
    y[row, g, v] = sum[t](value[leaf(t), v])

Nodes lie tree by tree in the order of roots, in each tree level by level; a node's first child lies `step` behind it,
the second one behind that. A leaf has a step of 0, and no code is above its bound. All of a node is one word. Codes are
small integers, columns of them rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rammer.ir.expr import (
    Axis,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    ReduceFn,
    ScalarFn,
    TensorExpr,
    call,
    cast,
    load,
)
from rammer.ir.types import DType, TensorType

MAX_COLUMNS = 1 << 15
MAX_CODE = (1 << 16) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFields:
    """What bits of a node's word are what: the highest its column, the lowest its bound, those between its step.

    Of the bound it is how much the greatest one is above it: a code above the bound carries into the step.
    """

    column_bits: int
    bound_bits: int

    def pack(
        self, dtype: DType, column: npt.ArrayLike, step: npt.ArrayLike, bound: npt.ArrayLike
    ) -> npt.NDArray[np.uint64]:
        """Words of a type."""
        shift = 8 * dtype.itemsize_bytes - self.column_bits
        parts = ((column, shift), (step, self.bound_bits), (np.subtract((1 << self.bound_bits) - 1, bound), 0))
        words = np.zeros(np.shape(column), np.uint64)
        for part, by in parts:
            words |= np.asarray(part).astype(np.uint64) << np.uint64(by)
        return words

    def unpacked(self, word: Expr) -> tuple[Expr, Expr]:
        """The column of a word, and the rest of it."""
        below = 8 * word.dtype.itemsize_bytes - self.column_bits
        return call(ScalarFn.SHIFT_RIGHT, word, below), call(ScalarFn.BIT_AND, word, (1 << below) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSlots:
    """The slots of what a walk reads.

    Attributes:
        codes: uint8 or uint16 [columns, rows].
        roots: int32 [groups, trees]; the node that each tree begins with.
        node: uint32 or uint64 [nodes]: what `NodeFields` says.
        value: [nodes, values of a leaf].
    """

    codes: int = 0
    roots: int = 1
    node: int = 2
    value: int = 3


def next_node(node: Expr, row: Expr, slots: TreeSlots, fields: NodeFields, inputs: tuple[TensorType, ...]) -> Expr:
    """The child of a node that a row goes to."""
    word = load(slots.node, inputs[slots.node], [node])
    column, rest = fields.unpacked(word)
    code = cast(word.dtype, load(slots.codes, inputs[slots.codes], [cast(DType.INT64, column), row]))
    return node + cast(DType.INT64, call(ScalarFn.SHIFT_RIGHT, rest + code, fields.bound_bits))


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSum:
    """An expression seen as a sum of leaves.

    Attributes:
        total: the sum, over the one axis of trees.
        slots: of what it reads.
        fields: of nodes.
        row: the position of the row; an axis, or constant.
        depth: of the walk.
        groups: the axis of groups of trees; None where there is but one.
        places: the axis of values of a leaf; None where there is but one.
    """

    total: Reduce
    slots: TreeSlots
    fields: NodeFields
    row: Expr
    depth: int
    groups: Axis | None
    places: Axis | None

    @property
    def rows(self) -> Axis | None:
        """The axis of rows; None where there is but one row."""
        return self.row if isinstance(self.row, Axis) else None

    @property
    def trees(self) -> Axis:
        """The axis that is summed over."""
        return self.total.axes[0]


@lru_cache(maxsize=256)
def tree_sum(expr: TensorExpr) -> TreeSum | None:
    """The expression as a sum of leaves; None where it is none, or has another reduction."""
    if len(expr.reductions) != 1 or len(expr.outputs) != 1:
        return None
    (total,) = expr.reductions
    leaf = total.body
    if total.fn is not ReduceFn.SUM or len(total.axes) != 1 or not isinstance(leaf, Load) or len(leaf.indices) != 2:
        return None
    last = first = leaf.indices[0]
    depth, found = 0, None
    while (step := _step(first)) is not None:
        first, found, depth = step.before, step, depth + 1
    match first:
        case Cast(DType.INT64, Load(roots, (group, tree))) if found is not None and tree is total.axes[0]:
            slots = TreeSlots(codes=found.codes, roots=roots, node=found.words, value=leaf.slot)
        case _:
            return None
    again: Expr = first
    for _ in range(depth):
        again = next_node(again, found.row, slots, found.fields, expr.inputs)
    if again is not last:
        return None
    indices = (found.row, group, leaf.indices[1])
    if not all(isinstance(index, Axis | Const) for index in indices):
        return None
    groups, places = (index if isinstance(index, Axis) else None for index in indices[1:])
    return TreeSum(
        total=total, slots=slots, fields=found.fields, row=found.row, depth=depth, groups=groups, places=places
    )


class _Step(NamedTuple):
    """A step of a walk: the node before it, the slots of words and codes, the fields, the row."""

    before: Expr
    words: int
    codes: int
    fields: NodeFields
    row: Expr


def _step(node: Expr) -> _Step | None:
    match node:
        case Call(ScalarFn.ADD, (before, Cast(_, Call(ScalarFn.SHIFT_RIGHT, (carried, Const(bound_bits)))))):
            pass
        case _:
            return None
    match carried:
        case Call(
            ScalarFn.ADD,
            (
                Call(ScalarFn.BIT_AND, (Load(words), Const(rest))),
                Cast(_, Load(codes, (_, row))),
            ),
        ):
            column_bits = 8 * carried.dtype.itemsize_bytes - int(rest).bit_length()
            return _Step(before, words, codes, NodeFields(column_bits=column_bits, bound_bits=int(bound_bits)), row)
    return None
