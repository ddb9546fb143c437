"""Convolutions against ONNX Runtime, and their expressions' structure."""

from typing import Any

import numpy as np
import pytest

from rammer.errors import InvalidModelError
from rammer.ir.expr import Load
from rammer.ir.types import DType, TensorType
from rammer.operators import convolution  # noqa: F401  registers the kinds
from tests.support.onnx_node import run_node
from tests.support.operators import expression, run_operator


def geometry(spatial, attributes):
    """All attributes, neutral where not given."""
    neutral = {"strides": (1,) * spatial, "dilations": (1,) * spatial, "pads": (0,) * (2 * spatial), "group": 1}
    return {**neutral, **attributes}


def conv(kind, shapes, **attributes):
    types = [TensorType(DType.FLOAT32, shape) for shape in shapes]
    return expression(kind, types, **geometry(len(shapes[0]) - 2, {"finite_weights": True, **attributes}))


def check(kind, x, w, bias, **attributes):
    """Evaluate with random data and compare with ONNX Runtime, shape and values."""
    rng = np.random.default_rng(0)
    shapes = [x, w] + ([(bias,)] if bias else [])
    arrays = [np.asarray(rng.standard_normal(shape), dtype=np.float32) for shape in shapes]
    if kind == "ConvTranspose":
        attributes = {"output_padding": (0,) * (len(x) - 2), **attributes}
    full = geometry(len(x) - 2, attributes)
    (expected,) = run_node(kind, arrays, 1, full)
    result: Any = run_operator(kind, arrays, **full)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("x", "w", "bias", "attributes"),
    [
        ((2, 3, 9), (4, 3, 3), 4, {}),
        ((1, 3, 10), (4, 3, 3), None, {"strides": (2,), "pads": (1, 2), "dilations": (2,)}),
        ((2, 3, 8, 7), (5, 3, 3, 3), 5, {"pads": (1, 1, 1, 1)}),
        ((2, 3, 8, 7), (5, 3, 1, 1), 5, {}),
        ((2, 3, 8, 7), (5, 3, 1, 1), None, {"strides": (2, 2), "pads": (1, 0, 0, 1)}),
        ((1, 4, 11, 9), (6, 2, 3, 2), 6, {"group": 2, "strides": (2, 3), "pads": (1, 0, 2, 1)}),
        ((1, 4, 7, 7), (4, 1, 3, 3), 4, {"group": 4, "pads": (1, 1, 1, 1)}),
        ((1, 4, 7, 7), (8, 1, 3, 3), 8, {"group": 4, "dilations": (2, 2)}),
        ((1, 4, 7, 7), (4, 1, 1, 1), 4, {"group": 4}),
        ((1, 1, 7, 7), (1, 1, 3, 3), 1, {}),
        ((1, 1, 7, 7), (1, 1, 1, 1), 1, {}),
        ((1, 3, 5, 6, 4), (2, 3, 2, 3, 2), 2, {"strides": (1, 2, 1), "pads": (1, 1, 0, 0, 1, 1)}),
        ((0, 3, 8, 7), (5, 3, 3, 3), 5, {}),
    ],
)
def test_conv(x, w, bias, attributes):
    check("Conv", x, w, bias, **attributes)


@pytest.mark.parametrize(
    ("x", "w", "bias", "attributes"),
    [
        ((2, 3, 9), (3, 4, 3), 4, {}),
        ((2, 3, 5, 4), (3, 2, 2, 2), 2, {"strides": (2, 2)}),
        ((2, 3, 5, 4), (3, 2, 4, 4), 2, {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
        ((1, 3, 5, 4), (3, 2, 3, 3), None, {"strides": (2, 3), "pads": (1, 0, 0, 2), "output_padding": (1, 2)}),
        ((1, 4, 5, 4), (4, 3, 3, 2), 6, {"strides": (2, 2), "group": 2}),
        ((1, 4, 5, 4), (4, 1, 3, 3), 4, {"strides": (2, 2), "group": 4}),
        ((1, 2, 3, 2, 3), (2, 3, 2, 3, 2), 3, {"strides": (2, 1, 3)}),
        ((1, 1, 5, 4), (1, 1, 1, 1), 1, {"strides": (3, 3)}),
    ],
)
def test_conv_transpose(x, w, bias, attributes):
    check("ConvTranspose", x, w, bias, **attributes)


@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("dilation", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("taps", [1, 2, 5])
def test_conv_transpose_solves_every_stride_and_dilation(stride, dilation, taps):
    check("ConvTranspose", (1, 2, 6), (2, 3, taps), 3, strides=(stride,), dilations=(dilation,))


def names(axes):
    return [axis.name for axis in axes]


def test_a_depthwise_convolution_reduces_over_its_taps_alone():
    expr = conv("Conv", [(1, 8, 5, 5), (8, 1, 3, 3)], group=8)
    assert names(expr.axes) == ["n", "g", "o0", "o1"]
    assert names(expr.reduce_axes) == ["k0", "k1"]


def test_a_pointwise_convolution_reduces_over_channels_alone():
    expr = conv("Conv", [(1, 8, 5, 5), (6, 8, 1, 1)])
    assert names(expr.axes) == ["n", "m", "o0", "o1"]
    assert names(expr.reduce_axes) == ["c"]


def test_a_grouped_convolution_stores_to_channels_of_its_group():
    expr = conv("Conv", [(1, 8, 5, 5), (6, 4, 3, 3)], group=2)
    assert names(expr.axes) == ["n", "g", "m", "o0", "o1"]
    assert str(expr.outputs[0].indices[1]) == "((g * 3) + m)"


@pytest.mark.parametrize(
    ("extent", "pads", "stride", "filled"),
    [
        (7, (0, 0), 1, False),
        (7, (1, 0), 1, True),
        (7, (0, 1), 1, True),
        (6, (0, 1), 2, True),
        (7, (0, 1), 2, False),  # The last window ends before the padding.
    ],
)
def test_only_loads_that_can_leave_the_input_have_a_fill(extent, pads, stride, filled):
    expr = conv("Conv", [(1, 2, extent), (3, 2, 3)], pads=pads, strides=(stride,))
    fills = {node.slot: node.fill is not None for node in expr.loads if isinstance(node, Load)}
    assert fills == {0: filled, 1: False}


@pytest.mark.parametrize(
    ("kind", "shapes", "attributes", "message"),
    [
        ("Conv", [(1, 3, 8), (4, 2, 3)], {}, "channels"),
        ("Conv", [(1, 4, 8), (3, 2, 3)], {"group": 2}, "channels"),
        ("Conv", [(1, 3, 2), (4, 3, 3)], {"strides": (2,)}, "exceeds"),
        ("Conv", [(1, 3), (4, 3)], {}, "spatial"),
        ("Conv", [(1, 3, 8), (4, 3, 3, 3)], {}, "kernels"),
        ("Conv", [(1, 3, 8), (4, 3, 3), (3,)], {}, "bias"),
        ("Conv", [(1, 3, 8), (4, 3, 3)], {"strides": (0,)}, "strides"),
        ("Conv", [(1, 3, 8), (4, 3, 3)], {"pads": (1,)}, "pads"),
        ("Conv", [(1, 3, 8), (4, 3, 3)], {"dilations": (1, 1)}, "dilations"),
        ("ConvTranspose", [(1, 3, 8), (4, 3, 3)], {"output_padding": (0,)}, "channels"),
        ("ConvTranspose", [(1, 3, 8), (3, 4, 3)], {"output_padding": (-1,)}, "output padding"),
        ("ConvTranspose", [(1, 3, 1), (3, 4, 3)], {"output_padding": (0,), "pads": (3, 3)}, "pads exceed"),
    ],
)
def test_a_convolution_that_does_not_fit_is_refused(kind, shapes, attributes, message):
    with pytest.raises(InvalidModelError, match=message):
        conv(kind, shapes, **attributes)
