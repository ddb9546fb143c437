"""Matrix products against NumPy."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rammer.errors import InvalidModelError
from rammer.ir.graph import SourceLocation
from rammer.ir.types import DType, TensorType
from rammer.operators import contraction  # noqa: F401  registers the kinds
from rammer.operators.builder import GraphBuilder
from tests.support.operators import expression, run_operator


def normal(*shape, dtype=np.float32, seed=0):
    return np.asarray(np.random.default_rng(seed).standard_normal(shape), dtype=dtype)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (4, 5)),
        ((3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (7, 4, 5)),
        ((2, 3, 4), (4,)),
        ((4,), (2, 4, 5)),
        ((1, 3, 4), (6, 4, 5)),
        ((3, 1), (1, 5)),
        ((3, 0), (0, 5)),
        ((0, 4), (4, 5)),
        ((0, 3, 4), (1, 4, 5)),
    ],
)
def test_matmul_has_numpy_semantics(left, right):
    a, b = normal(*left), normal(*right, seed=1)
    result: Any = run_operator("MatMul", [a, b])
    np.testing.assert_allclose(result, np.matmul(a, b), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.float64])
def test_matmul_keeps_the_element_type(dtype):
    a, b = np.arange(12).reshape(3, 4).astype(dtype), np.arange(20).reshape(4, 5).astype(dtype)
    result = run_operator("MatMul", [a, b])
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, a @ b)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_products_are_summed_in_float32(dtype):
    # 4096 ones and a small term: a 16-bit running sum would stop growing.
    a, b = np.full((1, 4097), 0.5, dtype=dtype), np.full((4097, 1), 0.25, dtype=dtype)
    np.testing.assert_array_equal(run_operator("MatMul", [a, b]), np.array([[4097 / 8]]).astype(dtype))


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("bias", [None, (), (5,), (1,), (3, 1), (1, 5), (3, 5)])
def test_gemm(trans_a, trans_b, bias):
    a, b = normal(3, 4), normal(4, 5, seed=1)
    arrays = [a.T.copy() if trans_a else a, b.T.copy() if trans_b else b]
    expected = 0.5 * (a @ b)
    if bias is not None:
        arrays.append(normal(*bias, seed=2))
        expected = expected + 2.0 * arrays[2]
    result: Any = run_operator("Gemm", arrays, alpha=0.5, beta=2.0, trans_a=trans_a, trans_b=trans_b)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_unit_factors_leave_no_multiplication():
    types = [TensorType(DType.FLOAT32, shape) for shape in [(3, 4), (4, 5), (5,)]]
    expr = expression("Gemm", types, alpha=1.0, beta=1.0, trans_a=False, trans_b=False)
    assert str(expr.roots[0]) == "(sum[k<4]((in0[m, k] * in1[k, n])) + in2[n])"


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(3, 4), (5, 6)], "inner extents are 4 and 5"),
        ([(2, 3, 4), (3, 4, 5)], "do not broadcast"),
        ([(), (4, 5)], "scalar"),
    ],
)
def test_a_matmul_that_does_not_fit_names_its_place(shapes, message):
    source = SourceLocation(model="m.onnx", node="mm", op_type="MatMul")
    builder = GraphBuilder("test")
    inputs = [builder.input("x", TensorType(DType.FLOAT32, shape)) for shape in shapes]
    with pytest.raises(InvalidModelError, match=message) as caught:
        builder.add("MatMul", inputs, name="op", sources=[source])
    assert caught.value.where == "MatMul node 'mm' of m.onnx"


@pytest.mark.parametrize(
    "shapes", [[(3, 4), (3, 5)], [(3, 4), (4, 5), (4,)], [(3, 4), (4, 5), (1, 3, 5)], [(4,), (4, 5)]]
)
def test_a_gemm_that_does_not_fit_is_refused(shapes):
    with pytest.raises(InvalidModelError):
        run_operator("Gemm", [normal(*shape) for shape in shapes], alpha=1.0, beta=1.0, trans_a=False, trans_b=False)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_rows_times_the_matrices_of_their_groups(dtype):
    a, b = normal(6, 4), normal(3, 4, 5, seed=1)
    group = np.array([0, 2, 2, -1, 3, 1], dtype)  # the fourth and the fifth are in none
    expected = np.stack(
        [row @ b[g] if 0 <= g < 3 else np.zeros(5, np.float32) for row, g in zip(a, group, strict=True)]
    )
    np.testing.assert_allclose(run_operator("GroupedMatMul", [a, b, group]), expected, rtol=1e-5, atol=1e-6)


def test_what_nobody_names_does_not_reach_rows_without_a_group():
    b = np.full((1, 2, 3), np.inf, np.float32)
    np.testing.assert_array_equal(run_operator("GroupedMatMul", [normal(1, 2), b, np.array([1])]), np.zeros((1, 3)))


@pytest.mark.parametrize("shapes", [((6, 4), (3, 5, 4), (6,)), ((6, 4), (3, 4, 5), (5,)), ((6, 4), (4, 5), (6,))])
def test_grouped_products_that_do_not_fit_are_refused(shapes):
    dtypes = (DType.FLOAT32, DType.FLOAT32, DType.INT64)
    types = [TensorType(dtype, shape) for dtype, shape in zip(dtypes, shapes, strict=True)]
    with pytest.raises(InvalidModelError, match="GroupedMatMul"):
        expression("GroupedMatMul", types)


def test_operands_of_two_element_types_are_refused():
    with pytest.raises(InvalidModelError, match="several element types"):
        run_operator("MatMul", [normal(3, 4), normal(4, 5, dtype=np.float16)])
