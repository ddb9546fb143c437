"""Images as warpgroups multiply them: which convolutions are boxes of pixels, and where these lie."""

import pytest

from rammer.devices.registry import find_device
from rammer.ir.types import DType
from rammer.options import CompileOptions
from rammer.tiling.image import Image, boxes
from rammer.tiling.warpgroup_gemm import matrix_product
from tests.support.kernels import Bound, conv

H200 = find_device("cuda:sm_90").describe(CompileOptions(device="cuda:sm_90", precision="fp16"))


def image_in(image, weight, last=(0, 2), **attributes):
    """The image that a convolution reads by boxes, if it does."""
    kernel = Bound(conv(image, weight, dtype=DType.FLOAT16, **attributes), {1}, H200, last, elements=16).kernels[0]
    found = matrix_product(kernel.expr, kernel.layouts, kernel.alignments, kernel.tile.lane)
    return found.m if found is not None and isinstance(found.m, Image) else None


def test_windows():
    found = image_in((2, 128, 9, 12), (40, 128, 3, 5), dilations=(2, 1))
    assert found is not None
    assert (found.channels, found.group_channels, found.taps) == (128, 128, 15)
    across, down, images = found.dims
    assert (across.extent, across.stride, across.taps, across.dilation, across.first) == (12, 128, 5, 1, -2)
    assert (down.extent, down.stride, down.taps, down.dilation, down.first) == (9, 12 * 128, 3, 2, -2)
    assert (images.extent, images.stride, images.taps) == (2, 9 * 12 * 128, 1)


def test_groups_share_an_image():
    found = image_in((2, 128, 9, 12), (40, 64, 3, 3), group=2)
    assert found is not None
    assert (found.channels, found.group_channels) == (128, 64)


def test_single_pixels_of_a_grid():
    found = image_in((1, 64, 9, 12), (40, 64, 1, 1), strides=(2, 3), pads=(0, 0, 0, 0))
    assert found is not None
    assert [(dim.extent, dim.stride) for dim in found.dims[:2]] == [(4, 3 * 64), (5, 2 * 12 * 64)]


@pytest.mark.parametrize(
    ("image", "weight", "last", "attributes"),
    [
        ((1, 64, 9, 12), (40, 64, 3, 3), (), {}),  # channels apart in memory
        ((1, 32, 9, 12), (40, 32, 3, 3), (0, 2), {}),  # less than a slab
        ((1, 96, 9, 12), (40, 96, 3, 3), (0, 2), {}),  # no whole number of slabs
        ((1, 64, 9, 12), (40, 64, 3, 3), (0, 2), {"strides": (2, 2)}),  # windows of every other pixel
        ((1, 64, 9, 12), (40, 64, 1, 1), (0, 2), {}),  # a matrix
    ],
)
def test_others_are_none(image, weight, last, attributes):
    assert image_in(image, weight, last, **attributes) is None


def test_boxes_have_at_most_so_many_pixels():
    found = image_in((2, 64, 9, 12), (40, 64, 3, 3))
    assert found is not None
    sizes = [found.box(one) for one in boxes(found, 40)]
    assert (4, 9, 1) in sizes
    assert (12, 3, 1) in sizes
    assert all(a * b * c <= 40 for a, b, c in sizes)
