"""What records ask for ahead of the rTask that reads it: the right part of the right constant, and not too much."""

from dataclasses import replace

import numpy as np

from rammer.devices.codegen.tables import ARENA, CONSTANT, EXECUTE, RECORD, SLOT
from rammer.devices.cuda.ahead import Streamed, ahead_limit_bytes, look_ahead
from rammer.devices.cuda.records import device_records
from rammer.devices.registry import find_device
from rammer.ir.expr import Axis, Output, Reduce, ReduceFn, TensorExpr, load
from rammer.ir.kernel_form import GemvForm
from rammer.ir.task import RKernel, RTile
from rammer.ir.types import DType, Layout, TensorType
from rammer.options import CompileOptions


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
    assert ahead_limit_bytes(vdevice, cache_bytes) == 0
    assert 0 < ahead_limit_bytes(vdevice, cache_bytes + 1) * vdevice.veu_count < cache_bytes / 4
