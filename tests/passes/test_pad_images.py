"""Convolutions along one dimension have their padding in memory, where warpgroups multiply."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from rammer.devices.registry import find_device
from rammer.ir.types import DType
from rammer.options import CompileOptions
from rammer.passes import pad_images
from tests.support.passes import Net, kinds, only, rewritten, unchanged

H200, A100 = (find_device(f"cuda:{name}").describe(CompileOptions(precision="fp16")) for name in ("sm_90", "sm_80"))
USUAL: dict[str, Any] = {"strides": (1,), "dilations": (1,), "pads": (1, 1), "group": 1}


def on(device=H200):
    return partial(pad_images.run, device=device)


def convolution(channels=32, kernel=3, dtype=DType.FLOAT16, **attributes):
    net = Net()
    group = attributes.get("group", 1)
    weight = np.random.default_rng(0).standard_normal((16, channels // group, kernel)).astype(dtype.numpy)
    image = net.input(2, channels, 50, dtype=dtype)
    return net.build(net.add("Conv", image, net.constant(weight), **(USUAL | attributes)))


@pytest.mark.parametrize("pads", [(1, 1), (2, 0), (0, 1)])
@pytest.mark.parametrize("stride", [1, 2])
def test_padding_is_in_memory(pads, stride):
    after = rewritten(convolution(pads=pads, strides=(stride,)), on(), tolerance=0)
    assert kinds(after) == ["Concat", "Conv"]
    assert only(after, "Conv").attributes["pads"] == (0, 0)
    assert len(only(after, "Concat").inputs) == 1 + sum(pad > 0 for pad in pads)


@pytest.mark.parametrize(
    "case",
    [
        {"pads": (0, 0)},
        {"dilations": (2,)},
        {"group": 2},
        {"channels": 36},  # rows that tensor maps cannot step over
        {"channels": 16},  # less than a slab
        {"dtype": DType.FLOAT32},
    ],
)
def test_none_for_others(case):
    assert unchanged(convolution(**case), on())


def test_none_without_warpgroups():
    assert unchanged(convolution(), on(A100))
