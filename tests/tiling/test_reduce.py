"""Maps and reductions on a GPU: how threads share out an rTask."""

import pytest

from rammer.ir.expr import TensorExpr
from rammer.ir.task import RTile
from rammer.ir.types import DType
from rammer.tiling.reduce import map_form
from tests.support.kernels import types
from tests.support.operators import expression, row_major

THREADS = 512


@pytest.mark.parametrize(("elements", "vector"), [(THREADS, 1), (2 * THREADS, 8)])
def test_a_thread_takes_several_elements_only_where_there_is_not_one_for_each(elements, vector):
    expr = expression("Cos", types((1, elements), dtype=DType.FLOAT16))
    form = map_form(expr, row_major(expr), RTile(task=(1, elements), lane=1), THREADS, (8, 8))
    assert form.vector == vector


@pytest.mark.parametrize(("run", "most"), [(4, 8), (64, 2), (4096, 1)])
def test_few_elements_look_for_their_own_side_by_side(run, most):
    """The longer two runs are, the more loads an element takes to find its place in the other one."""
    keys, positions = types((1, 2, run), dtype=DType.FLOAT16)[0], types((1, 2, run), dtype=DType.INT64)[0]
    whole = expression("Merge", (keys, positions), keep=2 * run, largest=True)
    expr = TensorExpr(axes=whole.axes, inputs=whole.inputs, outputs=whole.outputs[:1])
    (lane,) = (place for place, axis in enumerate(expr.axes) if axis.extent == 2 * run)
    form = map_form(expr, row_major(expr), RTile(task=tuple(axis.extent for axis in expr.axes), lane=lane), 4, (8,) * 3)
    assert form.vector * form.turns <= most
