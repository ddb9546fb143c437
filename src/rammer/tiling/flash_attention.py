"""Attention by the threads of a block: what passes through shared memory, and how much of it.

Queries, and the keys and values of a step, are staged as what multiplies takes them: float32, or floats of 16 bits if
all operands of both products are rounded to them. See `skeletons/attention.cuh`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from rammer.ir.expr import Axis, Cast, Expr, TensorExpr
from rammer.ir.kernel_form import ATTENTION_ROWS, FlashAttentionForm, Instruction
from rammer.ir.types import DType
from rammer.tiling.attention import Attention, attention

_FLOAT_BYTES = DType.FLOAT32.itemsize_bytes
_SUMS_PADDING = 4  # floats between rows of the sums in shared memory
_ROW_FLOATS = 2  # of each part: the greatest score and the total


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionTile:
    """What an instruction asks of operands.

    Points lie `padding` elements further apart than their elements take. Elements of queries and keys are there in
    multiples of `depth`, keys and columns of a warp in multiples of `keys` and `columns`. The weights of a warp may
    have to pass through shared memory.
    """

    depth: int
    keys: int
    columns: int
    padding: int
    stages_weights: bool


ATTENTION_TILES: Mapping[Instruction, AttentionTile] = {
    Instruction.FFMA: AttentionTile(depth=8, keys=8, columns=32, padding=4, stages_weights=True),
    Instruction.MMA_F64: AttentionTile(depth=16, keys=8, columns=16, padding=8, stages_weights=False),
    Instruction.MMA_BF16: AttentionTile(depth=16, keys=16, columns=16, padding=8, stages_weights=False),
    Instruction.MMA_F16: AttentionTile(depth=16, keys=16, columns=16, padding=8, stages_weights=False),
}

_ROUNDED: Mapping[DType, Instruction] = {
    DType.BFLOAT16: Instruction.MMA_BF16,
    DType.FLOAT16: Instruction.MMA_F16,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionBlock:
    """Attention as a block computes it.

    Attributes:
        found: the expression.
        instruction: what multiplies.
        query: what is staged of queries; likewise of keys and values.
    """

    found: Attention
    instruction: Instruction
    query: Expr
    key: Expr
    value: Expr

    @property
    def tile(self) -> AttentionTile:
        """What the instruction asks for."""
        return ATTENTION_TILES[self.instruction]

    @property
    def depth(self) -> int:
        """Elements of a query or key in shared memory."""
        return _up(_points(self.found.depth), self.tile.depth)

    def warp_columns(self, form: FlashAttentionForm) -> int:
        """Columns that a warp has."""
        return _up(-(-_points(self.found.columns) // form.column_warps), self.tile.columns)

    def sums_pitch(self, form: FlashAttentionForm) -> int:
        """Floats from row to row of the sums in shared memory."""
        return form.column_warps * self.warp_columns(form) + _SUMS_PADDING

    def scratch_bytes(self, form: FlashAttentionForm) -> int:
        """Shared memory of a form: operands, then what is put together in their place."""
        columns, padding = form.column_warps * self.warp_columns(form), self.tile.padding
        staged = form.rows * (self.depth + padding) + form.stages * form.keys * (self.depth + columns + 2 * padding)
        weights = form.warps * ATTENTION_ROWS * (form.team_keys + padding) if self.tile.stages_weights else 0
        parts = form.teams * form.rows * (self.sums_pitch(form) + _ROW_FLOATS)
        return max(staged * self.query.dtype.itemsize_bytes + weights * _FLOAT_BYTES, parts * _FLOAT_BYTES)


@lru_cache(maxsize=1024)
def block_of(expr: TensorExpr, of_float: Instruction = Instruction.FFMA) -> AttentionBlock | None:
    """Attention that a block can compute; None where the expression is none, or its elements are not so.

    `of_float` multiplies float32 (`gemm.of_float32`).
    """
    found = attention(expr)
    if found is None or any(axis.extent == 0 for axis in (*expr.axes, found.keys, *found.depth)):
        return None
    operands = (found.query, found.key, found.value)
    narrow = [_rounded(operand) for operand in (*operands, found.weight)]
    dtypes = {None if inner is None else inner.dtype for inner in narrow}
    instruction = _ROUNDED.get(dtype) if len(dtypes) == 1 and (dtype := dtypes.pop()) is not None else None
    if instruction is None:
        return AttentionBlock(found=found, instruction=of_float, query=found.query, key=found.key, value=found.value)
    query, key, value = (inner for inner in narrow[:3] if inner is not None)
    return AttentionBlock(found=found, instruction=instruction, query=query, key=key, value=value)


def _rounded(operand: Expr) -> Expr | None:
    """A float32 operand as the float of 16 bits that it is."""
    match operand:
        case Cast(DType.FLOAT32, inner) if inner.dtype in _ROUNDED:
            return inner
    return None


def _points(axes: tuple[Axis, ...]) -> int:
    return math.prod(axis.extent for axis in axes)


def _up(size: int, unit: int) -> int:
    """The least multiple of `unit` that is not less."""
    return -(-size // unit) * unit
