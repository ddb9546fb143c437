"""The converter of Resize against ONNX Runtime."""

import numpy as np
import pytest

from rammer.errors import UnsupportedFeatureError
from rammer.frontends.onnx import load_graph
from tests.frontends.test_converters import IMAGE, check, integers, model, refusal
from tests.support.onnx_reference import check_model


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


def test_region_of_interest_is_refused():
    roi = np.zeros(8, np.float32)
    message = refusal(
        UnsupportedFeatureError,
        "Resize",
        [IMAGE, roi, None, integers(2, 4, 3, 3)],
        coordinate_transformation_mode="tf_crop_and_resize",
    )
    assert "tf_crop_and_resize" in message
