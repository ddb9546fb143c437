"""Depthwise convolutions whose patch is in shared memory, against NumPy: borders, strides, dilations, ragged tiles."""

import pytest

from rammer.ir.kernel_form import DepthwiseForm
from rammer.ir.types import DType
from tests.support.host_cuda import ORDERS, Copies, Order, Policy
from tests.support.host_cuda.kernels import KernelProgram, cases_of
from tests.support.kernel_cases import assert_close
from tests.support.kernels import conv

SOME = (*ORDERS[:1], Order(policy=Policy.RANDOM, copies=Copies.LATE, seed=3))
F16, BF16 = DType.FLOAT16, DType.BFLOAT16


def windows(image, kernel, dtype=DType.FLOAT32, **attributes):
    channels = image[1]
    return conv(image, (channels, 1, *kernel), group=channels, dtype=dtype, **attributes)


CASES = {
    "7x7, with a bias": (windows((1, 48, 20, 20), (7, 7), F16, bias=True), {0, 3}),
    "float32": (windows((1, 48, 20, 20), (7, 7)), {0, 2}),
    "bfloat16": (windows((1, 32, 9, 14), (5, 5), BF16), {0, 2}),
    "several images, stride 2": (windows((2, 40, 11, 12), (5, 5), F16, strides=(2, 2)), {0, 2}),
    "dilated": (windows((1, 16, 9, 20), (3, 3), dilations=(2, 2)), {0, 2}),
    "not padded": (windows((1, 32, 9, 21), (3, 3), pads=(0, 0, 0, 0)), {0, 2}),
    "more on one side": (windows((1, 32, 9, 21), (3, 3), F16, pads=(0, 1, 2, 3)), {0, 2}),
    "channels in odd parts": (windows((1, 144, 14, 14), (3, 3), F16), {0, 2}),
    "channels two by two": (windows((1, 18, 7, 9), (3, 3), F16), {0, 2}),
    "a row": (windows((1, 64, 1, 40), (1, 9)), {0, 2}),
    "one line": (windows((1, 64, 40), (5,)), {0, 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name, gpu):
    expr, last = CASES[name]
    cases = cases_of(expr, gpu.vdevice(gpu.options(veus=132)), {1}, last)
    assert all(isinstance(case.kernel.form, DepthwiseForm) for case in cases)
    program = KernelProgram([cases[0], *cases[1:][-2:]], veus=3)
    loaded = program.load(gpu)
    for order in SOME:
        for case, found in zip(program.cases, program.outputs(gpu, loaded, order), strict=True):
            for output, ours, wanted in zip(case.bound.expr.outputs, found, case.wanted, strict=True):
                assert_close(ours, wanted, output.type.dtype)
