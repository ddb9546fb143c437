"""Quantised networks on GPUs: products of bytes by tensor cores, each layer within one quantum of ONNX Runtime's."""

import numpy as np
import pytest

from benchmarks.networks import NETWORKS, SMALL
from benchmarks.networks.builder import random_inputs
from rammer.devices.cuda.source import source_of
from rammer.ir.kernel_form import GemmForm, Instruction
from tests.support.host_cuda import ORDERS
from tests.support.quantised_layers import apart, by_onnx_runtime, feeds_of, quantised_names
from tests.support.quantised_models import quantised_statically

MOST_THAT_DIFFER = 0.002  # as on processors: tests/end_to_end/test_quantised_layers.py
PRODUCTS = {
    "mobilenet": {Instruction.MMA_I8},
    "bert": {Instruction.MMA_I8, Instruction.MMA_F16},  # weights, and heads of attention
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_layers(name, gpu, tmp_path):
    plain = NETWORKS[name](**SMALL[name])
    inputs = random_inputs(plain, seed=0)
    model = quantised_statically(plain, inputs, tmp_path)
    names = quantised_names(model)
    theirs = by_onnx_runtime(model, inputs, names, optimised=True)
    cut = apart(model, theirs)
    plan, vdevice = gpu.plan(cut, veus=4)
    forms = [kernel.form for kernel in plan.kernels if isinstance(kernel.form, GemmForm)]
    assert {form.instruction for form in forms} == PRODUCTS[name]
    feeds, wanted = feeds_of(cut, inputs, theirs), [theirs[tensor] for tensor in names]
    loaded = gpu.load(source_of(plan, vdevice))
    for order in ORDERS[:2]:
        found = gpu.run(loaded, list(feeds.values()), wanted, order)
        for tensor, ours, their in zip(names, found, wanted, strict=True):
            quanta = np.abs(ours.astype(np.int32) - their.astype(np.int32))
            assert quanta.max() <= 1, tensor
            assert np.count_nonzero(quanta) <= max(1, MOST_THAT_DIFFER * quanta.size), tensor
