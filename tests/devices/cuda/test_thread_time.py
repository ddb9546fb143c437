"""What the model of a GPU counts of rKernels that are no products in tiles, and what it says beside measured times."""

import numpy as np
import pytest

from rammer.devices.cuda.tiling.lines import LINE_BYTES, SECTOR_BYTES, positions, slot_bytes, touched_lines
from rammer.devices.cuda.tiling.thread_work import thread_work
from rammer.devices.registry import find_device
from rammer.ir.expr import Axis
from rammer.ir.types import DType, Layout, TensorType
from rammer.ir.workload import Workload
from rammer.options import CompileOptions
from rammer.roller.construct import construct
from rammer.roller.model import predict
from tests.support.kernels import conv, types
from tests.support.operators import expression

H200 = find_device("cuda:sm_90").describe(CompileOptions())
CACHE_BYTES = 64 << 10
CHANNELS_LAST = (0, 2, 3, 1)


def workload(expr, *, channels_last=False, constants=()):
    """What aligned operands are given; images may keep the channels of a pixel side by side."""
    all_types = [*expr.inputs, *(output.type for output in expr.outputs)]
    layouts = [
        Layout.ordered(type_.shape, CHANNELS_LAST)
        if channels_last and type_.rank == 4
        else Layout.row_major(type_.shape)
        for type_ in all_types
    ]
    return Workload(expr, tuple(layouts), (16,) * len(layouts), frozenset(constants))


def cut(work, tasks):
    """The candidate of so many rTasks."""
    found = [kernel for kernel in construct(work, H200, to_measure=True) if kernel.task_count == tasks]
    assert found, [kernel.task_count for kernel in construct(work, H200, to_measure=True)]
    return found[0]


def layer_norm(rows, width, dtype):
    return expression("LayerNormalization", types((rows, width), (width,), (width,), dtype=dtype), axis=1, epsilon=1e-5)


SOFTMAX = expression("Softmax", types((1, 12, 128, 128)), axis=3)
RELU = expression("Relu", types((1, 768, 8, 8)))
POOL = expression("GlobalAveragePool", types((1, 2048, 7, 7)))
# Of all 132 multiprocessors of an H200 together (November 2026), in microseconds.
MEASURED = {
    "LayerNormalization, a row": (workload(layer_norm(128, 768, DType.FLOAT32), constants=(1, 2)), 128, 0.93),
    "LayerNormalization, 8 rows": (workload(layer_norm(128, 768, DType.FLOAT16), constants=(1, 2)), 16, 1.37),
    "LayerNormalization, all rows": (workload(layer_norm(128, 768, DType.FLOAT16), constants=(1, 2)), 1, 7.2),
    "Softmax": (workload(SOFTMAX), 132, 0.82),
    "Softmax, all rows": (workload(SOFTMAX), 1, 33.7),
    "Relu": (workload(RELU, channels_last=True), 24, 0.36),
    "Relu, all of it": (workload(RELU, channels_last=True), 1, 4.4),
    "GlobalAveragePool": (workload(POOL, channels_last=True), 32, 1.06),
}


@pytest.mark.parametrize("name", MEASURED)
def test_predictions_are_near_what_was_measured(name):
    work, tasks, measured_us = MEASURED[name]
    predicted_us = predict(cut(work, tasks), H200).task_us
    assert measured_us / 1.6 < predicted_us < measured_us * 1.6


def test_neighbours_share_lines_and_what_lies_apart_does_not():
    i, j = Axis("i", 64), Axis("j", 64)
    layout = Layout.row_major((64, 64))
    along = positions([(j, 64), (i, 64)])
    assert touched_lines((i, j), layout, 4, 1, along) == 32 * 4 // LINE_BYTES
    assert touched_lines((j, i), layout, 4, 1, along) == 32
    assert touched_lines((i, j), layout, 4, 4, positions([(j, 64), (i, 64)], vector=4)) == 4
    assert touched_lines((i, (j // 32) * 32), layout, 4, 1, along) == 1


def test_threads_beyond_a_side_take_the_next_one():
    i, j = Axis("i", 64), Axis("j", 8)
    at = positions([(j, 8), (i, 64)])
    np.testing.assert_array_equal(at[j], np.tile(np.arange(8), 4))
    np.testing.assert_array_equal(at[i], np.repeat(np.arange(4), 8))
    np.testing.assert_array_equal(positions([(j, 8)], apart=16)[j], np.repeat([0, 1], 16))


def test_a_gather_moves_no_more_than_it_asks_for():
    table, rows = TensorType(DType.FLOAT32, (50000, 64)), TensorType(DType.INT64, (10,))
    work = workload(expression("Gather", (table, rows), axis=0))
    kernel = construct(work, H200)[0]
    whole = [axis.extent for axis in work.expr.axes]
    assert slot_bytes(kernel, whole, SECTOR_BYTES) == [10 * 64 * 4, 3 * SECTOR_BYTES, 10 * 64 * 4]
    assert predict(kernel, H200).task_us < 3.0


def test_waits_of_a_gather_follow_each_other():
    rows = TensorType(DType.INT64, (10,))
    gather = workload(expression("Gather", (TensorType(DType.FLOAT32, (500, 64)), rows), axis=0))
    copy = workload(expression("Relu", types((10, 64))))
    waits = [thread_work(construct(work, H200)[0], CACHE_BYTES).waits for work in (gather, copy)]
    assert waits == [2, 1]


def test_what_the_cache_has_not_is_asked_for_again():
    work = workload(conv((1, 64, 16, 16), (64, 1, 3, 3), group=64), channels_last=True)
    kernel = cut(work, 1)
    kept, lost = (thread_work(kernel, cache_bytes) for cache_bytes in (1 << 20, 0))
    assert kept.found == lost.found
    assert kept.missed < lost.missed / 3


@pytest.mark.parametrize("shape", [(80, 3000), (3000, 80)])
def test_lanes_of_a_transposition_run_along_what_is_loaded_or_stored_whichever_is_quicker(shape):
    """Whichever side has the 80: an rTask takes few whole runs of them."""
    kernel = construct(workload(expression("Transpose", types(shape, dtype=DType.FLOAT16), perm=(1, 0))), H200)[0]
    assert kernel.tile.lane is not None
    assert kernel.expr.axes[kernel.tile.lane].extent == 80
    assert predict(kernel, H200).task_us < 1.2


def test_longer_rows_take_longer_and_so_do_more_of_them():
    times = [
        predict(cut(workload(layer_norm(n, w, DType.FLOAT32)), 1), H200).task_us
        for n, w in ((64, 512), (64, 1024), (128, 1024))
    ]
    assert times == sorted(times)
    assert times[2] > 1.5 * times[1]


def test_code_of_a_small_reduction_is_more_than_what_is_in_no_loop():
    """All of it comes from afar where constants have taken its place, with addresses and loops."""
    for kernel in construct(workload(POOL, channels_last=True), H200):
        brought = H200.rules.brought(kernel)
        assert 0 < brought.straight_instructions < brought.instructions
