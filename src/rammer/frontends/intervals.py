"""Between which numbers integers lie that a model computes, as far as that follows from how it computes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rammer.ir.types import DType


@dataclass(frozen=True, slots=True)
class Interval:
    """What integers are at least and at most; infinite where that is not known."""

    least: float = -math.inf
    most: float = math.inf

    def within(self, other: Interval) -> Interval:
        """What lies in both."""
        return Interval(max(self.least, other.least), min(self.most, other.most))

    def beside(self, other: Interval) -> Interval:
        """What may lie in either."""
        return Interval(min(self.least, other.least), max(self.most, other.most))


ANYTHING = Interval()


def interval_of(kind: str, operands: Sequence[Interval], dtype: DType) -> Interval:
    """Where the elements of an operator's result lie, integers each of which is made of elements of its operands.

    Nothing is known of what may wrap around.
    """
    rule = _RULES.get(kind)
    if rule is None or dtype.is_float or dtype is DType.BOOL or dtype.is_code:
        return ANYTHING
    result, limits = rule(operands), range_of(dtype)
    fits = all(math.isinf(end) or limits.least <= end <= limits.most for end in (result.least, result.most))
    return result if fits else ANYTHING


def range_of(dtype: DType) -> Interval:
    """Where all integers of a type lie."""
    bits = 8 * dtype.itemsize_bytes
    return Interval(-(1 << bits - 1), (1 << bits - 1) - 1) if dtype.is_signed else Interval(0, (1 << bits) - 1)


def closed(interval: Interval, dtype: DType) -> Interval:
    """An interval with the end of the type where the other end alone is known."""
    return interval if interval == ANYTHING else interval.within(range_of(dtype))


def settled(kind: str, operands: Sequence[Interval]) -> int | bool | None:
    """What is known of an operator on integer scalars: the operand that is its result, as a position, or a truth value.

    None where it has to be computed.
    """
    if kind not in ("Add", "Div", "Equal", "Less", "Max", "Min", "Mul", "Sub") or len(operands) != 2:
        return None
    a, b = operands
    match kind:
        case "Add" | "Sub" if b == Interval(0, 0):
            return 0
        case "Add" if a == Interval(0, 0):
            return 1
        case "Div" if b == Interval(1, 1):
            return 0
        case "Mul" if Interval(1, 1) in (a, b):
            return 0 if b == Interval(1, 1) else 1
        case "Min" | "Max":
            least, greatest = (0, 1) if a.most <= b.least else (1, 0)
            is_decided = a.most <= b.least or b.most <= a.least
            return (least if kind == "Min" else greatest) if is_decided else None
        case "Less" if a.most < b.least or a.least >= b.most:
            return a.most < b.least
        case "Equal" if a.most < b.least or b.most < a.least:
            return False
    return None


def _first(operands: Sequence[Interval]) -> Interval:
    return operands[0]


def _converted(operands: Sequence[Interval]) -> Interval:
    """As another type, which may be too narrow for what has no end."""
    return operands[0] if _are_bounded(operands[0]) else ANYTHING


def _negative(operands: Sequence[Interval]) -> Interval:
    (x,) = operands
    return Interval(-x.most, -x.least) if _are_bounded(x) else ANYTHING


def _any(operands: Sequence[Interval]) -> Interval:
    return Interval(min(one.least for one in operands), max(one.most for one in operands))


def _min(operands: Sequence[Interval]) -> Interval:
    return Interval(min(one.least for one in operands), min(one.most for one in operands))


def _max(operands: Sequence[Interval]) -> Interval:
    return Interval(max(one.least for one in operands), max(one.most for one in operands))


def _sum(operands: Sequence[Interval]) -> Interval:
    a, b = operands
    return Interval(a.least + b.least, a.most + b.most) if _are_bounded(a, b) else ANYTHING


def _difference(operands: Sequence[Interval]) -> Interval:
    a, b = operands
    return Interval(a.least - b.most, a.most - b.least) if _are_bounded(a, b) else ANYTHING


def _product(operands: Sequence[Interval]) -> Interval:
    """Of numbers that are not negative."""
    a, b = operands
    if not _are_bounded(a, b) or min(a.least, b.least) < 0:
        return ANYTHING
    return Interval(a.least * b.least, a.most * b.most)


def _quotient(operands: Sequence[Interval]) -> Interval:
    """Of a number that is not negative by a positive one."""
    a, b = operands
    if a.least < 0 or b.least < 1 or a.most == math.inf:
        return ANYTHING
    return Interval(0, a.most // b.least)


def _are_bounded(*intervals: Interval) -> bool:
    return all(math.isfinite(one.least) and math.isfinite(one.most) for one in intervals)


def _chosen(operands: Sequence[Interval]) -> Interval:
    return operands[1].beside(operands[2])


_RULES: Mapping[str, Callable[[Sequence[Interval]], Interval]] = {
    **dict.fromkeys(("Expand", "Gather", "Identity", "Reshape", "Slice", "Transpose"), _first),
    **dict.fromkeys(("ReduceMax", "ReduceMin"), _first),
    **dict.fromkeys(("Branch", "Where"), _chosen),
    "Add": _sum,
    "Cast": _converted,
    "Concat": _any,
    "Div": _quotient,
    "Max": _max,
    "Min": _min,
    "Mul": _product,
    "Neg": _negative,
    "Sub": _difference,
}
