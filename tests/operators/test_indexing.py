"""Operators that load at positions which another operand holds, against NumPy and ONNX Runtime."""

import numpy as np
import pytest

from rammer.errors import InvalidModelError
from rammer.ir.types import DType, TensorType
from tests.support.onnx_node import run_node
from tests.support.operators import expression, run_operator


def counted(*shape):
    """Distinct elements."""
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("positions_type", [np.int32, np.int64])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(), (4,), (2, 2), (0,)])
def test_gather(axis, shape, positions_type):
    x = counted(3, 4, 3)
    positions = np.random.default_rng(0).integers(-3, 3, size=shape).astype(positions_type)
    np.testing.assert_array_equal(run_operator("Gather", [x, positions], axis=axis), np.take(x, positions, axis))


def test_gather_never_leaves_the_operand():
    x = counted(3)
    positions = np.array([-100, -4, 3, 100], np.int64)
    np.testing.assert_array_equal(run_operator("Gather", [x, positions], axis=0), x[[0, 0, 2, 2]])


@pytest.mark.parametrize("axis", [0, 1])
def test_gather_elements(axis):
    x = counted(3, 4)
    positions = np.random.default_rng(0).integers(-3, 3, size=(2, 3))
    (expected,) = run_node("GatherElements", [x, positions], 1, {"axis": axis})
    np.testing.assert_array_equal(run_operator("GatherElements", [x, positions], axis=axis), expected)


@pytest.mark.parametrize(("batch", "time"), [(0, 1), (1, 0)])
def test_reverse_sequence(batch, time):
    x, lengths = counted(3, 3, 2), np.array([1, 3, 2])
    (expected,) = run_node("ReverseSequence", [x, lengths], 1, {"batch_axis": batch, "time_axis": time})
    result = run_operator("ReverseSequence", [x, lengths], batch_axis=batch, time_axis=time)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint64, np.float16, np.float64])
def test_reverse_sequence_of_every_kind_of_element(dtype):
    x = counted(2, 3).astype(dtype)
    x[0, 1] = np.nan if x.dtype.kind == "f" else 0
    result = run_operator("ReverseSequence", [x, np.array([3, 2])], batch_axis=0, time_axis=1)
    np.testing.assert_array_equal(result, [x[0, ::-1], x[1, [1, 0, 2]]])
    assert result.dtype == dtype


def test_reverse_sequence_never_leaves_the_operand():
    x, lengths = counted(2, 3), np.array([100, -100])
    result = run_operator("ReverseSequence", [x, lengths], batch_axis=0, time_axis=1)
    np.testing.assert_array_equal(result, [x[0, ::-1], x[1]])


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_reverse_sequence_of_nothing(shape):
    lengths = np.zeros(shape[0], np.int64)
    assert run_operator("ReverseSequence", [counted(*shape), lengths], batch_axis=0, time_axis=1).shape == shape


F32, I32, I64 = DType.FLOAT32, DType.INT32, DType.INT64


@pytest.mark.parametrize(
    ("kind", "types", "attributes", "message"),
    [
        ("Gather", [(F32, (2,)), (F32, (2,))], {"axis": 0}, "int32 or int64"),
        ("Gather", [(F32, (0,)), (I32, (2,))], {"axis": 0}, "empty"),
        ("Gather", [(F32, (2,)), (I32, (2,))], {"axis": 1}, "rank 1"),
        ("GatherElements", [(F32, (2, 3)), (I32, (3, 3))], {"axis": 1}, "do not fit"),
        ("ReverseSequence", [(F32, (2, 3)), (I64, (3,))], {"batch_axis": 0, "time_axis": 1}, "do not fit"),
        ("ReverseSequence", [(F32, (2, 3)), (I32, (2,))], {"batch_axis": 0, "time_axis": 1}, "other types"),
        ("ReverseSequence", [(F32, (2, 3)), (I64, (3,))], {"batch_axis": 1, "time_axis": 1}, "twice"),
        ("ReverseSequence", [(F32, (2, 3))], {"batch_axis": 0, "time_axis": 1}, "1 operands"),
    ],
)
def test_operands_that_do_not_fit(kind, types, attributes, message):
    with pytest.raises(InvalidModelError, match=message):
        expression(kind, [TensorType(*type_) for type_ in types], **attributes)
