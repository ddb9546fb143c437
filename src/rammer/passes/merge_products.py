"""merge_products: products of one input with several constants become one.

    y0 = MatMul(x, w0), y1 = MatMul(x, w1)     ->  y = MatMul(x, [w0 w1]), y0 = Slice(y), y1 = Slice(y)
    y0 = Gemm(x, w0, b0), y1 = Gemm(x, w1)     ->  y = Gemm(x, [w0 w1], [b0 0]), ...
    y0 = Conv(x, w0, b0), y1 = Conv(x, w1, b1) ->  y = Conv(x, [w0; w1], [b0 b1]), ...

Gates that were written apart, query, key and value projections, sibling 1x1 convolutions. It pays because the input
is read once and the wider product fills registers and units that a narrow one leaves idle. But it takes something
from the readers, so siblings are told apart by how they are read:

- Pointwise operators that follow are brought to the merged product by `hoist_pointwise`, if they are equal.
- Other elementwise readers could have been epilogues of their product and become an operator of their own, which at
  least `WORTH_AN_OPERATOR` products have to pay for.
- What ends in a concatenation or an output of the model is written to its place by its own product, not merged.
- Readers find a small result in their vEU's own cache. Products that fill vectors by themselves stay apart where all
  their results take the room of all vEUs' caches, or a quarter where there are several for each vEU: that then makes
  what it reads next (`schedule.clusters`), and reads no short pieces of long rows.

Siblings have the same input and attributes, one group, and weights (and bias) that are constants. They are needed in
the same scope: of two branches one alone would have to run.

Ordering restriction: after `fold_batch_norm`, which wants a product to have one reader; before `hoist_pointwise`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rammer.ir.graph import Graph, Operator
from rammer.ir.recipe import concatenated
from rammer.ir.vdevice import VDevice
from rammer.passes.helpers.products import Product, chain_of, product_of, reads_elementwise, sliced
from rammer.passes.helpers.rewrite import Rewriter
from rammer.passes.helpers.scopes import find_scopes

WORTH_AN_OPERATOR = 3
"""Products to merge before a separate elementwise operator is a fair price."""
_MANY_FOR_A_UNIT, _SHARE_OF_MANY = 4, 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """How a product's result is read: by a chain of pointwise operators, then by elementwise ones or others."""

    chain: tuple[Hashable, ...]
    elementwise: bool


def run(graph: Graph, device: VDevice) -> Graph:
    """Merge products; see the module.

    Args:
        graph: products by kind, weights known.
        device: whose caches say which products stay apart.
    """
    first: dict[int, list[Product]] = {}
    merged: set[int] = set()
    for members in _siblings(graph):
        if not _stay_near(members, graph, device):
            outputs = [member.operator.outputs[0] for member in members]
            first[outputs[0]] = members
            merged.update(outputs)
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        (output, *_) = operator.outputs
        if output in first:
            _merge(first[output], rewriter)
        elif output not in merged:
            rewriter.insert(operator)
    return rewriter.finish()


def _siblings(graph: Graph) -> list[list[Product]]:
    """Products to merge, each group in the order of the graph."""
    consumers, scopes = graph.consumers(), find_scopes(graph)
    found: dict[Hashable, list[Product]] = {}
    least: dict[Hashable, int] = {}
    for operator in graph.operators:
        product = product_of(operator, graph)
        reading = None if product is None else _reading(product, graph, consumers)
        if product is not None and reading is not None:
            key = (_key(product), reading, scopes.of(operator.outputs[0]))
            found.setdefault(key, []).append(product)
            least[key] = WORTH_AN_OPERATOR if reading.elementwise else 2
    return [members for key, members in found.items() if len(members) >= least[key]]


def _stay_near(members: Sequence[Product], graph: Graph, device: VDevice) -> bool:
    """Whether products fill vectors, and a vEU's own cache keeps each result, but those of all vEUs not all of them.

    Results as large as the caches are not kept either: what reads them reads and writes something else, too.
    """
    results = [graph.values[member.operator.outputs[0]].type for member in members]
    fill = all(
        member.features * result.dtype.itemsize_bytes % device.vector_bytes == 0
        for member, result in zip(members, results, strict=True)
    )
    sizes = [result.nbytes for result in results]
    share = _SHARE_OF_MANY if len(members) >= _MANY_FOR_A_UNIT * device.veu_count else 1.0
    room_bytes = share * device.own_cache_bytes * device.veu_count
    return fill and max(sizes) <= device.own_cache_bytes and sum(sizes) >= room_bytes


def _key(product: Product) -> Hashable:
    """What siblings have in common: kind, input, attributes and the weights' extents other than the features."""
    operator = product.operator
    rest = tuple(extent for dim, extent in enumerate(product.weight.shape) if dim != product.weight_dim)
    parameters = tuple((array.dtype, array.ndim) for array in product.parameters)
    return (operator.kind, operator.inputs[0], tuple(sorted(operator.attributes.items())), rest, parameters)


def _reading(product: Product, graph: Graph, consumers: Mapping[int, Sequence[Operator]]) -> _Reading | None:
    """How a product's result is read; None if it has to be where it is."""
    chain, value = chain_of(product, graph, consumers)
    readers = consumers.get(value, [])
    if value in graph.outputs or any(reader.kind == "Concat" for reader in readers):
        return None
    return _Reading(chain=chain, elementwise=reads_elementwise(readers))


def _merge(members: Sequence[Product], rewriter: Rewriter) -> None:
    """Add the merged product and let a slice of it stand for each member."""
    lead = members[0]
    operands = [lead.operator.inputs[0]]
    name = "+".join(dict.fromkeys((lead.operator.name, members[-1].operator.name)))
    weight = np.concatenate([member.weight for member in members], axis=lead.weight_dim)
    recipe = concatenated([rewriter.recipe(member.operator.inputs[1]) for member in members], lead.weight_dim)
    operands.append(rewriter.constant(weight, f"{name}.weight", recipe=recipe))
    if any(member.bias is not None for member in members):
        biases = np.concatenate([member.bias_or_zeros() for member in members])
        operands.append(rewriter.constant(biases, f"{name}.bias"))
    for number in range(len(lead.parameters)):
        parts = [member.parameters[number] for member in members]
        operands.append(rewriter.constant(np.concatenate(parts, axis=lead.weight_dim), f"{name}.parameters"))
    sources = dict.fromkeys(source for member in members for source in member.operator.sources)
    whole = rewriter.add(lead.operator.kind, operands, lead.operator.attributes, name=name, sources=tuple(sources))
    sliced(whole, members, rewriter)
