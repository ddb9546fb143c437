"""Maps and reductions as their skeletons run them: by rows, by columns, in vectors and element by element."""

from collections.abc import Sequence

import pytest

from rammer.devices.cuda.source import source_of
from rammer.ir.graph import Attributes
from rammer.ir.types import DType, Layout, TensorType
from rammer.ir.workload import Workload
from rammer.lowering.canonical import View, canonical
from rammer.profiler.measure import _Operator, expected, operands_for
from rammer.roller.construct import construct
from tests.support.host_cuda import ORDERS
from tests.support.kernels import types
from tests.support.operators import expression


def halves(*shapes):
    return tuple(TensorType(DType.FLOAT16, shape) for shape in shapes)


NORM: Attributes = {"axis": 1, "epsilon": 1e-5}
CASES: dict[str, tuple[str, Sequence[TensorType], Attributes]] = {
    "rows in registers": ("Softmax", halves((3, 5, 100)), {"axis": 2}),
    "rows of odd length": ("Softmax", types((3, 37)), {"axis": 1}),
    "rows in blocks": ("Softmax", halves((2, 40000)), {"axis": 1}),
    "mixed types": ("LayerNormalization", (*halves((30, 384)), *types((384,), (384,))), NORM),
    "short rows": ("LayerNormalization", types((300, 24), (24,), (24,)), NORM),
    "a warp a row": ("RMSNormalization", halves((9, 512), (512,)), NORM),
    "rows of several axes": ("GroupNormalization", halves((2, 6, 5, 7), (6,), (6,)), {"epsilon": 1e-5, "groups": 2}),
    "positions": ("ArgMax", halves((2, 300)), {"axis": 1, "keepdims": False, "select_last_index": False}),
    "all of it": ("ReduceMax", halves((30, 41)), {"axes": (0, 1), "keepdims": True}),
    "truth": ("ReduceMax", (TensorType(DType.BOOL, (6, 100)),), {"axes": (1,), "keepdims": True}),
    "columns": ("ReduceMean", halves((1, 300, 64)), {"axes": (1,), "keepdims": True}),
    "columns and what follows": ("Softmax", halves((2, 150, 40)), {"axis": 1}),
    "columns with parameters": ("LayerNormalization", (*halves((5, 6, 40)), *types((6, 40), (6, 40))), NORM),
    "integers": ("ReduceSum", (TensorType(DType.INT32, (30, 41, 3)),), {"axes": (1,), "keepdims": False}),
    "map": ("Add", halves((6, 14, 56), (6, 14, 56)), {}),
    "map with a broadcast": ("Add", halves((6, 14, 56), (14, 1)), {}),
    "gather": ("Gather", (*halves((50, 48)), TensorType(DType.INT64, (7,))), {"axis": 0}),
}


@pytest.mark.parametrize("alignment", [16, 1])
@pytest.mark.parametrize("name", CASES)
def test_candidates_compute_what_the_expression_means(name, alignment, gpu):
    kind, inputs, attributes = CASES[name]
    expr = expression(kind, inputs, **attributes)
    count = len(expr.inputs)
    reads = [View.whole(i, type_.rank) for i, type_ in enumerate(expr.inputs)]
    writes = [View.whole(count + i, output.type.rank) for i, output in enumerate(expr.outputs)]
    expr, *_ = canonical(expr, reads, writes)
    found = [*expr.inputs, *(output.type for output in expr.outputs)]
    layouts = tuple(Layout.row_major(type_.shape) for type_ in found)
    vdevice = gpu.vdevice(gpu.options(veus=3))
    kernels = construct(Workload(expr, layouts, (alignment,) * len(layouts)), vdevice)
    operator = _Operator(kernels[:3])
    loaded = gpu.load(source_of(operator.plan(vdevice.alignment_bytes), vdevice))
    operands = operands_for(expr)
    arrays, like = operator.arrays(operands, vdevice.alignment_bytes)
    right = expected(kernels[:1])
    for order in ORDERS[:3]:
        operator.check(gpu.run(loaded, arrays, like, order), right)
