"""Generated C and the runtime for 64-bit Arm: compiled by cross compilers, run by qemu and compared with NumPy.

All of it needs Debian's packages `qemu-user-static`, `gcc-aarch64-linux-gnu` and `libc6-dev-arm64-cross`; what is
missing is skipped, and clang comes with the extra `cc`.
"""

import shutil

import numpy as np
import onnxruntime
import pytest

from rammer.devices.cpu.device import CpuDevice
from rammer.frontends.onnx import load_graph
from rammer.ir.evaluate import evaluate
from rammer.ir.types import DType
from rammer.options import CompileOptions
from rammer.pipelines.planning import plan_graph
from tests.support.emulated import CROSS_COMPILERS, EMULATOR, Job, Kernels, Model
from tests.support.kernel_cases import CHANNELS_LAST, CONTRACTIONS, IMAGES, MAPS, REDUCTIONS, assert_close, filtered
from tests.support.kernels import NEON, Bound, machine, random_array, types
from tests.support.operators import expression
from tests.support.random_graphs import random_model

# name: (expression, constants, tensors that lie channels last)
CASES = {
    **{name: (expr, constants, ()) for name, (expr, constants) in CONTRACTIONS.items()},
    **{name: (expr, {1}, ()) for name, expr in REDUCTIONS.items()},
    **{name: (expr, (), ()) for name, expr in MAPS.items()},
    **{
        f"{name}, channels last": (expr, () if skeleton in ("map", "reduce") else {1}, channels_last)
        for name, (expr, channels_last, skeleton) in CHANNELS_LAST.items()
    },
    **{
        f"transform {i}": (expr, (), images)
        for i, (expr, images) in enumerate(zip(filtered((13, 14)), IMAGES, strict=True))
    },
}
# Each skeleton, and each way of theirs to load, to pack and to store.
FEW = (
    *("both transposed", "float16", "3x3 stride 2", "cell of odd size", "depthwise, odd, channels last"),
    *("softmax of rows", "max pool", "place of the greatest", "transposition", "gelu", "to float16", "transform 0"),
)

needs_emulator = pytest.mark.skipif(EMULATOR is None, reason="no qemu-aarch64 (Debian's package qemu-user-static)")


@pytest.fixture(params=CROSS_COMPILERS)
def compiler(request):
    """The name of a cross compiler that is here."""
    program = CROSS_COMPILERS[request.param][0]
    if shutil.which(program) is None:
        pytest.skip(f"no {program} (Debian's packages gcc-aarch64-linux-gnu and libc6-dev-arm64-cross)")
    return request.param


def jobs_of(names, most=None):
    """Candidate rKernels of some cases with their expressions: `most` of each, None takes all."""
    for name in names:
        expr, constants, channels_last = CASES[name]
        bound = Bound(expr, constants, NEON, channels_last)
        inputs = [random_array(type_, slot) for slot, type_ in enumerate(expr.inputs)]
        yield from ((expr, Job(bound=bound, kernel=kernel, inputs=inputs)) for kernel in bound.kernels[:most])


def check(pairs, folder, compiler):
    """Compile (expression, job) pairs, and compare what they compute where that can be run."""
    expressions, jobs = zip(*pairs, strict=True)
    kernels = Kernels(jobs, folder, compiler)
    if EMULATOR is None:
        pytest.skip("compiled; " + needs_emulator.kwargs["reason"])
    for expr, job, outputs in zip(expressions, jobs, kernels.run(), strict=True):
        for output, found, wanted in zip(expr.outputs, outputs, evaluate(expr, job.inputs), strict=True):
            assert_close(found, wanted, output.type.dtype)


def test_few_kernels_of_every_skeleton(compiler, tmp_path):
    check(list(jobs_of(FEW, most=2)), tmp_path, compiler)


@pytest.mark.long
def test_all_kernels(compiler, tmp_path):
    check(list(jobs_of(CASES)), tmp_path, compiler)


@needs_emulator
def test_functions_are_accurate_to_three_units_in_the_last_place(compiler, tmp_path):
    x = np.concatenate([np.linspace(-105, 95, 20_001), np.linspace(-5, 5, 20_001), np.logspace(-40, 1, 1_000)])
    x = x.astype(np.float32)
    kinds = ("Exp", "Tanh", "Sigmoid", "Erf")
    jobs = []
    for kind in kinds:
        bound = Bound(expression(kind, types(x.shape)), (), NEON)
        jobs.append(Job(bound=bound, kernel=bound.kernels[0], inputs=[x]))
    for kind, (found,) in zip(kinds, Kernels(jobs, tmp_path, compiler).run(), strict=True):
        (wanted,) = evaluate(expression(kind, types(x.shape, dtype=DType.FLOAT64)), [x.astype(np.float64)])
        with np.errstate(over="ignore"):
            unit = np.spacing(np.abs(wanted.astype(np.float32))).astype(np.float64)
        inside = np.isfinite(unit)
        assert np.max(np.abs(np.subtract(found, wanted, dtype=np.float64))[inside] / unit[inside]) < 3
        np.testing.assert_array_equal(np.isinf(found), ~inside)


@needs_emulator
@pytest.mark.parametrize("seed", [3, 8])
def test_models_on_threads(seed, compiler, tmp_path):
    """The interpreter and its pool of threads, with the tables of a random model."""
    model, inputs = random_model(seed)
    vdevice, options, device = machine(16, 32, veus=2), CompileOptions(veus=2), CpuDevice()
    plan = plan_graph(load_graph(model), vdevice, options)
    types_ = [plan.graph.tensors[i].type for i in plan.graph.outputs]
    emulated = Model(device.emit(plan, vdevice), list(inputs.values()), types_, tmp_path, compiler)
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    for found, want in zip(emulated.run(), wanted, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
