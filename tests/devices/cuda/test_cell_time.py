"""What the model of a GPU says of cells whose weights stay, beside steps that were measured."""

from dataclasses import replace

import pytest

from benchmarks.networks import NETWORKS
from rammer.devices.cuda.tiling.cell_time import cell_us
from rammer.devices.cuda.tiling.figures import H200_CELLS
from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.ir.kernel_form import PersistentRnnForm
from rammer.options import CompileOptions
from rammer.pipelines.planning import lower_graph
from rammer.roller.model import predict
from tests.support.kernel_cases import CELLS
from tests.support.kernels import Bound

HANDOVER_US = 0.52
STEPS_US = {
    ("fp32", 128, 4): {(4, 32): 0.93, (4, 8): 0.77},
    ("fp32", 128, 16): {(16, 32): 2.11, (16, 8): 1.59, (8, 32): 1.11, (4, 32): 0.97},
    ("fp32", 128, 64): {(32, 32): 4.08, (16, 32): 2.63, (4, 32): 0.92},
    ("fp32", 256, 16): {(16, 20): 3.73, (16, 8): 2.34, (8, 20): 1.87, (4, 20): 1.27},
    ("fp32", 512, 16): {(16, 8): 3.41},
    ("fp16", 128, 16): {(16, 32): 1.27, (8, 32): 0.85},
    ("fp16", 256, 64): {(64, 20): 5.60, (64, 8): 4.10},
}
"""By precision, units and batch: of rTasks of so many vectors and units, a step of two layers on an NVIDIA H200."""


def cells_of_a_layer(precision, units, batch):
    options = CompileOptions(device="cuda:sm_90", precision=precision)
    vdevice = find_device(options.device).describe(options)
    model = NETWORKS["lstm_tc"](layers=2, steps=4, hidden=units, batch=batch)
    tasks = lower_graph(load_graph(model), vdevice, options, Dump(None))
    kernels = tasks.operators[2].kernels
    return {one.tile.task: one for one in kernels if isinstance(one.form, PersistentRnnForm)}, vdevice


@pytest.mark.parametrize("layer", STEPS_US, ids=lambda layer: "-".join(map(str, layer)))
def test_steps_of_batches_take_what_was_measured(layer):
    kernels, vdevice = cells_of_a_layer(*layer)
    for tile, step_us in STEPS_US[layer].items():
        told_us = vdevice.kept_share * predict(kernels[tile], vdevice).task_us + HANDOVER_US
        assert 0.8 < told_us / step_us < 1.25, tile


def test_weights_of_one_vector_are_loaded_first():
    options = CompileOptions(device="cuda:sm_90")
    vdevice = find_device(options.device).describe(options)
    expr, constants = CELLS["lstm"]
    kernels = vdevice.rules.persistent(Bound(expr, constants, vdevice).workload, vdevice)
    kernel = kernels[0]
    form = kernel.form
    assert isinstance(form, PersistentRnnForm)
    few, many = (replace(form, weight_registers=count) for count in (1, 64))
    few_us, many_us = (cell_us(kernel, one, vdevice, H200_CELLS) for one in (few, many))
    assert 0.7 < few_us < 1.1  # as EfficientNet's gates take
    assert many_us > 2 * few_us
