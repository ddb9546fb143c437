"""Matrix-vector products whose matrices lie with what is summed over side by side: rows, which teams of threads share.

    y[n] = f(sum[k](x[k] * w[n, k]), sum[k](x[k] * u[n, k]), ..., sum[k](x[k] * x[k]), ...)

All sums run over the same axes. Those without a matrix are the same for all points, such as the square of a vector's
length that a normalisation divides by. A thread multiplies the same elements of all rows, so what it takes of the
vectors stays in its registers, however it is computed.

Matrices may be of numbers of few bits (`tiling.packed`). One load brings so many of them that neighbouring threads
would read far from each other what they multiply with: vectors then pass through shared memory.
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
from rammer.tiling.addresses import Accesses, accesses_of
from rammer.tiling.gemm import WARP
from rammer.tiling.packed import BYTE_BITS, PackedWeight, packed_weight
from rammer.tiling.pattern import free_axes, plain_load, reduction_order

VECTOR_BYTES = 16
"""What one load of a thread brings."""
VECTOR_BITS = VECTOR_BYTES * BYTE_BITS

_FLOAT_BYTES = 4
_MULTIPLE = 8  # elements of 16 bits that are a vector, of which those of 32 bits are two
_LEAST_BYTES = 40 << 10  # of a vEU: what is read once, and is less, comes soon enough however it lies
_LOADS = 8  # of a thread that are on their way at a time: more hold up what vEUs hand over
_MOST_LOADS = 10  # of a row: as many as a thread has registers for
_PACKED_LOADS = 4  # likewise of numbers of few bits, which take longer to multiply than to bring
_LEAST_BATCH = 2  # or a thread waits for each row, which costs little where a row alone is more than _LOADS
_MOST_HELD = 40  # elements of vectors that a thread keeps
_SCRATCH_BYTES = 32 << 10  # for sums
_STAGED_BYTES = 64 << 10  # for vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The sum over a row of a matrix.

    Attributes:
        reduce: the sum.
        weight: the factor that is the matrix: a load, perhaps widened, or a number of few bits.
        load: that load, of a byte where it is a number of few bits.
        other: the factor that is a vector.
        packed: what a number of few bits is.
    """

    reduce: Reduce
    weight: Expr
    load: Load
    other: Expr
    packed: PackedWeight | None = None

    @property
    def loads(self) -> tuple[Load, ...]:
        """What is loaded of the matrix, and of its scales and zero points."""
        return (self.load, *(() if self.packed is None else self.packed.parameters))

    @property
    def bits(self) -> int:
        """Of an element of the matrix."""
        return self.load.dtype.itemsize_bytes * BYTE_BITS if self.packed is None else self.packed.bits


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

    @property
    def is_packed(self) -> bool:
        """Whether the matrices are of numbers of few bits."""
        return self.rows[0].packed is not None

    @property
    def vector(self) -> int:
        """How many elements of a row one load brings."""
        return VECTOR_BITS // self.rows[0].bits

    @property
    def staged_bytes(self) -> int:
        """Shared memory that vectors pass through."""
        return len(self.others) * self.elements * _FLOAT_BYTES if self.is_packed else 0

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
        (other,) = (factor for factor in factors if factor is not of_points[0]) if len(of_points) == 1 else (None,)
        row = None if other is None else _row(reduction, of_points[0], other)
        if row is None:
            return None
        rows.append(row)
    if not rows or len({(row.load.dtype, row.bits) for row in rows}) > 1:
        return None
    return MatrixVector(rows=tuple(rows), wholes=tuple(wholes), axes=axes)


def _row(reduction: Reduce, weight: Expr, other: Expr) -> Row | None:
    """The sum over a row whose elements are loaded, or numbers of few bits, of which a vector has one scale."""
    packed = packed_weight(weight)
    load = plain_load(weight) if packed is None else packed.load
    if load is None or load.fill is not None:
        return None
    if packed is not None and (reduction.axes != (packed.axis,) or packed.block * packed.bits % VECTOR_BITS):
        return None
    return Row(reduce=reduction, weight=weight, load=load, other=other, packed=packed)


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
    if found is None or any(load.slot not in constants for row in found.rows for load in row.loads):
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
    if not all(_lies_in_vectors(row, accesses, innermost, share.vector, alignments) for row in found.rows):
        return None
    parts, teams = share.across // WARP, threads // share.across
    whole_parts = threads // WARP if found.is_packed else parts
    scratch_bytes = (len(found.rows) * points * parts + len(found.wholes) * whole_parts) * _FLOAT_BYTES
    if scratch_bytes > _SCRATCH_BYTES:
        return None
    if found.is_packed:
        scratch_bytes = -(-scratch_bytes // VECTOR_BYTES) * VECTOR_BYTES + found.staged_bytes
    batch = min(share.batch, 1 << (-(-points // teams) - 1).bit_length())
    return replace(share, scratch_bytes=scratch_bytes, batch=batch)


def _lies_in_vectors(row: Row, accesses: Accesses, innermost: Axis, vector: int, alignments: Sequence[int]) -> bool:
    """Whether one load brings each vector of a row."""
    if row.packed is None:
        return accesses.lies_in_groups(row.load, innermost, vector, alignments)
    address = accesses.loads[row.load]
    steps = dict(address.form.terms)
    neighbours = steps.pop(row.load.indices[-1], 0) == 1 and not address.parts
    others = (*steps.values(), address.form.offset, *(alignments[row.load.slot : row.load.slot + 1] or (1,)))
    return neighbours and all(number % VECTOR_BYTES == 0 for number in others)


def _share(found: MatrixVector, threads: int) -> GemvRowsForm | None:
    """How threads share out rows, None where one would have to keep more of a row than it can."""
    vector = found.vector
    vectors = found.elements // vector
    least = WARP // 2 if found.is_packed else WARP
    if vectors < least or found.elements % vector or found.staged_bytes > _STAGED_BYTES:
        return None
    across = max(WARP, min(threads, 1 << (vectors.bit_length() - 1)))
    if found.is_packed and vectors > across and across < threads and vector * 2 > _MOST_HELD:
        across *= 2  # some threads have none, but none has more than it can keep
    turns = -(-vectors // across)
    loads = turns * len(found.rows)
    if turns * vector * len(found.others) > _MOST_HELD or loads > _MOST_LOADS:
        return None
    rows = max(1, (_PACKED_LOADS if found.is_packed else _LOADS) // loads)
    batch = max(_LEAST_BATCH if loads <= _LOADS else 1, 1 << (rows.bit_length() - 1))
    return GemvRowsForm(threads=threads, vector=vector, across=across, turns=turns, batch=batch)
