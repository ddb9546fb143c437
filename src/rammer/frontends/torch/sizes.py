"""Sizes and numbers that depend on the values of tensors: PyTorch's symbols for them, as operands.

PyTorch says of every tensor which of its extents is which formula of such symbols. So an operator has to say what
counts of its result only where that is a symbol of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import torch

from rammer.errors import DataDependentError
from rammer.frontends.builder import Operand
from rammer.frontends.counts.count import bare, counted, cut
from rammer.frontends.moves import converted, reshaped
from rammer.frontends.node import ModelNode
from rammer.frontends.torch.private import Formula, bounds_of, formula_of
from rammer.ir.types import DType

BOUND_HINT = "say how large it is at most: torch._check(n <= 100)"
TAKEN_FOR_ANOTHER = "PyTorch takes a size that depends on the data to be that of another operand"
ONE_SIZE = "pick what meets by one mask, or one list of positions, so that the sizes are known to be one"
_NUMBERS_HINT = "numbers are added, multiplied, divided, compared by min and max; compute others as tensors"

_MOST_FACTORS = 8


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the symbols of a program stand for, as scalars that are computed: int64, or float64."""

    _symbols: dict[str, Operand] = field(default_factory=dict)

    def define(self, node: ModelNode, number: object, value: Operand) -> None:
        """Say what a symbol is, if it is a new one. It is brought to where PyTorch takes it to lie.

        Raises:
            DataDependentError: PyTorch takes it for another number, as operands meet, and it is not known to be that.
        """
        if not isinstance(number, torch.SymInt | torch.SymFloat):
            return
        formula, value = formula_of(number), _within(node, number, reshaped(node, value, ()))
        if formula.kind == "symbol":
            self._symbols.setdefault(str(formula.value), value)
        if not self._is_defined(formula) or not node.builder.are_equal(self._computed(node, formula), value):
            raise depends(node, TAKEN_FOR_ANOTHER, ONE_SIZE)

    def number(self, node: ModelNode, value: int | float | torch.SymInt | torch.SymFloat) -> Operand:
        """A number that may depend on the values of tensors.

        Raises:
            DataDependentError: it is computed in a way that Rammer does not have.
        """
        return self._computed(node, formula_of(value))

    def is_number(self, node: ModelNode, number: int | torch.SymInt, value: Operand) -> bool:
        """Whether a number is known to be what the model computes, if that lies where PyTorch takes it to lie."""
        return node.builder.are_equal(self.number(node, number), _within(node, number, value))

    def most(self, node: ModelNode, extent: int | torch.SymInt) -> int | None:
        """What an extent is at most; None where that is not known before what has it is made."""
        if isinstance(extent, int):
            return extent
        if not self._is_defined(formula_of(extent)):
            return None
        number, (_, high) = self.number(node, extent), bounds_of(extent)
        if high is not None:
            node.builder.bound(number, -math.inf, high)
        return node.builder.most(number)

    def shape(self, node: ModelNode, tensor: torch.Tensor) -> tuple[int, ...] | None:
        """The extents of a tensor where each is as large as it can be; None where one is not known."""
        found = [self.most(node, extent) for extent in tensor.shape]
        known = tuple(extent for extent in found if extent is not None)
        return known if len(known) == len(found) else None

    def bound(self, node: ModelNode, captured: object, axis: int) -> int:
        """What PyTorch knows an extent to be at most.

        Raises:
            DataDependentError: it knows nothing.
        """
        assert isinstance(captured, torch.Tensor)
        extent = captured.shape[axis]
        most = bounds_of(extent)[1] if isinstance(extent, torch.SymInt) else extent
        if most is None:
            raise depends(node, "a result whose size has no bound", BOUND_HINT)
        return most

    def axes(self, node: ModelNode, captured: object) -> list[int]:
        """The dimensions of a tensor as PyTorch captured it whose sizes depend on the data."""
        if not isinstance(captured, torch.Tensor):
            return []
        sized = [axis for axis, extent in enumerate(captured.shape) if isinstance(extent, torch.SymInt)]
        return [axis for axis in sized if self.number(node, captured.shape[axis]).array is None]

    def counted(self, node: ModelNode, operand: Operand, captured: torch.Tensor) -> Operand:
        """A result with what counts of it, as PyTorch has captured it.

        Raises:
            DataDependentError: several dimensions have a size that depends on the data, or one has in PyTorch a known
                one.
        """
        if operand.count is None and all(isinstance(extent, int) for extent in captured.shape):
            return operand
        for axis, extent in enumerate(captured.shape):
            if operand.count is not None and operand.count.axis == axis:
                self.define(node, extent, operand.count.value)
            elif isinstance(extent, torch.SymInt) and not self._is_defined(formula_of(extent)):
                self.define(node, extent, _number(node, operand.shape[axis]))
        axes = self.axes(node, captured)
        own = [] if operand.count is None else [operand.count.axis]
        if len(axes) > 1:
            raise depends(node, "several dimensions of a result have sizes that depend on the data", "one may")
        if own and own != axes:
            raise depends(
                node, f"PyTorch takes a size that depends on the data for that of {list(captured.shape)}", ONE_SIZE
            )
        for axis in axes:
            count = self.number(node, captured.shape[axis])
            node.builder.bound(count, -math.inf, operand.shape[axis])
            operand = self.cut(node, counted(node, bare(operand), axis, count))
        return operand

    def cut(self, node: ModelNode, x: Operand) -> Operand:
        """An operand with no more elements along the dimension that is counted than count at most."""
        most = None if x.count is None else node.builder.most(x.count.value)
        return x if x.count is None or most is None else cut(node, x, min(most, x.shape[x.count.axis]))

    def _is_defined(self, formula: Formula) -> bool:
        if formula.kind == "symbol":
            return formula.value in self._symbols
        return all(map(self._is_defined, formula.operands))

    def _computed(self, node: ModelNode, formula: Formula) -> Operand:
        if formula.kind == "number":
            return _number(node, formula.value)
        if formula.kind == "symbol" and formula.value in self._symbols:
            return self._symbols[str(formula.value)]
        rule = _RULES.get(formula.kind)
        if rule is None:
            how = "before it is known" if formula.kind == "symbol" else f"by {formula.kind}"
            raise depends(node, f"a number that is computed of values of tensors {how}", _NUMBERS_HINT)
        return rule(node, [self._computed(node, one) for one in formula.operands])


def depends(node: ModelNode, message: str, hint: str) -> DataDependentError:
    """The node needs a size or number that depends on the values of tensors, in a way that Rammer does not have."""
    return DataDependentError(message, where=str(node.location), hint=hint)


def _within(node: ModelNode, number: int | torch.SymInt | torch.SymFloat, value: Operand) -> Operand:
    """A number that is computed, brought to where PyTorch takes it to lie."""
    if isinstance(number, torch.SymFloat):
        return converted(node, value, DType.FLOAT64)
    value = converted(node, value, DType.INT64)
    bounds = bounds_of(number) if isinstance(number, torch.SymInt) else (None, None)
    for kind, end in zip(("Max", "Min"), bounds, strict=True):
        value = value if end is None else node.add(kind, value, _number(node, end))
    return value


def _number(node: ModelNode, value: object) -> Operand:
    return node.constant(np.array(value, np.float64 if isinstance(value, float) else np.int64))


def _folded(kind: str) -> Callable[[ModelNode, Sequence[Operand]], Operand]:
    """An operator on two scalars, for any number of them; integers beside floats are floats."""

    def rule(node: ModelNode, operands: Sequence[Operand]) -> Operand:
        if any(operand.dtype.is_float for operand in operands):
            operands = [converted(node, operand, DType.FLOAT64) for operand in operands]
        return reduce(lambda a, b: node.add(kind, a, b), operands)

    return rule


def _sum(node: ModelNode, operands: Sequence[Operand]) -> Operand:
    """Numbers are added last: so bounds of what is known not to be negative stay known."""
    return _folded("Add")(node, sorted(operands, key=lambda operand: operand.array is not None))


def _quotient(node: ModelNode, operands: Sequence[Operand]) -> Operand:
    """Of integers, rounded down."""
    a, b = operands
    if node.builder.interval(a).least < 0:
        a = node.add("Sub", a, node.add("Mod", a, b, fmod=False))
    return node.add("Div", a, b)


def _ratio(node: ModelNode, operands: Sequence[Operand]) -> Operand:
    return node.add("Div", *(converted(node, operand, DType.FLOAT64) for operand in operands))


def _power(node: ModelNode, operands: Sequence[Operand]) -> Operand:
    """Of integers by a small one that is known, or of floats."""
    base, exponent = operands
    if base.dtype.is_float or exponent.array is None or not 0 < exponent.array.item() <= _MOST_FACTORS:
        return node.add("Pow", *(converted(node, operand, DType.FLOAT64) for operand in operands))
    return reduce(lambda a, b: node.add("Mul", a, b), [base] * int(exponent.array.item()))


def _rounded(kind: str) -> Callable[[ModelNode, Sequence[Operand]], Operand]:
    return lambda node, operands: converted(node, node.add(kind, *operands), DType.INT64)


_RULES: Mapping[str, Callable[[ModelNode, Sequence[Operand]], Operand]] = {
    "Add": _sum,
    "CeilToInt": _rounded("Ceil"),
    "CleanDiv": _quotient,
    "FloatPow": _power,
    "FloatTrueDiv": _ratio,
    "FloorDiv": _quotient,
    "FloorToInt": _rounded("Floor"),
    "IntTrueDiv": _ratio,
    "Max": _folded("Max"),
    "Min": _folded("Min"),
    "Mod": lambda node, operands: node.add("Mod", *operands, fmod=False),
    "Mul": _folded("Mul"),
    "OpaqueUnaryFn_sqrt": lambda node, operands: node.add("Sqrt", converted(node, operands[0], DType.FLOAT64)),
    "Pow": _power,
    "PowByNatural": _power,
    "PythonMod": lambda node, operands: node.add("Mod", *operands, fmod=False),
    "ToFloat": lambda node, operands: converted(node, operands[0], DType.FLOAT64),
}
"""What PyTorch's operations on sizes and numbers are, by their names."""
