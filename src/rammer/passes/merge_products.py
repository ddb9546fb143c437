"""merge_products: products of one input with several constants become one.

    y0 = MatMul(x, w0), y1 = MatMul(x, w1)     ->  y = MatMul(x, [w0 w1]), y0 = Slice(y), y1 = Slice(y)
    y0 = Gemm(x, w0, b0), y1 = Gemm(x, w1)     ->  y = Gemm(x, [w0 w1], [b0 0]), ...
    y0 = Conv(x, w0, b0), y1 = Conv(x, w1, b1) ->  y = Conv(x, [w0; w1], [b0 b1]), ...

Gates that were written apart, query, key and value projections, sibling 1x1 convolutions. It pays because the input
is read once and the wider product fills registers and units that a narrow one leaves idle. It would cost what the
products do for their readers: an activation that could have been the epilogue of one product is not that of all. So
siblings are merged whose only readers are equal pointwise operators, which `hoist_pointwise` then brings to the
merged product, and those that are read in other ways. They must have the same input and attributes, one group, and
weights (and bias) that are constants.

Ordering restriction: after `fold_batch_norm`, which wants a product to have one reader; before `hoist_pointwise`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from rammer.ir.graph import Array, Attributes, Graph, Operator
from rammer.operators.attributes import flag, integer
from rammer.passes.pointwise import pointwise
from rammer.passes.rewrite import Rewriter


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    """A product that may be merged. Features run along one dimension of the weights and one of the result."""

    operator: Operator
    weight_dim: int
    result_dim: int
    weight: Array
    bias: Array | None

    @property
    def features(self) -> int:
        """Number of features."""
        return int(self.weight.shape[self.weight_dim])


def run(graph: Graph) -> Graph:
    """Merge products; see the module."""
    consumers = graph.consumers()
    siblings: dict[Hashable, list[_Product]] = {}
    for operator in graph.operators:
        product = _product(operator, graph)
        if product is not None:
            siblings.setdefault(_key(product, graph, consumers), []).append(product)
    groups = [members for members in siblings.values() if len(members) > 1]
    first = {members[0].operator.outputs[0]: members for members in groups}
    merged = {member.operator.outputs[0] for members in groups for member in members}
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        (output, *_) = operator.outputs
        if output in first:
            _merge(first[output], rewriter)
        elif output not in merged:
            rewriter.insert(operator)
    return rewriter.finish()


def _product(operator: Operator, graph: Graph) -> _Product | None:
    """The operator as a product that can be merged with others, None if it is none."""
    arrays = [graph.constants[value] for value in operator.inputs[1:] if value in graph.constants]
    if not arrays or len(arrays) < len(operator.inputs) - 1:
        return None
    weight, *rest = arrays
    bias = rest[0] if rest else None
    x = graph.values[operator.inputs[0]].type
    match operator.kind:
        case "MatMul" if weight.ndim == 2:
            return _Product(operator=operator, weight_dim=1, result_dim=x.rank - 1, weight=weight, bias=None)
        case "Gemm":
            columns = 0 if flag(operator.attributes, "trans_b") else 1
            if bias is not None:
                if bias.size != 1 and bias.size != bias.shape[-1]:
                    return None
                bias = np.broadcast_to(bias.reshape(-1), (weight.shape[columns],))
            return _Product(operator=operator, weight_dim=columns, result_dim=1, weight=weight, bias=bias)
        case "Conv" if integer(operator.attributes, "group") == 1:
            return _Product(operator=operator, weight_dim=0, result_dim=1, weight=weight, bias=bias)
    return None


def _key(product: _Product, graph: Graph, consumers: dict[int, list[Operator]]) -> Hashable:
    """What siblings have in common: kind, input, attributes, the weights' other extents and how they are read."""
    operator = product.operator
    rest = tuple(extent for dim, extent in enumerate(product.weight.shape) if dim != product.weight_dim)
    (output,) = operator.outputs
    readers = consumers.get(output, [])
    alone = len(readers) == 1 and output not in graph.outputs
    reader = pointwise(readers[0], output, graph.constants) if alone else None
    epilogue = None if reader is None else (reader.operator.kind, reader.resized(product.result_dim, 1))
    return (operator.kind, operator.inputs[0], tuple(sorted(operator.attributes.items())), rest, epilogue)


def _merge(members: Sequence[_Product], rewriter: Rewriter) -> None:
    """Add the merged product and let a slice of it stand for each member."""
    lead = members[0]
    operands = [lead.operator.inputs[0]]
    name = "+".join(dict.fromkeys((lead.operator.name, members[-1].operator.name)))
    weight = np.concatenate([member.weight for member in members], axis=lead.weight_dim)
    operands.append(rewriter.constant(weight, f"{name}.weight"))
    if any(member.bias is not None for member in members):
        operands.append(rewriter.constant(np.concatenate([_bias(member) for member in members]), f"{name}.bias"))
    sources = dict.fromkeys(source for member in members for source in member.operator.sources)
    whole = rewriter.add(lead.operator.kind, operands, lead.operator.attributes, name=name, sources=tuple(sources))
    start = 0
    for member in members:
        (output,) = member.operator.outputs
        shape = rewriter.type(output).shape
        attributes: Attributes = {
            "starts": tuple(start if dim == lead.result_dim else 0 for dim in range(len(shape))),
            "steps": (1,) * len(shape),
            "sizes": shape,
        }
        part = rewriter.add("Slice", [whole], attributes, name=member.operator.name, sources=member.operator.sources)
        rewriter.replace(output, part)
        start += member.features


def _bias(member: _Product) -> Array:
    return np.zeros(member.features, member.weight.dtype) if member.bias is None else member.bias
