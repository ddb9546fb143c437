"""Expressions that try every skeleton: for the test of the code that is made of them, on any processor."""

from dataclasses import replace

import numpy as np

from rammer.ir.expr import Output, Reduce, ReduceFn, ScalarFn, TensorExpr, call, cast, load
from rammer.ir.types import DType, TensorType
from rammer.ir.vdevice import Figure
from rammer.passes.helpers.quads import in_quads, of_types
from rammer.passes.pipeline import PASSES
from tests.support.kernels import AVX512, conv, lstm_cell, types
from tests.support.operators import expression
from tests.support.passes import Net, expression_of, only

F16, BF16, F32, F64 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64
I8, I32, I64, U8, BOOL = DType.INT8, DType.INT32, DType.INT64, DType.UINT8, DType.BOOL
TOLERANCE = {F16: 2e-3, BF16: 1.6e-2, F32: 2e-6, F64: 1e-12}


def pool(kind, x, kernel, strides, pads, **attributes):
    out = tuple(
        (n + pads[d] + pads[2 + d] - k) // s + 1 for d, (n, k, s) in enumerate(zip(x[2:], kernel, strides, strict=True))
    )
    chosen = {"kernel": kernel, "strides": strides, "pads": pads, "dilations": (1, 1), "out_shape": out}
    return expression(kind, types(x), **chosen, **attributes)


def fused_residual():
    """relu(conv(relu(x), w) + b + residual): work before and after the sums."""
    expr = conv((1, 6, 9, 11), (20, 6, 3, 3), bias=True)
    (output,) = expr.outputs
    residual = TensorType(F32, (1, 20, 9, 11))
    image, weight, _ = expr.loads
    (total,) = expr.reductions
    body = Reduce(ReduceFn.SUM, total.axes, call(ScalarFn.MAX, image, 0.0) * weight)
    bias = next(node for node in expr.loads if node.slot == 2)
    activated = call(ScalarFn.MAX, body + bias + load(3, residual, expr.axes), 0.0)
    return TensorExpr(
        axes=expr.axes,
        inputs=(*expr.inputs, residual),
        outputs=(Output(type=output.type, indices=output.indices, body=activated),),
    )


def gru_cell(width, n, batch=1):
    """One step of a GRU whose reset gate comes after the product: slots x, h, w, r, b."""
    return expression(
        "GRUCell",
        types((batch, width), (batch, n), (3 * n, width), (3 * n, n), (6 * n,)),
        activations=("Sigmoid", "Tanh"),
        activation_alpha=(0.0,) * 2,
        activation_beta=(0.0,) * 2,
        linear_before_reset=True,
        batched_inputs=False,
    )


def requantised(expr):
    """A product of bytes, scaled by feature, added to bytes that are scaled, too, and made bytes again."""
    (output,) = expr.outputs
    residual, scales = TensorType(U8, output.type.shape), TensorType(F32, output.type.shape[1:2])
    number = cast(F32, output.body) * load(3, scales, expr.axes[1:2]) + cast(F32, load(2, residual, expr.axes)) * 0.25
    number = call(ScalarFn.MIN, call(ScalarFn.MAX, call(ScalarFn.ROUND, number), 0.0), 255.0)
    body = cast(U8, number)
    return TensorExpr(
        axes=expr.axes,
        inputs=(*expr.inputs, residual, scales),
        outputs=(Output(type=TensorType(U8, output.type.shape), indices=output.indices, body=body),),
    )


# name: (expression, slots that are constants)
CELLS = {
    "lstm": (lstm_cell(1, 256, 256), {3, 4, 5}),
    "lstm of short vectors": (lstm_cell(1, 128, 128), {3, 4, 5}),
    "lstm of odd sizes": (lstm_cell(1, 100, 72), {3, 4, 5}),
    "lstm of long inputs": (lstm_cell(1, 1000, 32), {3, 4, 5}),
    "lstm, fp16": (lstm_cell(1, 256, 256, F16), {3, 4, 5}),
    "lstm of odd sizes, bf16": (lstm_cell(1, 401, 236, BF16), {3, 4, 5}),
    "gru": (gru_cell(96, 128), {2, 3, 4}),
    "lstm of a batch": (lstm_cell(4, 256, 256), {3, 4, 5}),
    "lstm of an odd batch": (lstm_cell(3, 100, 72), {3, 4, 5}),
    "gru of a batch": (gru_cell(96, 128, batch=2), {2, 3, 4}),
}

CONTRACTIONS = {
    "product": (expression("MatMul", types((37, 65), (65, 50))), {1}),
    "product of activations": (expression("MatMul", types((37, 65), (65, 50))), ()),
    "batched product": (expression("MatMul", types((2, 3, 7, 8), (3, 8, 20))), ()),
    "attention scores": (
        expression("Gemm", types((30, 16), (50, 16)), alpha=0.25, beta=0.0, trans_a=False, trans_b=True),
        (),
    ),
    "both transposed": (
        expression("Gemm", types((64, 30), (50, 64)), alpha=1.0, beta=1.0, trans_a=True, trans_b=True),
        (),
    ),
    "scaled with bias": (
        expression("Gemm", types((30, 64), (50, 64), (50,)), alpha=0.5, beta=2.0, trans_a=False, trans_b=True),
        {1, 2},
    ),
    "vector times matrix": (expression("MatMul", types((1, 300), (300, 70))), {1}),
    "matrix times vector": (expression("MatMul", types((70, 300), (300,))), {0}),
    "long sums": (expression("MatMul", types((3, 5000), (5000, 40))), ()),
    "float16": (expression("MatMul", types((9, 33), (33, 40), dtype=F16)), {1}),
    "bfloat16": (expression("MatMul", types((9, 33), (33, 40), dtype=BF16)), ()),
    "float64": (expression("MatMul", types((9, 33), (33, 40), dtype=F64)), {1}),
    "3x3": (conv((1, 8, 12, 13), (40, 8, 3, 3), bias=True), {1, 2}),
    "3x3 of activations": (conv((1, 8, 12, 13), (40, 8, 3, 3)), ()),
    "3x3 stride 2": (conv((1, 8, 13, 14), (40, 8, 3, 3), strides=(2, 2)), {1}),
    "5x5 stride 2": (conv((2, 3, 13, 14), (10, 3, 5, 5), strides=(2, 2)), {1}),
    "dilated": (conv((1, 8, 13, 34), (20, 8, 3, 3), dilations=(2, 2), pads=(2, 2, 2, 2)), {1}),
    "1x1": (conv((1, 8, 7, 7), (40, 8, 1, 1)), {1}),
    "1x1 stride 2": (conv((1, 8, 8, 8), (40, 8, 1, 1), strides=(2, 2)), {1}),
    "11x11 stride 4": (conv((1, 3, 40, 40), (20, 3, 11, 11), strides=(4, 4), pads=(2, 2, 2, 2)), {1}),
    "41x11 kernel": (conv((1, 1, 60, 30), (32, 1, 41, 11), strides=(2, 2), pads=(20, 5, 20, 5)), {1}),
    "11x41 kernel": (conv((1, 2, 30, 60), (32, 2, 11, 41), strides=(2, 2), pads=(5, 20, 5, 20)), {1}),
    "uneven pads": (conv((1, 4, 9, 9), (20, 4, 2, 3), pads=(0, 2, 1, 0)), {1}),
    "pads beyond the kernel": (conv((1, 4, 5, 5), (20, 4, 3, 3), pads=(4, 4, 4, 4)), {1}),
    "two groups": (conv((1, 8, 10, 10), (32, 4, 3, 3), group=2), {1}),
    "narrow groups": (conv((1, 16, 10, 10), (16, 4, 3, 3), group=4), {1}),
    "one dimension": (conv((1, 8, 50), (20, 8, 5)), {1}),
    "three dimensions": (conv((1, 3, 6, 7, 8), (20, 3, 3, 3, 3)), {1}),
    "float16 image": (conv((1, 8, 12, 13), (40, 8, 3, 3), dtype=F16), {1}),
    "transposed convolution": (
        expression(
            "ConvTranspose",
            types((1, 8, 7, 7), (8, 20, 3, 3)),
            strides=(2, 2),
            dilations=(1, 1),
            pads=(1, 1, 1, 1),
            group=1,
            output_padding=(1, 1),
            finite_weights=True,
        ),
        {1},
    ),
    "cell": (lstm_cell(1, 24, 32), {3, 4, 5}),
    "cell of odd size": (lstm_cell(3, 7, 13), {3, 4, 5}),
    "fused residual": (fused_residual(), {1, 2}),
}

BYTES = {
    "bytes": (in_quads(expression("MatMul", types((37, 68), (68, 50), dtype=I32)), "k", 0), {1}),
    "few bytes": (in_quads(expression("MatMul", types((5, 4), (4, 7), dtype=I32)), "k", 0), {1}),
    "vector of bytes": (in_quads(expression("MatMul", types((1, 300), (300, 70), dtype=I32)), "k", 0), {1}),
    "bytes that lie otherwise": (in_quads(expression("MatMul", types((9, 64), (64, 40), dtype=I32)), "k", 0), ()),
    "3x3 of bytes": (in_quads(conv((1, 8, 12, 13), (40, 8, 3, 3), dtype=I32), "c", 1), {1}),
    "quantised 3x3, few lanes": (requantised(in_quads(conv((1, 8, 6, 7), (24, 8, 3, 3), dtype=I32), "c", 1)), {1, 3}),
    "quantised 3x3": (requantised(in_quads(conv((1, 8, 12, 13), (40, 8, 3, 3), dtype=I32), "c", 1)), {1, 3}),
}

PLAIN_BYTES = {
    "bytes": (of_types(expression("MatMul", types((37, 65), (65, 50), dtype=I32)), U8, I8), {1}),
    "signed bytes": (of_types(expression("MatMul", types((40, 304), (304, 72), dtype=I32)), I8, I8), {1}),
    "bytes in batches": (of_types(expression("MatMul", types((3, 18, 64), (3, 64, 24), dtype=I32)), I8, U8), ()),
    "3x3 of bytes": (of_types(conv((1, 16, 12, 13), (40, 16, 3, 3), dtype=I32), U8, I8), {1}),
    "quantised 3x3": (requantised(of_types(conv((1, 8, 12, 13), (40, 8, 3, 3), dtype=I32), U8, I8)), {1, 3}),
    "quantised 1x1": (requantised(of_types(conv((1, 64, 24, 24), (64, 64, 1, 1), dtype=I32), I8, I8)), {1, 3}),
}
"""Of either sign, as they lie."""

REDUCTIONS = {
    "scalar product": expression("MatMul", types((300,), (300,))),
    "integer product": expression("MatMul", types((9, 33), (33, 40), dtype=I32)),
    "product of nothing": expression("MatMul", types((4, 0), (0, 5))),
    "depthwise 3x3": conv((1, 20, 12, 12), (20, 1, 3, 3), group=20),
    "depthwise 5x5 stride 2": conv((1, 20, 12, 13), (20, 1, 5, 5), bias=True, group=20, strides=(2, 2)),
    "depthwise multiplier": conv((1, 6, 12, 12), (12, 1, 3, 3), group=6),
    "depthwise, wide": conv((1, 2, 4, 150), (2, 1, 3, 3), group=2),
    "max pool": pool("MaxPool", (1, 3, 20, 21), (3, 3), (2, 2), (1, 1, 1, 1)),
    "average pool": pool("AveragePool", (1, 3, 16, 16), (3, 3), (1, 1), (1, 1, 1, 1), count_include_pad=False),
    "average pool with padding": pool(
        "AveragePool", (1, 3, 9, 9), (2, 3), (2, 1), (1, 1, 0, 1), count_include_pad=True
    ),
    "large window": pool("MaxPool", (1, 2, 40, 41), (9, 19), (3, 2), (4, 9, 4, 9)),
    "global average": expression("GlobalAveragePool", types((2, 5, 7, 7))),
    "global maximum": expression("GlobalMaxPool", types((1, 5, 9, 13))),
    "softmax of rows": expression("Softmax", types((6, 70)), axis=1),
    "softmax of short rows": expression("Softmax", types((6, 10)), axis=1),
    "softmax of columns": expression("Softmax", types((30, 70)), axis=0),
    "softmax in the middle": expression("Softmax", types((3, 9, 20)), axis=1),
    "log softmax": expression("LogSoftmax", types((6, 70)), axis=1),
    "layer normalization": expression("LayerNormalization", types((9, 80), (80,), (80,)), axis=1, epsilon=1e-5),
    "instance normalization": expression("InstanceNormalization", types((2, 3, 5, 9), (3,), (3,)), epsilon=1e-5),
    "local response": expression("LRN", types((1, 9, 5, 6)), size=5, alpha=0.1, beta=0.75, bias=1.0),
    "sum of all": expression("ReduceSum", types((30, 50)), axes=(0, 1), keepdims=False),
    "sum of rows": expression("ReduceSum", types((30, 100)), axes=(1,), keepdims=True),
    "sum of columns": expression("ReduceSum", types((100, 300)), axes=(0,), keepdims=False),
    "sum of float16": expression("ReduceSum", types((8, 100), dtype=F16), axes=(1,), keepdims=False),
    "product of elements": expression("ReduceProd", types((5, 7, 6)), axes=(1,), keepdims=False),
    "greatest integer": expression("ReduceMax", types((5, 70), dtype=I32), axes=(1,), keepdims=False),
    "any": expression("ReduceMax", types((5, 70), dtype=BOOL), axes=(1,), keepdims=False),
    "place of the greatest": expression("ArgMax", types((7, 40)), axis=1, keepdims=False, select_last_index=False),
    "totals of blocks": expression("BlockTotals", types((7, 40)), fn="sum", axis=1, block=16),
}

MAPS = {
    "broadcast": expression("Add", types((3, 1, 5), (4, 1))),
    "wide": expression("Mul", types((1000,), (1000,))),
    "planes": expression("Relu", types((2, 5, 7, 7))),
    "scalar": expression("Add", types((), ())),
    "transposition": expression("Transpose", types((40, 50)), perm=(1, 0)),
    "transposition of four": expression("Transpose", types((2, 3, 20, 5)), perm=(0, 2, 1, 3)),
    "reversed slice": expression("Slice", types((9, 30)), starts=(8, 29), steps=(-2, -3), sizes=(4, 9)),
    "zero pad": expression("Pad", types((4, 20)), mode="constant", pads=(1, 2, 0, 3), value=0.5),
    "reflected pad": expression("Pad", types((4, 20)), mode="reflect", pads=(1, 2, 0, 3), value=0.0),
    "edge pad": expression("Pad", types((4, 20)), mode="edge", pads=(1, 2, 0, 3), value=0.0),
    "concatenation": expression("Concat", types((4, 5), (4, 9)), axis=1),
    "reshape": expression("Reshape", types((6, 10, 4)), shape=(8, 30)),
    "depth to space": expression("DepthToSpace", types((1, 12, 3, 4)), blocksize=2, mode="DCR"),
    "tile": expression("Tile", types((3, 4)), repeats=(2, 3)),
    "triangle": expression("Trilu", types((8, 9)), upper=True, k=1),
    "gather": expression("Gather", [TensorType(F32, (30, 9)), TensorType(I64, (4, 3))], axis=0),
    "batch normalization": expression("BatchNormalization", types((1, 6, 5, 5), *((6,),) * 4), epsilon=1e-5),
    "gelu": expression("Gelu", types((50,)), approximate="none"),
    "bfloat16": expression("Sigmoid", types((50,), dtype=BF16)),
    "booleans": expression("Where", [TensorType(BOOL, (4, 5)), *types((4, 5), (5,))]),
    "blocks of a scan": expression(
        "BlockScan",
        types((7, 40), (7, 3)),
        fn="prod",
        axis=1,
        first=8,
        blocks=2,
        block=16,
        number=1,
        exclusive=True,
        reverse=False,
    ),
    "to integers": expression("Cast", types((50,)), to=I32),
    "to float16": expression("Cast", types((50,), dtype=F64), to=F16),
}

# name: (expression, tensors that lie channels last, skeleton)
CHANNELS_LAST = {
    "3x3": (conv((1, 8, 12, 13), (40, 8, 3, 3), bias=True), {0, 3}, "implicit_gemm"),
    "3x3 to planes": (conv((1, 8, 12, 13), (40, 8, 3, 3)), {0}, "implicit_gemm"),
    "1x1 stride 2": (conv((1, 24, 9, 9), (40, 24, 1, 1), strides=(2, 2)), {0, 2}, "gemm"),
    "few channels": (conv((1, 3, 12, 13), (7, 3, 3, 3)), {0, 2}, "implicit_gemm"),
    "groups of 4": (conv((1, 32, 12, 13), (32, 4, 3, 3), bias=True, group=8), {0, 3}, "implicit_gemm"),
    "groups of 8, stride 2": (conv((1, 32, 12, 13), (32, 8, 3, 3), group=4, strides=(2, 2)), {0, 2}, "implicit_gemm"),
    "groups of 3": (conv((1, 24, 12, 13), (24, 3, 3, 3), group=8), {0, 2}, "implicit_gemm"),
    "depthwise 3x3": (conv((1, 32, 12, 13), (32, 1, 3, 3), bias=True, group=32), {0, 3}, "depthwise"),
    "depthwise 5x5 stride 2": (conv((2, 40, 11, 12), (40, 1, 5, 5), group=40, strides=(2, 2)), {0, 2}, "depthwise"),
    "depthwise, odd": (conv((1, 21, 12, 13), (21, 1, 3, 3), group=21), {0, 2}, "depthwise"),
    "depthwise 7x7": (conv((1, 16, 9, 20), (16, 1, 7, 7), group=16), {0, 2}, "depthwise"),
    "depthwise, not padded": (conv((1, 33, 9, 20), (33, 1, 3, 3), group=33, pads=(0, 0, 0, 0)), {0, 2}, "depthwise"),
    "depthwise, dilated": (conv((1, 16, 9, 20), (16, 1, 3, 3), group=16, dilations=(2, 2)), {0, 2}, "depthwise"),
    "depthwise of bytes": (of_types(conv((1, 40, 12, 13), (40, 1, 3, 3), group=40), U8), {0, 2}, "depthwise"),
    "depthwise of signed bytes, stride 2": (
        of_types(conv((1, 24, 12, 13), (24, 1, 3, 3), bias=True, group=24, strides=(2, 2)), DType.INT8),
        {0, 3},
        "depthwise",
    ),
    "max pool": (pool("MaxPool", (1, 40, 12, 13), (3, 3), (2, 2), (1, 1, 1, 1)), {0, 1}, "reduce"),
    "average pool": (
        pool("AveragePool", (1, 32, 9, 10), (3, 3), (1, 1), (1, 1, 1, 1), count_include_pad=False),
        {0, 1},
        "reduce",
    ),
    "pool with uneven padding": (pool("MaxPool", (1, 20, 11, 8), (3, 4), (2, 3), (2, 0, 1, 3)), {0, 1}, "reduce"),
    "pool of many taps": (pool("MaxPool", (1, 20, 12, 13), (5, 5), (1, 1), (2, 2, 2, 2)), {0, 1}, "reduce"),
    "global average": (expression("GlobalAveragePool", types((1, 40, 7, 7))), {0}, "reduce"),
    "addition": (expression("Add", types((1, 12, 5, 6), (1, 12, 5, 6))), {0, 2}, "map"),
}


IMAGES = ({0, 1}, {0, 2, 4})
"""The operands of the two transforms that have channels."""


def filtered(size):
    """The transforms of a convolution by minimal filtering, F(4x4, 3x3), of images of `size`."""
    net = Net()
    y = net.conv(net.input(1, 20, *size), net.weight(32, 20, 3, 3), pad=1)
    slow = replace(AVX512, flops_per_us={dtype: Figure(1.0, "nominal: a test") for dtype in DType})
    graph = dict(PASSES)["winograd"](net.build(y), slow)
    return [expression_of(only(graph, kind)) for kind in ("ConvInputTransform", "ConvOutputTransform")]


def assert_close(found, wanted, dtype):
    if not dtype.is_float:
        np.testing.assert_array_equal(found, wanted)
        return
    with np.errstate(invalid="ignore"):  # a signalling NaN
        found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    infinite = np.isinf(wanted)
    np.testing.assert_array_equal(found[infinite], wanted[infinite])
    finite = np.isfinite(wanted)
    scale = max(1e-30, float(np.sqrt(np.mean(wanted[finite] ** 2)))) if finite.any() else 1.0
    np.testing.assert_allclose(found[finite] / scale, wanted[finite] / scale, rtol=0, atol=20 * TOLERANCE[dtype])
