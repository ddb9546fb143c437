"""Branches and loops that a model decides on, on a GPU. Run by `pytest -m gpu`."""

import numpy as np
import pytest

import rammer
from tests.support.agreement import relative_difference, run_onnx_runtime
from tests.support.random_branches import layer_in_a_branch, products_by_branch, random_branches

pytestmark = pytest.mark.gpu
RUNS = 50


def check(model, runs, tolerance, **options):
    """Runs in turn agree with ONNX Runtime, and equal inputs give equal bits."""
    net = rammer.compile(model, "cuda", **options)
    wanted = [run_onnx_runtime(model, inputs) for inputs in runs]
    first = [list(net.run(inputs).values()) for inputs in runs]
    for found, expected in zip(first, wanted, strict=True):
        assert max(map(relative_difference, found, expected)) < tolerance
    for number in range(RUNS):
        which = number % len(runs)
        again = net.run(runs[which]).values()
        assert [array.tobytes() for array in again] == [array.tobytes() for array in first[which]]


def both_signs(*shape):
    x = np.abs(np.random.default_rng(1).standard_normal(shape, dtype=np.float32))
    return [{"x": x}, {"x": -x}]


@pytest.mark.parametrize("seed", range(6))
def test_random_branches_and_loops(seed):
    model, inputs = random_branches(seed)
    check(model, [inputs, {name: -array for name, array in inputs.items()}], 1e-5)


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("fp16", 2e-2), ("bf16", 5e-2)])
@pytest.mark.parametrize(("rows", "inner"), [(1, 256), (24, 64), (256, 512)])
def test_products_in_branches(rows, inner, precision, tolerance):
    check(products_by_branch(rows, inner), both_signs(rows, inner), tolerance, precision=precision)


@pytest.mark.parametrize("batch", [1, 3])
def test_recurrent_layers_in_a_branch(batch):
    check(layer_in_a_branch(batch, hidden=128, steps=20), both_signs(20, batch, 128), 1e-5)
