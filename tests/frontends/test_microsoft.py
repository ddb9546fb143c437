"""Operators of `com.microsoft` against ONNX Runtime."""

import numpy as np
import pytest

from rammer.errors import InvalidModelError, UnsupportedFeatureError
from rammer.frontends.onnx import load_graph
from tests.support.microsoft_node import RNG, check, floats, integers, model, results, scales
from tests.support.onnx_reference import compare

X = floats(2, 5, 8)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("Gelu", [X], {}),
        ("BiasGelu", [X, floats(8)], {}),
        ("FastGelu", [X], {}),
        ("FastGelu", [X, floats(8)], {}),
        ("QuickGelu", [X], {}),
        ("QuickGelu", [X], {"alpha": 0.5}),
        ("FusedMatMul", [X, floats(2, 8, 3)], {"alpha": 0.5}),
        ("FusedMatMul", [floats(2, 4, 5), floats(2, 3, 4)], {"transA": 1, "transB": 1}),
    ],
)
def test_fused_products_and_activations(op_type, inputs, attributes):
    check(op_type, inputs, tolerance=2e-4, **attributes)


def test_normalised_sums():
    skip, gamma, beta, bias = floats(2, 5, 8), floats(8), floats(8), floats(8)
    check("SkipLayerNormalization", [X, skip, gamma, beta], epsilon=1e-5)
    check("SkipLayerNormalization", [X, skip, gamma, beta, bias], outputs=(True, False, False, True))
    check("SkipLayerNormalization", [X, skip, gamma, None, bias])
    check("SkipSimplifiedLayerNormalization", [X, skip, gamma], epsilon=1e-5)
    check("SkipSimplifiedLayerNormalization", [X, skip, gamma, bias], outputs=(True, False, False, True))


def test_embeddings():
    words, segments = RNG.integers(0, 10, (2, 5)).astype(np.int32), RNG.integers(0, 2, (2, 5)).astype(np.int32)
    tables = [floats(10, 8), floats(7, 8), floats(2, 8), floats(8), floats(8)]
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    check("EmbedLayerNormalization", [words, segments, *tables, mask], outputs=(True, True))
    check("EmbedLayerNormalization", [words, None, *tables[:2], None, *tables[3:]], outputs=(True, False))


# Sequences of 5 keys: how many are seen, which of them, and which by each query; in some rows there are none.
MASKS = {
    "all": None,
    "lengths": np.array([3, 5], np.int32),
    "no length": np.array([0, 5], np.int32),
    "keys": np.array([[1, 1, 0, 1, 0], [0, 0, 1, 1, 1]], np.int32),
    "no keys": np.array([[0] * 5, [1] * 5], np.int32),
    "pairs": RNG.integers(0, 2, (2, 5, 5)).astype(np.int32),
}

masked = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)


@masked
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask, causal):
    check("Attention", [X, floats(8, 24), floats(24), mask], num_heads=2, unidirectional=causal)
    check("Attention", [X, floats(8, 24), None, mask], num_heads=2, mask_filter_value=-2.0, scale=0.3)


def test_sizes_and_biases_of_attention():
    check("Attention", [X, floats(8, 28), floats(28)], num_heads=2, qkv_hidden_sizes=[8, 8, 12])
    check("Attention", [X, floats(8, 24), floats(24)], (True, True), num_heads=2)
    for shape in ((2, 2, 5, 5), (1, 2, 5, 5), (2, 1, 5, 5)):
        check("Attention", [X, floats(8, 24), None, MASKS["keys"], None, floats(*shape)], num_heads=2)


@masked
@pytest.mark.parametrize("causal", [0, 1])
def test_masks_of_heads(mask, causal):
    check("MultiHeadAttention", [X, X, X, None, mask], num_heads=2, unidirectional=causal)
    q = floats(2, 3, 8)
    if not causal:
        check(
            "MultiHeadAttention", [q, X, X, None, mask if mask is None or mask.ndim < 3 else mask[:, :3]], num_heads=2
        )
    past = [floats(2, 2, 2, 4), floats(2, 2, 2, 4)]
    behind = [None, mask if mask is None or mask.ndim < 3 else mask[:, :3], None, *past]
    check("MultiHeadAttention", [q, q, q, *behind], (True, True, True), num_heads=2, unidirectional=causal)


def test_heads_of_attention():
    q, k, v = floats(2, 3, 8), floats(2, 5, 8), floats(2, 5, 12)
    check("MultiHeadAttention", [q, k, v], (True, True, True), num_heads=2)
    check("MultiHeadAttention", [q, k, v, floats(28)], num_heads=2, scale=0.3)
    for shape in ((2, 2, 3, 5), (1, 2, 3, 5), (2, 1, 3, 5)):
        check("MultiHeadAttention", [q, k, v, None, MASKS["keys"], floats(*shape)], num_heads=2)
    heads = [floats(2, 2, 5, 4), floats(2, 2, 5, 4)]
    check("MultiHeadAttention", [q, *heads, floats(24)], num_heads=2)
    past = [floats(2, 2, 4, 4), floats(2, 2, 4, 4)]
    inputs = [q, floats(2, 3, 8), floats(2, 3, 8), floats(24), None, floats(2, 2, 3, 7), *past]
    check("MultiHeadAttention", inputs, outputs=(True, True, True), num_heads=2)


GROUPS = {"num_heads": 4, "kv_num_heads": 2}
TOTAL = 6
"""The position of GroupQueryAttention's total_sequence_length."""


def groups(batch, steps, cached, lengths, total, packed=False):
    """The inputs of GroupQueryAttention; `lengths` are those of the sequences."""
    widths = (128,) if packed else (64, 32, 32)
    own = [floats(batch, steps, width) for width in widths] + [None, None] * packed
    past = [None, None] if cached is None else [floats(batch, 2, cached, 16), floats(batch, 2, cached, 16)]
    return [*own, *past, np.array(lengths, np.int32) - 1, np.array(total, np.int32), floats(9, 8), floats(9, 8)]


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("packed", [False, True])
def test_groups_of_heads(packed, interleaved):
    inputs = groups(2, 5, None, [5, 5], 5, packed)
    check("GroupQueryAttention", inputs, (True,) * 3, **GROUPS, do_rotary=1, rotary_interleaved=interleaved)


@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize("cached", [None, 0, 7])
def test_a_prompt_of_sequences_that_differ_in_length(cached, rotary):
    lengths = [3, 5, 1]
    inputs = groups(3, 5, cached, lengths, 5)
    found, expected = results("GroupQueryAttention", inputs, (True,) * 3, (TOTAL,), **GROUPS, do_rotary=rotary)
    compare(found[1:], expected[1:], rtol=1e-4, atol=1e-4)
    for row, length in enumerate(lengths):  # behind it is padding, of which ONNX Runtime computes nothing of use
        np.testing.assert_allclose(found[0][row, :length], expected[0][row, :length], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize(
    ("steps", "cached", "lengths", "total"),
    [
        (1, 6, [7, 7], 7),  # caches of the sequences' length grow
        (1, 6, [5, 7], 7),
        (1, 6, [1, 7], 7),
        (1, 6, [3, 4], 4),  # caches with room for more are filled
        (1, 6, [6, 2], 6),
        (3, 6, [9], 9),
        (3, 6, [7], 9),
        (3, 6, [6], 6),
    ],
)
def test_each_sequence_goes_on_behind_its_own_cache(steps, cached, lengths, total, rotary, packed):
    inputs = groups(len(lengths), steps, cached, lengths, total, packed)
    check("GroupQueryAttention", inputs, (True,) * 3, known=(TOTAL,), **GROUPS, do_rotary=rotary)


@pytest.mark.parametrize(("steps", "cached", "lengths", "total"), [(5, None, [5, 5], 5), (1, 6, [5, 7], 7)])
@pytest.mark.parametrize(
    "attributes",
    [{"local_window_size": 2}, {"softcap": 0.7}, {"smooth_softmax": 1}, {"local_window_size": 3, "softcap": 2.0}],
    ids=str,
)
def test_windows_caps_and_sinks(attributes, steps, cached, lengths, total):
    inputs = groups(2, steps, cached, lengths, total)
    check("GroupQueryAttention", inputs, (True,) * 3, known=(TOTAL,), **GROUPS, **attributes)


def test_a_sink_for_each_head():
    inputs = [*groups(2, 5, None, [5, 5], 5), None, None, floats(GROUPS["num_heads"])]
    check("GroupQueryAttention", inputs, (True,) * 3, known=(TOTAL,), **GROUPS)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("rank", [3, 4])
def test_rotary_embeddings(rank, interleaved):
    x, tables = floats(2, 3, 5, 4) if rank == 4 else floats(2, 5, 12), [floats(9, 2), floats(9, 2)]
    for positions in (np.array([2]), np.stack([np.arange(5), np.arange(4, 9)])):
        check("RotaryEmbedding", [x, positions, *tables], interleaved=interleaved)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("bits", "block"), [(4, 16), (4, 32), (8, 32)])
def test_products_with_few_bits(bits, block, zeros):
    rows, depth = 6, 80
    blocks = -(-depth // block)
    inputs = [floats(3, depth), integers(np.uint8, rows, blocks, block * bits // 8), scales(rows * blocks)]
    if zeros:
        inputs.append(integers(np.uint8, rows * -(-blocks * bits // 8)))
    check("MatMulNBits", inputs, K=depth, N=rows, bits=bits, block_size=block, tolerance=1e-3)


def test_products_of_integers():
    a, b = integers(np.uint8, 3, 20), integers(np.int8, 20, 4)
    check("MatMulIntegerToFloat", [a, b, scales(), scales(4), integers(np.uint8), integers(np.int8, 4), floats(4)])
    check("DynamicQuantizeMatMul", [floats(3, 20), b, scales(4), integers(np.int8, 4), floats(4)], tolerance=1e-3)
    bias = RNG.integers(-500, 500, 4).astype(np.int32)
    quantised = [a, scales(), integers(np.uint8), b, scales(), integers(np.int8), bias]
    check("QGemm", quantised)
    check("QGemm", [*quantised, np.array(0.5, np.float32), integers(np.uint8)], quantum=1)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_elementwise_operators_of_integers(dtype):
    a, b = integers(dtype, 2, 3, 4), integers(dtype, 3, 1)
    pair = [a, scales(), integers(dtype), b, scales(), integers(dtype), scales(), integers(dtype)]
    check("QLinearAdd", pair, quantum=1)
    check("QLinearMul", pair, quantum=1)
    one = [a, scales(), integers(dtype), scales(), integers(dtype)]
    check("QLinearLeakyRelu", one, quantum=1, alpha=0.1)
    check("QLinearSigmoid", one, quantum=1)
    check("QLinearSoftmax", [*one[:3], np.array(1 / 256, np.float32), integers(dtype)], quantum=1, axis=-1, opset=13)
    check("QLinearSoftmax", [*one[:3], np.array(1 / 256, np.float32), integers(dtype)], quantum=1, axis=0, opset=12)
    check("QLinearConcat", [*one[3:], *one[:3], *one[:3]], quantum=1, axis=0)
    if dtype is np.uint8:
        image = [integers(dtype, 2, 3, 4, 5), *one[1:]]
        check("QLinearGlobalAveragePool", image, quantum=1, channels_last=0)


@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_lstm_by_quantised_weights(direction, by_row):
    """ONNX Runtime quantises inputs and states, too, so that it is off by what that takes."""
    hidden, directions = 6, 2 if direction == "bidirectional" else 1
    scale = (directions, 4 * hidden) if by_row else (directions,)
    inputs = [floats(5, 1, 8), integers(np.int8, directions, 8, 4 * hidden)]
    inputs += [
        integers(np.int8, directions, hidden, 4 * hidden),
        floats(directions, 8 * hidden),
        None,
        None,
        None,
        None,
    ]
    for _ in range(2):
        inputs += [RNG.uniform(0.001, 0.005, scale).astype(np.float32), np.zeros(scale, np.int8)]
    check(
        "DynamicQuantizeLSTM",
        inputs,
        outputs=(True,) * 3,
        known=(1, 2),
        tolerance=0.02,
        hidden_size=hidden,
        direction=direction,
    )


Q, PAST = floats(2, 3, 8), floats(2, 2, 4, 4)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "message"),
    [
        ("Attention", [X, floats(8, 24)], {"do_rotary": 1}, "do_rotary"),
        ("Attention", [X, floats(8, 24), None, np.array([3, 5, 0, 1], np.int32)], {}, "a mask int32"),
        ("Attention", [X, floats(8, 24), None, np.array([3, 5, 0, 3, 8, 0, 3, 8], np.int32)], {}, "a mask int32"),
        ("Attention", [X, floats(8, 24), None, np.ones((2, 1, 5, 5), np.int32)], {}, "a mask int32"),
        ("MultiHeadAttention", [Q, X, X, None, np.ones((2, 3), np.int32)], {}, "a mask int32"),
        ("MultiHeadAttention", [Q, X, X], {"unidirectional": 1}, "3 queries to 5 keys"),
        ("MultiHeadAttention", [Q, Q, Q], {"new": 1}, "with 'new'"),
        ("MultiHeadAttention", [Q, Q, Q, *[None] * 6, PAST], {}, "more than 9 inputs"),
        ("GroupQueryAttention", groups(2, 1, 6, [7, 7], 7), GROUPS, "computed as the model runs"),
    ],
)
def test_forms_that_are_refused(op_type, inputs, attributes, message):
    made, _ = model(op_type, inputs, (True,), {"num_heads": 2, **attributes})
    with pytest.raises(UnsupportedFeatureError, match=message):
        load_graph(made)


def test_caches_that_do_not_fit():
    made, _ = model("MultiHeadAttention", [Q, Q, Q, None, None, None, PAST], (True,), {"num_heads": 2})
    with pytest.raises(InvalidModelError, match="past_value"):
        load_graph(made)
    for cached, total in ((None, 6), (6, 0), (6, 8)):
        made, _ = model("GroupQueryAttention", groups(2, 1, cached, [1, 1], total), (True,), GROUPS, (TOTAL,))
        with pytest.raises(InvalidModelError, match="total_sequence_length"):
            load_graph(made)


def test_windows_and_sinks_that_do_not_fit():
    for inputs, attributes, message in (
        (groups(2, 5, None, [5, 5], 5), {"local_window_size": 0}, "window of 0"),
        ([*groups(2, 5, None, [5, 5], 5), None, None, floats(3)], {}, "head_sink"),
    ):
        made, _ = model("GroupQueryAttention", inputs, (True,), {**GROUPS, **attributes}, (TOTAL,))
        with pytest.raises(InvalidModelError, match=message):
            load_graph(made)


X2, CACHE, TABLE = floats(5, 8), floats(2, 2, 3, 4), floats(9, 2)
COUNTS = [np.full(2, 4, np.int32), np.array(5, np.int32)]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "reason"),
    [
        ("GroupQueryAttention", [X2, None, None, None, None, *COUNTS], {}, "input 'query' is .*, not of 3 dimensions"),
        ("GroupQueryAttention", [X, X, X, CACHE[0], CACHE, *COUNTS], {}, "'past_key' is .*, not of 4 dimensions"),
        (
            "GroupQueryAttention",
            [X, X, X, CACHE, CACHE, *COUNTS, TABLE[0], TABLE],
            {"do_rotary": 1},
            "'cos_cache' is .*, not of 2 dimensions",
        ),
        ("MultiHeadAttention", [X, X, X, None, None, None, CACHE[0], CACHE], {}, "'past_key' is .*, not of 4"),
        ("MultiHeadAttention", [X[..., :0], X[..., :0], X], {}, "do not fit"),
        ("Attention", [X, floats(8, 24), floats(24)], {"num_heads": 0}, "do not fit 0 heads"),
        ("Attention", [X[0, 0], floats(8)], {}, "do not fit 2 heads"),
        ("RotaryEmbedding", [X2, COUNTS[1].astype(np.int64), TABLE, TABLE], {}, "'input' is .*, not of 3 or 4"),
        ("RotaryEmbedding", [X, COUNTS[1].astype(np.int64), TABLE[0], TABLE], {}, "'cos_cache' is .*, not of 2"),
        ("RotaryEmbedding", [X, COUNTS[1].astype(np.int64), TABLE[:, :0], TABLE[:, :0]], {}, "of no angles"),
        (
            "EmbedLayerNormalization",
            [np.zeros(3, np.int32), None, floats(10, 8), floats(7, 8), None, floats(8), floats(8)],
            {},
            "'input_ids' is .*, not of 2 dimensions",
        ),
    ],
)
def test_operands_of_other_ranks_are_refused(op_type, inputs, attributes, reason):
    heads = {"num_heads": 2, **({"kv_num_heads": 2} if op_type == "GroupQueryAttention" else {})}
    given = {} if op_type in ("RotaryEmbedding", "EmbedLayerNormalization") else heads
    known = (6,) if op_type == "GroupQueryAttention" else ()
    made, _ = model(op_type, inputs, (True,), {**given, **attributes}, known)
    with pytest.raises(InvalidModelError, match=reason):
        load_graph(made)
