"""Attention and rotary embeddings as `com.microsoft` has them; ONNX's own are taken apart by their definition."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import concatenated, converted, expanded, part, reshaped, transposed
from rammer.frontends.onnx.converters.quantised import integer_product
from rammer.frontends.onnx.node import Converter, Node
from rammer.ir.types import DType


def _attention(node: Node) -> Sequence[Operand]:
    """Projections of one input by joined weights, and what their heads attend to."""
    x, weights = node.operand(0), node.operand(1)
    _check_uncached(node, {4: "past", 6: "past_sequence_length"})
    joined = node.add("MatMul", x, weights)
    if node.optional(2) is not None:
        joined = node.add("Add", joined, node.operand(2))
    return _of_one_input(node, joined, node.integers("qkv_hidden_sizes"), node.optional(3), node.optional(5))


def _quantised_attention(node: Node) -> Sequence[Operand]:
    """QAttention: the projections are exact sums of integers, times both scales."""
    x, weights, bias, x_scale, w_scale = (node.operand(position) for position in range(5))
    _check_uncached(node, {8: "past"})
    joined = integer_product(node, x, x_scale, node.optional(6), weights, w_scale, node.optional(7), bias)
    return _of_one_input(node, joined, None, node.optional(5), None)


def _check_uncached(node: Node, names: Mapping[int, str]) -> None:
    for position, name in names.items():
        if node.optional(position) is not None:
            hint = "use MultiHeadAttention, or ONNX's own Attention"
            raise node.unsupported(f"{node.op_type} with '{name}'", hint)
    if node.flag("do_rotary"):
        raise node.unsupported(f"{node.op_type} with do_rotary", "apply RotaryEmbedding before it")


def _of_one_input(
    node: Node, joined: Operand, sizes: Sequence[int] | None, mask: Operand | None, more: Operand | None
) -> Sequence[Operand]:
    """What heads attend to, of queries, keys and values side by side, and these keys and values.

    Args:
        node: what it is done for.
        joined: `[batch, steps, sum of the sizes]`.
        sizes: of queries, keys and values; None are equal ones.
        mask: of keys, as for `_mask_bias`.
        more: what else is added to the scores.
    """
    heads, width = node.integer("num_heads"), joined.shape[-1] if joined.rank == 3 else 0
    sizes = sizes or (width // 3,) * 3
    whole = heads > 0 and len(sizes) == 3 and sum(sizes) == width and not any(size % heads for size in sizes)
    if joined.rank != 3 or not whole:
        raise node.invalid(f"projections {joined.type} and sizes {list(sizes)} do not fit {heads} heads")
    starts = (0, sizes[0], sizes[0] + sizes[1])
    q, k, v = (
        _split_heads(node, part(node, joined, 2, start, size), heads) for start, size in zip(starts, sizes, strict=True)
    )
    bias = _sum(node, _mask_bias(node, mask, q, k), more)
    result = _attended(node, q, k, v, bias, _unidirectional(node, q, k, past=0), scale=_scale(node))
    present = []
    if node.wants(1):
        if k.type != v.type:
            raise node.unsupported(
                f"{node.op_type} with 'present' of keys {k.type} and values {v.type}", "use one size"
            )
        pair = (reshaped(node, one, (1, *one.shape)) for one in (k, v))
        present = [concatenated(node, list(pair), 0)]
    return [_join_heads(node, result), *present]


def _multi_head_attention(node: Node) -> Sequence[Operand]:
    """Queries, keys and values apart, or packed; cached keys and values come before the new ones."""
    query, key, value = node.operand(0), node.optional(1), node.optional(2)
    heads = node.integer("num_heads")
    if node.optional(8) is not None:
        raise node.unsupported("MultiHeadAttention with 'past_sequence_length'", "give caches their exact length")
    if query.rank == 5 or key is None or value is None or query.rank != 3 or not 3 <= key.rank == value.rank <= 4:
        raise node.unsupported("MultiHeadAttention of packed operands", "export queries, keys and values apart")
    width = query.shape[2]
    operands = [query, key, value]
    if node.optional(3) is not None:
        bias = node.operand(3)
        starts = (0, width, 2 * width)
        parts = [
            part(node, bias, 0, start, bias.type.size - start if i == 2 else width) for i, start in enumerate(starts)
        ]
        operands = [x if x.rank == 4 else node.add("Add", x, b) for x, b in zip(operands, parts, strict=True)]
    q, k, v = (x if x.rank == 4 else _split_heads(node, x, heads) for x in operands)
    past = 0
    if node.optional(6) is not None or node.optional(7) is not None:
        past_key, past_value = node.of_rank(6, 4), node.of_rank(7, 4)
        past = past_key.shape[2]
        k = concatenated(node, [past_key, k], 2)
        v = concatenated(node, [past_value, v], 2)
    bias_ = _sum(node, _mask_bias(node, node.optional(4), q, k), node.optional(5))
    result = _attended(node, q, k, v, bias_, _unidirectional(node, q, k, past=past), scale=_scale(node))
    return [_join_heads(node, result), k, v]


def _group_query_attention(node: Node) -> Sequence[Operand]:
    """Several heads of queries share one of keys and values; queries see what is not after them."""
    query, key, value = node.of_rank(0, 3), node.optional(1), node.optional(2)
    heads, groups = node.integer("num_heads"), node.integer("kv_num_heads")
    for position, name in ((9, "position_ids"), (10, "attention_bias")):
        if node.optional(position) is not None:
            raise node.unsupported(f"GroupQueryAttention with '{name}'")
    if groups < 1 or heads % groups or (key is None) != (value is None):
        raise node.invalid(f"{heads} heads for {groups} heads of keys and values")
    if key is None or value is None:
        size = query.shape[2] // (heads + 2 * groups)
        query, key, value = (
            part(node, query, 2, start * size, count * size)
            for start, count in ((0, heads), (heads, groups), (heads + groups, groups))
        )
    q, k, v = (_split_heads(node, x, count) for x, count in ((query, heads), (key, groups), (value, groups)))
    caches, first = _caches(node, k, v)
    queries = _places(node, q.shape[2], first)
    if node.flag("do_rotary"):
        tables = (node.of_rank(7, 2), node.of_rank(8, 2))
        rows = expanded(node, queries, (q.shape[0], q.shape[2]))
        interleaved = node.flag("rotary_interleaved")
        q, k = (_rotated(node, x, rows, *tables, interleaved=interleaved) for x in (q, k))
    if first is not None:
        k, v = (
            node.add("TensorScatter", cache, x, first, axis=2, circular=False)
            for cache, x in zip(caches, (k, v), strict=True)
        )
    # Without a cache, a shorter sequence has its padding at the end, where its own queries see nothing.
    keys, values = (_repeated_heads(node, x, heads // groups) for x in (k, v))
    seen = _within_window(node, queries, k.shape[2])
    cap = node.number("softcap")
    result = _attended(node, q, keys, values, None, seen, scale=_scale(node), cap=cap, sink=_sink(node, heads))
    return [_join_heads(node, result), k, v]


def _caches(node: Node, k: Operand, v: Operand) -> tuple[list[Operand], Operand | None]:
    """Where the new keys and values go: cached ones with room for them, and each sequence's number of cached steps.

    The number is None where nothing is cached: the first call, which ignores what the caches hold.
    """
    past = [None if node.optional(position) is None else node.of_rank(position, 4) for position in (3, 4)]
    steps, room = k.shape[2], max((cache.shape[2] for cache in past if cache is not None), default=0)
    if None in past and room:
        raise node.invalid("keys are cached without values, or values without keys")
    total = node.known_integer(6) if room or node.operand(6).array is not None else steps
    if total < steps or (total > steps + room):
        raise node.invalid(f"total_sequence_length {total} is not that of {room} cached and {steps} new steps")
    if not room:
        return [], None
    if total == steps:
        first = node.constant(np.zeros(k.shape[0], np.int64))
    else:
        first = node.add("Sub", converted(node, node.operand(5), DType.INT64), node.constant(np.array(steps - 1)))
    return [_with_room(node, cache, first, max(room, total)) for cache in past if cache is not None], first


def _with_room(node: Node, cache: Operand, lengths: Operand, steps: int) -> Operand:
    """The first steps of each sequence, with zeros behind them."""
    b, room = cache.shape[0], cache.shape[2]
    held = node.add("Less", _places(node, room, None), reshaped(node, lengths, (b, 1)))
    zero = node.constant(np.zeros((), cache.dtype.numpy))
    kept = node.add("Where", reshaped(node, held, (b, 1, room, 1)), cache, zero)
    if steps == room:
        return kept
    return node.add("Pad", kept, mode="constant", pads=(0, 0, 0, 0, 0, 0, steps - room, 0), value=0.0)


def _places(node: Node, steps: int, first: Operand | None) -> Operand:
    """Positions `[b or 1, steps]` of steps that follow `first [b]` others."""
    counted = node.constant(np.arange(steps).reshape(1, steps))
    return counted if first is None else node.add("Add", reshaped(node, first, (first.type.size, 1)), counted)


def _not_after(node: Node, queries: Operand, keys: int) -> Operand:
    """Whether each of so many keys is at the query's place `[b or 1, s]` or before it: `[b or 1, 1, s, keys]`."""
    b, steps = queries.shape
    return node.add("LessOrEqual", node.constant(np.arange(keys)), reshaped(node, queries, (b, 1, steps, 1)))


def _within_window(node: Node, queries: Operand, keys: int) -> Operand:
    """As `_not_after`, of as many keys as the window has, if there is one."""
    seen, window = _not_after(node, queries, keys), node.integer("local_window_size")
    if window == -1:
        return seen
    if window < 1:
        raise node.invalid(f"a window of {window} keys")
    last = node.add("Sub", queries, node.constant(np.array(window)))
    return node.add("And", seen, node.add("Not", _not_after(node, last, keys)))


def _sink(node: Node, heads: int) -> Operand | None:
    """A score for each head that takes a part of the softmax and has no key, None where there is none."""
    given = node.optional(11)
    if given is not None:
        if given.shape != (heads,):
            raise node.invalid(f"head_sink {given.type} is not for {heads} heads")
        return given
    return node.constant(np.zeros(heads, np.float32)) if node.integer("smooth_softmax") == 1 else None


def _rotary_embedding(node: Node) -> Sequence[Operand]:
    """Positions are one for each element, or one number from which they count on."""
    x, positions = node.of_rank(0, 3, 4), node.operand(1)
    if node.number("scale") != 1.0 or node.flag("is_packed_batching"):
        raise node.unsupported("RotaryEmbedding with a scale or packed batches")
    cosines, sines = node.of_rank(2, 2), node.of_rank(3, 2)
    size = 2 * cosines.shape[1]
    if not size:
        raise node.invalid(f"tables {cosines.type} of no angles")
    heads = node.integer("num_heads") or (x.shape[2] // size if x.rank == 3 else x.shape[1])
    q = x if x.rank == 4 else _split_heads(node, x, heads)
    rows = converted(node, positions, DType.INT64)
    if rows.type.size == 1:
        steps = node.constant(np.arange(q.shape[2], dtype=np.int64).reshape(1, -1))
        rows = node.add("Add", reshaped(node, rows, (1, 1)), steps)
    rows = expanded(node, rows, (q.shape[0], q.shape[2]))
    result = _rotated(node, q, rows, cosines, sines, interleaved=node.flag("interleaved"))
    return [result if x.rank == 4 else _join_heads(node, result)]


def _rotated(node: Node, x: Operand, rows: Operand, cosines: Operand, sines: Operand, *, interleaved: bool) -> Operand:
    """The first elements of each head `[b, h, s, d]`, in pairs, turned by the angles of their rows `[b, s]`."""
    pairs = cosines.shape[1]
    if 2 * pairs > x.shape[3]:
        raise node.invalid(f"tables of {pairs} angles for heads of {x.shape[3]} elements")
    outer = x.shape[:3]
    turned, rest = part(node, x, 3, 0, 2 * pairs), part(node, x, 3, 2 * pairs, x.shape[3] - 2 * pairs)
    shape = (*outer, pairs, 2) if interleaved else (*outer, 2, pairs)
    axis = 4 if interleaved else 3
    paired = reshaped(node, turned, shape)
    a, b = (reshaped(node, part(node, paired, axis, side, 1), (*outer, pairs)) for side in range(2))
    c, s = (
        reshaped(node, node.add("Gather", table, rows, axis=0), (outer[0], 1, outer[2], pairs))
        for table in (cosines, sines)
    )
    first = node.add("Sub", node.add("Mul", a, c), node.add("Mul", b, s))
    second = node.add("Add", node.add("Mul", a, s), node.add("Mul", b, c))
    column = (*outer, pairs, 1) if interleaved else (*outer, 1, pairs)
    both = concatenated(node, [reshaped(node, one, column) for one in (first, second)], axis)
    whole = reshaped(node, both, (*outer, 2 * pairs))
    return concatenated(node, [whole, rest], 3) if rest.type.size else whole


def _split_heads(node: Node, x: Operand, heads: int) -> Operand:
    """`[b, s, h * d]` as `[b, h, s, d]`."""
    if x.rank != 3 or heads < 1 or x.shape[2] % heads:
        raise node.invalid(f"{x.type} does not hold {heads} heads")
    return transposed(node, reshaped(node, x, (*x.shape[:2], heads, x.shape[2] // heads)), (0, 2, 1, 3))


def _join_heads(node: Node, x: Operand) -> Operand:
    b, heads, steps, size = x.shape
    return reshaped(node, transposed(node, x, (0, 2, 1, 3)), (b, steps, heads * size))


def _repeated_heads(node: Node, x: Operand, times: int) -> Operand:
    """Each head as often as queries share it."""
    b, heads, steps, size = x.shape
    spread = expanded(node, reshaped(node, x, (b, heads, 1, steps, size)), (b, heads, times, steps, size))
    return reshaped(node, spread, (b, heads * times, steps, size))


def _scale(node: Node) -> float | None:
    """The factor of the scores, None for the usual one."""
    return (node.number("scale") or None) if node.has("scale") else None


def _unidirectional(node: Node, q: Operand, k: Operand, *, past: int) -> Operand | None:
    """Which keys each query may see, the first one those that are cached and its own; None for all."""
    if not node.flag("unidirectional"):
        return None
    steps, seen = q.shape[2], k.shape[2]
    if past + steps != seen:  # ONNX Runtime has the last query see all keys
        raise node.unsupported(f"unidirectional attention of {steps} queries to {seen - past} keys", "use a mask")
    return _not_after(node, _places(node, steps, node.constant(np.array([past]))), seen)


def _attended(
    node: Node,
    q: Operand,
    k: Operand,
    v: Operand,
    bias: Operand | None,
    allowed: Operand | None,
    *,
    scale: float | None,
    cap: float = 0.0,
    sink: Operand | None = None,
) -> Operand:
    """`softmax(scale * q k' + bias) v` for heads `[b, h, s, d]`, of allowed keys alone.

    With a `cap`, scores stay below it; a `sink` is one more score of each head.
    """
    if q.shape[3] != k.shape[3] or k.shape[2] != v.shape[2] or not q.shape[3]:
        raise node.invalid(f"queries {q.type}, keys {k.type} and values {v.type} do not fit")
    factor = node.constant(np.array(1 / math.sqrt(q.shape[3]) if scale is None else scale, q.dtype.numpy))
    scores = node.add("Mul", node.add("MatMul", q, transposed(node, k, (0, 1, 3, 2))), factor)
    if cap:
        most = node.constant(np.array(cap, scores.dtype.numpy))
        scores = node.add("Mul", node.add("Tanh", node.add("Div", scores, most)), most)
    if bias is not None:
        scores = node.add("Add", scores, converted(node, bias, scores.dtype))
    if allowed is not None:
        lowest = node.constant(np.array(-np.inf, scores.dtype.numpy))
        scores = node.add("Where", allowed, scores, lowest)
    if sink is None:
        return node.add("MatMul", node.add("Softmax", scores, axis=3), v)
    column = expanded(
        node, reshaped(node, converted(node, sink, scores.dtype), (1, scores.shape[1], 1, 1)), (*scores.shape[:3], 1)
    )
    shares = node.add("Softmax", concatenated(node, [scores, column], 3), axis=3)
    return node.add("MatMul", part(node, shares, 3, 0, k.shape[2]), v)


def _sum(node: Node, a: Operand | None, b: Operand | None) -> Operand | None:
    """What is there of two terms, added."""
    if a is None or b is None:
        return b if a is None else a
    return node.add("Add", a, b)


def _mask_bias(node: Node, mask: Operand | None, q: Operand, k: Operand) -> Operand | None:
    """0 where a mask, or the number of keys of each sequence, lets a key be seen, else `mask_filter_value`."""
    if mask is None:
        return None
    (batch, _, steps, _), seen = q.shape, k.shape[2]
    zero = node.constant(np.array(0, mask.dtype.numpy))
    if mask.shape == (batch,):
        keys = node.constant(np.arange(seen).astype(mask.dtype.numpy))
        shown = node.add("Less", keys, reshaped(node, mask, (batch, 1, 1, 1)))
    elif mask.shape == (batch, seen):
        shown = node.add("Greater", reshaped(node, mask, (batch, 1, 1, seen)), zero)
    elif mask.shape == (batch, steps, seen):
        shown = node.add("Greater", reshaped(node, mask, (batch, 1, steps, seen)), zero)
    else:
        raise node.unsupported(f"a mask {mask.type} for {batch} sequences of {seen} keys")
    hidden = node.constant(np.array(node.number("mask_filter_value"), q.dtype.numpy))
    return node.add("Where", shown, node.constant(np.array(0, q.dtype.numpy)), hidden)


CONVERTERS: Mapping[str, Converter] = {
    "com.microsoft.Attention": _attention,
    "com.microsoft.GroupQueryAttention": _group_query_attention,
    "com.microsoft.MultiHeadAttention": _multi_head_attention,
    "com.microsoft.QAttention": _quantised_attention,
    "com.microsoft.RotaryEmbedding": _rotary_embedding,
}
