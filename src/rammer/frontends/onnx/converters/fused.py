"""What ONNX Runtime's optimiser and its quantiser write into the domain `com.microsoft`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import channels_first, channels_last, concatenated, converted, part, reshaped, transposed
from rammer.frontends.onnx.converters.quantised import dynamically_quantised, integer_product, requantised
from rammer.frontends.onnx.converters.windows import pooling
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.quantisation import Grain, centred, dequantised, quantised
from rammer.ir.types import DType


def _gelu(node: Node) -> Sequence[Operand]:
    """Gelu, BiasGelu and FastGelu."""
    x = node.operand(0)
    bias = node.optional(1)
    if bias is not None:
        x = node.add("Add", x, bias)
    return [node.add("Gelu", x, approximate="tanh" if node.op_type == "FastGelu" else "none")]


def _quick_gelu(node: Node) -> Sequence[Operand]:
    return [node.add("Swish", node.operand(0), alpha=node.number("alpha"))]


def _fused_matmul(node: Node) -> Sequence[Operand]:
    """FusedMatMul, and TransposeMatMul as it was called before."""
    if any(node.has(name) and node.flag(name) for name in ("transBatchA", "transBatchB")):
        raise node.unsupported("FusedMatMul of transposed batches", "transpose before it")
    a, b = (
        _turned(node, node.operand(position)) if node.flag(name) else node.operand(position)
        for position, name in enumerate(("transA", "transB"))
    )
    return [_scaled(node, node.add("MatMul", a, b), node.number("alpha"))]


def _turned(node: Node, x: Operand) -> Operand:
    """The last two dimensions exchanged."""
    return transposed(node, x, (*range(x.rank - 2), x.rank - 1, x.rank - 2)) if x.rank > 1 else x


def _scaled(node: Node, x: Operand, factor: float) -> Operand:
    return x if factor == 1 else node.add("Mul", x, node.constant(np.array(factor, x.dtype.numpy)))


def _skip_normalization(node: Node) -> Sequence[Operand | None]:
    """The sum of an input, what skipped a layer, and a bias, normalised."""
    mean_square = node.op_type == "SkipSimplifiedLayerNormalization"
    total = node.add("Add", node.operand(0), node.operand(1))
    bias = node.optional(3 if mean_square else 4)
    if bias is not None:
        total = node.add("Add", total, bias)
    if node.wants(1) or node.wants(2):
        raise node.unsupported("the statistics of a normalisation as results")
    axis, epsilon = total.rank - 1, node.number("epsilon")
    if mean_square:
        result = node.add("RMSNormalization", total, node.operand(2), axis=axis, epsilon=epsilon)
    else:
        shift = () if node.optional(3) is None else (node.operand(3),)
        result = node.add("LayerNormalization", total, node.operand(2), *shift, axis=axis, epsilon=epsilon)
    return [result, None, None, total] if node.wants(3) else [result]


def _mean_square_normalization(node: Node) -> Sequence[Operand]:
    """SimplifiedLayerNormalization."""
    x = node.operand(0)
    axis = node.axis(node.integer("axis"), x.rank)
    return [node.add("RMSNormalization", x, node.operand(1), axis=axis, epsilon=node.number("epsilon"))]


def _embed_layer_normalization(node: Node) -> Sequence[Operand]:
    tables = [node.optional(position) for position in range(2, 7)]
    return _embedded(node, tables, mask=node.optional(7), places=node.optional(8))


def _quantised_embed_layer_normalization(node: Node) -> Sequence[Operand]:
    """Scales and zero points of all tables follow the mask."""
    tables = [
        None
        if node.optional(position) is None
        else dequantised(
            node, node.operand(position), node.operand(position + 6), node.operand(position + 11), DType.FLOAT32
        )
        for position in range(2, 7)
    ]
    return _embedded(node, tables, mask=node.optional(7), places=None)[:2]


def _embedded(
    node: Node, tables: Sequence[Operand | None], *, mask: Operand | None, places: Operand | None
) -> Sequence[Operand]:
    """The embeddings of words, positions and segments, added and normalised; how many of each sequence are unmasked."""
    words, of_words, of_places, of_segments, scale, shift = node.operand(0), *tables
    if of_words is None or of_places is None or scale is None or shift is None:
        raise node.invalid("a table of words or positions, or a scale or shift, is missing")
    batch, steps = node.of_rank(0, 2).shape
    total = node.add("Gather", of_words, words, axis=0)
    if places is not None:
        total = node.add("Add", total, node.add("Gather", of_places, places, axis=0))
    else:
        total = node.add("Add", total, part(node, of_places, 0, 0, steps))
    if node.optional(1) is not None:
        if of_segments is None:
            raise node.invalid("it has segments and no table of them")
        total = node.add("Add", total, node.add("Gather", of_segments, node.operand(1), axis=0))
    result = node.add("LayerNormalization", total, scale, shift, axis=2, epsilon=node.number("epsilon"))
    if mask is None:
        counts = node.constant(np.zeros(batch, np.int32))
    else:
        counts = node.add("ReduceSum", converted(node, mask, DType.INT32), axes=(1,), keepdims=False)
    return [result, counts, total]


def _matmul_n_bits(node: Node) -> Sequence[Operand]:
    """A product with a matrix of integers of few bits, in blocks with a scale each."""
    a, packed, scales = (node.operand(position) for position in range(3))
    bits, block = node.integer("bits"), node.integer("block_size")
    rows, depth = node.integer("N"), node.integer("K")
    if node.optional(4) is not None:
        raise node.unsupported("MatMulNBits with 'g_idx'", "quantise without reordering")
    if bits not in (2, 4, 8) or block < 1 or block * bits % 8 or packed.dtype is not DType.UINT8:
        raise node.unsupported(f"MatMulNBits of {bits} bits in {packed.type}")
    blocks = -(-depth // block)
    if packed.type.size != rows * blocks * (block * bits // 8) or scales.type.size != rows * blocks:
        raise node.invalid(f"weights {packed.type} and scales {scales.type} do not fit {rows} rows of {depth}")
    shapes = ((rows, blocks * block * bits // 8), (rows, blocks))
    operands = [reshaped(node, x, shape) for x, shape in zip((packed, scales), shapes, strict=True)]
    zeros = node.optional(3)
    if zeros is not None:
        is_packed = zeros.dtype is DType.UINT8
        operands.append(reshaped(node, zeros, (rows, -(-blocks * bits // 8) if is_packed else blocks)))
    product = node.add("MatMulNBits", a, *operands, bits=bits, block=block)
    bias = node.optional(5)
    return [product if bias is None else node.add("Add", product, bias)]


def _matmul_to_float(node: Node) -> Sequence[Operand]:
    """MatMulIntegerToFloat: an exact product of integers, times both scales."""
    a, b, a_scale, b_scale = (node.operand(position) for position in range(4))
    return [integer_product(node, a, a_scale, node.optional(4), b, b_scale, node.optional(5), node.optional(6))]


def _dynamic_quantize_matmul(node: Node) -> Sequence[Operand]:
    """The left operand is quantised by its range as the model runs."""
    b, b_scale = node.operand(1), node.operand(2)
    a, a_scale, a_zero = dynamically_quantised(node, node.operand(0))
    return [integer_product(node, a, a_scale, a_zero, b, b_scale, node.optional(3), node.optional(4))]


def _qgemm(node: Node) -> Sequence[Operand]:
    """Exact sums of integers and an integer bias; without a scale of the result, as floating-point numbers."""
    a, a_scale, a_zero, b, b_scale, b_zero = (node.operand(position) for position in range(6))
    left, right = centred(node, a, reshaped(node, a_zero, ())), centred(node, b, _zeros_of(node, b, b_zero))
    turned = {"trans_a": node.flag("transA"), "trans_b": node.flag("transB")}
    total = node.add("Gemm", left, right, alpha=1.0, beta=1.0, **turned)
    if node.optional(6) is not None:
        total = node.add("Add", total, node.operand(6))
    factors = (_scaled(node, reshaped(node, a_scale, ()), node.number("alpha")), b_scale)
    if node.optional(7) is not None:
        return [requantised(node, total, factors, node.operand(7), node.optional(8))]
    return [node.add("Mul", converted(node, total, DType.FLOAT32), node.add("Mul", *factors))]


def _zeros_of(node: Node, b: Operand, zero: Operand) -> Operand:
    """One zero point, or one for each column of the product."""
    if zero.type.size == 1:
        return reshaped(node, zero, ())
    return reshaped(node, zero, (zero.type.size, 1)) if node.flag("transB") else zero


def _quantised_pair(kind: str) -> Converter:
    """An operator of two quantised operands, by the numbers that they stand for; rounded as ONNX Runtime does."""

    def convert(node: Node) -> Sequence[Operand]:
        a, b = (
            dequantised(node, node.operand(first), node.operand(first + 1), node.optional(first + 2), DType.FLOAT32)
            for first in (0, 3)
        )
        result = node.add(kind, a, b)
        to = node.operand(0).dtype
        return [quantised(node, result, node.operand(6), node.optional(7), to, moved_first=True)]

    return convert


def _quantised_one(apply: Callable[[Node, Operand], Operand], *, moved_first: bool = False) -> Converter:
    """An operator of one quantised operand, by the number that it stands for; rounded as ONNX Runtime does."""

    def convert(node: Node) -> Sequence[Operand]:
        x = node.operand(0)
        result = apply(node, dequantised(node, x, node.operand(1), node.optional(2), DType.FLOAT32))
        return [quantised(node, result, node.operand(3), node.optional(4), x.dtype, moved_first=moved_first)]

    return convert


def _global_average(node: Node, x: Operand) -> Operand:
    last = node.flag("channels_last")
    return node.add("ReduceMean", x, axes=tuple(range(1, x.rank - 1) if last else range(2, x.rank)), keepdims=True)


def _average(node: Node, x: Operand) -> Operand:
    is_last = node.flag("channels_last")
    image = channels_first(node, x) if is_last else x
    padded = node.flag("count_include_pad")
    result = node.add("AveragePool", image, **pooling(node, image), count_include_pad=padded)
    return channels_last(node, result) if is_last else result


def _softmax(node: Node, x: Operand) -> Operand:
    """Before opset 13, over all dimensions from an axis on."""
    axis = node.axis(node.integer("axis"), x.rank)
    if node.integer("opset") >= 13:
        return node.add("Softmax", x, axis=axis)
    lines = reshaped(node, x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    return reshaped(node, node.add("Softmax", lines, axis=1), x.shape)


def _chosen(node: Node) -> Sequence[Operand]:
    """QLinearWhere."""
    yes, no = (
        dequantised(node, node.operand(first), node.operand(first + 1), node.operand(first + 2), DType.FLOAT32)
        for first in (1, 4)
    )
    result = node.add("Where", node.operand(0), yes, no)
    return [quantised(node, result, node.operand(7), node.operand(8), node.operand(8).dtype)]


def _concatenated(node: Node) -> Sequence[Operand]:
    """The scale and zero point of the result come first, then each operand with its own."""
    given = node.operands_from(2)
    if not given or len(given) % 3:
        raise node.invalid(f"{len(given)} inputs are not operands with their scales and zero points")
    triples = zip(given[::3], given[1::3], given[2::3], strict=True)
    parts = [dequantised(node, x, scale, zero, DType.FLOAT32) for x, scale, zero in triples]
    whole = concatenated(node, parts, node.axis(node.integer("axis"), parts[0].rank))
    return [quantised(node, whole, node.operand(0), node.operand(1), node.operand(1).dtype)]


def _leaky_relu(node: Node, x: Operand) -> Operand:
    return node.add("LeakyRelu", x, alpha=node.number("alpha"))


def _quantize(node: Node) -> Sequence[Operand]:
    zero = node.optional(2)
    to = DType.UINT8 if zero is None else zero.dtype
    return [quantised(node, node.operand(0), node.operand(1), zero, to, grain=_grain(node))]


def _dequantize(node: Node) -> Sequence[Operand]:
    scale = node.operand(1)
    return [dequantised(node, node.operand(0), scale, node.optional(2), scale.dtype, grain=_grain(node))]


def _grain(node: Node) -> Grain:
    return Grain(axis=node.integer("axis"), block=node.integer("block_size"))


_OWN: Mapping[str, Converter] = {
    "BiasGelu": _gelu,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeMatMul": _dynamic_quantize_matmul,
    "EmbedLayerNormalization": _embed_layer_normalization,
    "FastGelu": _gelu,
    "FusedMatMul": _fused_matmul,
    "Gelu": _gelu,
    "MatMulIntegerToFloat": _matmul_to_float,
    "MatMulNBits": _matmul_n_bits,
    "QGemm": _qgemm,
    "QEmbedLayerNormalization": _quantised_embed_layer_normalization,
    "QLinearAdd": _quantised_pair("Add"),
    "QLinearAveragePool": _quantised_one(_average, moved_first=True),
    "QLinearConcat": _concatenated,
    "QLinearGlobalAveragePool": _quantised_one(_global_average),
    "QLinearLeakyRelu": _quantised_one(_leaky_relu),
    "QLinearMul": _quantised_pair("Mul"),
    "QLinearSigmoid": _quantised_one(lambda node, x: node.add("Sigmoid", x)),
    "QLinearSoftmax": _quantised_one(_softmax),
    "QLinearWhere": _chosen,
    "QuantizeLinear": _quantize,
    "QuickGelu": _quick_gelu,
    "SimplifiedLayerNormalization": _mean_square_normalization,
    "SkipLayerNormalization": _skip_normalization,
    "SkipSimplifiedLayerNormalization": _skip_normalization,
    "TransposeMatMul": _fused_matmul,
}
CONVERTERS: Mapping[str, Converter] = {f"com.microsoft.{name}": converter for name, converter in _OWN.items()}
