"""Users' own rKernels in CUDA C++: admitted and run as on a GPU, in every order, beside generated ones."""

import numpy as np
import onnx.parser
import pytest

import rammer
from rammer import extending
from rammer.devices.cuda.source import source_of
from rammer.devices.cuda.source_files import CODE
from rammer.devices.cuda.toolchain import find_toolchain
from rammer.errors import KernelRejectedError
from rammer.expressions import DType, ReduceFn, load, plain_result, reduced, reduction_axes, spatial_axes
from rammer.frontends.onnx import load_graph
from rammer.options import CompileOptions
from rammer.pipelines.compiler import compile_graph, find_target
from rammer.pipelines.planning import plan_graph

CENTRE = "com.example.Centre"
STAGED = """
static __device__ void task(
    const float *x, float *y, int64_t first, int64_t past, int64_t left, int64_t right, char *shared
) {
    float *const sums = (float *)shared;
    for (int64_t i = first; i < past; i++) {
        float sum = 0.0f;
        for (int64_t j = threadIdx.x; j < WIDTH; j += RAMMER_THREADS)
            sum += x[i * WIDTH + j];
        sums[threadIdx.x] = sum;
        __syncthreads();
        float total = 0.0f;
        for (int k = 0; k < RAMMER_THREADS && k < WIDTH; k++)
            total += sums[k];
        __syncthreads();
        for (int64_t j = left + threadIdx.x; j < right; j += RAMMER_THREADS)
            y[i * WIDTH + j] = x[i * WIDTH + j] - total / WIDTH;
    }
}
"""


def register(code, tiles=((4, None), (1, None))):
    """The operator, and code for it."""

    @rammer.operator(CENTRE)
    def centre(x):
        i, j = spatial_axes(x.shape)
        (k,) = reduction_axes(x.shape[1:])
        mean = reduced(ReduceFn.SUM, [k], load(0, x, [i, k])) / x.shape[1]
        return plain_result([x], x.dtype, [i, j], load(0, x, [i, j]) - mean)

    @rammer.kernel(CENTRE, device="cuda")
    def centre_staged(x):
        if x.dtype is not DType.FLOAT32:
            return None
        return rammer.KernelSource(code=code.replace("WIDTH", str(x.shape[1])), tiles=tiles, shared_bytes=4096)


MODEL = onnx.parser.parse_model(f"""
    <ir_version: 10, opset_import: ["" : 22, "com.example" : 1]>
    net (float[10, 24] x, float[24, 24] w) => (float[10, 24] y) {{
        a = MatMul(x, w)
        b = {CENTRE}(a)
        c = MatMul(b, w)
        y = Add(c, b)
    }}
""")


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_between_products(gpu, precision):
    register(STAGED)
    options = gpu.options(veus=3, precision=precision)
    net = compile_graph(load_graph(MODEL), options)
    (found,) = [entry for entry in net.report["operators"] if entry["kind"] == CENTRE]
    assert found["candidates"][found["chosen"]]["skeleton"] == "extern"
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) / 4 for shape in ((10, 24), (24, 24)))
    a = x @ w
    b = a - a.mean(1, keepdims=True)
    np.testing.assert_allclose(net(x, w), b @ w + b, atol=1e-5 if precision == "fp32" else 5e-3)


def test_without_code_for_the_device_the_operator_is_one_of_all(gpu):
    register(STAGED)
    assert [extern.name for extern in find_target(gpu.options())[1].externs] == ["centre_staged"]
    assert extending.kernels_for("cpu") == ()


def test_nvidias_compiler_takes_it():
    pytest.importorskip("cuda.core", reason="needs the cuda extra")
    register(STAGED)
    options = CompileOptions(device="cuda:sm_90", veus=3)
    vdevice = find_target(options)[1]
    plan = plan_graph(load_graph(MODEL), vdevice, options)
    assert any(kernel.form.skeleton == "extern" for kernel in plan.kernels)
    text = bytes(source_of(plan, vdevice).files[CODE]).decode()
    assert find_toolchain().cubin(text, "sm_90", [])[:4] == b"\x7fELF"


def test_code_that_is_wrong_or_writes_beyond_its_rows_is_rejected(gpu):
    beyond = STAGED.replace("y[i * WIDTH + j] =", "y[(i + 1) * WIDTH + j] = 0.0f, y[i * WIDTH + j] =")
    for code in (STAGED.replace("total / WIDTH", "total"), beyond):
        register(code)
        with pytest.raises(KernelRejectedError, match="the kernel 'centre_staged'"):
            compile_graph(load_graph(MODEL), gpu.options())
