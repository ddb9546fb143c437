"""Attention on GPUs, as far as it can be tried without one: forms, their times, what is rounded."""

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.networks import llama
from rammer.devices.cuda.architecture import NAMED
from rammer.devices.cuda.describe import describe
from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.ir.expr import Cast, Load, nodes
from rammer.ir.kernel_form import FlashAttentionForm, Instruction
from rammer.ir.types import DType
from rammer.lowering.lower import lower
from rammer.options import CompileOptions
from rammer.passes import eliminate_dead, fuse, fuse_attention, inline_numbers, inline_views, round_products
from rammer.passes.pipeline import run_passes
from rammer.roller.model import predict
from rammer.tiling.attention import attention
from rammer.tiling.flash_attention import block_of
from rammer.verify.forms import form_fault
from tests.support.passes import Net

SHAPES = {
    "bert": (12, 12, 128, 128, 64, 64),
    "vit": (12, 12, 197, 197, 64, 64),
    "whisper": (6, 6, 1500, 1500, 64, 64),
    "one query": (32, 8, 1, 513, 64, 64),
    "wide": (4, 4, 100, 300, 256, 256),
    "odd": (1, 1, 37, 41, 40, 24),
}
NAMED_BYTES = 13 << 10  # of shared memory, for records and a vEU's queue
LEAST_BYTES = 60 << 10  # of shared memory, for queries and values of 256 elements


@pytest.fixture(autouse=True)
def _attention_pays(monkeypatch):
    monkeypatch.setattr(fuse_attention, "predicted_us", lambda expr, *_: 0.0 if attention(expr) else 1.0)


def vdevice(precision="fp16", veus=132):
    return find_device("cuda:sm_90").describe(CompileOptions(device="cuda:sm_90", precision=precision, veus=veus))


def operator(name, device):
    """Attention as it is lowered for a vDevice."""
    heads, groups, rows, keys, depth, width = SHAPES[name]
    net = Net()
    q, k, v = net.input(heads, rows, depth), net.input(groups, keys, depth), net.input(groups, keys, width)
    if heads > groups:
        k, v = (
            net.add(
                "Reshape",
                net.add(
                    "Expand",
                    net.add("Reshape", x, shape=(groups, 1, keys, size)),
                    shape=(groups, heads // groups, keys, size),
                ),
                shape=(heads, keys, size),
            )
            for x, size in ((k, depth), (v, width))
        )
    scores = net.add("MatMul", q, net.add("Transpose", k, perm=(0, 2, 1)))
    scaled = net.add("Mul", scores, net.constant(np.asarray(0.125, np.float32)))
    graph = net.build(net.add("MatMul", net.add("Softmax", scaled, axis=2), v))
    for run in (inline_numbers.run, inline_views.run, eliminate_dead.run, fuse.run):
        graph = run(graph)
    graph = round_products.run(eliminate_dead.run(fuse_attention.run(graph, device)), device)
    (found,) = (one for one in lower(graph, device).operators if attention(one.kernels[0].expr) is not None)
    return found


def block(kernel):
    found = block_of(kernel.expr)
    assert found is not None
    return found


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("veus", [132, 264])
@pytest.mark.parametrize("name", SHAPES)
def test_forms_cover_their_rtasks(name, veus, precision):
    device = vdevice(precision, veus)
    kernels = operator(name, device).kernels
    assert kernels
    for kernel in kernels:
        assert isinstance(kernel.form, FlashAttentionForm)
        assert form_fault(kernel) is None
        assert (kernel.form.instruction is Instruction.MMA_F64) == (precision == "fp32")
        steps = -(-SHAPES[name][3] // kernel.form.keys)
        assert kernel.form.stages <= steps
        assert kernel.form.stages > 1 or steps == 1


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("architecture", NAMED)
@pytest.mark.parametrize("name", SHAPES)
def test_scratch_is_no_more_than_a_block_has(name, architecture, blocks):
    gpu = NAMED[architecture]
    device = replace(describe(gpu, blocks * gpu.multiprocessors), precision="fp16")
    forms = [kernel.form for kernel in operator(name, device).kernels]
    if device.levels[0].capacity_bytes < LEAST_BYTES and name == "wide":  # neither queries nor a stage have room
        assert not any(isinstance(form, FlashAttentionForm) for form in forms)
        return
    for form in forms:
        assert isinstance(form, FlashAttentionForm)
        assert 0 < form.scratch_bytes <= device.levels[0].capacity_bytes - NAMED_BYTES


def test_keys_and_values_that_nobody_writes_are_brought_first():
    """As many as are staged together: 513 of each, of 64 elements of 16 bits."""
    device = vdevice()
    kernel = operator("one query", device).kernels[0]
    keys, values = (
        {node.slot for node in nodes(operand) if isinstance(node, Load)}
        for operand in (block(kernel).key, block(kernel).value)
    )
    size_bytes = {slot: kernel.expr.inputs[slot].dtype.itemsize_bytes for slot in (*keys, *values)}
    staged = kernel.form.stages * kernel.form.keys
    expected = {slot: 513 * 64 * size * min(513, staged) // 513 for slot, size in size_bytes.items()}
    nothing: set[int] = set()
    for unwritten in (nothing, keys, keys | values):
        assert device.rules.first_bytes(kernel, unwritten) == sum(expected[slot] for slot in unwritten)
    queries = set(range(len(kernel.expr.inputs))) - keys - values
    assert device.rules.first_bytes(kernel, queries) == 0


def test_queries_that_share_a_head_of_keys_are_rows_of_one_rtask():
    kernel = operator("one query", vdevice()).kernels[0]
    found = block(kernel).found
    sizes = dict(zip(kernel.expr.axes, kernel.tile.task, strict=True))
    assert math.prod(sizes[axis] for axis in found.rows) == 4
    assert kernel.task_count == 8


@pytest.mark.parametrize(("name", "measured_us"), [("bert", 2.1), ("vit", 3.1), ("whisper", 20.7), ("one query", 3.7)])
def test_predicted_times_are_those_of_an_h200(name, measured_us):
    predicted_us = predict(operator(name, vdevice()).kernels[0], vdevice()).task_us
    assert 1 / 1.5 < predicted_us / measured_us < 1.5


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        ("T09", {"row_warps": 0}),
        ("T09", {"teams": 99}),
        ("T09", {"team_keys": 24}),
        ("T09", {"row_warps": 1, "teams": 1, "scratch_bytes": 1 << 20}),
        ("T09", {"scratch_bytes": 1024}),
        ("T10", {"instruction": Instruction.FFMA}),
    ],
)
def test_forms_that_do_not_fit(rule, wrong):
    kernel = next(kernel for kernel in operator("vit", vdevice()).kernels if kernel.form.row_warps > 1)
    fault = form_fault(replace(kernel, form=replace(kernel.form, **wrong)))
    assert fault is not None
    assert fault[0] == rule


@pytest.mark.parametrize("part", ["a head", "columns"])
def test_rtasks_have_all_columns_of_one_head(part):
    kernel = operator("vit", vdevice()).kernels[0]
    found = block(kernel).found
    sizes = dict(zip(kernel.expr.axes, kernel.tile.task, strict=True))
    if part == "columns":
        sizes[found.columns[0]] -= 1
    else:
        sizes[next(axis for axis in kernel.expr.axes if axis not in (*found.rows, *found.columns))] = 2
    fault = form_fault(replace(kernel, tile=replace(kernel.tile, task=tuple(sizes.values()))))
    assert fault is not None
    assert fault[0] == "T09"


def test_operands_of_both_products_are_rounded_and_the_sum_of_weights_is_not():
    staged = block(operator("bert", vdevice()).kernels[0])
    found = staged.found
    assert {staged.query.dtype, staged.key.dtype, staged.value.dtype} == {DType.FLOAT16}
    assert isinstance(found.weight, Cast)
    assert not any(isinstance(node, Cast) and node.arg is found.exponential for node in nodes(found.total))
    assert not isinstance(found.greatest.body, Cast)


def test_tf32_rounds_nothing_of_attention():
    found = block(operator("bert", vdevice("tf32")).kernels[0]).found
    assert not any(isinstance(node, Cast) for node in nodes(found.weighted))


def test_attention_to_a_cache_in_two_parts_is_not_offered(monkeypatch):
    """Keys that are chosen from two arrays are computed before they are staged: that is slow."""
    monkeypatch.undo()
    device, graph = vdevice(), load_graph(llama.build(layers=1, words=64))
    made: list[str] = []
    run_passes(graph, device, lambda name, after: made.extend(one.kind for one in after.operators))
    assert fuse_attention.KIND not in made
