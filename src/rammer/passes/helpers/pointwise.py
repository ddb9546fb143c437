"""Pointwise operators: each element of the result from the element of one operand at the same position.

Further operands are constants that broadcast. Such an operator can be moved to a value of another shape that holds
the same elements: a part of the operand, a larger value that it is a part of, or its reshape.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from rammer.ir.expr import Axis, Const, Expr, Load, Reduce, TensorExpr, nodes, rebuild, substitute
from rammer.ir.graph import Operator
from rammer.ir.types import TensorType
from rammer.passes.helpers.rewrite import PLACED_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointwise:
    """A pointwise operator with its expression; slot `data` is the operand, the others are constants."""

    operator: Operator
    expr: TensorExpr
    data: int

    @property
    def operand(self) -> int:
        """The value that slot `data` reads."""
        return self.operator.inputs[self.data]

    @property
    def constants(self) -> tuple[int, ...]:
        """The slots other than `data`."""
        return tuple(slot for slot in range(len(self.expr.inputs)) if slot != self.data)

    def resized(self, dim: int, extent: int) -> TensorExpr:
        """The expression for an operand with another extent of dimension `dim`; constants that follow it change too."""
        old = self.expr.axes[dim]
        new = Axis(old.name, extent)
        (output,) = self.expr.outputs
        (body,) = substitute([output.body], {old: new})
        axes = tuple(new if axis is old else axis for axis in self.expr.axes)
        inputs = tuple(
            _with_extent(type_, self.followed_by(slot, dim), extent) for slot, type_ in enumerate(self.expr.inputs)
        )
        type_ = _with_extent(output.type, dim, extent)
        return TensorExpr(axes=axes, inputs=inputs, outputs=(replace(output, type=type_, indices=axes, body=body),))

    def followed_by(self, slot: int, dim: int) -> int | None:
        """The dimension of a slot that runs along dimension `dim` of the result, if one does."""
        for load in self.expr.loads:
            if load.slot == slot and self.expr.axes[dim] in load.indices:
                return load.indices.index(self.expr.axes[dim])
        return None

    def reshaped(self, shape: Sequence[int]) -> TensorExpr:
        """The expression for an operand of another shape, where there is no further operand."""
        axes = tuple(Axis(f"i{dim}", extent) for dim, extent in enumerate(shape))
        (output,) = self.expr.outputs
        (load,) = self.expr.loads
        moved = Load(load.slot, axes, load.type)
        (body,) = rebuild([output.body], lambda node: moved if node is load else None)
        type_ = TensorType(output.type.dtype, tuple(shape))
        inputs = (TensorType(load.type, tuple(shape)),)
        return TensorExpr(axes=axes, inputs=inputs, outputs=(replace(output, type=type_, indices=axes, body=body),))


def pointwise(operator: Operator, value: int, constants: Container[int]) -> Pointwise | None:
    """The operator as a pointwise one on `value`, None where it is not."""
    expr = operator.expr
    if expr is None or operator.kind in PLACED_KINDS or len(expr.outputs) != 1 or operator.inputs.count(value) != 1:
        return None
    data = operator.inputs.index(value)
    (output,) = expr.outputs
    plain = output.indices == expr.axes and output.type.shape == expr.inputs[data].shape
    if not plain or any(other not in constants for other in operator.inputs if other != value):
        return None
    found = Pointwise(operator=operator, expr=expr, data=data)
    return found if all(_follows_axes(node, found) for node in nodes(output.body)) else None


def _follows_axes(node: Expr, found: Pointwise) -> bool:
    """Whether a node uses axes at most to load: the operand where the result is, constants along the dimensions."""
    if isinstance(node, Load):
        if node.slot == found.data:
            return node.indices == found.expr.axes and node.fill is None
        return node.fill is None and all(isinstance(index, Axis | Const) for index in node.indices)
    return not isinstance(node, Reduce) and not any(isinstance(child, Axis) for child in node.children)


def _with_extent(type_: TensorType, dim: int | None, extent: int) -> TensorType:
    if dim is None:
        return type_
    return replace(type_, shape=(*type_.shape[:dim], extent, *type_.shape[dim + 1 :]))
