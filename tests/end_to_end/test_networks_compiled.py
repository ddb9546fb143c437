"""The six networks, compiled: what ONNX Runtime gives, under every policy and number of vEUs, bit by bit each time."""

from collections.abc import Mapping
from functools import cache

import onnx
import pytest

import rammer
from benchmarks.networks import NETWORKS, SMALL
from benchmarks.networks.builder import input_shapes, random_inputs
from rammer.schedule.policies import POLICIES
from tests.support.agreement import relative_difference, run_onnx_runtime
from tests.support.model_maker import Array

TOLERANCE = 1e-4
VEUS = (1, 2, 4)
RUNS = 5

by_name = pytest.mark.parametrize("name", NETWORKS)
by_policy = pytest.mark.parametrize("policy", POLICIES)


@cache
def case(name: str, full: bool) -> tuple[onnx.ModelProto, Mapping[str, Array], Array]:
    """A network, its inputs and ONNX Runtime's output."""
    model = NETWORKS[name](**({} if full else SMALL[name]))
    inputs = random_inputs(input_shapes(model), seed=1)
    (expected,) = run_onnx_runtime(model, inputs)
    return model, inputs, expected


def error_of(name: str, *, device: str, policy: str, veus: int, full: bool = False, runs: int = RUNS) -> float:
    """The compiled network's relative difference from ONNX Runtime, after runs that have to agree in every bit."""
    model, inputs, expected = case(name, full)
    net = rammer.compile(model, device, policy=policy, veus=veus)
    results = [net(**inputs) for _ in range(runs)]
    assert all(result.tobytes() == results[0].tobytes() for result in results)
    assert (results[0].shape, results[0].dtype) == (expected.shape, expected.dtype)
    return relative_difference(results[0], expected)


@by_name
@by_policy
@pytest.mark.parametrize("veus", VEUS)
def test_processor(name, policy, veus):
    assert error_of(name, device="cpu", policy=policy, veus=veus) < TOLERANCE


@by_name
@by_policy
def test_reference_device(name, policy):
    assert error_of(name, device="reference", policy=policy, veus=4, runs=2) < TOLERANCE


@pytest.mark.long
@by_name
def test_paper_size(name, capsys):
    errors = {
        (policy, veus): error_of(name, device="cpu", policy=policy, veus=veus, full=True)
        for policy in POLICIES
        for veus in VEUS
    }
    with capsys.disabled():
        print(f"\n{name:12} {'relative difference from ONNX Runtime with':>45} {', '.join(map(str, VEUS))} vEUs")
        for policy in POLICIES:
            print(f"  {policy:12}" + "".join(f"{errors[policy, veus]:12.2e}" for veus in VEUS))
    assert max(errors.values()) < TOLERANCE
