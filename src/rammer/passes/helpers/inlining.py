"""Elements computed where they are read, by what elementwise operators do to make them.

    t[n p + i] = f(x[p, i]), sum[c](t[c] * w[c])  ->  sum[p, i](f(x[p, i]) * w[n p + i])

So what is summed over becomes several axes where operators store by parts, as those that rotate pairs of elements do.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from rammer.ir.expr import (
    Axis,
    Call,
    Const,
    Expr,
    Load,
    Output,
    Reduce,
    ScalarFn,
    cast,
    const,
    rebuild,
    select,
    substitute,
)
from rammer.ir.graph import Operator
from rammer.ir.region import Interval, affine, depends_on_data, interval_of
from rammer.ir.types import DType
from rammer.passes.helpers.rounding import exact
from rammer.passes.helpers.work import Work, lift
from rammer.tiling.pattern import plain_load

_MOST_LOADS = 6  # of an element: more would be read again and again


class Inlining:
    """Loads that are computed instead.

    Attributes:
        taken: the operators that make what was loaded.
    """

    def __init__(self, makers: Mapping[int, Operator]) -> None:
        """Start with the operators by their results."""
        self._makers = makers
        self._digits: dict[Axis, tuple[Axis, ...]] = {}
        self.taken: list[Operator] = []

    def product(self, product: Reduce) -> Reduce:
        """A sum with all that is elementwise computed in its body, over the parts of axes that are stored by parts."""
        body = self._computed(product.body, product.axes)
        numbers = {axis: _number(digits) for axis, digits in self._digits.items()}
        (body,) = substitute([body], numbers)
        axes = tuple(part for axis in product.axes for part in self._digits.get(axis, (axis,)))
        return Reduce(product.fn, axes, body)

    def element(self, element: Expr) -> Expr:
        """An element with all that is elementwise computed in it, but for what is stored by parts."""
        return self._computed(element, ())

    def _computed(self, element: Expr, parted: Collection[Axis]) -> Expr:
        def visit(node: Expr) -> Expr | None:
            match node:
                case Load(fill=None):
                    return self._made(node, parted)
                case Call(ScalarFn.SELECT, (Call(ScalarFn.LT, (Axis() as axis, Const(start))) as is_before, old, new)):
                    load = plain_load(new)
                    if load is None or not self._is_one_row(load, {axis: Interval(int(start), axis.extent)}):
                        return None
                    made = self._made(replace(load, fill=None), parted)
                    return None if made is None else select(is_before, old, cast(new.dtype, made))
            return None

        (computed,) = rebuild([element], visit)
        return computed

    def _is_one_row(self, load: Load, ranges: Mapping[Axis, Interval]) -> bool:
        """Whether a padded load is no padding within `ranges`, where it depends on them by dimensions of extent 1."""
        maker = self._makers.get(load.slot)
        if maker is None or maker.expr is None or load.fill is None:
            return False
        shape = maker.expr.outputs[maker.outputs.index(load.slot)].type.shape
        spans = [interval_of(index, ranges if n == 1 else {}) for index, n in zip(load.indices, shape, strict=True)]
        return all(span is not None and Interval(0, n).contains(span) for span, n in zip(spans, shape, strict=True))

    def _made(self, load: Load, parted: Collection[Axis]) -> Expr | None:
        """What is loaded, in float32; None where that is not elementwise, or stored in another order."""
        maker = self._makers.get(load.slot)
        if maker is None or maker.expr is None or maker.kind == "Concat" or load.dtype.compute is not DType.FLOAT32:
            return None
        work = lift(maker)
        if work.reduces or work.is_guarded or len(work.loads) > _MOST_LOADS:
            return None
        if any(inner.fill is not None or any(map(depends_on_data, inner.indices)) for inner in work.loads):
            return None
        mapping = self._mapping(work, work.outputs[load.slot], load, parted)
        if mapping is None:
            return None
        self.taken.append(maker)
        (element,) = substitute([work.outputs[load.slot].body], mapping)
        inner = plain_load(element)
        view = None if inner is None else self._made(inner, parted)
        return exact(element) if view is None else view

    def _mapping(self, work: Work, output: Output, load: Load, parted: Collection[Axis]) -> dict[Axis, Expr] | None:
        """Where axes of a work stand as it makes what is loaded; `parted` axes may be split for that."""
        mapping: dict[Axis, Expr] = {}
        digits: dict[Axis, tuple[Axis, ...]] = {}
        for stored, index, extent in zip(output.indices, load.indices, output.type.shape, strict=True):
            if extent == 1:
                continue
            if isinstance(stored, Axis) and stored.extent == extent:
                mapping[stored] = index
            else:
                places = _places(stored, extent)
                if places is None or not isinstance(index, Axis) or index not in parted:
                    return None
                own = self._digits.get(index, tuple(Axis(f"{index.name}_{i}", p.extent) for i, p in enumerate(places)))
                if [axis.extent for axis in own] != [axis.extent for axis in places]:
                    return None
                digits[index] = own
                mapping.update(zip(places, own, strict=True))
        if any(axis.extent > 1 and axis not in mapping for axis in work.axes):
            return None
        self._digits.update(digits)
        return dict.fromkeys(work.axes, _ZERO) | mapping


_ZERO: Expr = const(0, DType.INT64)


def _places(stored: Expr, extent: int) -> tuple[Axis, ...] | None:
    """The axes of which an index is the number, each a digit, outermost first; None where it is anything else."""
    form = affine(stored)
    if form is None or form.offset != 0:
        return None
    axes = tuple(axis for axis, _ in sorted(form.terms, key=lambda term: -term[1]))
    step = 1
    for axis in reversed(axes):
        if form.coefficient(axis) != step:
            return None
        step *= axis.extent
    return axes if step == extent else None


def _number(digits: tuple[Axis, ...]) -> Expr:
    """The number with such digits."""
    total: Expr = _ZERO
    for digit, axis in enumerate(digits):
        total = total + axis * math.prod(inner.extent for inner in digits[digit + 1 :])
    return total
