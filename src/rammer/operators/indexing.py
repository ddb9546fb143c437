"""Operators that load at positions which another operand holds."""

from __future__ import annotations

from collections.abc import Sequence

from rammer.ir.expr import Expr, TensorExpr, cast, load
from rammer.ir.graph import Attributes
from rammer.ir.types import DType, TensorType
from rammer.operators.attributes import integer
from rammer.operators.registry import OperatorDef, register, require
from rammer.operators.scalars import choose, clamp, less
from rammer.operators.shapes import INDICES, check_axis, check_dtype, plain_result, spatial_axes


def gather(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """Slices of slot 0 along `axis`, at the positions in slot 1 (int32 or int64; negative ones count from the end).

    The result's shape has slot 1's in place of the dimension. A position outside is brought to the nearest end: a
    static program has no way to refuse it.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    x, positions, axis = _gathered("Gather", inputs, attributes)
    axes = spatial_axes((*x.shape[:axis], *positions.shape, *x.shape[axis + 1 :]))
    end = axis + positions.rank
    found = _position(load(1, positions, axes[axis:end]), x.shape[axis])
    return plain_result(inputs, x.dtype, axes, load(0, x, [*axes[:axis], found, *axes[end:]]))


def gather_elements(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The element of slot 0 at each point of slot 1, which holds positions along `axis` (see `gather`).

    Raises:
        InvalidModelError: the operands do not fit.
    """
    x, positions, axis = _gathered("GatherElements", inputs, attributes)
    fits = positions.rank == x.rank and all(
        dim == axis or extent <= x.shape[dim] for dim, extent in enumerate(positions.shape)
    )
    require(fits, f"GatherElements of {x}: positions {positions} do not fit")
    axes = spatial_axes(positions.shape)
    found = _position(load(1, positions, axes), x.shape[axis])
    return plain_result(inputs, x.dtype, axes, load(0, x, [*axes[:axis], found, *axes[axis + 1 :]]))


def reverse_sequence(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """Slot 0 with the first `lengths[b]` elements along `time_axis` reversed, b being the position along `batch_axis`.

    Slots: x of any type and shape; lengths, int64 `[x.shape[batch_axis]]`. Output: as x. A length outside is brought
    to the nearest possible one, as a position of `gather` is.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    require(len(inputs) == 2, f"ReverseSequence of {len(inputs)} operands")
    x, lengths = inputs
    batch, time = integer(attributes, "batch_axis"), integer(attributes, "time_axis")
    check_axis("ReverseSequence", x, batch, time)
    check_dtype("ReverseSequence by lengths", lengths, frozenset({DType.INT64}))
    require(lengths.shape == (x.shape[batch],), f"ReverseSequence of {x}: lengths {lengths} do not fit")
    axes = spatial_axes(x.shape)
    length = clamp(load(1, lengths, [axes[batch]]), 0, x.shape[time])
    position = choose(less(axes[time], length), length - axes[time] - 1, axes[time])
    return plain_result(inputs, x.dtype, axes, load(0, x, [*axes[:time], position, *axes[time + 1 :]]))


def _gathered(kind: str, inputs: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, TensorType, int]:
    require(len(inputs) == 2, f"{kind} of {len(inputs)} operands")
    x, positions = inputs
    axis = integer(attributes, "axis")
    check_axis(kind, x, axis)
    check_dtype(f"{kind} at positions", positions, INDICES)
    require(x.shape[axis] > 0 or not positions.size, f"{kind} along dimension {axis} of {x}, which is empty")
    return x, positions, axis


def _position(position: Expr, extent: int) -> Expr:
    """A position that a tensor holds, made one of `range(extent)`."""
    position = cast(DType.INT64, position)
    return clamp(choose(less(position, 0), position + extent, position), 0, extent - 1)


register(OperatorDef(kind="Gather", build=gather))
register(OperatorDef(kind="GatherElements", build=gather_elements))
register(OperatorDef(kind="ReverseSequence", build=reverse_sequence))
