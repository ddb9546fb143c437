"""Windows whose patch a block has in shared memory: what is a product of such, its size, what a form has to fit."""

from dataclasses import replace

import pytest

from rammer.devices.registry import find_device
from rammer.ir.kernel_form import GemmForm, GemmShape
from rammer.ir.types import DType
from rammer.options import CompileOptions
from rammer.tiling.patches import window_product
from rammer.verify.forms import form_fault
from tests.support.kernels import Bound, conv, types
from tests.support.operators import expression

H200 = find_device("cuda:sm_90").describe(CompileOptions(device="cuda:sm_90"))
F16 = DType.FLOAT16
SEVEN = conv((1, 512, 7, 7), (512, 512, 3, 3), dtype=F16)


def patches_of(expr, last=(0, 2)):
    """The candidates that have one, of images whose channels lie innermost."""
    kernels = Bound(expr, {1}, H200, last, elements=16).kernels
    return [kernel for kernel in kernels if isinstance(kernel.form, GemmForm) and kernel.form.patch]


def found_in(kernel):
    found = window_product(kernel.expr, kernel.layouts, kernel.alignments, kernel.tile.lane)
    assert found is not None
    return found


def test_windows():
    kernel = patches_of(conv((1, 64, 20, 22), (48, 64, 3, 5), dtype=F16, strides=(2, 1), dilations=(1, 3)))[0]
    found = found_in(kernel)
    assert found.channel.extent == 64
    assert [(one.stride, one.dilation, one.taps) for one in found.windows] == [(2, 1, 3), (1, 3, 5)]
    assert [axis.extent for axis in found.taps] == [5, 3]
    sizes = dict(zip((one.axis for one in found.windows), (4, 6), strict=True))
    assert found.pixels(sizes) == (3 * 2 + 3) * (5 + 4 * 3 + 1)
    assert found.patch_bytes(sizes) == found.pixels(sizes) * found.pitch * 2


def test_whole_sums_of_few_channels_are_there_before_the_wait():
    kernel = patches_of(SEVEN)[0]
    form = kernel.form
    assert isinstance(form, GemmForm)
    assert (form.stages, form.threadblock.k) == (1, 9 * 512)
    assert form.scratch_bytes < H200.levels[0].capacity_bytes


@pytest.mark.parametrize(
    ("expr", "last"),
    [
        pytest.param(SEVEN, (), id="channels apart"),
        pytest.param(conv((1, 512, 7, 7), (512, 512, 3, 3)), (0, 2), id="float32"),
        pytest.param(conv((1, 48, 7, 7), (64, 48, 3, 3), dtype=F16), (0, 2), id="channels by 16"),
        pytest.param(conv((1, 64, 7, 7), (64, 64, 1, 1), dtype=F16), (0, 2), id="one tap"),
        pytest.param(conv((1, 64, 7, 7), (64, 32, 3, 3), group=2, dtype=F16), (0, 2), id="groups"),
        pytest.param(expression("MatMul", types((64, 64), (64, 64), dtype=F16)), (), id="a matrix"),
    ],
)
def test_others_have_none(expr, last):
    assert not patches_of(expr, last)


def test_long_sums_that_do_not_fit_are_cut_into_stages():
    kernels = Bound(conv((1, 2048, 7, 7), (512, 2048, 3, 3), dtype=F16), {1}, H200, (0, 2), elements=16).kernels
    assert kernels
    assert not any(isinstance(kernel.form, GemmForm) and kernel.form.patch for kernel in kernels)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"scratch_bytes": 150_000}, "T09"),
        ({"stages": 2}, "T09"),
        ({"threadblock": GemmShape(16, 16, 256), "warp": GemmShape(16, 16, 16)}, "T09"),
    ],
)
def test_forms_that_do_not_fit(changes, rule):
    kernel = patches_of(SEVEN)[0]
    assert form_fault(kernel) is None
    fault = form_fault(replace(kernel, form=replace(kernel.form, **changes)))
    assert fault is not None
    assert fault[0] == rule


def test_a_patch_of_what_is_no_image():
    form = patches_of(SEVEN)[0].form
    kernel = Bound(expression("MatMul", types((64, 64), (64, 64), dtype=F16)), {1}, H200).kernels[0]
    assert form_fault(replace(kernel, form=form)) == ("T10", "multiplies windows of what is no such image")
