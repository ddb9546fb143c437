"""Products of rows that are counted, attention to such rows, and what computes each element of a batch by itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rammer.frontends.builder import Operand
from rammer.frontends.counts.count import broadcast_count, filled, is_below, one_count
from rammer.frontends.torch.converters import convolution, pooling, resize
from rammer.frontends.torch.flow.rule import Rule, as_result, counted_axis, only, ordinary
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.ir.types import DType

_OTHERS = ("mat2", "other", "vec", "tensor")
_FACTORS: Mapping[str, tuple[str, str]] = {
    "addmm": ("mat1", "mat2"),
    "addmv": ("mat", "vec"),
    "baddbmm": ("batch1", "batch2"),
}


def _product(node: Node, converter: Converter) -> Result:
    """Rows of the first, columns of the second, or a batch of both are counted; or what is summed."""
    second = next((name for name in _OTHERS if name in node.arguments), "")
    first, second = _FACTORS.get(node.operator, ("self", second))
    a, b = node.operand(first), node.operand(second)
    summed = (a.rank - 1, max(b.rank - 2, 0))
    is_summed = [x.count is not None and x.count.axis == axis for x, axis in zip((a, b), summed, strict=True)]
    if any(is_summed):
        if not all(is_summed):
            raise node.refusal("the other operand has another size along the dimension that is summed")
        one_count(node, [a, b])
        a, b = filled(node, a), filled(node, b)
    else:
        _check_batches(node, a, b)
    return ordinary(node, converter, **{first: a, second: b})


def _check_batches(node: Node, a: Operand, b: Operand) -> None:
    """Dimensions before the last two are counted alike."""
    leading = [_leading(x) for x in (a, b) if x.rank > 2]
    if leading:
        broadcast_count(node, leading)


def _leading(x: Operand) -> Operand:
    """An operand as if it had the dimensions before the last two alone."""
    count = None if x.count is None or x.count.axis >= x.rank - 2 else x.count
    return replace(x, type=replace(x.type, shape=x.shape[:-2]), count=count)


def _added_product(node: Node, converter: Converter) -> Result:
    """What is added broadcasts to the result."""
    broadcast_count(node, [as_result(node), node.operand("self")])
    return _product(node, converter)


def _linear(node: Node, converter: Converter) -> Result:
    if counted_axis(node, "input") == node.operand("input").rank - 1:
        raise node.refusal("the weights have a size along the dimension that is summed")
    return ordinary(node, converter)


def _einsum(node: Node, converter: Converter) -> Result:
    """Operands are counted alike along a dimension of one letter; where it is summed, what does not count is 0."""
    operands = node.operands("tensors")
    terms, result = _letters(node.text("equation").replace(" ", ""), [x.rank for x in operands])
    counted = {term[x.count.axis] for term, x in zip(terms, operands, strict=True) if x.count is not None}
    for letter in counted:
        held = [(x, term.index(letter)) for term, x in zip(terms, operands, strict=True) if letter in term]
        if any(x.shape[axis] != 1 and (x.count is None or x.count.axis != axis) for x, axis in held):
            raise node.refusal(f"not all of its inputs are counted along '{letter}'")
    if counted:
        one_count(node, operands)
    if not counted <= set(result):
        operands = [filled(node, x) for x in operands]
    return ordinary(node, converter, tensors=operands)


def _letters(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of the dimensions of operands and result of an equation; those that '...' stands for are digits."""
    inputs, arrow, result = equation.partition("->")
    terms = inputs.split(",")
    rest = {term: rank - len(term) + 3 for term, rank in zip(terms, ranks, strict=True) if "..." in term}
    digits = "".join(map(str, range(max(rest.values(), default=0))))
    named = [term.replace("...", digits[len(digits) - rest.get(term, 0) :]) for term in terms]
    if not arrow:
        letters = inputs.replace(",", "").replace(".", "")
        result = "..." + "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    return named, result.replace("...", digits)


def _of_batches(node: Node, converter: Converter) -> Result:
    """Each element along the first dimension is computed by itself."""
    name = "input" if "input" in node.arguments else "self"
    others = [other for other, *_ in node.counted_operands() if other != name]
    if others or counted_axis(node, name):
        raise node.refusal("only that of the first dimension may")
    return ordinary(node, converter)


def _sampled(node: Node, converter: Converter) -> Result:
    x, grid = node.operand("input"), node.operand("grid")
    if counted_axis(node, "input") != 0 or counted_axis(node, "grid") != 0:
        raise node.refusal("only those of the first dimension of both images and grid may")
    one_count(node, [x, grid])
    return ordinary(node, converter)


def _attention(node: Node, converter: Converter) -> Result:
    """Nothing attends to keys that do not count; queries, or a batch, may be counted, too."""
    query, key, value = (node.operand(name) for name in ("query", "key", "value"))
    keys = key.rank - 2
    places = [counted_axis(node, name) for name in ("query", "key", "value")]
    if counted_axis(node, "attn_mask") is not None:
        raise node.refusal("its mask has to be of known sizes")
    if places[1:] == [keys, keys] and places[0] in (None, keys):
        one_count(node, [key, value])
        assert key.count is not None
        seen = is_below(node, key.shape[keys], key.count.value)
        return ordinary(node, converter, value=filled(node, value), attn_mask=_hidden(node, seen))
    if places[1:] != [None, None]:
        if len(set(places)) > 1 or (places[0] or 0) >= keys:
            raise node.refusal("queries, keys and values are not counted along the same dimension")
        one_count(node, [query, key, value])
    return ordinary(node, converter)


def _hidden(node: Node, seen: Operand) -> Operand | None:
    """The mask of attention with what is not seen hidden. What comes later is hidden already if it is causal."""
    mask = node.optional("attn_mask")
    if node.flag("is_causal"):
        return None
    if mask is None:
        return seen
    if mask.dtype is DType.BOOL:
        return node.add("And", mask, seen)
    return node.add("Where", seen, mask, node.scalar(-math.inf, mask.dtype))


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("bmm", "dot", "matmul", "mm", "mv"), _product),
    **dict.fromkeys(_FACTORS, _added_product),
    **dict.fromkeys((*convolution.CONVERTERS, *pooling.CONVERTERS, *resize.CONVERTERS), _of_batches),
    **dict.fromkeys(("group_norm", "native_group_norm", "instance_norm"), _of_batches),
    **dict.fromkeys(("grid_sampler_2d", "grid_sampler_3d"), _sampled),
    "_native_batch_norm_legit_no_training": _of_batches,
    "einsum": _einsum,
    "outer": ordinary,
    "linear": only("input")(_linear),
    "scaled_dot_product_attention": _attention,
}
