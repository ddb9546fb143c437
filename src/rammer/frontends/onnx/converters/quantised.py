"""Quantised operators: products and convolutions are sums of int32, which are exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import channels_first, channels_last, converted, reshaped
from rammer.frontends.onnx.codes import recast
from rammer.frontends.onnx.converters.windows import convolution
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.quantisation import Grain, centred, dequantised, nearest, quantised
from rammer.frontends.onnx.tensors import dtype_of
from rammer.ir.types import DType


def _quantize(node: Node) -> Sequence[Operand]:
    x, scale, zero = node.operand(0), node.operand(1), node.optional(2)
    wanted = _dtype(node, "output_dtype")
    to = wanted or (DType.UINT8 if zero is None else zero.dtype)
    if zero is not None and to is not zero.dtype:
        raise node.invalid(f"its output_dtype is {to.value}, its zero point {zero.type}")
    saturate = not node.has("saturate") or node.flag("saturate")
    precision = _dtype(node, "precision")
    return [quantised(node, x, scale, zero, to, grain=_grain(node), precision=precision, saturate=saturate)]


def _dequantize(node: Node) -> Sequence[Operand]:
    x, scale = node.operand(0), node.operand(1)
    to = _dtype(node, "output_dtype") or (DType.FLOAT32 if scale.dtype.is_code else scale.dtype)
    return [dequantised(node, x, scale, node.optional(2), to, grain=_grain(node))]


def _grain(node: Node) -> Grain:
    block = node.integer("block_size") if node.has("block_size") else 0
    return Grain(axis=node.integer("axis") if node.has("axis") else 0, block=block)


def _dtype(node: Node, name: str) -> DType | None:
    """An attribute that is an element type, None where it is left to the operands."""
    number = node.integer(name) if node.has(name) else 0
    return dtype_of(number, str(node.location)) if number else None


def _dynamic_quantize(node: Node) -> Sequence[Operand]:
    return dynamically_quantised(node, node.operand(0))


def dynamically_quantised(node: Node, x: Operand) -> tuple[Operand, Operand, Operand]:
    """Numbers as uint8 by the range of them and 0, their scale and zero point; where all are 0, the scale is 1."""
    axes = tuple(range(x.rank))
    zero, steps = (node.constant(np.array(value, np.float32)) for value in (0, 255))
    least = node.add("Min", node.add("ReduceMin", x, axes=axes, keepdims=False), zero)
    greatest = node.add("Max", node.add("ReduceMax", x, axes=axes, keepdims=False), zero)
    spread = node.add("Sub", greatest, least)
    spread = node.add("Where", node.add("Equal", spread, zero), steps, spread)
    scale = node.add("Div", spread, steps)
    point = node.add("Round", node.add("Clip", node.add("Div", node.add("Neg", least), scale), lower=0.0, upper=255.0))
    zero_point = converted(node, point, DType.UINT8)
    return quantised(node, x, scale, zero_point, DType.UINT8), scale, zero_point


def _matmul_integer(node: Node) -> Sequence[Operand]:
    a, b = node.operand(0), node.operand(1)
    left = centred(node, a, _rows(node, node.optional(2), a))
    return [node.add("MatMul", left, centred(node, b, _columns(node, node.optional(3), b)))]


def _qlinear_matmul(node: Node) -> Sequence[Operand]:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (node.operand(position) for position in range(8))
    factors = (_rows(node, a_scale, a), _columns(node, b_scale, b))
    if a.dtype.is_code:
        product = node.add("MatMul", recast(node, a, DType.FLOAT32), recast(node, b, DType.FLOAT32))
    else:
        left = centred(node, a, _rows(node, a_zero, a))
        product = node.add("MatMul", left, centred(node, b, _columns(node, b_zero, b)))
    return [requantised(node, product, factors, y_scale, y_zero)]


def _rows(node: Node, values: Operand | None, a: Operand) -> Operand | None:
    """Scales or zero points of the left operand: one, or one for each row."""
    if values is None or values.type.size == 1:
        return None if values is None else reshaped(node, values, ())
    return reshaped(node, values, (values.shape[0], 1)) if values.rank == 1 and a.rank > 1 else values


def _columns(node: Node, values: Operand | None, b: Operand) -> Operand | None:
    """Scales or zero points of the right operand: one, or one for each column."""
    if values is None or values.type.size == 1:
        return None if values is None else reshaped(node, values, ())
    return values


def requantised(
    node: Node, total: Operand, factors: Sequence[Operand | None], y_scale: Operand, y_zero: Operand | None
) -> Operand:
    """Exact sums of products in the result's quanta: one quotient of the scales, one product for each element."""
    quantum = None
    for factor in factors:
        if factor is not None:
            wide = converted(node, factor, DType.FLOAT32)
            quantum = wide if quantum is None else node.add("Mul", quantum, wide)
    if quantum is None:
        raise node.invalid("it has no scales")
    ratio = node.add("Div", quantum, converted(node, reshaped(node, y_scale, ()), DType.FLOAT32))
    scaled = node.add("Mul", converted(node, total, DType.FLOAT32), ratio)
    to = DType.UINT8 if y_zero is None else y_zero.dtype
    return nearest(node, scaled, None if y_zero is None else reshaped(node, y_zero, ()), to)


def integer_product(
    node: Node,
    a: Operand,
    a_scale: Operand,
    a_zero: Operand | None,
    b: Operand,
    b_scale: Operand,
    b_zero: Operand | None,
    bias: Operand | None,
) -> Operand:
    """An exact product of integers, times both scales, and a bias."""
    left = centred(node, a, None if a_zero is None else reshaped(node, a_zero, ()))
    product = node.add("MatMul", left, centred(node, b, b_zero))
    scale = node.add("Mul", reshaped(node, a_scale, ()), b_scale)
    result = node.add("Mul", converted(node, product, scale.dtype), scale)
    return result if bias is None else node.add("Add", result, bias)


def _conv_integer(node: Node) -> Sequence[Operand]:
    x, w = node.operand(0), node.operand(1)
    return [_integer_convolution(node, x, node.optional(2), w, node.optional(3))]


def _qlinear_conv(node: Node) -> Sequence[Operand]:
    """ONNX's, and that of `com.microsoft`, which may have the channels last."""
    is_last = node.has("channels_last") and node.flag("channels_last")
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (node.operand(position) for position in range(8))
    bias = [] if node.optional(8) is None else [node.operand(8)]
    image = channels_first(node, x) if is_last else x
    total = _integer_convolution(node, image, x_zero, w, w_zero, *bias)
    factors = (reshaped(node, x_scale, ()), _per_kernel(node, w_scale, total.rank - 2))
    result = requantised(node, total, factors, y_scale, y_zero)
    return [channels_last(node, result) if is_last else result]


def _integer_convolution(
    node: Node, x: Operand, x_zero: Operand | None, w: Operand, w_zero: Operand | None, *bias: Operand
) -> Operand:
    """The sums of a convolution; what is padded stands for 0, as its zero point does."""
    image = centred(node, x, None if x_zero is None else reshaped(node, x_zero, ()))
    zeros = None if w_zero is None else _per_kernel(node, w_zero, w.rank - 1)
    return convolution(node, image, centred(node, w, zeros), *bias)


def _per_kernel(node: Node, values: Operand, trailing: int) -> Operand:
    """One value, or one for each kernel, with so many dimensions behind that of the kernels."""
    return reshaped(node, values, () if values.type.size == 1 else (values.type.size, *(1,) * trailing))


CONVERTERS: Mapping[str, Converter] = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
    "com.microsoft.QLinearConv": _qlinear_conv,
}
