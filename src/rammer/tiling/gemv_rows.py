"""Matrix-vector products whose matrices lie with what is summed over side by side: rows, which teams of threads share.

    y[n] = f(sum[k](x[k] * w[n, k]), sum[k](x[k] * u[n, k]), ..., sum[k](x[k] * x[k]), ...)

All sums run over the same axes. Those without a matrix are the same for all points, such as the square of a vector's
length that a normalisation divides by. A thread multiplies the same elements of all rows, so what it takes of the
vectors stays in its registers, however it is computed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from rammer.ir.expr import Axis, Call, Expr, Load, Reduce, ReduceFn, ScalarFn, TensorExpr, nodes
from rammer.ir.kernel_form import GemvRowsForm
from rammer.ir.task import RTile
from rammer.ir.types import DType, Layout
from rammer.ir.vdevice import VDevice
from rammer.tiling.addresses import accesses_of
from rammer.tiling.gemm import WARP
from rammer.tiling.pattern import free_axes, plain_load, reduction_order

VECTOR_BYTES = 16
"""What one load of a thread brings."""

_FLOAT_BYTES = 4
_MULTIPLE = 8  # elements of 16 bits that are a vector, of which those of 32 bits are two
_LEAST_BYTES = 40 << 10  # of a vEU: what is read once, and is less, comes soon enough however it lies
_LOADS = 8  # of a thread that are on their way at a time: more hold up what vEUs hand over
_LEAST_BATCH = 2  # or a thread waits for each row
_MOST_HELD = 32  # elements of vectors that a thread keeps
_SCRATCH_BYTES = 32 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The sum over a row of a matrix.

    Attributes:
        reduce: the sum.
        weight: the factor that is the matrix: a load, perhaps widened.
        load: that load.
        other: the factor that is a vector.
    """

    reduce: Reduce
    weight: Expr
    load: Load
    other: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixVector:
    """An expression seen as sums over the rows of matrices.

    Attributes:
        rows: the sums that each point has for itself.
        wholes: the sums of products that all points have in common.
        axes: what is summed over.
    """

    rows: tuple[Row, ...]
    wholes: tuple[Reduce, ...]
    axes: tuple[Axis, ...]

    @property
    def others(self) -> tuple[Expr, ...]:
        """The vectors, each once."""
        return tuple(dict.fromkeys(row.other for row in self.rows))

    @property
    def elements(self) -> int:
        """How many elements a row has."""
        return math.prod(axis.extent for axis in self.axes)

    def order(self, layouts: Sequence[Layout]) -> tuple[Axis, ...]:
        """The summed axes as the matrices lie, outermost first."""
        return reduction_order([row.load for row in self.rows], self.axes, layouts)


@lru_cache(maxsize=1024)
def matrix_vector(expr: TensorExpr) -> MatrixVector | None:
    """The expression as sums over rows; None where it is anything else."""
    if not expr.reductions or expr.guards:
        return None
    axes, long_axes = expr.reductions[0].axes, [axis for axis in expr.axes if axis.extent > 1]
    free = free_axes(*expr.roots)
    rows, wholes = [], []
    for reduction in expr.reductions:
        match reduction:
            case Reduce(ReduceFn.SUM, own, Call(ScalarFn.MUL, factors)) if own == axes:
                pass
            case _:
                return None
        if reduction.dtype is not DType.FLOAT32 or any(isinstance(node, Reduce) for node in nodes(reduction.body)):
            return None
        of_points = [factor for factor in factors if not free[factor].isdisjoint(long_axes)]
        if not of_points:
            wholes.append(reduction)
            continue
        load = plain_load(of_points[0])
        if len(of_points) > 1 or load is None or load.fill is not None:
            return None
        (other,) = (factor for factor in factors if factor is not of_points[0])
        rows.append(Row(reduce=reduction, weight=of_points[0], load=load, other=other))
    if not rows or len({row.load.dtype for row in rows}) > 1:
        return None
    return MatrixVector(rows=tuple(rows), wholes=tuple(wholes), axes=axes)


def streams_rows(
    expr: TensorExpr, constants: Collection[int], device: VDevice, once: Collection[int] = ()
) -> MatrixVector | None:
    """The sums over rows, if the matrices are constants that a device streams by rows.

    They are read once in a run, or more than its vEUs keep from rTask to rTask, and rows are whole vectors.

    Args:
        expr: what is computed.
        constants: the slots that are constants.
        device: the machine.
        once: those of them that no other operator multiplies with.
    """
    found = matrix_vector(expr) if device.streams_rows else None
    if found is None or any(row.load.slot not in constants for row in found.rows):
        return None
    if any(axis.extent % _MULTIPLE for axis in found.axes) or _share(found, device.threads) is None:
        return None
    elements = math.prod(axis.extent for axis in (*expr.axes, *found.axes)) * len(found.rows)
    is_once = all(row.load.slot in once for row in found.rows)
    least_bytes = device.veu_count * min(device.stationary_bytes, _LEAST_BYTES if is_once else device.stationary_bytes)
    return found if elements * _FLOAT_BYTES > least_bytes else None


def gemv_rows_form(
    expr: TensorExpr, layouts: tuple[Layout, ...], tile: RTile, threads: int, alignments: Sequence[int]
) -> GemvRowsForm | None:
    """The form of rTasks of a tile, None where they cannot go by rows.

    Args:
        expr: what they compute.
        layouts: of its slots and outputs.
        tile: what an rTask computes.
        threads: of a block.
        alignments: of the operands, as an rKernel has them.
    """
    found = matrix_vector(expr)
    points = math.prod(tile.task)
    if found is None or points > threads:
        return None
    accesses, innermost = accesses_of(expr, layouts), found.order(layouts)[-1]
    share = _share(found, threads)
    if share is None or innermost.extent % share.vector:
        return None
    if not all(accesses.lies_in_groups(row.load, innermost, share.vector, alignments) for row in found.rows):
        return None
    parts, teams = share.across // WARP, threads // share.across
    scratch_bytes = (len(found.rows) * points + len(found.wholes)) * parts * _FLOAT_BYTES
    if scratch_bytes > _SCRATCH_BYTES:
        return None
    batch = min(share.batch, 1 << (-(-points // teams) - 1).bit_length())
    return replace(share, scratch_bytes=scratch_bytes, batch=batch)


def _share(found: MatrixVector, threads: int) -> GemvRowsForm | None:
    """How threads share out rows, None where one would have to keep more of a row than it can."""
    vector = VECTOR_BYTES // found.rows[0].load.dtype.itemsize_bytes
    vectors = found.elements // vector
    if vectors < WARP:
        return None
    across = min(threads, 1 << (vectors.bit_length() - 1))
    turns = -(-vectors // across)
    loads = turns * len(found.rows)
    if turns * vector * len(found.others) > _MOST_HELD or loads > _LOADS:
        return None
    batch = max(_LEAST_BATCH, 1 << ((_LOADS // loads).bit_length() - 1))
    return GemvRowsForm(threads=threads, vector=vector, across=across, turns=turns, batch=batch)
