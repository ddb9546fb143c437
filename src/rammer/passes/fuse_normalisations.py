"""fuse_normalisations: a product reads rows as they were before they were normalised, and scales its sums instead.

    z[m, k] = (x[m, k] - mean[m]) * scale[m] * s[k] + t[k],  y[m, n] = f(sum[k](z[m, k] * w[n, k]), z[m, n])
      ->  a[m] = scale[m], b[m] = -mean[m] * scale[m]        as an operator of its own
          y[m, n] = f(a[m] * sum[k](x[m, k] * w'[n, k]) + b[m] * u[n] + v[n], (x[m, n] * a[m] + b[m]) * s[n] + t[n])
          with w'[n, k] = s[k] * w[n, k], u[n] = sum[k](w'[n, k]), v[n] = sum[k](t[k] * w[n, k])

Between x and the product was a hand-over to all vEUs and back. Now the product needs no more than a and b, and not
before its sums are there: they are found beside it (`lowering.tagging`).

x of 16 bits is what the model has, and nothing is lost by multiplying before the mean is taken off. Of float32, it is
rounded instead of z where the precision that was asked for rounds z: who makes x writes it once more, rounded. u is the
sum of w' as it is rounded, so that a mean that is far away cancels. Rows of equal elements have a = b = 0: what is
left of their mean is not to be divided by the root of an epsilon. Whoever reads z outside of sums computes it, from all
bits of x; where somebody reads it otherwise, the normalisation stays as it is.

Only where a vDevice has warpgroups that multiply, and where Roller's model takes them.

Ordering restriction: after `layout`, for w' lies as w does; `eliminate_dead` should follow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import islice

import numpy as np
import numpy.typing as npt

from rammer.ir.evaluate import converted, evaluate
from rammer.ir.expr import (
    Axis,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Output,
    Reduce,
    ReduceFn,
    ScalarFn,
    call,
    const,
    nodes,
    select,
)
from rammer.ir.graph import Graph, Operator
from rammer.ir.types import DType, TensorType
from rammer.ir.vdevice import VDevice
from rammer.passes.helpers.constants import read_once
from rammer.passes.helpers.further import can_be_written_again, written_again
from rammer.passes.helpers.fusion import LARGEST_OPERANDS
from rammer.passes.helpers.predicted import by_warpgroups
from rammer.passes.helpers.rewrite import PLACED_KINDS, Rewriter
from rammer.passes.helpers.rounding import exact
from rammer.passes.helpers.views import Definition, definition
from rammer.passes.helpers.work import Work, lift, lower
from rammer.passes.round_products import ROUNDED
from rammer.tiling.pattern import plain_load
from rammer.tiling.warpgroup_gemm import INSTRUCTIONS

_MOST_PARTS = 8  # of an element, and _DEEPEST of the sums and products around each: a normalisation has three
_DEEPEST = 32
_MOST_OF_A_VEU = 3 << 10
"""Elements of float32 for each vEU, beyond which a product waits longer for factors of rows than it did for rows."""


def run(graph: Graph, device: VDevice) -> Graph:
    """Fuse normalisations; see the module.

    Args:
        graph: after fusion; every operator has an expression, and constants have their layouts.
        device: whose instructions and figures decide.
    """
    if not any(instruction in device.instructions for instruction in INSTRUCTIONS.values()):
        return graph
    return _Fusion(graph, device).run()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A part of an element that others are added to: `row * column`, times `load` if there is one.

    `row` is the same for all elements of a row, `column` is made of constants.
    """

    row: tuple[Expr, ...]
    column: tuple[Expr, ...]
    load: Load | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Normalisation:
    """An operator whose elements are sums of parts along one of its axes, dimension `dim` of its result.

    The factors of rows are loads of what another operator, `rows`, makes. The result may be there twice, whole and
    rounded, as `values`. `multiplied` is the part that products load: of float32, its rounded twin.
    """

    values: tuple[int, ...]
    place: Definition
    dim: int
    axis: Axis
    parts: tuple[_Part, ...]
    rows: Operator
    multiplied: Load

    @property
    def scaled(self) -> tuple[Expr, ...]:
        """What the elements of a row are multiplied with, beside the row's own factor."""
        return next(part.column for part in self.parts if part.load is not None)

    def at(self, element: Expr, indices: Sequence[Expr]) -> Expr:
        """An expression over its axes at a place of its result."""
        return replace(self.place, body=element).at(indices)


class _Fusion:
    def __init__(self, graph: Graph, device: VDevice) -> None:
        self._graph = graph
        self._device = device
        self._rewriter = Rewriter(graph)
        self._consumers = graph.consumers()
        self._once = read_once(graph)
        self._can_be_written_again = can_be_written_again(graph)
        self._rounded = ROUNDED.get(device.precision)
        self._twins: dict[int, int] = {}
        self._placed = {
            value
            for operator in graph.operators
            if operator.kind in PLACED_KINDS
            for value in (*operator.inputs, *operator.outputs)
        }
        self._changed = {operator.outputs: operator for operator in graph.operators}

    def run(self) -> Graph:
        """The graph with products that read rows before they are normalised."""
        rows: dict[tuple[int, ...], Operator] = {}
        wanted: set[int] = set()
        for operator in self._graph.operators:
            found = self._normalisation(operator)
            readers = [] if found is None else self._readers(found)
            if found is not None and readers:
                self._changed |= {reader.outputs: reader for reader in readers}
                rows[operator.outputs] = found.rows
                wanted.add(found.multiplied.slot)
        if not rows:
            return self._graph
        for operator in self._graph.operators:
            changed = self._changed[operator.outputs]
            for value in operator.outputs:
                twin = self._twins.get(value)
                if twin in wanted:
                    changed = written_again(changed, value, twin, self._rewriter.type(twin))
            self._rewriter.insert(changed)
            if operator.outputs in rows:
                self._rewriter.insert(rows[operator.outputs])
        return self._rewriter.finish()

    def _normalisation(self, operator: Operator) -> _Normalisation | None:
        """An operator as a normalisation of rows that products read rounded, None for any other."""
        expr = operator.expr
        if expr is None or not expr.reductions or operator.kind in PLACED_KINDS:
            return None
        work = lift(operator)
        place, *others = (definition(work.axes, work.outputs[value]) for value in operator.outputs)
        if place is None or any(other is None or not _is_same(place, other) for other in others):
            return None
        if any(value in self._graph.outputs or value in self._placed for value in operator.outputs):
            return None
        for dim, axis in enumerate(place.dims):
            parts = [] if axis is None else self._parts(place, axis)
            if axis is not None and parts:
                return self._with_rows(operator, place, dim, axis, parts)
        return None

    def _parts(self, place: Definition, axis: Axis) -> list[_Part]:
        """What elements are the sums of, none where that is no normalisation along an axis."""
        products = list(islice(_products(exact(place.body), axis), _MOST_PARTS + 1))
        if len(products) > _MOST_PARTS:
            return []
        parts = [self._part(factors, axis) for factors in products]
        known = [part for part in parts if part is not None]
        loads = {part.load for part in known if part.load is not None}
        if len(known) < len(parts) or len(loads) != 1 or len({part.column for part in known if part.load}) > 1:
            return []
        (element,) = loads
        is_row = element.fill is None and element.slot not in self._placed
        is_row = is_row and (element.dtype.is_rounded or self._may_be_rounded(element))
        scales = any(isinstance(node, Reduce) for part in known for node in nodes(*part.row))
        return known if is_row and scales and element.slot not in self._graph.constants else []

    def _may_be_rounded(self, element: Load) -> bool:
        """Whether what is normalised can be written rounded, too."""
        return (
            self._rounded is not None
            and element.dtype is DType.FLOAT32
            and self._graph.values[element.slot].type.size <= _MOST_OF_A_VEU * self._device.veu_count
            and self._can_be_written_again(element.slot)
        )

    def _part(self, factors: Sequence[Expr], axis: Axis) -> _Part | None:
        """Factors as a part; None where they are neither of the row, nor of constants, nor one element."""
        along = [factor for factor in factors if axis in nodes(factor)]
        columns = [factor for factor in along if self._is_constant(factor)]
        loads = [plain_load(factor) for factor in along if factor not in columns]
        if len(loads) > 1 or None in loads:
            return None
        return _Part(
            row=tuple(factor for factor in factors if factor not in along),
            column=tuple(columns),
            load=loads[0] if loads else None,
        )

    def _is_constant(self, factor: Expr) -> bool:
        inside = nodes(factor)
        loads = [node for node in inside if isinstance(node, Load)]
        return all(load.slot in self._graph.constants for load in loads) and not any(
            isinstance(node, Reduce) for node in inside
        )

    def _with_rows(
        self, operator: Operator, place: Definition, dim: int, axis: Axis, parts: Sequence[_Part]
    ) -> _Normalisation:
        """The normalisation, with an operator that makes the factors of rows."""
        (element,) = {part.load for part in parts if part.load is not None}
        others = [one for one in place.dims if one is not axis and one is not None]
        type_ = TensorType(DType.FLOAT32, tuple(one.extent for one in others))
        distinct = list(dict.fromkeys(part.row for part in parts if part.row))
        values = {row: self._rewriter.value(type_, f"{operator.name}.rows{i}") for i, row in enumerate(distinct)}
        work = Work(
            axes=tuple(others),
            outputs={
                value: Output(type=type_, indices=tuple(others), body=_kept(_times(row), parts, axis))
                for row, value in values.items()
            },
        )
        expr, inputs = lower(work, self._rewriter.type)
        rows = replace(
            operator,
            kind="RowStatistics",
            name=f"{operator.name}.rows",
            inputs=inputs,
            outputs=tuple(values.values()),
            expr=expr,
            attributes={},
        )
        loaded = tuple(
            replace(part, row=(Load(values[part.row], tuple(others), DType.FLOAT32),) if part.row else ())
            for part in parts
        )
        return _Normalisation(
            values=operator.outputs,
            place=place,
            dim=dim,
            axis=axis,
            parts=loaded,
            rows=rows,
            multiplied=self._multiplied(element),
        )

    def _multiplied(self, element: Load) -> Load:
        """An element as products load it."""
        if element.dtype.is_rounded:
            return element
        assert self._rounded is not None  # it may be rounded
        if element.slot not in self._twins:
            name, layout = self._rewriter.name(element.slot), self._rewriter.layout(element.slot)
            type_ = TensorType(self._rounded, self._rewriter.type(element.slot).shape)
            self._twins[element.slot] = self._rewriter.value(type_, f"{name}.rounded", layout)
        return Load(self._twins[element.slot], element.indices, self._rounded)

    def _readers(self, found: _Normalisation) -> list[Operator]:
        """All readers, changed; none where one of them cannot be, or none multiplies what is normalised."""
        readers = [
            self._changed[outputs]
            for outputs in dict.fromkeys(reader.outputs for value in found.values for reader in self._consumers[value])
        ]
        changed = [self._reader(reader, found) for reader in readers]
        known = [reader for reader in changed if reader is not None]
        multiplies = any(
            isinstance(node, Load) and node.slot in found.values
            for reader in readers
            if reader.expr is not None
            for one in lift(reader).nodes
            if isinstance(one, Reduce)
            for node in nodes(one)
        )
        return known if len(known) == len(readers) and multiplies else []

    def _reader(self, reader: Operator, found: _Normalisation) -> Operator | None:
        """A reader that computes what it reads of a normalisation, or multiplies without it; None where it cannot."""
        if reader.expr is None or reader.kind in PLACED_KINDS:
            return None
        work = lift(reader)
        mapping: dict[Expr, Expr] = {}
        for node in work.nodes:
            if isinstance(node, Reduce) and any(
                isinstance(one, Load) and one.slot in found.values for one in nodes(node)
            ):
                total = self._total(node, found)
                if total is None:
                    return None
                mapping[node] = total
        whole = work.rewritten(mapping.get)
        whole = whole.rewritten(partial(_computed, found))
        if len(whole.reads) + len(whole.outputs) > LARGEST_OPERANDS:
            return None
        expr, inputs = lower(whole, self._rewriter.type)
        changed = replace(reader, attributes={}, expr=expr, inputs=inputs)
        return changed if not mapping or self._has_warpgroups(changed) else None

    def _total(self, product: Reduce, found: _Normalisation) -> Expr | None:
        """What a product is, in terms of the elements themselves; None where weights would not be numbers."""
        match product:
            case Reduce(ReduceFn.SUM, (axis,), Call(ScalarFn.MUL, (left, right))):
                pass
            case _:
                return None
        loads = [plain_load(operand) for operand in (left, right)]
        own = next((load for load in loads if load is not None and load.slot in found.values), None)
        matrix = next((load for load in loads if load is not None and load.slot in self._once), None)
        if own is None or matrix is None or own.fill is not None or own.indices[found.dim] is not axis:
            return None
        if own.dtype is not found.multiplied.dtype:
            return None
        if any(axis in nodes(index) for place, index in enumerate(own.indices) if place != found.dim):
            return None
        dims = [dim for dim, index in enumerate(matrix.indices) if axis in nodes(index)]
        type_ = self._rewriter.type(matrix.slot)
        if len(dims) != 1 or matrix.indices[dims[0]] is not axis or type_.shape[dims[0]] != axis.extent:
            return None
        return self._scaled_total(product, found, own, matrix, dims[0])

    def _scaled_total(self, product: Reduce, found: _Normalisation, own: Load, matrix: Load, dim: int) -> Expr | None:
        """The product by scaled weights, with what its elements have beside the first part."""
        type_, (axis,) = self._rewriter.type(matrix.slot), product.axes
        weights: npt.NDArray[np.float64] = self._graph.constants[matrix.slot].astype(np.float64)
        along = [axis.extent if other == dim else 1 for other in range(type_.rank)]
        with np.errstate(all="ignore"):
            scaled = weights * self._numbers(found.scaled, found.axis).reshape(along)
            rounded = converted(scaled, type_.dtype)
        if not np.isfinite(rounded).all():
            return None
        name, layout = self._rewriter.name(matrix.slot), self._rewriter.layout(matrix.slot)
        packed = self._rewriter.with_layout(self._rewriter.constant(rounded, name, type_.dtype), layout)
        indices = (*matrix.indices[:dim], *matrix.indices[dim + 1 :])
        summed: list[Expr] = []
        for part in found.parts:
            row = [found.at(factor, own.indices) for factor in part.row]
            if part.load is not None:
                element = found.at(_widened(found.multiplied), own.indices)
                body = call(ScalarFn.MUL, element, _widened(matrix.at(packed, matrix.indices)))
                summed.append(_times([*row, Reduce(product.fn, product.axes, body)]))
                continue
            if part.column == found.scaled:
                column = rounded.astype(np.float64).sum(axis=dim)
            else:
                column = (weights * self._numbers(part.column, found.axis).reshape(along)).sum(axis=dim)
            value = self._rewriter.constant(column.astype(np.float32), f"{name}.sums")
            summed.append(_times([*row, Load(value, indices, DType.FLOAT32)]))
        return reduce(partial(call, ScalarFn.ADD), summed)

    def _numbers(self, factors: Sequence[Expr], axis: Axis) -> npt.NDArray[np.float64]:
        """The product of factors at each position along an axis."""
        if not factors:
            return np.ones(axis.extent)
        type_ = TensorType(DType.FLOAT32, (axis.extent,))
        work = Work(axes=(axis,), outputs={0: Output(type=type_, indices=(axis,), body=_times(factors))})
        expr, inputs = lower(work, self._rewriter.type)
        (numbers,) = evaluate(expr, [self._graph.constants[value] for value in inputs])
        return numbers.astype(np.float64)

    def _has_warpgroups(self, operator: Operator) -> bool:
        """Whether Roller's model would have warpgroups multiply."""
        assert operator.expr is not None  # it is a product
        layouts = tuple(map(self._rewriter.layout, (*operator.inputs, *operator.outputs)))
        constants = frozenset(i for i, value in enumerate(operator.inputs) if self._rewriter.array(value) is not None)
        return by_warpgroups(operator.expr, layouts, constants, self._device)


def _computed(found: _Normalisation, node: Expr) -> Expr | None:
    """A visitor that computes elements of a normalisation where they are loaded."""
    load = plain_load(node) if node.dtype is DType.FLOAT32 else None
    if load is None or load.slot not in found.values or load.fill is not None:
        return None
    element = reduce(
        partial(call, ScalarFn.ADD),
        [
            _times([*([] if part.load is None else [_widened(part.load)]), *part.row, *part.column])
            for part in found.parts
        ],
    )
    return found.at(element, load.indices)


def _kept(factor: Expr, parts: Sequence[_Part], axis: Axis) -> Expr:
    """A factor of rows, 0 for rows whose elements are all equal.

    Of others, at least one element of 16 bits is next to the rest: their mean is at most 2^11 root(K) deviations.
    """
    scaled = next(part for part in parts if part.load is not None)
    most = const(2.0**12 * math.sqrt(axis.extent), DType.FLOAT32)
    for part in parts:
        if part.load is None and part.column == scaled.column and part.row:
            is_equal = call(ScalarFn.LT, most, call(ScalarFn.ABS, _times(part.row)))
            factor = select(is_equal, const(0.0, DType.FLOAT32), factor)
    return factor


def _is_same(place: Definition, other: Definition) -> bool:
    """Whether two results are one, but for what either is rounded to."""
    return place.dims == other.dims and exact(place.body) is exact(other.body)


def _widened(load: Load) -> Expr:
    return load if load.dtype is DType.FLOAT32 else Cast(DType.FLOAT32, load)


def _products(element: Expr, axis: Axis, depth: int = _DEEPEST) -> Iterator[tuple[Expr, ...]]:
    """An element as a sum of products; what does not depend on an axis, or lies deeper, stays as it is.

    There may be exponentially many, for an element is a DAG: take no more than are wanted.
    """
    if axis not in nodes(element) or not depth:
        yield (element,)
        return
    terms = partial(_products, axis=axis, depth=depth - 1)
    match element:
        case Call(ScalarFn.ADD, (left, right)):
            yield from terms(left)
            yield from terms(right)
        case Call(ScalarFn.SUB, (left, right)):
            yield from terms(left)
            yield from ((Const(-1.0, DType.FLOAT32), *factors) for factors in terms(right))
        case Call(ScalarFn.NEG, (operand,)):
            yield from ((Const(-1.0, DType.FLOAT32), *factors) for factors in terms(operand))
        case Call(ScalarFn.MUL, (left, right)):
            yield from ((*one, *other) for one in terms(left) for other in terms(right))
        case Call(ScalarFn.DIV, (left, right)) if axis not in nodes(right):
            yield from ((*factors, call(ScalarFn.DIV, 1.0, right)) for factors in terms(left))
        case _:
            yield (element,)


def _times(factors: Sequence[Expr]) -> Expr:
    return reduce(partial(call, ScalarFn.MUL), factors)
