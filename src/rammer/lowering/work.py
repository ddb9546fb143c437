"""What an rOperator does before it has rKernels: a canonical expression, bound to parts of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rammer.ir.expr import TensorExpr
from rammer.ir.task import Binding, Tensor


@dataclass(frozen=True, slots=True)
class Work:
    """The canonical expression of an rOperator and what it is bound to."""

    expr: TensorExpr
    reads: tuple[Binding, ...]
    writes: tuple[Binding, ...]
    predicate: Binding | None = None


def root_id(tensors: Sequence[Tensor], binding: Binding) -> int:
    """The tensor that owns what is bound."""
    alias = tensors[binding.tensor].alias_of
    return binding.tensor if alias is None else alias
