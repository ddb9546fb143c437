"""Tensors: every element type in every form of storage, and hostile sizes that must not be allocated."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from rammer.errors import InvalidModelError, TensorSizeError, UnsupportedFeatureError
from rammer.frontends.onnx.tensors import array_of, dtype_of, schema_type, type_proto
from rammer.ir.types import MODEL_DTYPES, DType, TensorType

SAMPLES = {
    DType.BOOL: [True, False, True, True],
    DType.UINT8: [0, 1, 200, 255],
    DType.INT8: [-128, -1, 0, 127],
    DType.UINT16: [0, 1, 40000, 65535],
    DType.INT16: [-32768, -1, 0, 32767],
    DType.UINT32: [0, 1, 2**31, 2**32 - 1],
    DType.INT32: [-(2**31), -1, 0, 2**31 - 1],
    DType.UINT64: [0, 1, 2**63, 2**64 - 1],
    DType.INT64: [-(2**63), -1, 0, 2**63 - 1],
    DType.FLOAT16: [0.5, -2.0, 65504.0, float("inf")],
    DType.BFLOAT16: [0.5, -2.0, 3.0e38, float("-inf")],
    DType.FLOAT32: [0.5, -2.0, 3.4e38, float("nan")],
    DType.FLOAT64: [0.5, -2.0, 1.7e308, float("nan")],
}


@pytest.mark.parametrize("dtype", MODEL_DTYPES)
@pytest.mark.parametrize("raw", [True, False])
def test_round_trip(dtype, raw):
    array = np.array(SAMPLES[dtype], dtype=dtype.numpy).reshape(2, 2)
    element_type = helper.np_dtype_to_tensor_dtype(dtype.numpy)
    if raw:
        tensor = numpy_helper.from_array(array)
    else:
        values = array.reshape(-1)
        stored = {DType.FLOAT16: np.uint16, DType.BFLOAT16: np.uint16, DType.BOOL: np.uint8}
        values = values.view(stored.get(dtype, values.dtype))
        tensor = TensorProto(data_type=element_type, dims=array.shape)
        field = {
            DType.FLOAT32: "float_data",
            DType.FLOAT64: "double_data",
            DType.INT64: "int64_data",
            DType.UINT32: "uint64_data",
            DType.UINT64: "uint64_data",
        }.get(dtype, "int32_data")
        getattr(tensor, field).extend(values.tolist())
    read = array_of(tensor, None, "w")
    assert read.dtype == dtype.numpy
    np.testing.assert_array_equal(read.astype(np.float64), array.astype(np.float64))


@pytest.mark.parametrize("dtype", MODEL_DTYPES)
def test_types_go_both_ways(dtype):
    proto = type_proto(TensorType(dtype, (2, 0)))
    assert dtype_of(proto.tensor_type.elem_type, "w") is dtype
    assert schema_type(dtype).startswith("tensor(")
    assert DType.of(np.zeros(1, ml_dtypes.bfloat16)) is DType.BFLOAT16


def test_scalar_and_empty_tensors():
    assert array_of(numpy_helper.from_array(np.array(3, np.float32)), None, "w").shape == ()
    assert array_of(TensorProto(data_type=1, dims=[2, 0]), None, "w").shape == (2, 0)


def test_bytes_other_than_0_and_1_are_true():
    tensor = TensorProto(data_type=TensorProto.BOOL, dims=[3], raw_data=b"\x00\x02\xff")
    assert array_of(tensor, None, "w").tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("dims", "data", "message"),
    [
        ([3], {"raw_data": b"\0" * 11}, "takes 12 bytes"),
        ([3], {"raw_data": b"\0" * 13}, "takes 12 bytes"),
        ([-1], {"raw_data": b""}, "negative"),
        ([2**31], {"float_data": [0.0]}, "has 2147483648 elements"),
        ([2], {"float_data": [0.0]}, "has 2 elements, but its data have 1"),
        ([1], {"int32_data": [0]}, "int32_data"),
        ([1], {"float_data": [0.0], "int64_data": [1]}, "float_data and int64_data"),
        ([1], {}, "has 1 elements, but its data have 0"),
    ],
)
def test_data_that_do_not_fit(dims, data, message):
    with pytest.raises(InvalidModelError, match=message) as caught:
        array_of(TensorProto(data_type=TensorProto.FLOAT, dims=dims, **data), None, "tensor w")
    assert caught.value.where == "tensor w"


@pytest.mark.parametrize("dims", [[2**40, 2**40], [2**62, 0, 2**62], [1] * 65])
def test_tensors_that_cannot_be(dims):
    with pytest.raises(TensorSizeError) as caught:
        array_of(TensorProto(data_type=TensorProto.FLOAT, dims=dims, raw_data=b""), None, "tensor w")
    assert (caught.value.code, caught.value.where) == ("R208", "tensor w")


def test_segments_and_unknown_types():
    tensor = TensorProto(data_type=1, dims=[1], float_data=[1.0])
    tensor.segment.begin = 0
    with pytest.raises(UnsupportedFeatureError, match="segments"):
        array_of(tensor, None, "w")
    with pytest.raises(UnsupportedFeatureError, match="STRING"):
        array_of(TensorProto(data_type=TensorProto.STRING, dims=[1], string_data=[b"a"]), None, "w")
