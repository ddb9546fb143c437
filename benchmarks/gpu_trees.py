"""Forests on a GPU beside Hummingbird and a kernel written by hand: `python -m benchmarks.gpu_trees --help`.

Forests of scikit-learn are fitted on generated data and called with other rows, which are in the GPU's memory already,
as results stay there. Hummingbird's programs run as PyTorch runs them, and traced (`torch.jit`) where rows are few; the
kernel by hand is what one writes in CuPy: a thread for each row, or, of few rows, a block for each row and a thread for
each tree. Times are medians in microseconds, on the GPU and until the caller knows that it is over. With `--keep` what
is fitted and compiled is found in a folder the next time; `--prepare` does no more than that.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.environment import OUT
from benchmarks.harness.kept import Kept
from benchmarks.trees import graph_of
from rammer.frontends.trees.ensemble import TreeEnsemble
from rammer.frontends.trees.scikit_learn import read_forest
from rammer.options import CompileOptions
from rammer.pipelines.compiler import compile_graph
from rammer.runtime.executable import Executable

Call = Callable[[], Any]

_FEATURES = 28
_MOST_TRACED_ROWS = 1000
_FEW_ROWS = 4096
_BY_HAND = r"""
__device__ float leaf(const float *x, int node, const int *feature, const float *threshold, const int *left,
                      const int *right, const float *value) {
    for (int f; (f = feature[node]) >= 0;)
        node = x[f] <= threshold[node] ? left[node] : right[node];
    return value[node];
}
extern "C" __global__ void many(const float *x, const int *root, const int *feature, const float *threshold,
                                const int *left, const int *right, const float *value, float *y, int rows, int features,
                                int trees) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int t = 0; t < trees; ++t)
        sum += leaf(x + (long long)row * features, root[t], feature, threshold, left, right, value);
    y[row] = sum / trees;
}
extern "C" __global__ void few(const float *x, const int *root, const int *feature, const float *threshold,
                               const int *left, const int *right, const float *value, float *y, int rows, int features,
                               int trees) {
    __shared__ float parts[32];
    float sum = 0;
    for (int t = threadIdx.x; t < trees; t += blockDim.x)
        sum += leaf(x + (long long)blockIdx.x * features, root[t], feature, threshold, left, right, value);
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < blockDim.x / 32; ++i) sum += parts[i];
    y[blockIdx.x] = sum / trees;
}
"""


def main() -> None:
    """Measure and print a line for each forest and number of rows; write them to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=500)
    parser.add_argument("--depths", type=int, nargs="*", default=[3, 6, 8, 10])
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 1000, 100_000, 1_000_000])
    parser.add_argument("--seconds", type=float, default=0.3, help="of each contestant")
    parser.add_argument("--keep", type=Path, help="a folder for fitted forests and compiled programs")
    parser.add_argument("--prepare", action="store_true", help="fit and compile only, into that folder")
    parser.add_argument("--device", default="cuda", help="what to compile for; `cuda:sm_90` needs no GPU")
    arguments = parser.parse_args()
    kept, trees = Kept(arguments.keep), arguments.trees
    results = []
    for depth in arguments.depths:
        fitted = kept.get(f"forest-{trees}-{depth}", partial(_forest, trees, depth))
        source = read_forest(fitted)
        hummingbird = (
            None if arguments.prepare else kept.get(f"hummingbird-{trees}-{depth}", partial(_hummingbird, fitted))
        )
        for rows in arguments.rows:
            ours = kept.executable(f"rammer-{trees}-{depth}-{rows}", partial(_compiled, source, rows, arguments.device))
            if arguments.prepare:
                continue
            x = np.random.default_rng(rows).normal(size=(rows, _FEATURES)).astype(np.float32)
            calls = {"rammer": _ours(ours, x), **_peers(hummingbird, x), "by hand": _by_hand(source, x)}
            us = {name: _medians_us(call, arguments.seconds) for name, call in calls.items()}
            times = "  ".join(f"{name} {on_gpu:,.1f} / {called:,.1f}" for name, (on_gpu, called) in us.items())
            print(f"depth {depth:2} {rows:8} rows  us on the GPU / of a call: {times}", flush=True)
            results.append({"depth": depth, "trees": trees, "rows": rows, "us": us})
            OUT.mkdir(parents=True, exist_ok=True)
            (OUT / "gpu_trees.json").write_text(json.dumps(results, indent=1))


def _forest(trees: int, depth: int) -> Any:  # noqa: ANN401 - of scikit-learn
    from sklearn.ensemble import RandomForestRegressor

    rng = np.random.default_rng(0)
    x = rng.normal(size=(5000, _FEATURES)).astype(np.float32)
    y = x[:, 0] * x[:, 1] + 3 * np.sin(x[:, 2]) + np.abs(x[:, 3]) + rng.normal(size=len(x))
    return RandomForestRegressor(trees, max_depth=depth, n_jobs=-1, random_state=0, max_features=0.3).fit(x, y)


def _medians_us(call: Call, seconds: float) -> tuple[float, float]:
    """Of the GPU's time, behind work that hides the host's, and of a call until it is over."""
    import torch

    call()
    torch.cuda.synchronize()
    on_gpu, called = list[float](), list[float]()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(called) < 3:
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        called.append((time.perf_counter() - start) * 1e6)
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(200_000)
        first.record()
        call()
        last.record()
        last.synchronize()
        on_gpu.append(first.elapsed_time(last) * 1e3)
    return statistics.median(on_gpu), statistics.median(called)


def _compiled(source: TreeEnsemble, rows: int, device: str) -> Executable:
    return compile_graph(graph_of(source, rows), CompileOptions(device=device))


def _ours(model: Executable, x: np.ndarray) -> Call:
    import torch

    y = torch.empty(model.signature.outputs[0].type.shape, dtype=torch.float64, device="cuda")
    return model.bind({"x": torch.from_numpy(x).cuda()}, outputs={"y": y}, stream=torch.cuda.current_stream())


def _hummingbird(fitted: Any) -> Any | None:  # noqa: ANN401 - of their libraries
    try:
        from hummingbird.ml import convert
    except ImportError:
        return None
    return convert(fitted, "torch", device="cuda").model


def _peers(hummingbird: Any, x: np.ndarray) -> dict[str, Call]:  # noqa: ANN401 - of its library
    import torch

    if hummingbird is None:
        return {}
    rows = torch.from_numpy(x).cuda()
    calls: dict[str, Call] = {"hummingbird": lambda: hummingbird(rows)}
    if len(x) <= _MOST_TRACED_ROWS:
        with torch.no_grad():
            traced = torch.jit.trace(hummingbird, (rows,), check_trace=False)
        calls["hummingbird traced"] = lambda: traced(rows)
    return calls


def _by_hand(source: TreeEnsemble, x: np.ndarray) -> Call:
    import cupy
    import torch

    nodes, is_few = source.nodes, len(x) < _FEW_ROWS
    kernel = cupy.RawModule(code=_BY_HAND).get_function("few" if is_few else "many")
    arrays = (source.roots, nodes.feature, nodes.threshold, nodes.left, nodes.right, nodes.value[:, 0])
    types = (np.int32, np.int32, np.float32, np.int32, np.int32, np.float32)
    forest = [cupy.asarray(np.ascontiguousarray(array, type_)) for array, type_ in zip(arrays, types, strict=True)]
    sizes = (np.int32(len(x)), np.int32(x.shape[1]), np.int32(len(source.roots)))
    operands = (cupy.asarray(x), *forest, cupy.empty(len(x), np.float32), *sizes)
    grid, block = ((len(x),), (512,)) if is_few else ((-(-len(x) // 128),), (128,))
    stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)

    def call() -> None:
        with stream:
            kernel(grid, block, operands)

    return call


if __name__ == "__main__":
    main()
