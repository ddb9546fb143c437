"""The benchmark networks, at a small size, compute what ONNX Runtime computes."""

import pytest

from benchmarks.networks import NETWORKS, SMALL
from benchmarks.networks.builder import random_inputs
from tests.support.onnx_reference import check_model


@pytest.mark.parametrize("name", NETWORKS)
def test_network(name):
    model = NETWORKS[name](**SMALL[name])
    check_model(model, random_inputs(model, seed=0))
