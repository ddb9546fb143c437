"""sum_convolutions: convolutions of one image whose results are added are one, by the sum of their weights.

    y0 = Conv(x, w0, b0), y1 = Conv(x, w1, b1), z = Add(y0, y1)  ->  z = Conv(x, w0 + w1, b0 + b1)

A window of fewer taps that lies within the other's is padded with zeros. Blocks that are trained with parallel branches
(RepVGG's, MobileOne's) then take as long as one branch. What else is added between them stays, in its order.

Nobody else may read the convolutions or the sums between them; weights and biases have to be constants. New ones are
computed in float64 and rounded once; they have to be finite.

Ordering restriction: after `fold_batch_norm`, for such branches are normalised before they are added; before
`merge_products`, which would make them parts of one product, and before passes that change operands or expressions.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from rammer.ir.graph import Array, Graph, Operator
from rammer.operators.attributes import integers
from rammer.passes.helpers.rewrite import Rewriter


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Merged:
    """Convolutions as one, with the attributes of the `widest`."""

    members: tuple[Operator, ...]
    widest: Operator
    weight: Array
    bias: Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sum:
    """The sum of `terms` that an outermost `addition` makes; the operators that are `gone` are part of it."""

    addition: Operator
    gone: tuple[Operator, ...]
    terms: tuple[int | _Merged, ...]


def run(graph: Graph) -> Graph:
    """Add convolutions; see the module."""
    sums = _Search(graph).sums()
    gone = {operator.outputs[0] for found in sums.values() for operator in found.gone}
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        if operator.outputs[0] in sums:
            _emit(sums[operator.outputs[0]], rewriter)
        elif operator.outputs[0] not in gone:
            rewriter.insert(operator)
    return rewriter.finish()


class _Search:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._makers = graph.producers()
        self._consumers = graph.consumers()

    def sums(self) -> dict[int, _Sum]:
        """The sums with convolutions to add, by the value that an outermost addition makes."""
        found = {}
        for operator in self._graph.operators:
            if not self._is_addition(operator) or self._is_inner(operator):
                continue
            values, additions = self._flattened(operator)
            terms = self._terms(values)
            members = [member for term in terms if isinstance(term, _Merged) for member in term.members]
            if members:
                found[operator.outputs[0]] = _Sum(addition=operator, gone=(*members, *additions), terms=terms)
        return found

    def _flattened(self, addition: Operator) -> tuple[list[int], list[Operator]]:
        """The values whose sum an addition makes, in their order, and the additions between."""
        stack, values, additions = [*reversed(addition.inputs)], list[int](), list[Operator]()
        while stack:
            value = stack.pop()
            maker = self._makers.get(value)
            if maker is not None and self._is_addition(maker) and self._is_inner(maker):
                additions.append(maker)
                stack += reversed(maker.inputs)
            else:
                values.append(value)
        return values, additions

    def _is_addition(self, operator: Operator) -> bool:
        """Whether an operator adds two float values element by element."""
        if operator.kind != "Add":
            return False
        types = {self._graph.values[value].type for value in (*operator.inputs, *operator.outputs)}
        return len(types) == 1 and next(iter(types)).dtype.is_float

    def _is_inner(self, addition: Operator) -> bool:
        """Whether all that becomes of a sum is that something is added to it."""
        (output,) = addition.outputs
        return self._is_read_once(output) and self._is_addition(self._consumers[output][0])

    def _is_read_once(self, value: int) -> bool:
        readers = self._consumers.get(value, [])
        count = sum(reader.inputs.count(value) for reader in readers)
        return count == 1 and value not in self._graph.outputs

    def _terms(self, values: Sequence[int]) -> tuple[int | _Merged, ...]:
        """The terms of a sum, convolutions that are one at the place of the first of them."""
        alike: dict[Hashable, list[Operator]] = {}
        for value in values:
            maker = self._makers.get(value)
            if maker is not None and self._is_known(maker):
                alike.setdefault(self._key(maker), []).append(maker)
        found = [self._merged(group) for group in alike.values()]
        places = {member.outputs[0]: one for one in found if one is not None for member in one.members}
        terms: list[int | _Merged] = []
        for value in values:
            one = places.get(value)
            if one is None or one not in terms:
                terms.append(value if one is None else one)
        return tuple(terms)

    def _is_known(self, operator: Operator) -> bool:
        """Whether an operator is a convolution by constants that is read once."""
        constant = all(value in self._graph.constants for value in operator.inputs[1:])
        return operator.kind == "Conv" and constant and self._is_read_once(operator.outputs[0])

    def _key(self, operator: Operator) -> Hashable:
        """What convolutions have in common that are added: all but how many taps lie in the padding."""
        weight = self._weight(operator)
        others = tuple(sorted((name, value) for name, value in operator.attributes.items() if name != "pads"))
        return operator.inputs[0], others, weight.shape[:2], weight.ndim, weight.dtype

    def _merged(self, members: Sequence[Operator]) -> _Merged | None:
        """Convolutions as one; None where there are no two, or sums leave the range of their type."""
        widest = max(members, key=lambda member: math.prod(self._weight(member).shape))
        window = self._weight(widest)
        places = {member.outputs[0]: self._place(member, widest) for member in members}
        members = [member for member in members if places[member.outputs[0]] is not None]
        if len(members) < 2:
            return None
        weight, bias = np.zeros(window.shape), np.zeros(len(window))
        with np.errstate(all="ignore"):
            for member in members:
                weight[places[member.outputs[0]]] += self._weight(member).astype(np.float64)
                if len(member.inputs) > 2:
                    bias += self._graph.constants[member.inputs[2]].astype(np.float64)
            rounded = weight.astype(window.dtype), bias.astype(window.dtype)
        if not all(np.isfinite(array).all() for array in rounded):
            return None
        return _Merged(members=tuple(members), widest=widest, weight=rounded[0], bias=rounded[1])

    def _place(self, operator: Operator, widest: Operator) -> tuple[slice, ...] | None:
        """The part of a window's weights that are the taps of another one; None where it reaches beyond."""
        small, large = (self._weight(one).shape[2:] for one in (operator, widest))
        before, beyond = (integers(one.attributes, "pads")[: len(small)] for one in (operator, widest))
        dilations = integers(operator.attributes, "dilations")
        parts = [slice(None), slice(None)]
        for taps, most, pad, wide, step in zip(small, large, before, beyond, dilations, strict=True):
            start, rest = divmod(wide - pad, step)
            if rest or start < 0 or start + taps > most:
                return None
            parts.append(slice(start, start + taps))
        return tuple(parts)

    def _weight(self, operator: Operator) -> Array:
        return self._graph.constants[operator.inputs[1]]


def _emit(found: _Sum, rewriter: Rewriter) -> None:
    """Write what stands for an outermost addition."""
    addition = found.addition
    values = [_convolution(term, rewriter) if isinstance(term, _Merged) else term for term in found.terms]
    total, *others = values
    for value in others:
        total = rewriter.add("Add", [total, value], {}, name=addition.name, sources=addition.sources)
    rewriter.replace(addition.outputs[0], total)


def _convolution(merged: _Merged, rewriter: Rewriter) -> int:
    widest = merged.widest
    weight = rewriter.constant(merged.weight, rewriter.name(widest.inputs[1]))
    bias = rewriter.constant(merged.bias, f"{widest.name}.bias")
    sources = dict.fromkeys(source for member in merged.members for source in member.sources)
    image = widest.inputs[0]
    return rewriter.add("Conv", [image, weight, bias], widest.attributes, name=widest.name, sources=tuple(sources))
