"""Copies between arrays of other extents, by the driver of the tests' GPU."""

import numpy as np
import pytest

from rammer.devices.cuda.boxes import copy_box
from rammer.devices.cuda.driver import Driver
from tests.support.host_cuda.driver import HostApi

EXTENTS = [
    ((5,), (3,), (3,)),
    ((3,), (5,), (3,)),
    ((4, 6), (4, 6), (4, 6)),
    ((2, 6), (4, 6), (2, 6)),
    ((4, 3), (4, 6), (4, 3)),
    ((2, 3, 4), (3, 3, 6), (2, 3, 4)),
    ((5, 7, 6), (5, 9, 6), (4, 6, 6)),
    ((3, 4, 5, 6), (4, 5, 6, 7), (3, 4, 5, 6)),
    ((2, 3, 2, 4, 3), (2, 4, 2, 5, 3), (2, 3, 2, 4, 2)),
    ((2, 0), (2, 4), (2, 0)),
    ((), (), ()),
]


@pytest.mark.parametrize(("read", "written", "box"), EXTENTS)
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_a_box_is_copied_and_nothing_else(read, written, box, dtype):
    start = np.arange(1, 1 + np.prod(read, dtype=int), dtype=dtype).reshape(read)
    into = np.zeros(written, dtype)
    expected = into.copy()
    expected[tuple(map(slice, box))] = start[tuple(map(slice, box))]
    copy_box(
        Driver(api=HostApi(), device=0, context=0, pool=0),
        into=(into.ctypes.data, written),
        start=(start.ctypes.data, read),
        box=box,
        itemsize_bytes=into.itemsize,
        stream=0,
    )
    np.testing.assert_array_equal(into, expected)


def test_what_lies_together_is_one_copy():
    api = HostApi()
    array = np.zeros((4, 5, 6), np.float32)
    for shape in ((4, 5, 6), (2, 5, 6)):
        copy_box(
            Driver(api=api, device=0, context=0, pool=0),
            into=(array.ctypes.data, array.shape),
            start=(array.ctypes.data, shape),
            box=shape,
            itemsize_bytes=4,
            stream=0,
        )
    assert api.log == ["cuMemcpyDtoDAsync"] * 2
