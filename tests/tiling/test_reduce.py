"""Maps and reductions on a GPU: how threads share out an rTask."""

import pytest

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
