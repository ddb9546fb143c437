"""Matrix-vector products that stream rows, against NumPy: what threads and teams share out, before and after Waits."""

from dataclasses import replace

import numpy as np
import pytest

from rammer.devices.cuda.emit.kernel import emit_kernel
from rammer.ir.expr import Axis, Output, Reduce, ReduceFn, ScalarFn, TensorExpr, call, cast, const, load
from rammer.ir.kernel_form import GemvRowsForm
from rammer.ir.types import DType, TensorType
from rammer.tiling.packed import packed_number, weight_of
from tests.support.host_cuda import ORDERS, Copies, Order, Policy
from tests.support.host_cuda.kernels import KernelProgram, cases_of
from tests.support.kernel_cases import assert_close
from tests.support.kernels import types
from tests.support.operators import expression

SOME = (*ORDERS[:1], Order(policy=Policy.RANDOM, copies=Copies.LATE, seed=3))
F16, BF16, F32 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32


def product(points, elements, dtype):
    return expression("MatMul", types((1, elements), (elements, points), dtype=dtype))


def gated(points, elements, dtype=F16):
    """max(x w, 0) * (x u) / (1 + |x|^2) + b: two matrices, a sum that all points share, work before and after."""
    n, k = Axis("n", points), Axis("k", elements)
    vector, matrix, row = (TensorType(dtype, shape) for shape in ((elements,), (points, elements), (points,)))
    x = cast(F32, load(0, vector, (k,))) * 0.5
    w, u = (Reduce(ReduceFn.SUM, (k,), call(ScalarFn.MUL, x, cast(F32, load(slot, matrix, (n, k))))) for slot in (1, 2))
    square = Reduce(ReduceFn.SUM, (k,), call(ScalarFn.MUL, x, x))
    body = call(ScalarFn.MAX, w, 0.0) * u / (square + 1.0) + cast(F32, load(3, row, (n,)))
    output = Output(type=row, indices=(n,), body=cast(dtype, body))
    return TensorExpr(axes=(n,), inputs=(vector, matrix, matrix, row), outputs=(output,))


def scaled(points, elements, dtype):
    """sum(x s w) / (1 + |x|^2)."""
    n, k = Axis("n", points), Axis("k", elements)
    vector, matrix, row = (TensorType(dtype, shape) for shape in ((elements,), (points, elements), (points,)))
    x, s, w = (cast(F32, load(*place)) for place in ((0, vector, (k,)), (1, vector, (k,)), (2, matrix, (n, k))))
    product, square = (
        Reduce(ReduceFn.SUM, (k,), call(ScalarFn.MUL, left, right)) for left, right in ((x * s, w), (x, x))
    )
    body = cast(dtype, product / (square + 1.0))
    outputs = (Output(type=row, indices=(n,), body=body),)
    return TensorExpr(axes=(n,), inputs=(vector, vector, matrix), outputs=outputs)


def packed(points, elements, *, bits=4, block=32, zeros=None, scale=F16):
    """A product by numbers of few bits."""
    blocks = elements // block
    kinds = {None: [], "packed": [TensorType(DType.UINT8, (points, -(-blocks * bits // 8)))]}
    kinds |= {"floats": [TensorType(F16, (points, blocks))]}
    x, w, s = TensorType(F32, (1, elements)), TensorType(DType.UINT8, (points, elements * bits // 8)), (points, blocks)
    return expression("MatMulNBits", [x, w, TensorType(scale, s), *kinds[zeros]], bits=bits, block=block)


def gated_of_few_bits(points, elements):
    """max(x w, 0) * (x u) / (1 + |x|^2) + b, where w and u are of few bits, and x is scaled by a constant."""
    n, k = Axis("n", points), Axis("k", elements)
    vector, bytes_, blocks = (
        TensorType(F32, (elements,)),
        TensorType(DType.UINT8, (points, elements // 2)),
        TensorType(F16, (points, elements // 32)),
    )
    x = load(0, vector, (k,))
    scaled = x * load(1, vector, (k,))
    w, u = (
        Reduce(
            ReduceFn.SUM,
            (k,),
            scaled
            * weight_of(packed_number(slot, bytes_, n, k, 4), const(8, F32), load(slot + 1, blocks, (n, k // 32))),
        )
        for slot in (2, 4)
    )
    square = Reduce(ReduceFn.SUM, (k,), call(ScalarFn.MUL, x, x))
    body = call(ScalarFn.MAX, w, 0.0) * u / (square + 1.0) + load(6, TensorType(F32, (points,)), (n,))
    outputs = (Output(type=TensorType(F32, (points,)), indices=(n,), body=body),)
    inputs = (vector, vector, bytes_, blocks, bytes_, blocks, TensorType(F32, (points,)))
    return TensorExpr(axes=(n,), inputs=inputs, outputs=outputs)


CASES = {
    "4 bits": (packed(70, 2048), {1, 2}),
    "4 bits, zero points": (packed(37, 2048, zeros="packed"), {1, 2, 3}),
    "4 bits, zero points are floats, scales of 32 bits": (packed(21, 1024, zeros="floats", scale=F32), {1, 2, 3}),
    "4 bits in long blocks, vectors left over": (packed(9, 3072, block=128), {1, 2}),
    "4 bits, rows shorter than a warp's": (packed(21, 896), {1, 2}),
    "4 bits, more points than are on their way": (packed(300, 16384), {1, 2}),
    "8 bits": (packed(33, 1024, bits=8, zeros="packed"), {1, 2, 3}),
    "8 bits, several vectors a thread": (packed(5, 1536, bits=8), {1, 2}),
    "two matrices of 4 bits": (gated_of_few_bits(45, 1024), {1, 2, 3, 4, 5}),
    "float16": (product(70, 512, F16), {1}),
    "bfloat16, odd rows": (product(37, 2048, BF16), {1}),
    "float32, vectors left over": (product(50, 600, F32), {1}),
    "several vectors a thread": (product(21, 8192, F16), {1}),
    "two matrices": (gated(45, 1024), {1, 2}),
    "the vector is constant, too": (gated(30, 512), {0, 1, 2}),
    "a constant scale": (scaled(37, 2048, BF16), {1, 2}),
    "a constant scale, vectors left over, several a thread": (scaled(21, 2408, F32), {1, 2}),
}


@pytest.fixture
def streaming(gpu):
    """A vDevice that keeps no weights."""
    return replace(gpu.vdevice(gpu.options(veus=132)), stationary_bytes=0)


@pytest.mark.parametrize("name", CASES)
def test_rows_against_numpy(name, gpu, streaming):
    expr, constants = CASES[name]
    cases = [case for case in cases_of(expr, streaming, constants) if isinstance(case.kernel.form, GemvRowsForm)]
    assert cases
    cases = [cases[0], *cases[1:][-1:]]
    program = KernelProgram(cases, veus=3)
    loaded = program.load(gpu)
    for order in SOME:
        for case, found in zip(cases, program.outputs(gpu, loaded, order), strict=True):
            for output, ours, wanted in zip(case.bound.expr.outputs, found, case.wanted, strict=True):
                assert np.isfinite(wanted).all()
                assert_close(ours, wanted, output.type.dtype)


def test_constants_are_asked_for_before_the_wait(streaming):
    expr, constants = CASES["a constant scale"]
    case = next(case for case in cases_of(expr, streaming, constants) if isinstance(case.kernel.form, GemvRowsForm))
    text = emit_kernel(case.kernel, "product", unwritten=frozenset(constants), constants_stay=False).text
    before, after = text.split("if (!rammer_begin(record))")
    assert "in1 + (" in before
    assert "in2 + (" in before
    assert "in0 + (" in after
    assert "in1 + (" not in after
