"""Matrix-vector products on a GPU: how the threads of a block share out points, and their sums."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rammer.ir.expr import Axis, Load, Reduce, TensorExpr, nodes
from rammer.ir.kernel_form import GemvForm
from rammer.ir.task import RTile
from rammer.ir.types import DType, Layout
from rammer.tiling.addresses import Accesses, accesses_of
from rammer.tiling.gemm import WARP
from rammer.tiling.pattern import Contraction, contraction

_REGISTER_BYTES = 4
_VECTOR_BYTES = 16  # that one load brings at most
_THREAD_SUMS = 8  # of a thread at most, where it takes more than a point
_WORTH_PARTS = 64  # elements of a thread's part, where threads had whole sums if each took one point


def vector_slots(expr: TensorExpr) -> frozenset[int] | None:
    """The slots of the vectors, if an expression is sums of a vector's elements times weights, else None."""
    found = contraction(expr)
    if found is None:
        return None
    slots: set[int] = set()
    for term in found.terms:
        vectors = [operand for operand in term.operands if found.free[operand] <= frozenset(term.reduce.axes)]
        if len(vectors) != 1 or term.reduce.dtype is not DType.FLOAT32:
            return None
        slots.update(node.slot for node in nodes(*vectors) if isinstance(node, Load))
    return frozenset(slots)


def gemv_form(
    expr: TensorExpr, layouts: tuple[Layout, ...], tile: RTile, threads: int, alignments: Sequence[int]
) -> GemvForm:
    """The form of rTasks of a tile.

    Args:
        expr: a contraction.
        layouts: of its slots and outputs.
        tile: what an rTask computes.
        threads: of a block.
        alignments: of the operands, as an rKernel has them.
    """
    found = contraction(expr)
    assert found is not None  # else it is no product
    lane = len(expr.axes) - 1 if tile.lane is None else tile.lane
    width = min(threads, 1 << (math.prod(tile.task) - 1).bit_length())
    vector = _vector(accesses_of(expr, layouts), found, lane, tile.task[lane], width, threads, alignments)
    form = GemvForm(threads=threads, width=width, vector=vector)
    element_bytes = found.terms[0].reduce.dtype.itemsize_bytes
    scratch_bytes = (gemv_parts(form) + 1) * width * len(found.terms) * element_bytes
    return GemvForm(threads=threads, width=width, vector=vector, scratch_bytes=scratch_bytes)


def gemv_parts(form: GemvForm) -> int:
    """Parts of each sum that are left where a warp has put its own together."""
    return min(form.splits, form.threads // WARP)


def _vector(
    accesses: Accesses,
    found: Contraction,
    lane_position: int,
    size: int,
    width: int,
    threads: int,
    alignments: Sequence[int],
) -> int:
    """How many neighbouring points a thread takes: the weights of all are one load, and each thread still has sums."""
    lane = accesses.expr.axes[lane_position]
    operands = [operand for term in found.terms for operand in term.operands]
    along = [node for node in accesses.reach(operands) if lane in accesses.free[node]]
    loads = [node for node in along if isinstance(node, Load)]
    length = min(math.prod(axis.extent for axis in group.axes) for group in found.groups)
    least = 1 if width < threads else _WORTH_PARTS
    vector = _VECTOR_BYTES // max((load.dtype.itemsize_bytes for load in loads), default=_VECTOR_BYTES)
    while vector > 1 and not (
        vector * len(found.terms) <= _THREAD_SUMS
        and least * threads * vector <= length * width
        and size % vector == lane.extent % vector == 0
        and not any(isinstance(node, Reduce) for node in along)
        and all(_is_one_load(accesses, load, lane, vector, alignments) for load in loads)
    ):
        vector //= 2
    return vector


def _is_one_load(accesses: Accesses, load: Load, axis: Axis, vector: int, alignments: Sequence[int]) -> bool:
    """Whether one load can bring a vector's elements: they are read plainly, and take a register at least."""
    return (
        vector * load.dtype.itemsize_bytes >= _REGISTER_BYTES
        and load.dtype is not DType.BOOL
        and not accesses.layouts[load.slot].tagged
        and not accesses.loads[load].checks
        and accesses.lies_in_groups(load, axis, vector, alignments)
    )
