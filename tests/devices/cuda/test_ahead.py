"""What records ask for ahead of the rTask that reads it: the right part of the right constant, and not too much."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.networks.builder import GraphBuilder
from rammer.devices.codegen.tables import ARENA, CONSTANT, EXECUTE, RECORD, SLOT
from rammer.devices.cuda.ahead import Streamed, ahead_limit_bytes, look_ahead
from rammer.devices.cuda.records import device_records
from rammer.devices.cuda.source import source_of
from rammer.devices.cuda.source_files import CODE, DEVICE_RECORDS, LAUNCH
from rammer.devices.cuda.tables import record_dtype
from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.ir.expr import Axis, Output, Reduce, ReduceFn, TensorExpr, load
from rammer.ir.kernel_form import GemvForm
from rammer.ir.task import RKernel, RTile
from rammer.ir.types import DType, Layout, TensorType
from rammer.options import CompileOptions
from rammer.pipelines.planning import plan_graph


def streaming(features=8, channels=8192, rows=2):
    """A matrix-vector product, `rows` rows of weights to an rTask; its operands are x, w and y."""
    m, c = Axis("s0", features), Axis("r0", channels)
    x, w = TensorType(DType.FLOAT32, (channels,)), TensorType(DType.FLOAT32, (features, channels))
    y = TensorType(DType.FLOAT32, (features,))
    body = Reduce(ReduceFn.SUM, (c,), load(0, x, (c,)) * load(1, w, (m, c)))
    expr = TensorExpr(axes=(m,), inputs=(x, w), outputs=(Output(type=y, indices=(m,), body=body),))
    layouts = tuple(Layout.row_major(type_.shape) for type_ in (x, w, y))
    return RKernel(expr=expr, layouts=layouts, tile=RTile(task=(rows,)), form=GemvForm(width=rows))


def streaming_two(features=8, channels=8192, rows=2):
    """The product of `streaming` by the sum of two matrices; its operands are x, v, w and y."""
    one = streaming(features, channels, rows)
    m, c = one.expr.axes[0], Axis("r0", channels)
    x, w, y = one.expr.inputs[0], one.expr.inputs[1], one.expr.outputs[0].type
    body = Reduce(ReduceFn.SUM, (c,), load(0, x, (c,)) * (load(1, w, (m, c)) + load(2, w, (m, c))))
    expr = TensorExpr(axes=(m,), inputs=(x, w, w), outputs=(Output(type=y, indices=(m,), body=body),))
    layouts = tuple(Layout.row_major(type_.shape) for type_ in (x, w, w, y))
    return replace(one, expr=expr, layouts=layouts)


def looked_ahead(queues, limit_bytes, kernel=None, slots=(1,)):
    """(offset, bytes) that each record asks for; rTasks have x in the arena, matrices at byte 256 of the constants."""
    queues = [[(EXECUTE, number, tile, 0) for number, tile in queue] for queue in queues]
    steps = np.array([step for queue in queues for step in queue], dtype=RECORD)
    places = np.array([(ARENA, 0, 0), (CONSTANT, 0, 256), (CONSTANT, 0, 1 << 20)], dtype=SLOT)[: 1 + len(slots)]
    begins = np.cumsum([0, *map(len, queues)]).tolist()
    records, starts = device_records(steps, begins, places, np.array([], dtype=np.uint32), len(places), {})
    look_ahead(records, starts.tolist(), {7: Streamed(kernel=kernel or streaming(), slots=slots)}, limit_bytes)
    return list(zip(records["ahead_offset"].tolist(), records["ahead_bytes"].tolist(), strict=True))


def test_a_record_asks_for_the_constants_of_the_next_rtask():
    row_bytes = 8192 * 4
    two_rows = 2 * row_bytes
    found = looked_ahead([[(0, 0), (7, 1), (7, 3), (0, 0)], [(7, 2)], [(0, 0), (7, 2)]], 1 << 20)
    assert found[:4] == [(256 + 2 * row_bytes, two_rows), (256 + 6 * row_bytes, two_rows), (0, 0), (0, 0)]
    assert found[4:] == [(0, 0), (256 + 4 * row_bytes, two_rows), (0, 0)]


def test_no_more_is_asked_for_than_the_cache_takes():
    assert looked_ahead([[(0, 0), (7, 1)]], 20_000)[0] == (256 + 2 * 8192 * 4, 20_000)
    assert looked_ahead([[(0, 0), (7, 1)]], 0)[0] == (0, 0)


def test_half_as_much_more_is_asked_for_of_one_of_several_matrices():
    kernel = streaming_two()
    found = looked_ahead([[(0, 0), (7, 1)]], 20_000, kernel, slots=(1, 2))
    assert found[0] == (256 + 2 * 8192 * 4, 30_000)


def test_constants_that_do_not_lie_together_are_not_asked_for():
    turned = replace(
        streaming(), layouts=(*streaming().layouts[:1], Layout.ordered((8, 8192), (1, 0)), Layout.row_major((8,)))
    )
    assert looked_ahead([[(0, 0), (7, 1)]], 1 << 20, turned)[0] == (0, 0)


def test_constants_that_fit_the_cache_are_not_asked_for():
    vdevice = find_device("cuda:sm_90").describe(CompileOptions(device="cuda:sm_90"))
    cache_bytes = next(level.capacity_bytes for level in vdevice.levels if level.name == "L2")
    half = cache_bytes // 2
    assert ahead_limit_bytes(vdevice, streamed_bytes=half, kept_bytes=half) == 0
    limit_bytes = ahead_limit_bytes(vdevice, streamed_bytes=half + 1, kept_bytes=half)
    assert 0 < limit_bytes * vdevice.veu_count < cache_bytes / 4


def test_nothing_is_asked_for_where_all_constants_are_streamed():
    vdevice = find_device("cuda:sm_90").describe(CompileOptions(device="cuda:sm_90"))
    cache_bytes = next(level.capacity_bytes for level in vdevice.levels if level.name == "L2")
    assert ahead_limit_bytes(vdevice, streamed_bytes=9 * cache_bytes, kept_bytes=cache_bytes // 100) == 0
    assert ahead_limit_bytes(vdevice, streamed_bytes=9 * cache_bytes, kept_bytes=cache_bytes // 10) > 0


@pytest.mark.parametrize("kept", [False, True], ids=["matrices alone", "and others"])
def test_streamed_constants_make_room_for_others(kept):
    options = CompileOptions(device="cuda:sm_90", veus=2, figures="described")
    net, rng = GraphBuilder("chain"), np.random.default_rng(0)
    value = net.input("x", (1, 512))
    for number in range(3):
        weight = net.parameter(f"w{number}", rng.standard_normal((512, 512), dtype=np.float32))
        value = net.node("Tanh", f"y{number}", [net.node("MatMul", f"p{number}", [value, weight], (1, 512))], (1, 512))
    if kept:
        table = net.parameter("table", rng.standard_normal((64, 512), dtype=np.float32))
        value = net.node("Add", "sum", [value, table], (64, 512))
    vdevice = find_device(options.device).describe(options)
    levels = tuple(replace(level, capacity_bytes=1 << 20) if level.name == "L2" else level for level in vdevice.levels)
    vdevice = replace(vdevice, levels=levels)
    source = source_of(plan_graph(load_graph(net.build(value)), vdevice, options), vdevice)
    assert (b"rammer_load_now<true>" in bytes(source.files[CODE])) == kept
    slots = json.loads(bytes(source.files[LAUNCH]))["slots"]
    records = np.frombuffer(source.files[DEVICE_RECORDS], dtype=record_dtype(slots))
    assert records["ahead_bytes"].any() == kept
