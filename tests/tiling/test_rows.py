"""Expressions by rows."""

from rammer.ir.expr import Axis, Output, Reduce, ReduceFn, TensorExpr, load
from rammer.ir.task import RTile
from rammer.ir.types import DType, Layout, TensorType
from rammer.tiling.rows import rows_of


def test_axes_of_one_element_are_part_of_a_row():
    x = TensorType(DType.FLOAT32, (3, 8, 1))
    row, along, single = Axis("s0", 3), Axis("r0", 8), Axis("r1", 1)
    for own in ((along, single), (single, along)):
        body = Reduce(ReduceFn.SUM, own, load(0, x, (row, along, single)))
        output = Output(type=TensorType(DType.FLOAT32, (3,)), indices=(row,), body=body)
        expr = TensorExpr(axes=(row,), inputs=(x,), outputs=(output,))
        layouts = (Layout.row_major(x.shape), Layout.row_major((3,)))
        rows = rows_of(expr, layouts, RTile(task=(1,)))
        ((axis, _),) = rows.phases
        assert axis.extent == 8
