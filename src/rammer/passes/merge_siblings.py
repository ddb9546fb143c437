"""merge_siblings: chosen convolutions of one input become one, as IOS's stages of the second kind run them.

    y0 = Conv(x, w0), y1 = Conv(x, w1)  ->  y = Conv(x, [w0; w1]), y0 = Slice(y), y1 = Slice(y)

Kernels may differ in size: smaller ones are padded with zeros to the extent that holds all of them, each where its
padding lets it begin. So a merged convolution may compute more than its parts, but it reads its input once, and is one
operator with one hand-over. Whether that pays depends on what else could run beside them: `siblings` says what may be
merged, whoever knows what stages cost chooses (`rammer.pipelines.merging`), and `merge` does it.

Siblings have the same input, strides and results' extents, no dilation, one group, finite constant weights, and are
read alike: by equal pointwise operators, then by anything but elementwise work, which would lose its product. Those
that are concatenated are merged if they lie side by side there, and the concatenation takes them as one. An infinity of
the input times a zero of the padding is NaN, so models that are compiled strictly are not merged.

Ordering restriction: after `merge_products`, which merges what always pays; before `hoist_pointwise` and `winograd`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from rammer.ir.graph import Array, Graph, Operator
from rammer.operators.attributes import integer, integers
from rammer.passes import hoist_pointwise
from rammer.passes.helpers.alone import alone, laid_out_alone
from rammer.passes.helpers.products import Product, chain_of, product_of, reads_elementwise, sliced
from rammer.passes.helpers.rewrite import Rewriter
from rammer.passes.helpers.scopes import find_scopes


@dataclass(frozen=True, slots=True, kw_only=True)
class Siblings:
    """Convolutions that may be merged, by the values that they make.

    Attributes:
        values: in the order of the graph; concatenated ones in that of the concatenation.
        places: among the operands of the concatenation that reads them; none where nothing concatenates them.
    """

    values: tuple[int, ...]
    places: tuple[int, ...] | None

    def may_merge(self, values: Sequence[int]) -> bool:
        """Whether some of them can be one: all, or, where they are concatenated, those that lie side by side."""
        if len(values) < 2 or not set(values) <= set(self.values):
            return False
        if self.places is None:
            return True
        places = sorted(self.places[self.values.index(value)] for value in values)
        return places == list(range(places[0], places[0] + len(places)))


def siblings(graph: Graph) -> list[Siblings]:
    """The convolutions that may be merged with others."""
    consumers, scopes = graph.consumers(), find_scopes(graph)
    found: dict[Hashable, list[tuple[int, int]]] = {}
    for operator in graph.operators:
        product = product_of(operator, graph)
        if product is None or operator.kind != "Conv" or not _is_plain(operator):
            continue
        chain, last = chain_of(product, graph, consumers)
        readers = consumers.get(last, [])
        joins = [reader for reader in readers if reader.kind == "Concat"]
        if last in graph.outputs or (reads_elementwise(readers) and not _is_joined(last, readers)):
            continue
        extents = graph.values[operator.outputs[0]].type.shape[2:]
        strides = integers(operator.attributes, "strides")
        scope = scopes.of(operator.outputs[0])
        key = (scope, operator.inputs[0], strides, extents, chain, joins[0].outputs if joins else None)
        place = joins[0].inputs.index(last) if joins else len(found.get(key, ()))
        found.setdefault(key, []).append((place, operator.outputs[0]))
    return [_class(key[-1] is not None, members) for key, members in _keyed(found) if len(members) > 1]


def _keyed(
    found: dict[Hashable, list[tuple[int, int]]],
) -> Iterator[tuple[tuple[Hashable, ...], list[tuple[int, int]]]]:
    for key, members in found.items():
        assert isinstance(key, tuple)
        yield key, sorted(members)


def _class(is_joined: bool, members: Sequence[tuple[int, int]]) -> Siblings:
    places, values = zip(*members, strict=True)
    return Siblings(values=values, places=places if is_joined else None)


def _is_joined(value: int, readers: Sequence[Operator]) -> bool:
    """Whether one concatenation of channels reads a value, once, and nothing else does."""
    return (
        len(readers) == 1
        and readers[0].kind == "Concat"
        and readers[0].inputs.count(value) == 1
        and integer(readers[0].attributes, "axis") == 1
    )


def _is_plain(operator: Operator) -> bool:
    """Whether a convolution's kernel may grow by zeros."""
    return set(integers(operator.attributes, "dilations")) == {1} and bool(operator.attributes.get("finite_weights"))


def merge(graph: Graph, chosen: Sequence[Sequence[int]]) -> Graph:
    """Merge sets of convolutions, each given by the values that its members make; see the module."""
    firsts: dict[int, list[Product]] = {}
    members: set[int] = set()
    makers = graph.producers()
    for values in chosen:
        products = [product for value in values if (product := product_of(makers[value], graph)) is not None]
        firsts[min(values, key=lambda value: graph.operators.index(makers[value]))] = products
        members.update(values)
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        (output, *_) = operator.outputs
        if output in firsts:
            sliced(_merged(firsts[output], rewriter), firsts[output], rewriter)
        elif output not in members:
            rewriter.insert(operator)
    return _joined(hoist_pointwise.run(rewriter.finish()))


def merged_alone(graph: Graph, values: Sequence[int]) -> Graph:
    """The graph of the one convolution that several become, its images laid out as they will be in the whole."""
    makers = graph.producers()
    operators = tuple(makers[value] for value in values)
    known = {value: graph.values[value] for operator in operators for value in (*operator.inputs, *operator.outputs)}
    parts = Graph(
        name=operators[0].name,
        values=MappingProxyType(known),
        operators=operators,
        inputs=(operators[0].inputs[0],),
        outputs=tuple(values),
        constants=MappingProxyType({value: graph.constants[value] for value in known if value in graph.constants}),
    )
    merged = merge(parts, [values])
    (whole,) = [operator for operator in merged.operators if operator.kind == "Conv"]
    part = alone(whole, merged)
    return laid_out_alone(part, part.inputs if operators[0].inputs[0] in graph.inputs else ())


def _merged(products: Sequence[Product], rewriter: Rewriter) -> int:
    """Add the convolution that computes several; its result."""
    lead = products[0].operator
    attributes = [product.operator.attributes for product in products]
    rank = products[0].weight.ndim - 2
    begins = [integers(own, "pads")[:rank] for own in attributes]
    begin = tuple(map(max, zip(*begins, strict=True)))
    ends = [integers(own, "pads")[rank:] for own in attributes]
    margins = [tuple(b - o for b, o in zip(begin, own, strict=True)) for own in begins]
    kernel = tuple(
        max(margin[dim] + product.weight.shape[2 + dim] for margin, product in zip(margins, products, strict=True))
        for dim in range(rank)
    )
    weights = [_padded(product.weight, margin, kernel) for product, margin in zip(products, margins, strict=True)]
    # A kernel that ends so much later needs so much more behind the image.
    end = tuple(ends[0][dim] + kernel[dim] - margins[0][dim] - products[0].weight.shape[2 + dim] for dim in range(rank))
    name = "+".join(dict.fromkeys((lead.name, products[-1].operator.name)))
    operands = [lead.inputs[0], rewriter.constant(np.concatenate(weights), f"{name}.weight")]
    if any(product.bias is not None for product in products):
        biases = np.concatenate([product.bias_or_zeros() for product in products])
        operands.append(rewriter.constant(biases, f"{name}.bias"))
    sources = dict.fromkeys(source for product in products for source in product.operator.sources)
    return rewriter.add("Conv", operands, {**lead.attributes, "pads": begin + end}, name=name, sources=tuple(sources))


def _padded(weight: Array, margin: Sequence[int], kernel: Sequence[int]) -> Array:
    """A kernel among zeros."""
    widths = [
        (before, extent - before - own) for before, extent, own in zip(margin, kernel, weight.shape[2:], strict=True)
    ]
    return np.pad(weight, [(0, 0), (0, 0), *widths])


def _joined(graph: Graph) -> Graph:
    """Neighbouring parts of one value that are concatenated side by side, as one part."""
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        if operator.kind != "Concat":
            rewriter.insert(operator)
            continue
        dim = integer(operator.attributes, "axis")
        operands: list[int] = []
        for value in map(rewriter.current, operator.inputs):
            joined = _one_part(operands[-1], value, dim, rewriter) if operands else None
            if joined is None:
                operands.append(value)
            else:
                operands[-1] = joined
        if len(operands) == len(operator.inputs):
            rewriter.insert(operator)
        elif len(operands) == 1:
            rewriter.replace(operator.outputs[0], operands[0])
        else:
            made = rewriter.add("Concat", operands, operator.attributes, name=operator.name, sources=operator.sources)
            rewriter.replace(operator.outputs[0], made)
    return rewriter.finish()


def _one_part(first: int, second: int, dim: int, rewriter: Rewriter) -> int | None:
    """The value that has the elements of two parts of one, the second behind the first; None if there is none."""
    one, other = rewriter.maker(first), rewriter.maker(second)
    if one is None or other is None or (one.kind, other.kind) != ("Slice", "Slice") or one.inputs != other.inputs:
        return None
    starts, behind = (integers(part.attributes, "starts") for part in (one, other))
    sizes, more = (integers(part.attributes, "sizes") for part in (one, other))
    follows = tuple(start + size * (d == dim) for d, (start, size) in enumerate(zip(starts, sizes, strict=True)))
    steps = {*integers(one.attributes, "steps"), *integers(other.attributes, "steps")}
    if behind != follows or steps != {1}:
        return None
    whole = one.inputs[0]
    extents = tuple(size + more[dim] * (d == dim) for d, size in enumerate(sizes))
    if extents == rewriter.type(whole).shape:
        return whole
    attributes = {"starts": starts, "steps": (1,) * len(starts), "sizes": extents}
    return rewriter.add("Slice", [whole], attributes, name=one.name, sources=(*one.sources, *other.sources))
