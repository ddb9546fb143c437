"""The networks as JAX functions against ONNX Runtime. Needs JAX, on any of its devices: `pip install jax`."""

import numpy as np
import onnxruntime
import pytest

from benchmarks.harness.cases import Case, Form
from benchmarks.harness.setups import TOLERANCES
from benchmarks.harness.xla import Xla
from benchmarks.networks import NETWORKS, PAPER, SMALL
from benchmarks.networks.builder import random_inputs
from benchmarks.networks.jax_function import jax_function
from tests.support.agreement import relative_difference

jax = pytest.importorskip("jax", reason="no JAX (pip install jax)")


@pytest.mark.parametrize("name", NETWORKS)
def test_small_network(name):
    model = NETWORKS[name](**SMALL[name])
    compare(model, random_inputs(model, seed=1))


def test_cells():
    model = NETWORKS["seq2seq"](cells=True, **SMALL["seq2seq"])
    compare(model, random_inputs(model, seed=1))


@pytest.mark.long
@pytest.mark.parametrize("name", PAPER)
def test_network(name):
    model = NETWORKS[name]()
    compare(model, random_inputs(model, seed=0))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_contestant_on_the_processor(precision):
    """PyTorch's tensors go in and come out, as on a GPU."""
    pytest.importorskip("torch", reason="no PyTorch")
    model = NETWORKS["lstm_tc"](**SMALL["lstm_tc"])
    given = random_inputs(model, seed=1)
    case = Case(name="lstm_tc", form=Form(network="lstm_tc"), model=model, inputs=given)
    (found,) = Xla(precision=precision, device="cpu").prepare(case).outputs()
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)
    assert found.shape == wanted.shape
    assert relative_difference(found, wanted) < TOLERANCES[precision]


def compare(model, given):
    function, parameters = jax_function(model)
    with jax.default_matmul_precision("float32"):
        results = jax.jit(function)(parameters, *given.values())
    outputs = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)
    for found, wanted in zip(map(np.asarray, results), outputs, strict=True):
        assert found.shape == wanted.shape
        assert relative_difference(found, wanted) < 1e-4
