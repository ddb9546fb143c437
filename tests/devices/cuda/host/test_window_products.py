"""Products of windows whose patch is in shared memory, against NumPy: borders, strides, dilations, ragged tiles."""

import pytest

from rammer.ir.kernel_form import GemmForm
from rammer.ir.types import DType
from tests.support.host_cuda import ORDERS, Copies, Order, Policy
from tests.support.host_cuda.kernels import KernelProgram, cases_of
from tests.support.kernel_cases import assert_close
from tests.support.kernels import conv

SOME = (*ORDERS[:1], Order(policy=Policy.RANDOM, copies=Copies.LATE, seed=3))
F16, BF16 = DType.FLOAT16, DType.BFLOAT16

CASES = {
    "3x3, with a bias": (conv((1, 32, 14, 14), (32, 32, 3, 3), dtype=F16, bias=True), {0, 3}),
    "bfloat16, ragged tiles": (conv((1, 64, 7, 9), (24, 64, 3, 3), dtype=BF16), {0, 2}),
    "slices that are no power of two": (conv((1, 96, 6, 7), (16, 96, 3, 3), dtype=F16), {0, 2}),
    "several images, stride 2": (conv((2, 32, 11, 12), (32, 32, 5, 5), dtype=F16, strides=(2, 2)), {0, 2}),
    "dilated": (conv((1, 32, 9, 20), (16, 32, 3, 3), dtype=F16, dilations=(2, 2)), {0, 2}),
    "more padding on one side": (conv((1, 32, 9, 21), (16, 32, 3, 3), dtype=F16, pads=(0, 1, 2, 3)), {0, 2}),
    "one line": (conv((1, 64, 40), (32, 64, 5), dtype=F16), {0, 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name, gpu):
    expr, last = CASES[name]
    cases = cases_of(expr, gpu.vdevice(gpu.options(veus=132)), {1}, last)
    patches = [case for case in cases if isinstance(case.kernel.form, GemmForm) and case.kernel.form.patch]
    assert patches
    program = KernelProgram([patches[0], *patches[1:][-2:]], veus=3)
    loaded = program.load(gpu)
    for order in SOME:
        for case, found in zip(program.cases, program.outputs(gpu, loaded, order), strict=True):
            for output, ours, wanted in zip(case.bound.expr.outputs, found, case.wanted, strict=True):
                assert_close(ours, wanted, output.type.dtype)
