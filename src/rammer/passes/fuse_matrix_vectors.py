"""fuse_matrix_vectors: products of a vector with matrices that are streamed take in what prepares and follows them.

    a = f(sum[k](x[k]^2)), v = x * a * s, y[n] = sum[k](v[k] * w[n, k])
      ->  y[n] = sum[k](x[k] * s[k] * w[n, k]) * f(sum[k](x[k]^2))          as one operator, also where v is one
    g[n] = f(sum[k](x[k] * w[n, k])), y[n] = h(sum[k](x[k] * u[n, k]), g[n])
      ->  y[n] = h(sum[k](x[k] * u[n, k]), f(sum[k](x[k] * w[n, k])))       as one operator

A step of a language model is a chain of such products. Between them lie normalisations, which every rTask can compute
from the few elements that it reads anyway, and activations of gates. Each would be a hand-over to all vEUs, while
memory stands still. What does not depend on what is summed over moves out of the sum; what was rounded to 16 bits on
the way no longer is.

Only where a vDevice streams matrices by rows (`tiling.gemv_rows`).

Ordering restriction: after `fuse`; before `round_products`, which narrows the matrices; `eliminate_dead` should follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce

from rammer.ir.expr import (
    Axis,
    Call,
    Const,
    Expr,
    Load,
    Reduce,
    ReduceFn,
    ScalarFn,
    TensorExpr,
    call,
    cast,
    nodes,
    rebuild,
    substitute,
)
from rammer.ir.graph import Graph, Operator
from rammer.ir.region import depends_on_data
from rammer.ir.types import DType
from rammer.ir.vdevice import VDevice
from rammer.passes.helpers.constants import read_once
from rammer.passes.helpers.fusion import LARGEST_NODES, LARGEST_OPERANDS
from rammer.passes.helpers.rewrite import PLACED_KINDS, Rewriter
from rammer.passes.helpers.rounding import exact, unrounded
from rammer.passes.helpers.simplify import simplified, simplified_expr
from rammer.passes.helpers.views import definition
from rammer.passes.helpers.work import Work, lift, lower
from rammer.tiling.gemv_rows import streams_rows
from rammer.tiling.pattern import plain_load


def run(graph: Graph, device: VDevice) -> Graph:
    """Fuse products of vectors; see the module.

    Args:
        graph: after fusion; every operator has an expression.
        device: says whether it streams matrices.
    """
    if not device.streams_rows:
        return graph
    fusion = _Fusion(graph, device)
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        rewriter.insert(fusion.fused(operator))
    return rewriter.finish()


class _Fusion:
    """Operators in topological order; `_products` are the streamed products so far, by their results."""

    def __init__(self, graph: Graph, device: VDevice) -> None:
        self._graph = graph
        self._device = device
        self._once = read_once(graph)
        self._makers = graph.producers()
        self._products: dict[int, Operator] = {}
        self._readers = Counter(value for operator in graph.operators for value in set(operator.inputs))
        self._readers.update(graph.outputs)

    def fused(self, operator: Operator) -> Operator:
        """The operator with what it takes in."""
        if operator.kind in PLACED_KINDS or not self._may_stream(operator) or self._lowered(lift(operator)) is None:
            return operator
        operator = self._with_gates(self._with_vectors(operator))
        self._products.update(dict.fromkeys(operator.outputs, operator))
        return operator

    def _may_stream(self, operator: Operator) -> bool:
        """Whether an operator may be a streamed product, by its expression, which it shares with others of its kind."""
        if operator.expr is None or len(set(operator.inputs)) < len(operator.inputs):
            return operator.expr is not None
        return self._streams(simplified_expr(operator.expr), operator.inputs)

    def _streams(self, expr: TensorExpr, inputs: Sequence[int]) -> bool:
        """Whether an expression of these values is a streamed product."""
        constants = {slot for slot, value in enumerate(inputs) if value in self._graph.constants}
        once = {slot for slot in constants if inputs[slot] in self._once}
        return streams_rows(expr, constants, self._device, once) is not None

    def _with_vectors(self, operator: Operator) -> Operator:
        """A product that computes its vectors, and what it scales them with."""
        work = lift(operator)
        mapping: dict[Expr, Expr] = {}
        for node in work.nodes:
            match node:
                case Reduce(_, (_,), Call(ScalarFn.MUL, (left, right))):
                    found = self._with_vector(node, left, right) or self._with_vector(node, right, left)
                    if found is not None:
                        mapping[node] = found
        return self._changed(operator, work.rewritten(mapping.get), ()) if mapping else operator

    def _with_vector(self, product: Reduce, vector: Expr, weight: Expr) -> Expr | None:
        """A product whose vector is computed in it; what is the same for all elements follows it."""
        load, (axis,) = plain_load(vector), product.axes
        element = None if load is None else self._element(load, sums=True)
        if element is None:
            return None
        factors = list(_factors(element))
        inner = [factor for factor in factors if axis in nodes(factor)]
        if not inner or any(isinstance(node, Reduce) for factor in inner for node in nodes(factor)):
            return None
        scales = [self._scale(factor, product) for factor in factors if axis not in nodes(factor)]
        if None in scales:
            return None
        total = Reduce(product.fn, product.axes, call(ScalarFn.MUL, _times(inner), weight))
        return _times([total, *(scale for scale in scales if scale is not None)])

    def _scale(self, factor: Expr, product: Reduce) -> Expr | None:
        """What all elements are scaled with, whose sums run over the product's own elements; None where they cannot."""
        (axis,) = product.axes
        is_sum = any(isinstance(node, Reduce) for node in nodes(factor))  # of an operator that normalises by itself
        whole = factor if is_sum else self._read_through(factor, sums=True)

        def over_own_elements(node: Expr) -> Expr | None:
            match node:
                case Reduce(ReduceFn.SUM as fn, (other,), body) if other.extent == axis.extent:
                    (body,) = substitute([body], {other: axis})
                    (body,) = rebuild([self._read_through(body, sums=False)], simplified)
                    return Reduce(fn, (axis,), body)
            return None

        (whole,) = rebuild([whole], over_own_elements)
        own = [node for node in nodes(whole) if isinstance(node, Reduce)]
        return whole if all(reduction.axes == product.axes for reduction in own) else None

    def _read_through(self, element: Expr, *, sums: bool) -> Expr:
        """An element with what it loads computed instead, where `_element` says how."""

        def visit(node: Expr) -> Expr | None:
            load = plain_load(node) if node.dtype is DType.FLOAT32 else None
            return None if load is None else self._element(load, sums=sums)

        (computed,) = rebuild([element], visit)
        return computed

    def _element(self, load: Load, *, sums: bool) -> Expr | None:
        """What is loaded, in float32, by what its maker loads or makes beside it; None where that sums, or must not."""
        maker = self._makers.get(load.slot)
        if maker is None or maker.expr is None or maker.kind in PLACED_KINDS or load.fill is not None:
            return None
        work = lift(maker)
        beside: dict[Expr, Expr] = {}
        for value, output in work.outputs.items():
            if value != load.slot:
                stored = Load(value, output.indices, output.type.dtype)
                # Inside an operator its results may be as they are before they are rounded.
                beside[unrounded(output.body)] = cast(output.type.dtype.compute, stored)
                beside[output.body] = stored
        (body,) = rebuild([work.outputs[load.slot].body], beside.get)
        own = {axis: Axis(f"{axis.name}_of_{load.slot}", axis.extent) for axis in _summed_axes(work)}
        (body,) = substitute([body], own)
        found = definition(work.axes, replace(work.outputs[load.slot], body=body))
        if found is None or load.dtype.compute is not DType.FLOAT32:
            return None
        element = exact(found.at(load.indices))
        has_sums = any(isinstance(node, Reduce) for node in nodes(element))
        gathers = any(isinstance(node, Load) and any(map(depends_on_data, node.indices)) for node in nodes(element))
        return None if gathers or (has_sums and not sums) else element

    def _with_gates(self, operator: Operator) -> Operator:
        """A product that computes other products of the same length that it reads at its own points."""
        for value in operator.inputs:
            gate = self._products.get(value)
            if gate is not None and self._readers[value] == 1 and len(gate.outputs) == 1:
                operator = self._with_gate(operator, gate)
        return operator

    def _with_gate(self, operator: Operator, gate: Operator) -> Operator:
        """A product that computes another one, or as it was where it reads that elsewhere, or sums otherwise."""
        work, made = lift(operator), lift(gate)
        (value,) = gate.outputs
        axes, own = _summed_axes(made), _summed_axes(work)
        loads = [load for load in work.loads if load.slot == value]
        if [axis.extent for axis in axes] != [axis.extent for axis in own] or len(loads) != 1:
            return operator
        (body,) = substitute([made.outputs[value].body], dict(zip(axes, own, strict=True)))
        found = definition(made.axes, replace(made.outputs[value], body=body))
        if found is None or not self._at_own_point(loads[0], work):
            return operator
        element = exact(found.at(loads[0].indices))
        return self._changed(operator, work.rewritten(partial(_instead, loads[0], element)), (gate,))

    def _at_own_point(self, load: Load, work: Work) -> bool:
        """Whether a load is outside of sums, at the point whose results are stored; dimensions of 1 do not count."""
        sums = [node for node in work.nodes if isinstance(node, Reduce)]
        at = _long_dimensions(load.indices, self._graph.values[load.slot].type.shape)
        return not any(load in nodes(one) for one in sums) and all(
            at == _long_dimensions(output.indices, output.type.shape) for output in work.outputs.values()
        )

    def _changed(self, operator: Operator, work: Work, taken_in: Sequence[Operator]) -> Operator:
        """The operator with another work, which others are part of; as it was where that could not be streamed."""
        lowered = self._lowered(work)
        if lowered is None:
            return operator
        expr, inputs = lowered
        members = (*taken_in, operator)
        return replace(
            operator,
            kind="+".join(member.kind for member in members),
            expr=expr,
            inputs=inputs,
            attributes={},
            sources=tuple(dict.fromkeys(source for member in members for source in member.sources)),
        )

    def _lowered(self, work: Work) -> tuple[TensorExpr, tuple[int, ...]] | None:
        """The expression of a streamed product and the values that it reads, None where a work is anything else."""
        if len(work.nodes) > LARGEST_NODES or len(work.reads) + len(work.outputs) > LARGEST_OPERANDS:
            return None
        expr, inputs = lower(work, lambda value: self._graph.values[value].type)
        return (expr, inputs) if self._streams(expr, inputs) else None


def _summed_axes(work: Work) -> list[Axis]:
    """The axes that a work sums over."""
    return list(dict.fromkeys(axis for node in work.nodes if isinstance(node, Reduce) for axis in node.axes))


def _long_dimensions(indices: Sequence[Expr], shape: Sequence[int]) -> tuple[Expr, ...]:
    """The indices of those dimensions of a shape that have more than one element."""
    return tuple(index for index, extent in zip(indices, shape, strict=True) if extent > 1)


def _instead(load: Load, element: Expr, node: Expr) -> Expr | None:
    """The element in place of what is loaded, in float32."""
    return element if node.dtype is DType.FLOAT32 and plain_load(node) is load else None


def _factors(element: Expr) -> Iterator[Expr]:
    """What is multiplied to an element."""
    match element:
        case Call(ScalarFn.MUL, (left, right)):
            yield from _factors(left)
            yield from _factors(right)
        case Call(ScalarFn.DIV, (left, right)) if not isinstance(left, Const):
            yield from _factors(left)
            yield call(ScalarFn.DIV, 1.0, right)
        case _:
            yield element


def _times(factors: Sequence[Expr]) -> Expr:
    return reduce(partial(call, ScalarFn.MUL), factors)
