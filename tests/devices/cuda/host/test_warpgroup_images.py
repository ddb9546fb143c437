"""Convolutions that warpgroups multiply: boxes of an image, shifted tap by tap, in several orders."""

import numpy as np
import pytest
from onnx import helper

from tests.devices.cuda.host.test_warpgroup_gemm import TOLERANCES, forms_of
from tests.support.small_models import FLOAT, small_model


def convolution(image, features, kernel, *, groups=1, **attributes):
    """A convolution between two of single pixels, so that images lie in memory of ours, channels innermost."""
    rng = np.random.default_rng(7)
    batch, channels, *pixels = image
    shapes = {
        "w0": (channels, 8, *(1 for _ in pixels)),
        "w1": (features, channels // groups, *kernel),
        "b1": (features,),
    }
    constants = {
        name: (rng.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype(np.float32)
        for name, shape in shapes.items()
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1", "b1"], ["c"], group=groups, **attributes),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("GlobalAveragePool", ["d"], ["e"]),
        helper.make_node("Sub", ["d", "e"], ["y"]),
    ]
    ports = {"x": (FLOAT, (batch, 8, *pixels))}, {"y": (FLOAT, (batch, features, *_size(pixels, kernel, attributes)))}
    return small_model(nodes, *ports, constants)


def _size(pixels, kernel, attributes):
    count = len(pixels)
    pads = attributes.get("pads", [0] * 2 * count)
    strides, dilations = (attributes.get(name, [1] * count) for name in ("strides", "dilations"))
    return [
        (pixels[i] + pads[i] + pads[count + i] - (kernel[i] - 1) * dilations[i] - 1) // strides[i] + 1
        for i in range(count)
    ]


CASES = {
    "3x3": convolution((1, 64, 7, 9), 40, (3, 3), pads=[1] * 4),
    "of several slabs": convolution((1, 128, 5, 6), 24, (3, 3), pads=[1] * 4),
    "not padded, several images": convolution((2, 64, 6, 7), 24, (3, 2)),
    "groups": convolution((1, 128, 5, 6), 48, (3, 3), groups=2, pads=[1] * 4),
    "dilated": convolution((1, 64, 7, 8), 24, (3, 3), dilations=[2, 1], pads=[2, 1, 2, 1]),
    "a column": convolution((1, 64, 7, 8), 24, (3, 1), pads=[1, 0, 1, 0]),
    "along one dimension": convolution((1, 64, 20), 24, (3,), pads=[1, 1]),
    "every other pixel": convolution((1, 64, 7, 8), 24, (1, 1), strides=[2, 2]),
}


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_convolutions(name, swapped, gpu):
    forms = forms_of(gpu, CASES[name], lambda form: form.swapped == swapped)
    assert [form.swapped for form in forms] == [swapped]


@pytest.mark.parametrize("precision", TOLERANCES)
def test_precisions(precision, gpu):
    column = convolution((1, 128, 5, 6), 48, (3, 1), groups=2, pads=[1, 0, 1, 0])
    assert len(forms_of(gpu, column, precision=precision)) == 1


def test_strides_of_windows_are_none(gpu):
    assert forms_of(gpu, convolution((1, 64, 7, 8), 24, (3, 3), strides=[2, 2], pads=[1] * 4)) == []
