"""What a converter sees: one call of an ATen operator with its arguments by name, and the means to add operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from rammer.errors import DataDependentError
from rammer.frontends.builder import Count, Operand
from rammer.frontends.fourier import Complex
from rammer.frontends.moves import converted
from rammer.frontends.node import ModelNode
from rammer.frontends.randomness import RandomStreams
from rammer.frontends.torch.sizes import BOUND_HINT, Sizes, depends
from rammer.frontends.torch.types import dtype_of
from rammer.ir.types import DType, TensorType

_FLOWS = (
    "such tensors flow through operators that compute each element by itself, move, pick, write, sort, reduce or "
    "multiply them, in the forms that docs/pytorch.md lists"
)

Number = bool | int | float
Result = Operand | Complex | Sequence[Operand | Complex | None]


@dataclass(slots=True, kw_only=True, eq=False)
class Node(ModelNode):
    """A call of an operator in the captured program.

    Attributes:
        operator: its name in ATen, without the overload: "add".
        arguments: by the names of PyTorch's schema, defaults included; tensors are operands, complex ones two.
        captured: the same as PyTorch captured them: tensors without data, whose types and strides are known.
        results: types of the results, None for one that is no tensor, or whose extents are not known before it is made.
        made: the results as PyTorch captured them.
        used: whether something reads each result.
        rows: how many of the first result are read at most, from the first on; None where all may be.
        random: where random numbers come from.
        is_open: whether sizes or numbers among arguments or results depend on the values of tensors.
        sizes: what PyTorch's symbols for sizes and numbers stand for.
        sums: of operands along an axis, where what made them knows a short way; shared by all calls of a program.
    """

    operator: str
    arguments: Mapping[str, object]
    captured: Mapping[str, object]
    results: tuple[TensorType | None, ...]
    made: tuple[object, ...]
    used: tuple[bool, ...]
    rows: Callable[[], int | None]
    random: RandomStreams
    is_open: bool
    sizes: Sizes
    sums: dict[tuple[Operand, int], Operand] = field(default_factory=dict)

    @property
    def type(self) -> TensorType:
        """The type of the first result."""
        first = self.results[0]
        if first is None and isinstance(self.made[0], torch.Tensor):
            raise depends(self, "a result whose size has no bound", BOUND_HINT)
        if first is None:
            raise self.unsupported(f"{self.operator} whose first result is no tensor")
        return first

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the first result."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """The element type of the first result."""
        return self.type.dtype

    # Arguments. What PyTorch's schema promises is not checked again.

    def has(self, name: str) -> bool:
        """Whether the overload has an argument, and it is given."""
        return self.arguments.get(name) is not None

    def operand(self, name: str) -> Operand:
        """A tensor argument."""
        operand = self.arguments[name]
        if not isinstance(operand, Operand):
            raise self.unsupported(f"its argument '{name}' is {operand!r}, not a tensor")
        return operand

    def optional(self, name: str) -> Operand | None:
        """A tensor argument that may be left out."""
        return self.operand(name) if self.has(name) else None

    def operands(self, name: str) -> list[Operand]:
        """A list of tensors."""
        return [element for element in self._list(name) if isinstance(element, Operand)]

    def optional_operands(self, name: str) -> list[Operand | None]:
        """A list of tensors, None for those that are left out."""
        return [element if isinstance(element, Operand) else None for element in self._list(name)]

    def integer(self, name: str) -> int:
        """An integer."""
        value = self.arguments[name]
        if not isinstance(value, int):
            raise self._computed(name)
        return value

    def optional_integer(self, name: str) -> int | None:
        """An integer that may be left out."""
        return self.integer(name) if self.has(name) else None

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of integers; a single one is a list of one."""
        value = self.arguments[name]
        if isinstance(value, int):
            return (value,)
        elements = self._list(name)
        if not all(isinstance(element, int) for element in elements):
            raise self._computed(name)
        return tuple(element for element in elements if isinstance(element, int))

    def number(self, name: str) -> float:
        """A number."""
        value = self.arguments[name]
        if not isinstance(value, bool | int | float):
            raise self._computed(name)
        return value

    def flag(self, name: str) -> bool:
        """Yes or no; no where the overload lacks the argument."""
        return bool(self.arguments.get(name))

    def text(self, name: str) -> str:
        """A string."""
        return str(self.arguments[name])

    def dimension(self, name: str, rank: int) -> int:
        """A dimension counted from the front; a scalar has dimension 0, as in PyTorch."""
        return self.axis(self.integer(name), max(rank, 1))

    def dimensions(self, name: str, rank: int) -> tuple[int, ...]:
        """Dimensions counted from the front and sorted; all where none are given."""
        wanted = self.integers(name) if self.has(name) else ()
        if rank == 0:
            return ()
        return tuple(sorted(self.axes(wanted, rank))) if wanted else tuple(range(rank))

    # Operands in the element type of the computation.

    def typed(self, name: str, dtype: DType | None = None) -> Operand:
        """A tensor or number as an operand of an element type, that of the first result where None is given."""
        value = self.arguments[name]
        wanted = self.dtype if dtype is None else dtype
        if isinstance(value, Operand):
            return converted(self, value, wanted)
        return self.scalar(self.number(name), wanted)

    def scalar(self, value: Number, dtype: DType) -> Operand:
        """A constant of one element without dimensions."""
        with np.errstate(all="ignore"):  # a number that the type cannot hold becomes infinite, as in PyTorch
            return self.constant(np.array(value).astype(dtype.numpy))

    def promoted(self, *names: str) -> DType:
        """The element type that PyTorch promotes two arguments to."""
        first, second = (_any_of_its_kind(self.captured[name]) for name in names)
        return dtype_of(torch.result_type(first, second), str(self.location))

    # Operands whose size depends on the data.

    def counted_operands(self) -> list[tuple[str, Operand, Count]]:
        """The tensors among the arguments whose size depends on the data: name, tensor, what counts."""
        given = [(name, x) for name, value in self.arguments.items() for x in _operands_in(value)]
        return [(name, x, x.count) for name, x in given if x.count is not None]

    def refusal(self, reason: str = "") -> DataDependentError:
        """As for `ModelNode`."""
        names = [name for name, *_ in self.counted_operands()]
        what = f"its argument '{names[0]}'" if names else "its result"
        message = f"{what} has a size that depends on the data"
        return depends(self, f"{message}: {reason}" if reason else message, _FLOWS)

    def _list(self, name: str) -> Sequence[object]:
        value = self.arguments[name]
        return value if isinstance(value, list | tuple) else ()

    def _computed(self, name: str) -> Exception:
        return self.unsupported(
            f"its argument '{name}' is computed as the model runs",
            "it decides a shape or a choice that Rammer makes at compile time: let it follow from constants and shapes",
        )


def _any_of_its_kind(value: object) -> object:
    """A known number in place of one that depends on the values of tensors."""
    return 1 if isinstance(value, torch.SymInt) else 1.5 if isinstance(value, torch.SymFloat) else value


def _operands_in(value: object) -> list[Operand]:
    if isinstance(value, Operand):
        return [value]
    return [x for each in value for x in _operands_in(each)] if isinstance(value, list | tuple) else []


Converter = Callable[[Node], Result]
"""Adds what a call stands for and returns its result, or its results in order."""
