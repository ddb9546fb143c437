"""Expressions whose stores are no boxes, and task graphs of one rOperator around any expression."""

from __future__ import annotations

from rammer.ir.expr import Axis, Output, Reduce, ReduceFn, TensorExpr, load
from rammer.ir.kernel_form import MapForm, ReduceForm
from rammer.ir.task import Binding, RKernel, ROperator, RTile, TaskGraph, Tensor, TensorRole
from rammer.ir.types import DType, Layout, TensorType


def one_operator(expr: TensorExpr, tile: RTile) -> TaskGraph:
    """Inputs and outputs of an expression's own types around it."""
    types = (*expr.inputs, *(output.type for output in expr.outputs))
    tensors = tuple(
        Tensor(
            id=number,
            name=f"t{number}",
            type=type_,
            layout=Layout.row_major(type_.shape),
            role=TensorRole.INPUT if number < len(expr.inputs) else TensorRole.OUTPUT,
        )
        for number, type_ in enumerate(types)
    )
    bindings = tuple(Binding(tensor=tensor.id, origin=(0,) * tensor.type.rank) for tensor in tensors)
    layouts = tuple(tensor.layout for tensor in tensors)
    form = ReduceForm() if expr.reductions else MapForm()
    operator = ROperator(
        id=0,
        name="only",
        kind="Only",
        kernels=(RKernel(expr=expr, layouts=layouts, tile=tile, form=form),),
        reads=bindings[: len(expr.inputs)],
        writes=bindings[len(expr.inputs) :],
    )
    return TaskGraph(
        name="one",
        tensors=tensors,
        constants={},
        operators=(operator,),
        inputs=tuple(range(len(expr.inputs))),
        outputs=tuple(range(len(expr.inputs), len(types))),
    )


def grouped(groups: int, per_group: int, width: int) -> TensorExpr:
    """Sums stored at channel `g * per_group + m`, as a grouped convolution does it."""
    g, m, i, r = Axis("s0", groups), Axis("s1", per_group), Axis("s2", width), Axis("r0", 3)
    source = TensorType(DType.FLOAT32, (groups, width, 3))
    body = Reduce(ReduceFn.SUM, (r,), load(0, source, (g, i, r)))
    store = Output(
        type=TensorType(DType.FLOAT32, (groups * per_group, width)), indices=(g * per_group + m, i), body=body
    )
    return TensorExpr(axes=(g, m, i), inputs=(source,), outputs=(store,))
