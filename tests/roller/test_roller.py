"""Construction: data tiles, register tiles, candidates and the micro-performance model."""

from dataclasses import replace

import pytest

from rammer.ir.kernel_form import ReduceForm
from rammer.ir.types import DType, Layout, TensorType
from rammer.ir.vdevice import Figure
from rammer.ir.workload import Workload
from rammer.roller.construct import construct
from rammer.roller.model import ModelCosts, memory_us, predict
from rammer.roller.tile import footprint_bytes, reuse_score, scale_out, task_count, traffic_bytes
from tests.support.kernels import AVX512, NEON, Bound, conv, machine, types
from tests.support.operators import expression, row_major

F32 = DType.FLOAT32


def matmul(m, k, n):
    return expression("MatMul", types((m, k), (k, n)))


def test_data_tiles_follow_from_the_index_maps():
    expr = matmul(64, 32, 48)
    assert footprint_bytes(expr, (64, 48)) == 4 * (64 * 32 + 32 * 48 + 64 * 48)
    assert footprint_bytes(expr, (16, 24)) == 4 * (16 * 32 + 32 * 24 + 16 * 24)
    assert traffic_bytes(expr, (16, 24)) == 8 * footprint_bytes(expr, (16, 24))


def test_data_tiles_of_a_convolution_include_the_halo():
    expr = conv((1, 2, 16, 16), (8, 2, 3, 3), pads=(0, 0, 0, 0))
    assert footprint_bytes(expr, (1, 8, 4, 14)) == 4 * (2 * 6 * 16 + 8 * 2 * 9 + 8 * 4 * 14)


def test_data_tiles_of_a_gather_are_what_it_asks_for():
    rows = TensorType(DType.INT64, (6,))
    expr = expression("Gather", (TensorType(F32, (1000, 8)), rows), axis=0)
    assert footprint_bytes(expr, (6, 8)) == 4 * 6 * 8 + 8 * 6 + 4 * 6 * 8
    few = expression("Gather", (TensorType(F32, (2, 8)), rows), axis=0)
    assert footprint_bytes(few, (6, 8)) == 4 * 2 * 8 + 8 * 6 + 4 * 6 * 8


def test_data_tiles_of_one_strided_load_are_what_it_asks_for():
    pixels = conv((1, 2, 16, 16), (8, 2, 1, 1), pads=(0, 0, 0, 0), strides=(4, 2))
    assert footprint_bytes(pixels, (1, 8, 2, 8)) == 4 * (2 * 2 * 8 + 8 * 2 + 8 * 2 * 8)
    windows = conv((1, 2, 16, 16), (8, 2, 3, 3), pads=(0, 0, 0, 0), strides=(4, 4))
    assert footprint_bytes(windows, (1, 8, 2, 2)) == 4 * (2 * 7 * 7 + 8 * 2 * 9 + 8 * 2 * 2)


def test_padded_loads_count_together():
    """Those of one tensor may be in several slots."""
    padded = conv((1, 2, 16, 16), (8, 2, 1, 1), pads=(0, 0, 1, 1), strides=(4, 2))
    assert footprint_bytes(padded, (1, 8, 2, 9)) == 4 * (2 * 5 * 16 + 8 * 2 + 8 * 2 * 9)


def test_reuse_is_traffic_saved_per_byte():
    expr = matmul(64, 32, 48)
    saved = traffic_bytes(expr, (16, 48)) - traffic_bytes(expr, (32, 48))
    grown = footprint_bytes(expr, (32, 48)) - footprint_bytes(expr, (16, 48))
    assert reuse_score(expr, (32, 48), 0, 16) == saved / grown


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 6, 8, 24])
def test_scaling_out_reaches_the_number_of_parts_in_whole_units(parts):
    expr = matmul(240, 32, 96)
    task = scale_out(expr, (10, 16), parts)
    assert task_count(expr, task) >= parts
    for axis, size, unit in zip(expr.axes, task, (10, 16), strict=True):
        assert size == axis.extent or size % unit == 0


def test_scaling_out_ends_where_units_cannot_be_cut():
    assert scale_out(matmul(12, 8, 16), (12, 16), 100) == (12, 16)


def test_scaling_out_cuts_where_least_is_read_twice():
    # Rows of the large operand are read once however they are cut; columns would read it once for each part.
    task = scale_out(matmul(4096, 64, 32), (1, 1), 8)
    assert task[1] == 32


@pytest.mark.parametrize(("kernel", "cut"), [(3, (1, 32, 8, 16)), (15, (1, 16, 16, 16))], ids=["3x3", "15x15"])
def test_scaling_out_cuts_the_longest_steps_where_the_halo_is_small(kernel, cut):
    pads = (kernel // 2,) * 4
    expr = conv((1, 32, 16, 16), (32, 1, kernel, kernel), group=32, pads=pads)
    assert scale_out(expr, (1, 16, 1, 1), 2) == (1, 16, 16, 16)
    assert scale_out(expr, (1, 16, 1, 1), 2, steps=(8192, 1, 512, 32)) == cut


def kernels_of(expr, constants=(), vdevice=AVX512):
    return Bound(expr, constants, vdevice).kernels


def test_the_fastest_comes_first_and_the_most_efficient_is_among_them():
    kernels = kernels_of(matmul(512, 512, 512), {1})
    time_us = [predict(kernel, AVX512).task_us for kernel in kernels]
    rounds = [-(-kernel.task_count // AVX512.veu_count) * us for kernel, us in zip(kernels, time_us, strict=True)]
    assert rounds[0] == min(rounds)
    assert kernels[0].task_count >= AVX512.veu_count
    assert kernels[1].task_count == 1
    assert all(kernel.form.skeleton == "gemm" for kernel in kernels)


def test_small_work_is_not_cut():
    for expr in (matmul(4, 8, 16), expression("Relu", types((64,))), expression("Softmax", types((4, 10)), axis=1)):
        assert kernels_of(expr)[0].task_count == 1


def test_a_depthwise_convolution_takes_the_general_skeleton():
    expr = expression(
        "Conv",
        types((1, 32, 16, 16), (32, 1, 3, 3)),
        strides=(1, 1),
        dilations=(1, 1),
        pads=(1,) * 4,
        group=32,
        finite_weights=True,
    )
    assert {kernel.form.skeleton for kernel in kernels_of(expr, {1})} == {"reduce"}


def test_a_vdevice_without_a_skeleton_gets_no_kernel():
    expr = expression("Relu", types((64,)))
    bare = machine()
    object.__setattr__(bare, "skeletons", ("gemm",))
    with pytest.raises(ValueError, match="no skeleton 'map'"):
        construct(Workload(expr, row_major(expr)), bare)


def test_construction_is_deterministic():
    first = kernels_of(conv((1, 16, 14, 14), (64, 16, 3, 3)), {1})
    construct.cache_clear()
    assert kernels_of(conv((1, 16, 14, 14), (64, 16, 3, 3)), {1}) == first


def test_construction_minds_all_that_it_depends_on():
    expr = matmul(64, 256, 128)
    layouts = row_major(expr)
    columns = (layouts[0], Layout.ordered((256, 128), (1, 0)), layouts[2])
    slower = replace(AVX512, flops_per_us={dtype: Figure(1.0, "test") for dtype in AVX512.flops_per_us})
    found = construct(Workload(expr, layouts), AVX512)
    assert construct(Workload(expr, layouts), replace(AVX512)) is found
    assert construct(Workload(expr, columns), AVX512)[0].layouts == columns
    assert construct(Workload(expr, layouts), NEON)[0].form.vector != found[0].form.vector
    assert len(construct(Workload(expr, layouts), AVX512, to_measure=True)) > len(found)
    small = matmul(8, 8, 32)
    assert (
        construct(Workload(small, row_major(small)), slower)[0].task_count
        > construct(Workload(small, row_major(small)), AVX512)[0].task_count
    )


def test_equal_kernels_are_one_object():
    kernel = construct(Workload(matmul(64, 256, 128), row_major(matmul(64, 256, 128))), AVX512)[0]
    assert replace(kernel) is kernel
    changes = (
        {"alignments": (4, 4, 4)},
        {"tile": replace(kernel.tile, task=(1, 1))},
        {"form": replace(kernel.form, threads=7)},
        {"form": ReduceForm()},
        {"constants": frozenset({1})},
        {"layouts": kernel.layouts[::-1]},
    )
    assert len({kernel, *(replace(kernel, **change) for change in changes)}) == 1 + len(changes)


def test_the_model_says_what_bounds_a_task():
    costs = ModelCosts(AVX512)
    product = kernels_of(matmul(512, 512, 512), {1})[1]
    sums = kernels_of(expression("Add", types((1 << 22,), (1 << 22,))))[0]
    assert costs.bound(product) == "compute"
    assert costs.bound(sums) == "memory"
    assert costs.task_us(product).value == predict(product, AVX512).task_us
    assert costs.task_us(product).provenance == "predicted from the figures of test machine"


def test_predicted_time_grows_with_the_work():
    small, large = (kernels_of(matmul(n, 256, 256), {1})[-1] for n in (128, 1024))
    total = [kernel.task_count * predict(kernel, AVX512).task_us for kernel in (small, large)]
    assert 4 < total[1] / total[0] < 16


def test_units_that_move_data_side_by_side_share_what_all_get_together():
    """Memory brings one unit 15 bytes a nanosecond, four of them 20; L2 has no figure for all together."""
    expr = expression("Add", types((1 << 22,), (1 << 22,)))
    alone = machine(veus=4)
    total = Figure(20e3, "a test")
    shared = replace(alone, levels=(*alone.levels[:-1], replace(alone.levels[-1], total_bandwidth_bytes_per_us=total)))
    for tasks, slower in ((1, 1.0), (2, 1.5), (4, 3.0), (16, 3.0)):
        tile = (expr.axes[0].extent // tasks,)
        assert memory_us(expr, tile, shared) == pytest.approx(slower * memory_us(expr, tile, alone))
    small = expression("Add", types((1 << 12,), (1 << 12,)))
    assert memory_us(small, (1 << 10,), shared) == memory_us(small, (1 << 10,), alone)
