"""Index maps over boxes: which part of a tensor an expression touches when its axes run over given intervals.

A region is a `Box`: one half-open interval per dimension, in logical coordinates of the tensor. Interval arithmetic
over the index expressions is exact for affine maps with one axis a dimension, and never too small for the rest;
an index that depends on data (a gather) covers the whole dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import NamedTuple

from rammer.ir.expr import Axis, Call, Cast, Const, Expr, Load, ScalarFn, TensorExpr, nodes
from rammer.ir.functions import CHOICES


class Interval(NamedTuple):
    """Integers `lo <= i < hi`; empty when `hi <= lo`."""

    lo: int
    hi: int

    @property
    def extent(self) -> int:
        """How many integers it holds."""
        return max(0, self.hi - self.lo)

    def overlaps(self, other: Interval) -> bool:
        """Whether both hold a common integer."""
        return max(self.lo, other.lo) < min(self.hi, other.hi)

    def contains(self, other: Interval) -> bool:
        """Whether every integer of `other` is in this one."""
        return other.extent == 0 or (self.lo <= other.lo and other.hi <= self.hi)

    def hull(self, other: Interval) -> Interval:
        """The smallest interval that holds both."""
        if self.extent == 0 or other.extent == 0:
            return other if self.extent == 0 else self
        return Interval(min(self.lo, other.lo), max(self.hi, other.hi))

    def shifted(self, offset: int) -> Interval:
        """The interval moved by `offset`."""
        return Interval(self.lo + offset, self.hi + offset)


Box = tuple[Interval, ...]


def full_box(shape: Sequence[int]) -> Box:
    """The box of a whole tensor."""
    return tuple(Interval(0, extent) for extent in shape)


def box_size(box: Box) -> int:
    """Elements in a box."""
    return math.prod(interval.extent for interval in box)


def boxes_overlap(a: Box, b: Box) -> bool:
    """Whether two boxes of one tensor share an element; rank-0 boxes always do."""
    return all(x.overlaps(y) for x, y in zip(a, b, strict=True))


def box_contains(outer: Box, inner: Box) -> bool:
    """Whether `inner` lies within `outer`."""
    return box_size(inner) == 0 or all(x.contains(y) for x, y in zip(outer, inner, strict=True))


def box_hull(a: Box, b: Box) -> Box:
    """The smallest box that holds both."""
    return tuple(x.hull(y) for x, y in zip(a, b, strict=True))


@dataclass(frozen=True, slots=True)
class Affine:
    """`sum(coefficient * axis) + offset`; no axis has coefficient 0, axes in order of first appearance."""

    terms: tuple[tuple[Axis, int], ...]
    offset: int

    def coefficient(self, axis: Axis) -> int:
        """The axis's coefficient, 0 where it does not appear."""
        return dict(self.terms).get(axis, 0)


@lru_cache(maxsize=1 << 14)
def affine(root: Expr) -> Affine | None:
    """The affine form of an integer expression, or None where it has none."""
    forms: dict[Expr, Affine | None] = {}
    for node in nodes(root):
        match node:
            case Axis():
                forms[node] = Affine(((node, 1),), 0)
            case Const(value, _):
                forms[node] = Affine((), int(value))
            case Call(ScalarFn.ADD | ScalarFn.SUB as fn, (a, b)):
                forms[node] = _combine(forms[a], forms[b], 1 if fn is ScalarFn.ADD else -1)
            case Call(ScalarFn.MUL, (a, b)):
                left, right = forms[a], forms[b]
                if left is not None and right is not None and not (left.terms and right.terms):
                    scaled, factor = (left, right.offset) if left.terms else (right, left.offset)
                    forms[node] = _combine(Affine((), 0), scaled, factor)
                else:
                    forms[node] = None
            case Call(ScalarFn.NEG, (a,)):
                forms[node] = _combine(Affine((), 0), forms[a], -1)
            case _:
                forms[node] = None
    return forms[root]


def _combine(a: Affine | None, b: Affine | None, factor: int) -> Affine | None:
    """`a + factor * b`."""
    if a is None or b is None:
        return None
    terms = dict(a.terms)
    for axis, coefficient in b.terms:
        terms[axis] = terms.get(axis, 0) + factor * coefficient
    kept = tuple((axis, coefficient) for axis, coefficient in terms.items() if coefficient)
    return Affine(kept, a.offset + factor * b.offset)


def interval_of(root: Expr, ranges: Mapping[Axis, Interval]) -> Interval | None:
    """The values an integer expression takes while its axes run over `ranges` (axes not named run whole).

    Returns None where nothing is known (data-dependent indices). An empty axis interval gives an empty result.
    """
    form = affine(root)
    if form is not None:
        lo = hi = form.offset
        for axis, coefficient in form.terms:
            first, end = ranges.get(axis) or (0, axis.extent)
            if end <= first:
                return Interval(0, 0)
            last = end - 1
            if coefficient < 0:
                first, last = last, first
            lo, hi = lo + coefficient * first, hi + coefficient * last
        return Interval(lo, hi + 1)
    found: dict[Expr, Interval | None] = {}
    for node in nodes(root):
        match node:
            case Call(fn, args):
                found[node] = _call_interval(fn, [found[arg] for arg in args])
            case Cast(_, arg):
                found[node] = found[arg]
            case Axis() | Const():
                found[node] = interval_of(node, ranges)
            case _:
                found[node] = None
    return found[root]


def _call_interval(fn: ScalarFn, args: Sequence[Interval | None]) -> Interval | None:
    if fn in CHOICES:
        _, a, b = args
        return None if a is None or b is None else a.hull(b)
    if any(arg is not None and arg.extent == 0 for arg in args):
        return Interval(0, 0)
    if len(args) != 2:
        return None
    a, b = args
    if fn is ScalarFn.MOD and b is not None and b.lo > 0:
        whole = Interval(0, b.hi - 1)
        if a is None or b.extent != 1:
            return whole
        divisor = b.lo
        if a.lo // divisor == (a.hi - 1) // divisor:
            return Interval(a.lo % divisor, (a.hi - 1) % divisor + 1)
        return whole
    if a is None or b is None:
        return None
    ends_a, ends_b = (a.lo, a.hi - 1), (b.lo, b.hi - 1)
    match fn:
        case ScalarFn.ADD:
            return Interval(a.lo + b.lo, a.hi + b.hi - 1)
        case ScalarFn.SUB:
            return Interval(a.lo - ends_b[1], ends_a[1] - b.lo + 1)
        case ScalarFn.MUL:
            products = [x * y for x in ends_a for y in ends_b]
        case ScalarFn.FLOORDIV if b.lo > 0:
            products = [x // y for x in ends_a for y in ends_b]
        case ScalarFn.MIN:
            return Interval(min(a.lo, b.lo), min(a.hi, b.hi))
        case ScalarFn.MAX:
            return Interval(max(a.lo, b.lo), max(a.hi, b.hi))
        case _:
            return None
    return Interval(min(products), max(products) + 1)


def index_box(indices: Sequence[Expr], shape: Sequence[int], ranges: Mapping[Axis, Interval]) -> Box:
    """The box that `indices` touch in a tensor of `shape`, clipped to it."""
    box = []
    for index, extent in zip(indices, shape, strict=True):
        span = interval_of(index, ranges)
        box.append(Interval(0, extent) if span is None else Interval(max(0, span.lo), min(extent, span.hi)))
    return tuple(box)


def read_boxes(expr: TensorExpr, ranges: Mapping[Axis, Interval]) -> tuple[Box | None, ...]:
    """Per input slot, the hull of what its loads touch; None for a slot that is never loaded."""
    boxes: list[Box | None] = []
    for type_, dims in zip(expr.inputs, _distinct_indices(expr), strict=True):
        if dims is None:
            boxes.append(None)
            continue
        spans = [
            [index_box((index,), (extent,), ranges)[0] for index in indices]
            for indices, extent in zip(dims, type_.shape, strict=True)
        ]
        boxes.append(tuple(reduce(Interval.hull, some) for some in spans))
    return tuple(boxes)


@lru_cache(maxsize=4096)
def _distinct_indices(expr: TensorExpr) -> tuple[tuple[tuple[Expr, ...], ...] | None, ...]:
    """Per input slot and dimension, the indices of its loads, of which windows and transforms have many."""
    found: list[tuple[dict[Expr, None], ...] | None] = [None] * len(expr.inputs)
    for node in expr.loads:
        dims = found[node.slot]
        if dims is None:
            found[node.slot] = dims = tuple({} for _ in node.indices)
        for dim, index in zip(dims, node.indices, strict=True):
            dim[index] = None
    return tuple(None if dims is None else tuple(map(tuple, dims)) for dims in found)


def write_boxes(expr: TensorExpr, ranges: Mapping[Axis, Interval]) -> tuple[Box, ...]:
    """Per output, the box that its stores touch."""
    return tuple(index_box(output.indices, output.type.shape, ranges) for output in expr.outputs)


def reshape_box(box: Box, source: Sequence[int], target: Sequence[int]) -> Box:
    """A box of a dense tensor of shape `source`, as a box of the same elements seen with shape `target`.

    Dimensions are matched in groups of equal product; in a group that is one dimension on both sides the interval
    is kept, elsewhere it becomes the smallest box around the flat range. Never too small.
    """
    if box_size(box) == 0:
        return tuple(Interval(0, 0) for _ in target)
    result: list[Interval] = []
    for source_dims, target_dims in reshape_groups(source, target):
        extents = [source[d] for d in source_dims]
        spans = [box[d] for d in source_dims]
        lo = _flat([span.lo for span in spans], extents)
        hi = _flat([span.hi - 1 for span in spans], extents) + 1
        result.extend(_unflatten(Interval(lo, hi), [target[d] for d in target_dims]))
    return tuple(result)


def reshape_groups(source: Sequence[int], target: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Minimal groups of neighbouring dimensions with equal products on both sides; no extent may be 0."""
    i = j = 0
    while i < len(source) or j < len(target):
        first_i, first_j = i, j
        left = right = 1
        while left != right or (i, j) == (first_i, first_j):
            if j == len(target) or (left <= right and i < len(source)):
                left, i = left * source[i], i + 1
            else:
                right, j = right * target[j], j + 1
        while i < len(source) and source[i] == 1:
            i += 1
        while j < len(target) and target[j] == 1:
            j += 1
        yield list(range(first_i, i)), list(range(first_j, j))


def _flat(index: Sequence[int], extents: Sequence[int]) -> int:
    total = 0
    for i, extent in zip(index, extents, strict=True):
        total = total * extent + i
    return total


def _unflatten(span: Interval, extents: Sequence[int]) -> Iterator[Interval]:
    """The hull, per dimension, of a flat range over dense `extents`."""
    inner = math.prod(extents)
    lo, last = span.lo, span.hi - 1
    open_below = False
    for extent in extents:
        inner //= extent
        if open_below:
            yield Interval(0, extent)
            continue
        first, final = lo // inner, last // inner
        yield Interval(first, final + 1)
        open_below = first != final
        lo, last = lo - first * inner, last - final * inner


@lru_cache(maxsize=1 << 14)
def depends_on_data(index: Expr) -> bool:
    """Whether an index expression reads a tensor (a gather)."""
    return any(isinstance(node, Load) for node in nodes(index))
