"""Units that compute with vectors: register tiles, and the axis that runs along lanes."""

import math
from dataclasses import replace

import pytest

from rammer.devices.vector.lane import choose_lane, transposed_with
from rammer.devices.vector.register import efficiency, register_tiles
from rammer.ir.expr import Axis, Call, Output, Reduce, ReduceFn, ScalarFn, TensorExpr, load
from rammer.ir.kernel_form import MapForm, MicroKernelForm
from rammer.ir.types import DType, TensorType
from rammer.roller.model import predict
from rammer.tiling.pattern import contraction
from tests.support.kernels import AVX2, AVX512, NEON, Bound, conv, types
from tests.support.operators import expression, row_major


def matmul(m, k, n):
    return expression("MatMul", types((m, k), (k, n)))


@pytest.mark.parametrize("vdevice", [AVX512, AVX2, NEON], ids=["avx512", "avx2", "neon"])
def test_register_tiles_fit_the_register_file(vdevice):
    expr = matmul(100, 64, 200)
    found = contraction(expr)
    assert found is not None
    tiles = register_tiles(expr, found, row_major(expr), vdevice)
    vector = vdevice.vector_bytes // 4
    for tile in tiles:
        vectors = math.prod(tile.sizes) // vector
        assert vectors + 2 <= vdevice.vector_registers
        assert tile.sizes[tile.lane] % vector == 0
    assert tiles[0].slots == min(tile.slots for tile in tiles)
    assert math.prod(tiles[0].sizes) // vector >= vdevice.vector_registers // 2


@pytest.mark.parametrize(("k", "crowded"), [(1024, True), (1000, False)])
def test_rows_that_are_whole_pages_apart_do_not_crowd_a_set_of_the_cache(k, crowded):
    expr = matmul(104, k, 512)
    found = contraction(expr)
    assert found is not None
    best = min(register_tiles(expr, found, row_major(expr), AVX512), key=lambda tile: tile.slots)
    assert (best.sizes[0] <= 8) is crowded


@pytest.mark.parametrize(("features", "vector"), [(3, 4), (4, 4), (5, 8), (8, 8), (9, 16), (40, 16)])
def test_few_lanes_are_in_short_vectors(features, vector):
    expr = conv((1, 8 * features, 14, 14), (8 * features, features, 3, 3), group=8)
    for kernel in Bound(expr, {1}, AVX512, {0, 2}).kernels:
        assert isinstance(kernel.form, MicroKernelForm)
        assert kernel.tile.lane is not None
        assert kernel.expr.axes[kernel.tile.lane].extent == features
        assert kernel.form.vector == vector
        assert kernel.form.register[kernel.tile.lane] % vector == 0
        # A multiply-add of a short vector takes as long as one of a whole vector.
        assert efficiency(kernel, AVX512) <= features / (16 * math.ceil(features / 16))


def test_rows_of_a_block_stay_within_one_padded_axis():
    expr = conv((1, 16, 14, 14), (64, 16, 3, 3))
    found = contraction(expr)
    assert found is not None
    for tile in register_tiles(expr, found, row_major(expr), AVX512):
        assert tile.sizes[2] == 1 or tile.sizes[3] == 1


@pytest.mark.parametrize(
    ("expr", "lane"),
    [
        (expression("Transpose", types((40, 50)), perm=(1, 0)), 1),
        (expression("Softmax", types((40, 50)), axis=1), 1),
        (expression("Softmax", types((50, 40)), axis=0), 1),
        (expression("ReduceSum", types((40, 50)), axes=(0,), keepdims=False), 0),
        (expression("ReduceSum", types((40, 50)), axes=(1,), keepdims=False), None),
        (expression("ReduceSum", types((40, 50)), axes=(0, 1), keepdims=False), None),
        (expression("ReduceMean", types((40, 8, 8)), axes=(1, 2), keepdims=False), None),
    ],
)
def test_lanes_run_where_memory_is_contiguous(expr, lane):
    assert choose_lane(expr, row_major(expr), 16) == lane


def test_a_transposition_is_done_in_blocks():
    expr = expression("Transpose", types((40, 50)), perm=(1, 0))
    assert transposed_with(expr, row_major(expr), 1) == 0
    form = Bound(expr, (), AVX512).kernels[0].form
    assert isinstance(form, MapForm)
    assert form.block == (16, 16)
    assert transposed_with(expression("Relu", types((40, 50))), row_major(expr), 1) is None


def test_an_rtask_takes_no_longer_than_the_device_allows():
    quick = replace(AVX512, longest_task_us=100.0)
    for expr in (matmul(512, 512, 512), expression("Exp", types((1 << 22,)))):
        usual, kernels = Bound(expr, (), AVX512).kernels, Bound(expr, (), quick).kernels
        assert min(kernel.task_count for kernel in kernels) > max(kernel.task_count for kernel in usual)
        assert all(predict(kernel, quick).task_us <= 200 for kernel in kernels)


@pytest.mark.parametrize("rows", [1, 256])
def test_what_is_computed_of_sums_comes_behind_what_memory_holds_up(rows):
    """A vector by a matrix, for which memory is too slow: its few sigmoids wait for each other, too."""
    plain = matmul(rows, 4096, 4096)
    (output,) = plain.outputs
    expr = replace(plain, outputs=(replace(output, body=Call(ScalarFn.SIGMOID, (output.body,))),))
    for kernel in Bound(expr, {1}, AVX512).kernels:
        found, results_us = predict(kernel, AVX512), AVX512.rules.results_us(kernel, AVX512)
        is_slow = found.memory_us > found.compute_us - results_us
        assert is_slow == (rows == 1)
        assert found.task_us == pytest.approx(found.memory_us + results_us if is_slow else found.compute_us)
        sigmoids_us = 22 * math.prod(kernel.tile.task) * 2 / AVX512.flops_per_us[DType.FLOAT32].value
        assert (results_us > 2 * sigmoids_us) == (rows == 1)
    assert AVX512.rules.results_us(Bound(expression("Exp", types((40, 50))), (), AVX512).kernels[0], AVX512) == 0.0


def test_a_sum_of_one_value_is_as_long_as_its_axes():
    value, axes = load(0, TensorType(DType.FLOAT32, (1,)), (0,)), (Axis("r0", 1000), Axis("r1", 1000))
    output = Output(type=TensorType(DType.FLOAT32, ()), indices=(), body=Reduce(ReduceFn.SUM, axes, value))
    (kernel, *_) = Bound(
        TensorExpr(axes=(), inputs=(TensorType(DType.FLOAT32, (1,)),), outputs=(output,)), (), AVX512
    ).kernels
    assert predict(kernel, AVX512).compute_us > 1


def _sigmoids(rows, k, lanes):
    """sigmoid(x w), which is stored row by row."""
    plain = matmul(rows, k, lanes)
    (output,) = plain.outputs
    return replace(plain, outputs=(replace(output, body=Call(ScalarFn.SIGMOID, (output.body,))),))


def test_candidates_have_every_lane():
    """Lanes that fill vectors, and those that results lie along."""
    kernels = Bound(_sigmoids(32, 20, 20), {1}, AVX512).kernels
    for count in {kernel.task_count for kernel in kernels}:
        assert {kernel.tile.lane for kernel in kernels if kernel.task_count == count} == {0, 1}
    for expr in (matmul(32, 20, 20), _sigmoids(1, 20, 64)):  # nothing is computed of sums; one of sixteen lanes
        assert len({kernel.tile.lane for kernel in Bound(expr, {1}, AVX512).kernels}) == 1


def test_what_is_computed_of_sums_runs_along_the_results():
    """Of a block whose lanes are rows, so many columns at a time as it has, once its sums are transposed."""
    kernels = Bound(_sigmoids(32, 20, 20), {1}, AVX512).kernels
    for count, columns, side_by_side in ((1, 10, 8), (4, 5, 4)):
        by_lane = {kernel.tile.lane: kernel for kernel in kernels if kernel.task_count == count}
        form = by_lane[0].form
        assert isinstance(form, MicroKernelForm)
        assert form.register == (32, columns)
        slow_us, quick_us = (AVX512.rules.results_us(by_lane[lane], AVX512) for lane in (0, 1))
        plain = Bound(matmul(32, 20, 20), {1}, AVX512).workload
        turned = replace(by_lane[0], expr=plain.expr)
        turned_us = AVX512.rules.results_us(turned, AVX512)
        assert 0 < turned_us < slow_us
        assert slow_us - turned_us == pytest.approx(quick_us * 16 / side_by_side, rel=0.01)
    assert min(kernels, key=lambda kernel: predict(kernel, AVX512).task_us * kernel.task_count).tile.lane == 1
