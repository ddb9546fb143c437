"""Matrix products on GPUs, as far as they can be tried without one: forms, layouts, copies of operands."""

import math
from dataclasses import replace

import pytest

from rammer.devices.cuda.architecture import NAMED
from rammer.devices.cuda.describe import describe
from rammer.devices.cuda.tiling.boxes import boxes
from rammer.devices.cuda.tiling.forms import staged_form
from rammer.devices.registry import find_device
from rammer.ir.expr import Axis, Output, Reduce, ReduceFn, TensorExpr, cast, load
from rammer.ir.kernel_form import GemmForm, Instruction
from rammer.ir.task import RTile
from rammer.ir.types import DType, Layout, TensorType
from rammer.lowering.lower import lower
from rammer.operators.builder import GraphBuilder
from rammer.options import CompileOptions
from rammer.passes import layout, round_products
from rammer.roller.model import predict
from rammer.tiling.gemm import INSTRUCTION_TILES, WARP, gemm_axes, group_order, moving_axes
from rammer.tiling.packing import preferred_layouts
from rammer.tiling.pattern import contraction
from tests.support.kernels import AVX2, Bound, conv, types, with_task
from tests.support.operators import expression
from tests.support.passes import Net

H200, IN_HALVES = (find_device("cuda:sm_90").describe(CompileOptions(veus=veus)) for veus in (132, 264))
_NAMED_BYTES = 13 << 10  # of shared memory, for records and a vEU's queue

SHAPES = {
    "image": conv((1, 64, 32, 32), (64, 64, 3, 3), bias=True),
    "small image": conv((1, 64, 8, 8), (64, 64, 3, 3)),
    "odd image": conv((1, 192, 13, 13), (384, 192, 3, 3)),
    "three channels": conv((1, 3, 32, 32), (16, 3, 3, 3)),
    "wide": expression("MatMul", types((1024, 64), (64, 1024))),
    "deep": expression("MatMul", types((64, 4096), (4096, 64))),
    "few": expression("MatMul", types((8, 512), (512, 24))),
    "batches": expression("MatMul", types((5, 64, 48), (5, 48, 64))),
    "many batches": expression("MatMul", types((5, 80, 64, 48), (5, 80, 48, 64))),
    "cells": expression(
        "LSTMCell",
        types((64, 96), (64, 128), (64, 128), (512, 96), (512, 128), (1024,)),
        activations=("Sigmoid", "Tanh", "Tanh"),
        activation_alpha=(0.0,) * 3,
        activation_beta=(0.0,) * 3,
        input_forget=False,
        batched_inputs=False,
    ),
}


def bound(name, vdevice=H200, *, constants=(1,), elements=0):
    expr = SHAPES[name]
    images = (0, len(expr.inputs)) if expr.inputs[0].rank == 4 else ()
    return Bound(expr, constants, vdevice, images, elements=elements)


def rounded_product(height, elements, width, vdevice):
    net = Net()
    graph = net.build(net.add("MatMul", net.input(height, elements), net.weight(elements, width)))
    (operator,) = lower(layout.run(round_products.run(graph, vdevice), vdevice), vdevice).operators
    return operator


@pytest.mark.parametrize(("vdevice", "warps"), [(H200, 16), (IN_HALVES, 8)], ids=["one", "two"])
@pytest.mark.parametrize("name", SHAPES)
def test_warps_hold_every_sum_of_a_threadblock_tile(name, vdevice, warps):
    for kernel in bound(name, vdevice).kernels:
        form = kernel.form
        assert isinstance(form, GemmForm)
        axes = gemm_axes(kernel.expr, kernel.tile.lane)
        assert sorted((*axes.m, *axes.n, *axes.batch), key=kernel.expr.axes.index) == list(kernel.expr.axes)
        assert (form.threadblock.m % form.warp.m, form.threadblock.n % form.warp.n) == (0, 0)
        assert form.threads == warps * WARP
        assert form.warps * form.slices <= warps
        assert form.warp.k % 4 == 0
        found = contraction(kernel.expr)
        assert found is not None
        assert len(found.terms) * form.warp.m * form.warp.n <= 32 * 32


@pytest.mark.parametrize("name", SHAPES)
def test_half_a_multiprocessor_takes_up_to_twice_as_long(name):
    whole = bound(name).kernels[0]
    for kernel in bound(name, IN_HALVES).kernels:
        half_us = IN_HALVES.rules.compute_us(kernel, IN_HALVES)
        whole_us = H200.rules.compute_us(with_task(whole, kernel.tile.task), H200)
        assert whole_us < half_us < 2.2 * whole_us  # smaller blocks copy some operands once more


@pytest.mark.parametrize("name", SHAPES)
def test_candidates_are_the_best_of_all_tiles(name):
    some = bound(name).kernels[0]
    found = contraction(some.expr)
    assert found is not None
    assert some.tile.lane is not None
    workload = bound(name).workload
    tasks = list(boxes(some.expr, found, some.expr.axes[some.tile.lane], H200))
    assert len(set(tasks)) == len(tasks)
    tiles = [RTile(task=task, lane=some.tile.lane) for task in tasks]
    forms = {tile: staged_form(workload, tile, H200) for tile in tiles}
    kernels = [workload.kernel(tile, form) for tile, form in forms.items() if form is not None]
    time_us = {kernel: predict(kernel, H200).task_us for kernel in kernels}

    def first(veus):
        return min(time_us, key=lambda kernel: -(-kernel.task_count // veus) * time_us[kernel])

    best = dict.fromkeys(map(first, (1, *(H200.veu_count >> halved for halved in range(5)))))
    assert H200.rules.candidates(workload, H200, to_measure=False) == list(best)


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("architecture", NAMED)
@pytest.mark.parametrize("name", SHAPES)
def test_scratch_is_no_more_than_a_block_has(name, architecture, blocks):
    vdevice = describe(NAMED[architecture], blocks * NAMED[architecture].multiprocessors)
    for kernel in bound(name, vdevice).kernels:
        assert 0 < kernel.form.scratch_bytes <= vdevice.levels[0].capacity_bytes - _NAMED_BYTES


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("architecture", NAMED)
@pytest.mark.parametrize("precision", ["tf32", "fp16"])
@pytest.mark.parametrize(("height", "elements", "width"), [(16, 1024, 32), (1024, 64, 1024), (128, 576, 64)])
def test_scratch_of_rounded_products_is_no_more_than_a_block_has(
    height, elements, width, precision, architecture, blocks
):
    gpu = NAMED[architecture]
    vdevice = replace(describe(gpu, blocks * gpu.multiprocessors), precision=precision)
    for kernel in rounded_product(height, elements, width, vdevice).kernels:
        assert 0 < kernel.form.scratch_bytes <= vdevice.levels[0].capacity_bytes - _NAMED_BYTES


@pytest.mark.parametrize("name", SHAPES)
def test_first_candidate_fills_the_device(name):
    fastest = bound(name).kernels[0]
    waves = math.ceil(fastest.task_count / H200.veu_count)
    others = bound(name).kernels[1:]
    assert all(
        waves * predict(fastest, H200).task_us
        <= math.ceil(one.task_count / H200.veu_count) * predict(one, H200).task_us + 2 * H200.handover_us.value
        for one in others
    )


@pytest.mark.parametrize("name", ["image", "small image", "odd image", "deep"])
def test_stages_are_in_line_with_the_axes_where_they_can(name):
    for kernel in bound(name).kernels:
        found = contraction(kernel.expr)
        assert found is not None
        extents = [axis.extent for axis in reversed(group_order(found.groups[0], kernel.layouts))]
        assert moving_axes(extents, kernel.form.threadblock.k) > 0


@pytest.mark.parametrize(("width", "of_warp"), [(3072, 24), (2304, 24), (1024, 16)])
def test_warps_in_float64_leave_no_columns_over(width, of_warp):
    """Of 128 rows, 132 vEUs have tiles of 48, 72 and 64 columns."""
    kernels = Bound(expression("MatMul", types((128, 768), (768, width))), [1], H200).kernels
    kernel = min(kernels, key=lambda one: math.ceil(one.task_count / H200.veu_count) * predict(one, H200).task_us)
    form = kernel.form
    assert isinstance(form, GemmForm)
    assert form.instruction is Instruction.MMA_F64
    assert kernel.tile.task[1] % form.warp.n == 0
    assert form.warp.n == of_warp


@pytest.mark.parametrize(
    ("task", "warp", "slices"),
    [
        ((64, 64), (16, 16), 1),
        ((32, 64), (16, 16), 2),
        ((16, 64), (16, 16), 4),
        ((128, 64), (16, 32), 1),
        ((64, 48), (16, 24), 2),
    ],
)
def test_warps_in_float64_share_sums_with_as_few_others_as_can_be(task, warp, slices):
    """Narrower tiles keep all 16 warps busy with fewer slices, of which each has all sums to be added."""
    rows, columns = task
    workload = Bound(expression("MatMul", types((128, 768), (768, 768))), [1], H200).workload
    form = staged_form(workload, RTile(task=task, lane=1), H200)
    assert form is not None
    assert form.instruction is Instruction.MMA_F64
    assert (form.threadblock.m, form.threadblock.n) == (rows, columns)
    assert (form.warp.m, form.warp.n) == warp
    assert form.slices == slices


@pytest.mark.parametrize(("rows", "k", "axes"), [(4, 96, 2), (2, 192, 2)])
def test_stages_move_along_few_axes(rows, k, axes):
    """576 elements are 3 x 3 taps of 64 channels. 144 are in line, too, but move along all three axes."""
    expr = conv((1, 64, 16, 16), (64, 64, 3, 3))
    workload = Bound(expr, [1], H200, (0, len(expr.inputs))).workload
    form = staged_form(workload, RTile(task=(64, rows, 16), lane=0), H200)
    found = contraction(workload.expr)
    assert form is not None
    assert found is not None
    extents = [axis.extent for axis in reversed(group_order(found.groups[0], workload.layouts))]
    assert form.threadblock.k == k
    assert moving_axes(extents, k) == axes < moving_axes(extents, 144)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_float64_multiplies_float32_where_there_is_as_much_of_it(architecture):
    vdevice = describe(NAMED[architecture], None)
    forms = {kernel.form.instruction for kernel in bound("wide", vdevice).kernels}
    assert forms == {Instruction.MMA_F64 if architecture == "sm_90" else Instruction.FFMA}


@pytest.mark.parametrize("elements", [363, 432, 500, 1000])
def test_the_last_stage_is_about_as_full_as_the_others(elements):
    for kernel in Bound(expression("MatMul", types((64, elements), (elements, 64))), [1], H200).kernels:
        form = kernel.form
        assert isinstance(form, GemmForm)
        k, instruction = form.threadblock.k, INSTRUCTION_TILES[form.instruction]
        stages = -(-elements // k)
        unit = max(instruction.least_k, form.slices * instruction.k)
        assert k % unit == 0
        assert stages * k - elements < stages * unit


def test_copies_of_single_elements_take_longer():
    narrow, wide = (Bound(conv((1, c, 32, 32), (64, c, 3, 3)), [1], H200, (0, 2)) for c in (62, 64))
    assert predict(narrow.kernels[0], H200).task_us > 1.1 * predict(wide.kernels[0], H200).task_us


@pytest.mark.parametrize(
    ("extents", "step", "moving"),
    [((64, 3, 3), 32, 1), ((64, 3, 3), 192, 2), ((64, 3, 3), 96, 2), ((64, 3, 3), 128, 0)],
)
def test_axes_that_move_in_a_step(extents, step, moving):
    assert moving_axes(extents, step) == moving


def test_few_sums_stream_instead():
    expr = expression("MatMul", types((3, 512), (512, 64)))
    assert {kernel.form.skeleton for kernel in Bound(expr, (), H200).kernels} == {"gemv"}


def test_float64_is_not_staged():
    expr = expression("MatMul", types((64, 64), (64, 64), dtype=DType.FLOAT64))
    assert not any(isinstance(kernel.form, GemmForm) for kernel in Bound(expr, [1], H200).kernels)


def test_weights_that_are_staged_have_their_sums_innermost():
    expr = SHAPES["image"]
    layouts = [Layout.ordered((1, 64, 32, 32), (0, 2, 3, 1)), *(Layout.row_major(t.shape) for t in expr.inputs[1:])]
    staged = preferred_layouts(expr, {1}, layouts, H200)[1]
    assert staged == Layout.ordered((64, 64, 3, 3), (0, 2, 3, 1))
    assert preferred_layouts(expr, {1}, layouts, AVX2)[1].panel is not None


def test_depthwise_weights_have_their_channels_innermost():
    expr = conv((1, 32, 16, 16), (32, 1, 5, 5), group=32)
    layouts = [Layout.ordered((1, 32, 16, 16), (0, 2, 3, 1)), *(Layout.row_major(t.shape) for t in expr.inputs[1:])]
    assert preferred_layouts(expr, {1}, layouts, H200)[1].strides[0] == 1


def test_weights_that_stream_keep_their_lanes_innermost():
    expr = expression("MatMul", types((1, 512), (512, 64)))
    layouts = [Layout.row_major(t.shape) for t in expr.inputs]
    assert preferred_layouts(expr, {1}, layouts, H200)[1].panel is not None


@pytest.mark.parametrize(("elements", "run"), [(16, 4), (4, 4), (2, 2), (1, 1)])
def test_weights_of_as_many_points_are_one_load_as_are_aligned(elements, run):
    expr = expression("MatMul", types((1, 4096), (4096, 1024)))
    assert Bound(expr, (), H200, elements=elements).kernels[0].form.vector == run


@pytest.mark.parametrize(("elements", "run"), [(16, 8), (4, 4), (2, 1)])
def test_a_run_fills_a_register_at_least(elements, run):
    n, k = Axis("s0", 1024), Axis("r0", 4096)
    x, w = TensorType(DType.FLOAT32, (4096,)), TensorType(DType.INT8, (4096, 1024))
    product = load(0, x, (k,)) * cast(DType.FLOAT32, load(1, w, (k, n)))
    y = Output(type=TensorType(DType.FLOAT32, (1024,)), indices=(n,), body=Reduce(ReduceFn.SUM, (k,), product))
    expr = TensorExpr(axes=(n,), inputs=(x, w), outputs=(y,))
    assert Bound(expr, (), H200, elements=elements).kernels[0].form.vector == run


def test_a_thread_takes_one_point_where_all_threads_have_points_of_their_own():
    kernel = Bound(expression("MatMul", types((1, 64), (64, 1 << 20))), (), H200, elements=16).kernels[0]
    assert math.prod(kernel.tile.task) > 4 * kernel.form.threads
    assert kernel.form.vector == 1


def test_alignment_follows_from_the_place_in_storage():
    builder = GraphBuilder("test")
    x = builder.input("x", *types((1, 24)))
    (left,) = builder.add("Relu", [x], name="left")
    (right,) = builder.add("Neg", [x], name="right")
    slices = [
        builder.add("Slice", [value], {"starts": (0, 0), "steps": (1, 1), "sizes": (1, 6)}, name="six")[0]
        for value in (left, right)
    ]
    (joined,) = builder.add("Concat", slices, {"axis": 1}, name="joined")
    (y,) = builder.add("Exp", [joined], name="y")
    operators = lower(builder.build([y]), H200).operators
    assert [one.kernels[0].alignments for one in operators if one.name == "y"] == [(16, 4)]  # callers' arrays: 16 bytes
    written = {one.writes[0].origin: one.kernels[0].alignments[-1] for one in operators if one.name != "y"}
    assert written[0, 6] == 2


def of_several_tiles(name="many batches"):
    return next(kernel for kernel in bound(name, elements=16).kernels if kernel.form.tiles > 1)


def test_tiles_with_sums_over_different_axes_are_not_overlapped():
    kernel = of_several_tiles("cells")
    assert not kernel.form.overlapped


def test_tiles_are_overlapped_if_there_is_room_for_their_sums():
    kernel = of_several_tiles()
    assert [with_task(kernel, kernel.tile.task, kib << 10).form.overlapped for kib in (160, 48, 24)] == [
        True,
        True,
        False,
    ]


def test_a_stage_has_room_for_the_group_of_sums_with_most_operands():
    """The last of two groups is shorter and has two operands of rows."""
    m, n, k, r = Axis("s0", 64), Axis("s1", 64), Axis("r0", 128), Axis("r1", 32)
    x, w = TensorType(DType.FLOAT32, (64, 128)), TensorType(DType.FLOAT32, (128, 64))
    y, v = TensorType(DType.FLOAT32, (64, 32)), TensorType(DType.FLOAT32, (32, 64))
    long = Reduce(ReduceFn.SUM, (k,), load(0, x, (m, k)) * load(1, w, (k, n)))
    short = [Reduce(ReduceFn.SUM, (r,), load(slot, y, (m, r)) * load(4, v, (r, n))) for slot in (2, 3)]
    out = Output(type=TensorType(DType.FLOAT32, (64, 64)), indices=(m, n), body=long + short[0] * short[1])
    for kernel in Bound(TensorExpr(axes=(m, n), inputs=(x, w, y, y, v), outputs=(out,)), (), H200).kernels:
        form = kernel.form
        assert isinstance(form, GemmForm)
        pitch = form.threadblock.k + INSTRUCTION_TILES[Instruction.FFMA].padding
        stage_bytes = (2 * form.threadblock.m + form.threadblock.n) * pitch * 4
        assert form.scratch_bytes >= form.stages * stage_bytes
