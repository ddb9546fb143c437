"""Element types, tensor types and layouts."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rammer.ir.types import MODEL_DTYPES, DType, Layout, TensorType


def test_every_element_type_has_its_numpy_type():
    for dtype in MODEL_DTYPES:
        array = np.zeros(1, dtype.numpy)
        assert DType.of(array) is dtype
        assert dtype.itemsize_bytes == array.itemsize
        assert dtype.value == array.dtype.name


def test_tf32_is_stored_as_float32_and_never_found_in_an_array():
    assert DType.TF32.numpy == np.float32
    assert DType.of(np.zeros(1, DType.TF32.numpy)) is DType.FLOAT32


def test_properties_of_element_types():
    assert [d for d in DType if d.is_half] == [DType.FLOAT16, DType.BFLOAT16]
    assert [d for d in DType if d.is_rounded] == [DType.FLOAT16, DType.BFLOAT16, DType.TF32]
    assert all(d.compute is (DType.FLOAT32 if d.is_rounded else d) for d in DType)
    assert DType.BFLOAT16.is_float
    assert not DType.BOOL.is_signed
    assert not DType.UINT8.is_signed
    assert DType.INT8.is_signed
    assert DType.FLOAT16.is_signed


@pytest.mark.parametrize("name", ["complex64", "float8_e3m4", "object"])
def test_foreign_element_types_are_refused(name):
    foreign = np.dtype(ml_dtypes.float8_e3m4) if name.startswith("float8") else np.dtype(name)
    with pytest.raises(KeyError):
        DType.of(np.zeros(1, foreign))


@pytest.mark.parametrize(
    ("shape", "rank", "size", "text"),
    [((), 0, 1, "float16[]"), ((2, 3), 2, 6, "float16[2,3]"), ((4, 0), 2, 0, "float16[4,0]")],
)
def test_tensor_type(shape, rank, size, text):
    type_ = TensorType(DType.FLOAT16, shape)
    assert (type_.rank, type_.size, type_.nbytes, str(type_)) == (rank, size, 2 * size, text)


shapes = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


@st.composite
def layouts(draw):
    shape = draw(shapes)
    order = tuple(draw(st.permutations(range(len(shape)))))
    if draw(st.booleans()):
        dim, width = draw(st.integers(0, len(shape) - 1)), draw(st.integers(1, 6))
        inner = draw(st.sampled_from([None, *(other for other in range(len(shape)) if other != dim)]))
        return shape, Layout.panelled(shape, [other for other in order if other != inner], dim, width, inner)
    return shape, Layout.ordered(shape, order)


@given(layouts())
def test_addresses_are_distinct_and_within_the_span(case):
    shape, layout = case
    addresses = layout.addresses(shape)
    assert addresses.shape == shape
    assert len(np.unique(addresses)) == addresses.size
    assert addresses.min() >= 0
    assert addresses.max() < layout.span
    for index in np.ndindex(shape):
        assert layout.address(index) == addresses[index]


@given(layouts())
def test_packing_puts_each_element_at_its_address_and_zeros_elsewhere(case):
    shape, layout = case
    array = np.arange(1, 1 + np.prod(shape), dtype=np.int32).reshape(shape)
    storage = layout.pack(array)
    assert storage.shape == (layout.span,)
    np.testing.assert_array_equal(storage[layout.addresses(shape)], array)
    assert storage.sum() == array.sum()


@given(shapes)
def test_row_major_is_what_numpy_does(shape):
    layout = Layout.row_major(shape)
    array = np.arange(np.prod(shape)).reshape(shape)
    assert layout.is_row_major(shape)
    assert layout.strides == tuple(stride // array.itemsize for stride in array.strides)
    np.testing.assert_array_equal(layout.pack(array), array.reshape(-1))


def test_other_orders_are_not_row_major_unless_only_ones_move():
    assert not Layout.ordered((2, 3), (1, 0)).is_row_major((2, 3))
    assert Layout.ordered((1, 3), (1, 0)).is_row_major((1, 3))
    assert not Layout.panelled((4, 8), (0, 1), 1, 4).is_row_major((4, 8))


def test_channels_last():
    array = np.arange(24).reshape(1, 2, 3, 4)
    np.testing.assert_array_equal(
        Layout.ordered(array.shape, (0, 2, 3, 1)).pack(array), array.transpose(0, 2, 3, 1).reshape(-1)
    )


def test_panels_lie_one_after_the_other_and_the_last_is_padded():
    array = np.arange(1, 16).reshape(3, 5)  # 5 columns in panels of 2, rows inside a panel
    expected = [[1, 2], [6, 7], [11, 12], [3, 4], [8, 9], [13, 14], [5, 0], [10, 0], [15, 0]]
    np.testing.assert_array_equal(Layout.panelled((3, 5), (0, 1), 1, 2).pack(array).reshape(-1, 2), expected)


def test_what_is_innermost_lies_side_by_side_in_each_lane():
    array = np.arange(24).reshape(2, 3, 4)  # panels of two of the three, of which each has four
    packed = Layout.panelled(array.shape, (0,), 1, 2, inner=2).pack(array)
    assert packed.tolist() == [*range(8), *range(12, 20), *range(8, 12), *[0] * 4, *range(20, 24), *[0] * 4]


def test_the_layout_of_a_scalar():
    layout = Layout.row_major(())
    assert (layout.span, layout.address(())) == (1, 0)
    np.testing.assert_array_equal(layout.pack(np.array(7)), [7])
