"""Depthwise convolutions on GPUs: what is one, its patch, and what a form has to fit."""

from dataclasses import replace

import pytest

from rammer.devices.registry import find_device
from rammer.ir.kernel_form import DepthwiseForm
from rammer.ir.types import DType
from rammer.options import CompileOptions
from rammer.tiling.depthwise import depthwise
from rammer.verify.forms import form_fault
from tests.support.kernels import Bound, conv, types
from tests.support.operators import expression

H200 = find_device("cuda:sm_90").describe(CompileOptions(device="cuda:sm_90"))
IMAGE = (1, 48, 20, 22)


def kernels_of(expr, last=(0, 2)):
    """The candidates, of images whose channels lie innermost."""
    return Bound(expr, {1}, H200, last, elements=16).kernels


def seven(dtype=DType.FLOAT16, **attributes):
    return conv(IMAGE, (48, 1, 7, 7), group=48, dtype=dtype, **attributes)


def found_in(kernel):
    found = depthwise(kernel.expr, kernel.layouts, kernel.alignments)
    assert found is not None
    return found


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32])
def test_windows(dtype):
    kernel = kernels_of(seven(dtype, strides=(2, 1), dilations=(1, 3)))[0]
    found = found_in(kernel)
    assert isinstance(kernel.form, DepthwiseForm)
    assert found.channel.extent == 48
    assert [(one.stride, one.dilation, one.taps) for one in found.windows] == [(2, 1, 7), (1, 3, 7)]
    assert found.run is found.windows[-1]


def test_a_patch_has_what_windows_reach():
    found = found_in(kernels_of(seven(strides=(2, 1), dilations=(1, 3)))[0])
    sizes = dict(zip((one.axis for one in found.windows), (4, 5), strict=True)) | {found.channel: 16}
    assert found.patch(sizes) == (3 * 2 + 7, 4 + 6 * 3 + 1)
    assert found.image_bytes(sizes) == 13 * 23 * 16 * 2
    assert found.weight_bytes(sizes) == 49 * 16 * 2


@pytest.mark.parametrize(
    ("expr", "last"),
    [
        (conv(IMAGE, (48, 48, 3, 3)), (0, 2)),  # every channel of every other
        (conv(IMAGE, (96, 2, 3, 3), group=24), (0, 2)),  # of several
        (seven(), ()),  # channels apart in memory
        (conv((1, 45, 20, 22), (45, 1, 3, 3), group=45), (0, 2)),  # an odd number of them
        (expression("MatMul", types((40, 64), (64, 48))), ()),
    ],
)
def test_others_are_none(expr, last):
    assert not any(isinstance(kernel.form, DepthwiseForm) for kernel in kernels_of(expr, last))


def test_rtasks_cover_all_channels_and_points():
    for kernel in kernels_of(seven()):
        assert form_fault(kernel) is None
        assert kernel.task_count <= H200.veu_count


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"points": 0}, "T09"),
        ({"points": 9}, "T09"),
        ({"vector": 32}, "T09"),
        ({"scratch_bytes": 64}, "T09"),
    ],
)
def test_forms_that_do_not_fit(change, rule):
    kernel = next(one for one in kernels_of(seven()) if dict(zip(one.expr.axes, one.tile.task, strict=True)))
    kernel = replace(kernel, form=replace(kernel.form, points=1))
    assert form_fault(kernel) is None
    fault = form_fault(replace(kernel, form=replace(kernel.form, **change)))
    assert fault is not None
    assert fault[0] == rule


def test_a_form_of_another_expression():
    kernel = kernels_of(seven())[0]
    other = kernels_of(conv(IMAGE, (48, 48, 3, 3)))[0]
    fault = form_fault(replace(other, form=kernel.form))
    assert fault is not None
    assert fault[0] == "T10"
