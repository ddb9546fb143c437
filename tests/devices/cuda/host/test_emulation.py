"""The host's GPU itself: kernels that are right give what they should, and those that are wrong are found out."""

import ctypes
import importlib.util

import numpy as np
import pytest

from rammer.devices.cuda.source import translation_unit
from tests.support.host_cuda import ORDERS, Copies, LaunchError, Order, Policy, host_gpu
from tests.support.host_cuda.toolchain import ZIG

KERNEL = 'extern "C" __global__ void kernel(float *x, int n)'
SHARED = "static __shared__ float shared[64];"
SCRATCH = "extern __shared__ char rammer_scratch[];"


def launch(gpu, body, *, before="", blocks=1, order=ORDERS[0], x=None, n=0):
    """What a kernel of 64 threads makes of x."""
    x = np.arange(64, dtype=np.float32) if x is None else x
    gpu.launch(f"{before}\n{KERNEL} {{ {body} }}", "kernel", blocks, 64, [x, ctypes.c_int(n)], 256, order)
    return x


@pytest.mark.parametrize("command", [None, pytest.param(ZIG, id="clang")])
def test_threads_meet(command, libraries):
    if command == ZIG and importlib.util.find_spec("ziglang") is None:
        pytest.skip("needs the package ziglang")
    body = "shared[threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[threadIdx.x] = shared[63 - threadIdx.x];"
    with host_gpu(libraries, command) as gpu:
        for order in ORDERS:
            np.testing.assert_array_equal(launch(gpu, body, before=SHARED, order=order), np.arange(64)[::-1])


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_a_missing_barrier_shows_in_every_order(order, gpu):
    body = "shared[threadIdx.x] = x[threadIdx.x]; x[threadIdx.x] = shared[63 - threadIdx.x];"
    assert np.any(launch(gpu, body, before=SHARED, order=order) != np.arange(64)[::-1])


@pytest.mark.parametrize(
    ("waits", "read"),
    [("", "garbage"), ("rammer_cp_async_wait<1>();", "first"), ("rammer_cp_async_wait<0>();", "both")],
)
def test_copies_are_there_once_they_were_waited_for(waits, read, gpu):
    body = f"""
        rammer_cp_async<4>(shared + threadIdx.x, x + threadIdx.x, true);
        rammer_cp_async_commit();
        rammer_cp_async<4>(shared + threadIdx.x, x + threadIdx.x, false);
        rammer_cp_async_commit();
        {waits}
        x[threadIdx.x] = shared[threadIdx.x];"""
    x = np.arange(1, 65, dtype=np.float32)
    found = launch(gpu, body, before=SHARED, x=x.copy(), order=Order(policy=Policy.FORWARD, copies=Copies.LATE))
    wanted = {"first": x, "both": 0 * x, "garbage": np.full(64, 0xA5A5A5A5, np.uint32).view(np.float32)}
    np.testing.assert_array_equal(found, wanted[read])


def test_what_warps_do_together(gpu):
    body = """
        const uint32_t lane = threadIdx.x % 32;
        const int sum = __shfl_xor_sync(0xffffffffu, lane, 5) + __shfl_sync(0xffffffffu, lane, 7);
        const bool votes = __all_sync(0xffffffffu, lane < 32) && !__any_sync(0xffffffffu, lane > 31);
        const uint32_t ballot = __ballot_sync(lane < 16 ? 0xffffu : 0xffff0000u, lane % 2);
        const uint32_t greatest = __reduce_max_sync(0xffffffffu, threadIdx.x);
        x[threadIdx.x] = votes ? sum + 1000 * __popc(ballot) + 1e5f * greatest : -1;"""
    lane = np.arange(64) % 32
    wanted = (lane ^ 5) + 7 + 1000 * 8 + 1e5 * np.repeat([31, 63], 32)
    for order in ORDERS:
        np.testing.assert_allclose(launch(gpu, body, order=order), wanted)


def test_blocks_hand_over(gpu):
    before = "__device__ static uint32_t counter;"
    body = """
        if (blockIdx.x == 1) {
            x[threadIdx.x] *= 2;
            __syncthreads();
            if (threadIdx.x == 0)
                rammer_add_release(&counter, 1);
        } else {
            while (rammer_load_acquire(&counter) == 0)
                ;
            x[threadIdx.x] += 1;
            __syncthreads();
            counter = 0;
        }"""
    for order in ORDERS:
        np.testing.assert_array_equal(launch(gpu, body, before=before, blocks=2, order=order), 2 * np.arange(64) + 1)


def matrices(rng, kind):
    """Operands of a kind of mma in registers, by lane and register, uint32 [32,4] and [32,2], and their product."""
    elements = 1 if kind == "tf32" else 2
    a, b = (rng.integers(-8, 8, (rows, 8 * elements)).astype(np.float32) for rows in (16, 8))

    def words(matrix, row, first):
        part = matrix[row, first * elements : (first + 1) * elements]
        if kind == "tf32":
            return int(part.view(np.uint32)[0])
        if kind == "f16":
            return int(part.astype(np.float16).view(np.uint32)[0])
        return int((part.view(np.uint32) >> 16).astype(np.uint16).view(np.uint32)[0])

    of_a = [[words(a, lane // 4 + i % 2 * 8, lane % 4 + i // 2 * 4) for i in range(4)] for lane in range(32)]
    of_b = [[words(b, lane // 4, lane % 4 + i * 4) for i in range(2)] for lane in range(32)]
    return np.array(of_a, np.uint32), np.array(of_b, np.uint32), a @ b.T


@pytest.mark.parametrize("kind", ["tf32", "f16", "bf16"])
def test_products_of_a_warp(kind, gpu):
    a, b, product = matrices(np.random.default_rng(0), kind)
    text = f"""extern "C" __global__ void kernel(float *sums, const uint32_t *a, const uint32_t *b) {{
        a += threadIdx.x * 4, b += threadIdx.x * 2;
        float own[4] = {{1, 1, 1, 1}};
        rammer_mma_{kind}(own, a[0], a[1], a[2], a[3], b[0], b[1]);
        for (int i = 0; i < 4; ++i)
            sums[(threadIdx.x / 4 + i / 2 * 8) * 8 + threadIdx.x % 4 * 2 + i % 2] = own[i];
    }}"""
    sums = np.zeros((16, 8), np.float32)
    gpu.launch(translation_unit({}, 32, 2, 4) + text, "kernel", 1, 32, [sums, a, b], 0, ORDERS[0])
    np.testing.assert_array_equal(sums, product + 1)


def test_matrices_are_loaded(gpu):
    body = """
        uint32_t *words = (uint32_t *)shared, found[4];
        for (int i = 0; i < 4; ++i)
            words[threadIdx.x * 4 + i] = threadIdx.x * 4 + i;
        __syncthreads();
        rammer_ldmatrix_x4(found, words + threadIdx.x % 32 * 4);
        for (int i = 0; i < 4 && threadIdx.x < 32; ++i)
            x[threadIdx.x * 4 + i] = found[i];"""
    found = launch(gpu, body, before="static __shared__ __align__(16) float shared[256];", x=np.zeros(128, np.float32))
    lane, matrix = np.mgrid[:32, :4]
    np.testing.assert_array_equal(found.reshape(32, 4), (8 * matrix + lane // 4) * 4 + lane % 4)


WRONG = {
    "lanes that do different things": (
        "if (threadIdx.x < 7) __shfl_xor_sync(0xffffffffu, n, 1); else __syncwarp();",
        r"lanes of mask ffffffff come together for __shfl_xor_sync\(\) and for __syncwarp\(\)",
    ),
    "a deadlock": (
        "if (threadIdx.x < 7) __syncwarp(); else __syncthreads();",
        r"nobody can go on:\n  block 0, threads 0 to 6: __syncwarp\(\)\n  block 0, threads 7 to 63: __syncthreads",
    ),
    "barriers of two kinds": (
        "if (threadIdx.x < 32) __syncthreads(); else __syncthreads_or(1);",
        r"threads meet at barrier 0 for __syncthreads\(\) .* and for __syncthreads_or\(\)",
    ),
    "a wait for what nobody writes": (
        "while (rammer_load_relaxed((uint32_t *)x) == 0);",
        "all wait for what nobody writes",
    ),
    "memory that is not the kernel's": ("*(float *)8 = 1;", "signal 11: address 0x8, in thread 0 of block 0"),
    "an element beyond registers": (
        "float a[4] = {}; for (int i = 0; i <= n; ++i) a[i] = x[i]; x[n] = a[n / 2];",
        "array",
    ),
    "shared memory that was not asked for": ("rammer_scratch[1000] = 1;", "behind the end of shared memory"),
    "a copy that is not aligned": ("rammer_cp_async<16>(rammer_scratch, x + 1, true);", "a copy of 16 bytes"),
    "what the compiler is told": ("__builtin_assume(__isShared(x));", "what the compiler is told does not hold"),
    "a lane of its own": ("if (n == 6) __shfl_sync(1u << threadIdx.x, n, 40);", "shuffles with lane 8, which does not"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name, gpu):
    body, message = WRONG[name]
    with pytest.raises(LaunchError, match=message):
        launch(gpu, body, before=SCRATCH, x=np.zeros(64, np.float32), n=6)
    assert launch(gpu, "x[threadIdx.x] += 1;")[63] == 64  # and what comes next is not disturbed


def test_an_array_ends_where_it_ends(gpu):
    _, address = gpu.api.cuMemAlloc(1000)
    text = 'extern "C" __global__ void kernel(char *x, int n) { x[n] = 1; }'
    for n, fails in ((999, False), (1023, False), (1024, True), (-4096, True)):
        arguments = [ctypes.c_void_p(address), ctypes.c_int(n)]
        if fails:
            with pytest.raises(LaunchError, match="signal 11"):
                gpu.launch(text, "kernel", 1, 1, arguments, 0, ORDERS[0])
        else:
            gpu.launch(text, "kernel", 1, 1, arguments, 0, ORDERS[0])
