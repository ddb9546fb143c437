"""The converter of Resize against ONNX Runtime."""

import numpy as np
import pytest

from rammer.frontends.onnx import load_graph
from tests.support.converters import IMAGE, check, integers, model
from tests.support.onnx_reference import check_model, evaluate_model


@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
@pytest.mark.parametrize("sizes", [(14, 12), (21, 6), (5, 9), (3, 4)])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize(mode, sizes, coordinates):
    made = model(
        "Resize",
        [IMAGE, None, None, integers(2, 4, *sizes)],
        opset=19,
        mode=mode,
        coordinate_transformation_mode=coordinates,
        nearest_mode="floor" if coordinates == "asymmetric" else "round_prefer_floor",
    )
    check_model(made, {"i0": IMAGE}, tolerance=1e-3)


def test_resize_by_scales_and_whole_factors():
    scales = np.array([1, 1, 2, 3], np.float32)
    floor = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    made = model("Resize", [IMAGE, None, scales], opset=13, **floor)
    check_model(made, {"i0": IMAGE})
    # Repeating elements needs no gather.
    assert "Gather" not in [operator.kind for operator in load_graph(made).operators]
    check("Resize", [IMAGE, None, scales[2:]], opset=18, axes=[2, 3], mode="linear")


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("region", [(0.0, 0.0, 0.1, 0.2, 1.0, 1.0, 0.8, 1.0), (0, 0, -0.2, 0.5, 1, 1, 1.3, 0.9)])
def test_a_region_is_resized(region, mode):
    check(
        "Resize",
        [IMAGE, np.array(region, np.float32), None, integers(2, 4, 3, 5)],
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=-7.0,
        mode=mode,
    )


@pytest.mark.parametrize("opset", [9, 10])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_coordinates_of_old_operator_sets(mode, opset):
    """ONNX's converter leaves them to defaults of today."""
    scales = np.array([1, 1, 2, 1.5], np.float32)
    check("Upsample" if opset == 9 else "Resize", [IMAGE, scales], opset=opset, mode=mode)


@pytest.mark.parametrize("sizes", [(3, 5), (7, 4)])
def test_infinities_beside_an_antialiased_window(sizes):
    image = IMAGE.copy()
    image.reshape(-1)[:: image.size // 3][:3] = [np.inf, np.nan, -np.inf]
    check("Resize", [image, None, None, integers(2, 4, *sizes)], mode="linear", antialias=1)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_an_element_itself_is_not_read_with_its_neighbours(mode):
    line = np.array([[[np.inf, 1, 2, np.nan, 4]]], np.float32)
    made = model(
        "Resize", [line, None, None, integers(1, 1, 9)], mode=mode, coordinate_transformation_mode="align_corners"
    )
    (longer,) = evaluate_model(made, [line])
    np.testing.assert_array_equal(longer[..., ::2], line)
