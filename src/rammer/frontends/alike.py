"""Which values of a growing graph are equal, as the same operators make them of equal operands."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from rammer.ir.graph import Attributes


class AlikeValues:
    """Values by how they are computed: the first one that is computed so stands for all."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Sequence[int]] = {}
        self._first: dict[int, int] = {}

    def add(self, kind: str, operands: Sequence[Hashable], attributes: Attributes, outputs: Sequence[int]) -> None:
        """Take note of an operator; its operands are named by `of`, or in another way that equal ones share."""
        made = (kind, tuple(operands), tuple(sorted(attributes.items())))
        first = self._made.setdefault(made, outputs)
        self._first.update(zip(outputs, first, strict=True))

    def of(self, value: int) -> int:
        """The value that stands for all that are equal to one."""
        return self._first.get(value, value)
