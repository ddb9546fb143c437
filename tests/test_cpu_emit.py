"""Generated C against NumPy: every candidate rKernel of many expressions, compiled and run rTask by rTask."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rammer.devices.cpu.emit.kernel import emit_kernel
from rammer.ir.evaluate import evaluate
from rammer.ir.expr import (
    Axis,
    Expr,
    Output,
    Reduce,
    ReduceFn,
    ScalarFn,
    TensorExpr,
    call,
    cast,
    const,
    load,
    select,
)
from rammer.ir.types import DType, TensorType
from rammer.ir.vdevice import Figure
from rammer.passes import winograd
from tests.support.kernels import (
    AVX2,
    AVX512,
    CLANG,
    NEON,
    Bound,
    Compiler,
    conv,
    lstm_cell,
    random_array,
    run_all,
    types,
)
from tests.support.operators import expression
from tests.support.passes import Net, expression_of, only

F16, BF16, F32, F64 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64
I32, I64, U8, BOOL = DType.INT32, DType.INT64, DType.UINT8, DType.BOOL
TOLERANCE = {F16: 2e-3, BF16: 1.6e-2, F32: 2e-6, F64: 1e-12}
MACHINES = {"avx512": AVX512, "avx2": AVX2, "neon": NEON}


@pytest.fixture(scope="session")
def compiler(tmp_path_factory):
    return Compiler(tmp_path_factory.mktemp("kernels"))


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


# name: (expression, slots that are constants)
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
        ),
        {1},
    ),
    "cell": (lstm_cell(1, 24, 32), {3, 4, 5}),
    "cell of odd size": (lstm_cell(3, 7, 13), {3, 4, 5}),
    "fused residual": (fused_residual(), {1, 2}),
}

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
    "cumulative sum": expression("CumSum", types((7, 40)), axis=1, exclusive=False, reverse=True),
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
    "to integers": expression("Cast", types((50,)), to=I32),
    "to float16": expression("Cast", types((50,), dtype=F64), to=F16),
}


def filtered(size):
    """The transforms of a convolution by minimal filtering, F(4x4, 3x3), of images of `size`."""
    net = Net()
    y = net.conv(net.input(1, 20, *size), net.weight(32, 20, 3, 3), pad=1)
    slow = replace(AVX512, flops_per_us={dtype: Figure(1.0, "nominal: a test") for dtype in DType})
    graph = winograd.run(net.build(y), slow)
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


def check(expr, compiler, *, inputs=None, **options):
    """Compare every candidate with the definition; returns the candidates."""
    inputs = inputs or [random_array(type_, slot) for slot, type_ in enumerate(expr.inputs)]
    wanted = evaluate(expr, inputs)
    results = run_all(expr, inputs, compiler, **options)
    for _, outputs in results:
        for output, found, want in zip(expr.outputs, outputs, wanted, strict=True):
            assert_close(found, want, output.type.dtype)
    return [kernel for kernel, _ in results]


@pytest.mark.parametrize("vdevice", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("name", CONTRACTIONS)
def test_contractions(name, vdevice, compiler):
    expr, constants = CONTRACTIONS[name]
    kernels = check(expr, compiler, constants=constants, vdevice=vdevice)
    assert "contract" in {kernel.skeleton for kernel in kernels}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, compiler):
    kernels = check(REDUCTIONS[name], compiler, constants={1})
    assert "map" not in {kernel.skeleton for kernel in kernels}


@pytest.mark.parametrize("name", MAPS)
def test_maps(name, compiler):
    kernels = check(MAPS[name], compiler)
    assert {kernel.skeleton for kernel in kernels} == {"map"}


# name: (expression, tensors that lie channels last, skeleton)
CHANNELS_LAST = {
    "3x3": (conv((1, 8, 12, 13), (40, 8, 3, 3), bias=True), {0, 3}, "contract"),
    "3x3 to planes": (conv((1, 8, 12, 13), (40, 8, 3, 3)), {0}, "contract"),
    "1x1 stride 2": (conv((1, 24, 9, 9), (40, 24, 1, 1), strides=(2, 2)), {0, 2}, "contract"),
    "few channels": (conv((1, 3, 12, 13), (7, 3, 3, 3)), {0, 2}, "contract"),
    "depthwise 3x3": (conv((1, 32, 12, 13), (32, 1, 3, 3), bias=True, group=32), {0, 3}, "contract"),
    "depthwise 5x5 stride 2": (conv((2, 40, 11, 12), (40, 1, 5, 5), group=40, strides=(2, 2)), {0, 2}, "contract"),
    "depthwise, odd": (conv((1, 21, 12, 13), (21, 1, 3, 3), group=21), {0, 2}, "contract"),
    "depthwise 7x7": (conv((1, 16, 9, 20), (16, 1, 7, 7), group=16), {0, 2}, "contract"),
    "max pool": (pool("MaxPool", (1, 40, 12, 13), (3, 3), (2, 2), (1, 1, 1, 1)), {0, 1}, "reduce"),
    "global average": (expression("GlobalAveragePool", types((1, 40, 7, 7))), {0}, "reduce"),
    "addition": (expression("Add", types((1, 12, 5, 6), (1, 12, 5, 6))), {0, 2}, "map"),
}


@pytest.mark.parametrize("vdevice", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("name", CHANNELS_LAST)
def test_channels_last(name, vdevice, compiler):
    expr, channels_last, skeleton = CHANNELS_LAST[name]
    constants = {1} if len(expr.inputs) > 1 and skeleton == "contract" else set()
    kernels = check(expr, compiler, constants=constants, channels_last=channels_last, vdevice=vdevice)
    assert {kernel.skeleton for kernel in kernels} == {skeleton}


@pytest.mark.parametrize("vdevice", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("size", [(8, 8), (13, 14)], ids=str)
def test_transforms_have_nothing_to_choose(size, vdevice, compiler):
    """All points of a tile are written side by side, and loops are cut where the padding begins."""
    for expr in filtered(size):
        check(expr, compiler, channels_last={0, 1}, vdevice=vdevice)
        for kernel in Bound(expr, (), vdevice, {0, 1}).kernels:
            assert "?" not in emit_kernel(kernel, "transform")


def test_a_tile_may_cut_the_axes_that_choose(compiler):
    _, expr = filtered((8, 8))
    bound = Bound(expr, (), AVX2, {0, 1})
    tile = replace(bound.kernels[0].tile, task=(1,) * len(bound.expr.axes))
    kernel = replace(bound.kernels[0], tile=tile)
    inputs = [random_array(type_) for type_ in expr.inputs]
    library = compiler.library([emit_kernel(kernel, "cut")])
    (found,) = bound.run(kernel, library["cut"], inputs)
    (wanted,) = evaluate(expr, inputs)
    assert_close(found, wanted, F32)


@pytest.mark.parametrize("cc", [None, CLANG], ids=["cc", "clang"])
def test_optimised_code_agrees_with_both_compilers(cc, compiler):
    chosen = {} if cc is None else {"cc": cc}
    for name in ("product", "3x3 stride 2", "cell", "attention scores"):
        expr, constants = CONTRACTIONS[name]
        check(expr, compiler, constants=constants, vdevice=AVX512, flags=("-O3",), **chosen)
    for expr in (REDUCTIONS["max pool"], REDUCTIONS["softmax of rows"], REDUCTIONS["depthwise 3x3"], MAPS["gather"]):
        check(expr, compiler, vdevice=AVX512, flags=("-O3",), **chosen)


def test_more_tasks_than_candidates_offer(compiler):
    """Boundary tiles along every axis at once."""
    expr = conv((1, 5, 11, 13), (37, 5, 3, 3))
    bound = Bound(expr, {1}, AVX2)
    tile = bound.kernels[0].tile
    task = tuple(min(axis.extent, 2 * size) for axis, size in zip(bound.expr.axes, tile.register, strict=True))
    object.__setattr__(tile, "task", task)
    kernel = bound.kernels[0]
    assert kernel.task_count > 10
    inputs = [random_array(type_) for type_ in expr.inputs]
    library = compiler.library([emit_kernel(kernel, "tiled")])
    (found,) = bound.run(kernel, library["tiled"], inputs)
    (wanted,) = evaluate(expr, inputs)
    assert_close(found, wanted, F32)


# --- Values ------------------------------------------------------------------------------------------------

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e-42, 3e38, -3e38, 1.5, -2.5, 100.0, -100.0, 88.9])


@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16], ids=lambda dtype: dtype.value)
def test_nan_infinity_and_subnormal_numbers(dtype, compiler):
    with np.errstate(over="ignore"):
        a, b = (grid.reshape(-1).astype(np.float32).astype(dtype.numpy) for grid in np.meshgrid(SPECIAL, SPECIAL))
    types_ = types(a.shape, a.shape, dtype=dtype)
    for kind in ("Max", "Min", "Add", "Div", "Less", "Equal"):
        check(expression(kind, types_), compiler, inputs=[a, b])
    for kind in ("Exp", "Tanh", "Sigmoid", "Erf", "Relu", "Sign", "Abs", "Round", "Sqrt", "IsNaN"):
        check(expression(kind, types_[:1]), compiler, inputs=[a])
    check(
        expression("ReduceMax", types((14, 14), dtype=dtype), axes=(1,), keepdims=False),
        compiler,
        inputs=[a.reshape(14, 14)],
    )
    check(
        expression("ReduceMin", types((14, 14), dtype=dtype), axes=(0,), keepdims=False),
        compiler,
        inputs=[a.reshape(14, 14)],
    )


@pytest.mark.parametrize("dtype", [U8, DType.INT8, I32, I64, DType.UINT64, DType.INT16], ids=lambda dtype: dtype.value)
def test_integers_wrap_and_divide_as_in_numpy(dtype, compiler):
    limits = np.iinfo(dtype.numpy)
    ends = [limits.min, limits.max, limits.min // 2 + 1, 0, 1, 2, 3, 7, limits.max // 3]
    ends += [-1, -2, -7] if dtype.is_signed else []
    a, b = (grid.reshape(-1) for grid in np.meshgrid(*[np.array(ends, dtype.numpy)] * 2))
    type_ = TensorType(dtype, a.shape)
    (axis,) = (Axis("s0", a.size),)
    x, y = load(0, type_, (axis,)), load(1, type_, (axis,))
    functions = [ScalarFn.ADD, ScalarFn.SUB, ScalarFn.MUL, ScalarFn.DIV, ScalarFn.FLOORDIV, ScalarFn.MOD, ScalarFn.FMOD]
    functions += [ScalarFn.MIN, ScalarFn.MAX, ScalarFn.BIT_AND, ScalarFn.BIT_OR, ScalarFn.BIT_XOR]
    bodies = [call(fn, x, y) for fn in functions]
    bodies += [call(fn, x) for fn in (ScalarFn.NEG, ScalarFn.ABS, ScalarFn.SIGN, ScalarFn.BIT_NOT)]
    amount = call(ScalarFn.BIT_AND, y, const(63, dtype))
    bodies += [call(fn, x, amount) for fn in (ScalarFn.SHIFT_LEFT, ScalarFn.SHIFT_RIGHT)]
    outputs = tuple(Output(type=type_, indices=(axis,), body=body) for body in bodies)
    with np.errstate(all="ignore"):
        check(TensorExpr(axes=(axis,), inputs=(type_, type_), outputs=outputs), compiler, inputs=[a, b])


@pytest.mark.parametrize("dtype", [F16, BF16], ids=lambda dtype: dtype.value)
def test_sixteen_bit_floats_convert_exactly(dtype, compiler):
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    check(expression("Cast", types(every.shape, dtype=dtype), to=F32), compiler, inputs=[every])
    wide = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, dtype=np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        narrow = every.astype(np.float32)
        samples = [wide, narrow, narrow * np.float32(1 + 2**-11)]
        rounded = [numbers.astype(dtype.numpy) for numbers in samples]
    for numbers, wanted in zip(samples, rounded, strict=True):
        ((_, (found,)), *_) = run_all(expression("Cast", types(numbers.shape), to=dtype), [numbers], compiler)
        np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))


@pytest.mark.parametrize("kind", ["Exp", "Tanh", "Sigmoid", "Erf"])
def test_functions_are_accurate_to_three_units_in_the_last_place(kind, compiler):
    x = np.concatenate([np.linspace(-105, 95, 200_001), np.linspace(-5, 5, 200_001), np.logspace(-40, 1, 10_000)])
    x = x.astype(np.float32)
    ((_, (found,)), *_) = run_all(expression(kind, types(x.shape)), [x], compiler, flags=("-O3",))
    (wanted,) = evaluate(expression(kind, types(x.shape, dtype=F64)), [x.astype(np.float64)])
    with np.errstate(over="ignore"):
        unit = np.spacing(np.abs(wanted.astype(np.float32))).astype(np.float64)
        inside = np.isfinite(wanted.astype(np.float32))
    assert np.max(np.abs(found.astype(np.float64)[inside] - wanted[inside].astype(np.float64)) / unit[inside]) < 3
    np.testing.assert_array_equal(np.isinf(found), ~inside)


def test_indices_outside_are_kept_inside(compiler):
    """A gather without clamps of its own."""
    x, where = TensorType(F32, (10, 6)), TensorType(I32, (8,))
    i, j = Axis("s0", 8), Axis("s1", 6)
    index = cast(I64, load(1, where, (i,)))
    body = load(0, x, (index, j))
    output = Output(type=TensorType(F32, (8, 6)), indices=(i, j), body=body)
    expr = TensorExpr(axes=(i, j), inputs=(x, where), outputs=(output,))
    rows = np.array([0, 9, -1, 10, 2**31 - 1, -(2**31), 3, 4], np.int32)
    values = random_array(x)
    for _, (found,) in run_all(expr, [values, rows], compiler):
        np.testing.assert_array_equal(found, values[np.clip(rows, 0, 9)])


def test_a_padded_gather_gives_its_fill_outside(compiler):
    x, where = TensorType(F32, (10,)), TensorType(I64, (6,))
    i = Axis("s0", 6)
    body = load(0, x, (load(1, where, (i,)),), fill=-3.0)
    output = Output(type=TensorType(F32, (6,)), indices=(i,), body=body)
    expr = TensorExpr(axes=(i,), inputs=(x, where), outputs=(output,))
    check(expr, compiler, inputs=[random_array(x), np.array([0, 9, -1, 10, 1 << 40, 5])])


def test_divisions_in_unused_branches_do_no_harm(compiler):
    type_ = TensorType(I32, (9,))
    i = Axis("s0", 9)
    x = load(0, type_, (i,))
    body = select(call(ScalarFn.EQ, x, 0), const(7, I32), call(ScalarFn.DIV, const(100, I32), x))
    expr = TensorExpr(axes=(i,), inputs=(type_,), outputs=(Output(type=type_, indices=(i,), body=body),))
    check(expr, compiler, inputs=[np.arange(-4, 5, dtype=np.int32)])


# --- Random elementwise work ---------------------------------------------------------------------------------

UNARY = [ScalarFn.NEG, ScalarFn.ABS, ScalarFn.SIGN, ScalarFn.FLOOR, ScalarFn.TANH, ScalarFn.SIGMOID, ScalarFn.ERF]
BINARY = [ScalarFn.ADD, ScalarFn.SUB, ScalarFn.MUL, ScalarFn.MIN, ScalarFn.MAX]
COMPARISONS = [ScalarFn.LT, ScalarFn.LE, ScalarFn.EQ, ScalarFn.NE]


@st.composite
def elementwise(draw):
    """A DAG over loads that are whole, broadcast, transposed, shifted or strided."""
    rows, columns = draw(st.integers(1, 9)), draw(st.integers(1, 40))
    i, j = Axis("s0", rows), Axis("s1", columns)
    dtype = draw(st.sampled_from([F32, F64, F16]))
    shapes: list[tuple[tuple[int, ...], tuple[Expr, ...]]]
    shapes = [((rows, columns), (i, j)), ((columns,), (j,)), ((columns, rows), (j, i)), ((rows, 1), (i, const(0, I64)))]
    shapes += [((2 * rows, columns + 3), (i * 2 + 1, j + 3)), ((rows * columns,), (i * columns + j,))]
    slots = draw(st.lists(st.sampled_from(shapes), min_size=1, max_size=4))
    inputs = tuple(TensorType(dtype, shape) for shape, _ in slots)
    pool_ = [load(slot, inputs[slot], index) for slot, (_, index) in enumerate(slots)]
    pool_.append(load(0, inputs[0], [index - 1 for index in slots[0][1]], fill=0.5))
    for _ in range(draw(st.integers(1, 10))):
        pick = st.sampled_from(pool_)
        shape = draw(st.integers(0, 3))
        if shape == 0:
            pool_.append(call(draw(st.sampled_from(UNARY)), draw(pick)))
        elif shape == 1:
            condition = call(draw(st.sampled_from(COMPARISONS)), draw(pick), draw(pick))
            pool_.append(select(condition, draw(pick), draw(pick)))
        elif shape == 2:
            pool_.append(call(draw(st.sampled_from(BINARY)), draw(pick), draw(st.sampled_from([0.0, -1.5, 2.0]))))
        else:
            pool_.append(call(draw(st.sampled_from(BINARY)), draw(pick), draw(pick)))
    type_ = TensorType(dtype, (rows, columns))
    outputs = tuple(Output(type=type_, indices=(i, j), body=cast(dtype, body)) for body in pool_[-2:])
    return TensorExpr(axes=(i, j), inputs=inputs, outputs=outputs)


@settings(max_examples=60)
@given(elementwise())
def test_random_elementwise_work(compiler, expr):
    # Multiples of 1/4 keep sums and products exact, so that contraction cannot move a value across a comparison.
    inputs = [np.round(random_array(type_).astype(np.float64) * 4) / 4 for type_ in expr.inputs]
    inputs = [array.astype(type_.dtype.numpy) for array, type_ in zip(inputs, expr.inputs, strict=True)]
    check(expr, compiler, inputs=inputs, flags=("-O1", "-ffp-contract=off"))


# --- The text --------------------------------------------------------------------------------------------------

_PRINT = """
from tests.test_cpu_emit import CONTRACTIONS, MAPS, REDUCTIONS, AVX512, Bound, emit_kernel
import sys
expressions = [*CONTRACTIONS.values(), *((expr, {1}) for expr in (*REDUCTIONS.values(), *MAPS.values()))]
for expr, constants in expressions:
    for kernel in Bound(expr, constants, AVX512).kernels:
        sys.stdout.write(emit_kernel(kernel, "kernel"))
"""


def test_equal_kernels_have_equal_code_in_every_process():
    texts = {
        subprocess.run(
            [sys.executable, "-c", _PRINT], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1
    assert texts.pop().count("void kernel(") > 100


def test_stack_stays_small():
    for expr, constants in CONTRACTIONS.values():
        for kernel in Bound(expr, constants, AVX512).kernels:
            assert kernel.resources.scratch_bytes <= 64 << 10


def test_weights_that_few_blocks_of_rows_share_are_prefetched():
    for rows, is_prefetched in ((4, False), (24, True), (300, False)):
        expr = expression("MatMul", types((3, rows, 64), (3, 64, 48)))
        kernel = max(Bound(expr, {1}, AVX512).kernels, key=lambda kernel: kernel.tile.task)
        assert ("RAMMER_PREFETCH" in emit_kernel(kernel, "kernel")) is is_prefetched


def test_sums_go_through_memory_only_to_be_transposed():
    expr, constants = CONTRACTIONS["1x1"]
    for channels_last, is_in_memory in (({0, 2}, False), ({0}, True)):
        for kernel in Bound(expr, constants, AVX512, channels_last).kernels:
            assert ("float sums" in emit_kernel(kernel, "kernel")) is is_in_memory


def test_a_register_tile_that_does_not_fit_is_refused():
    bound = Bound(CONTRACTIONS["product"][0], {1}, AVX512)
    kernel = bound.kernels[0]
    object.__setattr__(kernel.tile, "register", (3, 5))
    with pytest.raises(ValueError, match="register tile"):
        emit_kernel(kernel, "kernel")


def test_a_function_of_the_wrong_type_is_refused():
    type_ = TensorType(I32, (4,))
    i = Axis("s0", 4)
    body = call(ScalarFn.SQRT, load(0, type_, (i,)))
    expr = TensorExpr(axes=(i,), inputs=(type_,), outputs=(Output(type=type_, indices=(i,), body=body),))
    with pytest.raises(TypeError, match="sqrt of int32"):
        emit_kernel(Bound(expr, (), AVX2).kernels[0], "kernel")
