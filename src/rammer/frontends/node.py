"""What converters of every front end share: a node of the user's model, and the means to add operators for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rammer.errors import InvalidModelError, ModelError, UnsupportedFeatureError
from rammer.frontends.builder import FoldingBuilder, Operand
from rammer.ir.graph import Array, Attribute, Repeat, SourceLocation


@dataclass(slots=True, kw_only=True, eq=False)
class ModelNode:
    """A node of the user's model; each front end adds how its operands and attributes are read."""

    location: SourceLocation
    builder: FoldingBuilder
    _added: int = field(default=0, init=False)

    def constant(self, array: Array) -> Operand:
        """A new constant; the array must not change afterwards."""
        return self.builder.constant(array, self._next_name())

    def add(self, kind: str, *operands: Operand, **attributes: Attribute) -> Operand:
        """The result of an operator that has one."""
        (result,) = self.add_all(kind, *operands, **attributes)
        return result

    def add_all(self, kind: str, *operands: Operand, **attributes: Attribute) -> tuple[Operand, ...]:
        """All results of an operator.

        Raises:
            ModelError: the operands or attributes do not fit.
        """
        return self.builder.add(kind, operands, attributes, name=self._next_name(), source=self.location)

    def repeat(self, repeat: Repeat, operands: Sequence[Operand]) -> Sequence[Operand]:
        """All results of a loop that stays one."""
        return self.builder.repeat(repeat, operands, name=self._next_name(), source=self.location)

    def axis(self, axis: int, rank: int) -> int:
        """A dimension counted from the front.

        Raises:
            InvalidModelError: there is no such dimension.
        """
        if not -rank <= axis < rank:
            raise self.invalid(f"axis {axis} of a tensor of rank {rank}")
        return axis % rank

    def axes(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """Dimensions counted from the front, in the order given.

        Raises:
            InvalidModelError: one does not exist or is named twice.
        """
        positions = tuple(self.axis(axis, rank) for axis in axes)
        if len(set(positions)) < len(positions):
            raise self.invalid(f"axes {list(axes)} name a dimension twice")
        return positions

    # Errors, to be raised by the caller.

    def unsupported(self, message: str, hint: str = "") -> UnsupportedFeatureError:
        """The node has a form that Rammer does not have."""
        return UnsupportedFeatureError(message, where=str(self.location), hint=hint)

    def invalid(self, message: str) -> InvalidModelError:
        """The node breaks the rules of the model's language."""
        return InvalidModelError(message, where=str(self.location))

    def refusal(self, reason: str = "") -> ModelError:
        """The node has operands whose size depends on the data, and does not take them so."""
        return self.unsupported(f"a size that depends on the data: {reason}")

    def _next_name(self) -> str:
        """The node's name for its first operator or constant, numbered names for the following ones."""
        name = f"{self.location.node}.{self._added}" if self._added else self.location.node
        self._added += 1
        return name
