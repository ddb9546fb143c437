"""A task graph with a state in place, made by hand: a cache of rows, of which a run writes one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rammer.ir.expr import Axis, Expr, Load, Output, ScalarFn, TensorExpr, call, const, load, select
from rammer.ir.kernel_form import MapForm
from rammer.ir.program import Execute, MemoryPlan, Plan, RProgram, Schedule, Signal, Step, Wait
from rammer.ir.region import box_size
from rammer.ir.task import Binding, RKernel, ROperator, RTask, RTile, TaskGraph, Tensor, TensorRole
from rammer.ir.types import DType, Layout, TensorType

F32, I64 = DType.FLOAT32, DType.INT64
ROWS, COLUMNS = 4, 6
CACHE, ROW, POSITION = TensorType(F32, (ROWS, COLUMNS)), TensorType(F32, (1, COLUMNS)), TensorType(I64, (1,))
X, PLACE, PAST, BEFORE, AFTER, PRESENT = range(6)
"""Tensors: inputs, outputs, and the state as it is read and written."""


def cached_rows(
    before: tuple[int, int] = (2, COLUMNS), update: int = 3, after: tuple[int, int] = (2, COLUMNS)
) -> TaskGraph:
    """before = past + 1, past[position] = x, after = past + 1: each in two rTasks, or by tiles of other sizes."""
    zero = const(0, I64)
    position = Load(1, (zero,), I64)
    place = call(ScalarFn.MOD, position, ROWS)
    column = Axis("s0", COLUMNS)
    here = call(ScalarFn.EQ, place, position)
    body = select(here, Load(0, (zero, column), F32), Load(2, (place, column), F32))
    stored = TensorExpr(
        axes=(column,),
        inputs=(ROW, POSITION, CACHE),
        outputs=(Output(type=CACHE, indices=(place, column), body=body),),
    )
    return TaskGraph(
        name="cached",
        tensors=tuple(
            Tensor(id=number, name=name, type=type_, layout=Layout.row_major(type_.shape), role=role)
            for number, (name, type_, role) in enumerate(
                [
                    ("x", ROW, TensorRole.INPUT),
                    ("position", POSITION, TensorRole.INPUT),
                    ("past", CACHE, TensorRole.INPUT),
                    ("before", CACHE, TensorRole.OUTPUT),
                    ("after", CACHE, TensorRole.OUTPUT),
                    ("present", CACHE, TensorRole.OUTPUT),
                ]
            )
        ),
        constants={},
        operators=(
            _operator(0, "before", _more(), before, (PAST,), BEFORE),
            _operator(1, "update", stored, (update,), (X, PLACE, PAST), PRESENT),
            _operator(2, "after", _more(), after, (PRESENT,), AFTER),
        ),
        inputs=(X, PLACE, PAST),
        outputs=(BEFORE, AFTER, PRESENT),
        states=1,
        in_place=(0,),
    )


def cached_plan() -> Plan:
    """`cached_rows` on two vEUs."""
    queues: tuple[tuple[Step, ...], ...] = (
        (_run(0, 0), Signal(0), Wait(1, 1), _run(1, 0), Signal(2), Wait(3, 1), _run(2, 0)),
        (_run(0, 1), Signal(1), Wait(0, 1), _run(1, 1), Signal(3), Wait(2, 1), _run(2, 1)),
    )
    schedule = Schedule(policy="made", choice=(0, 0, 0), programs=(RProgram(steps=queues, counter_count=4),))
    return Plan(
        graph=cached_rows(),
        schedule=schedule,
        memory=MemoryPlan(offsets_bytes={}, arenas_bytes=(0,), alignment_bytes=64),
    )


def with_update(graph: TaskGraph, *, index: Expr | None = None, body: Expr | None = None) -> TaskGraph:
    """The graph whose state is written at another row, or with other values."""
    operators = list(graph.operators)
    for number, operator in enumerate(operators):
        if operator.name == "update":
            (kernel,) = operator.kernels
            (output,) = kernel.expr.outputs
            indices = output.indices if index is None else (index, output.indices[1])
            changed = replace(output, indices=indices, body=output.body if body is None else body)
            expr = replace(kernel.expr, outputs=(changed,))
            operators[number] = replace(operator, kernels=(replace(kernel, expr=expr),))
    return replace(graph, operators=tuple(operators))


def in_order(graph: TaskGraph, *places: int) -> TaskGraph:
    """The graph with its rOperators in another order."""
    return replace(graph, operators=tuple(replace(graph.operators[old], id=new) for new, old in enumerate(places)))


def updated_rows(count: int, place: Callable[[Expr, Axis], Expr]) -> TaskGraph:
    """The cache with several rows written, each with the same."""
    graph = cached_rows()
    (kernel,) = graph.operators[1].kernels
    row, column = Axis("s0", count), Axis("s1", 6)
    there = place(load(1, POSITION, (0,)), row)
    kept = load(2, CACHE, (there, column))
    output = Output(type=CACHE, indices=(there, column), body=load(0, ROW, (const(0, I64), column)) + kept)
    expr = replace(kernel.expr, axes=(row, column), outputs=(output,))
    changed = replace(graph.operators[1], kernels=(replace(kernel, expr=expr, tile=RTile(task=(1, 6))),))
    return replace(graph, operators=(graph.operators[0], changed, graph.operators[2]))


def read_behind_the_writer() -> TaskGraph:
    return in_order(cached_rows(), 1, 0, 2)


def read_anew_before_the_writer() -> TaskGraph:
    return in_order(cached_rows(), 0, 2, 1)


def two_writers() -> TaskGraph:
    graph = cached_rows()
    return replace(graph, operators=(*graph.operators, replace(graph.operators[1], id=3, name="again")))


def no_writer() -> TaskGraph:
    return in_order(cached_rows(), 0)


def another_row_read() -> TaskGraph:
    """The row before the one that is written."""
    graph = cached_rows()
    (output,) = graph.operators[1].kernels[0].expr.outputs
    place = output.indices[0]
    before = call(ScalarFn.MOD, place + 3, 4)
    body = output.body + load(2, CACHE, (before, output.indices[1]))
    return with_update(graph, body=body)


def row_read_by_another_name() -> TaskGraph:
    """Of which nobody says that it is the same."""
    graph = cached_rows()
    alias = replace(graph.tensors[PAST], id=len(graph.tensors), alias_of=PAST)
    update = graph.operators[1]
    changed = replace(update, reads=(*update.reads[:2], replace(update.reads[2], tensor=alias.id)))
    operators = (graph.operators[0], changed, graph.operators[2])
    return replace(graph, tensors=(*graph.tensors, alias), operators=operators)


def in_place_under_another_layout() -> TaskGraph:
    return replace(cached_rows(), inputs=(X, PAST, PLACE))


def stored_where_data_says() -> TaskGraph:
    return replace(cached_rows(), in_place=())


def rows_that_meet() -> TaskGraph:
    """More of them than there are."""
    return updated_rows(5, lambda position, row: call(ScalarFn.MOD, call(ScalarFn.MOD, position, 4) + row, 4))


def rows_of_which_nothing_is_known() -> TaskGraph:
    return updated_rows(2, lambda position, row: call(ScalarFn.MOD, position * row, 4) + 0 * row)


def row_beyond_the_end() -> TaskGraph:
    return updated_rows(2, lambda position, row: call(ScalarFn.MOD, call(ScalarFn.MOD, position, 5) + row, 5))


def place_that_is_not_loaded() -> TaskGraph:
    graph = cached_rows()
    (output,) = graph.operators[1].kernels[0].expr.outputs
    return with_update(graph, body=load(0, ROW, (const(0, I64), output.indices[1])))


def full_turn() -> TaskGraph:
    """As many rows as there are."""
    return updated_rows(4, lambda position, row: call(ScalarFn.MOD, call(ScalarFn.MOD, position, 4) + row, 4))


Broken = tuple[Callable[[], TaskGraph], str]
"""A graph that breaks a rule, and what the message names."""

STORED_AMISS: list[Broken] = [
    (stored_where_data_says, "'update'"),
    (rows_that_meet, "'update'"),
    (rows_of_which_nothing_is_known, "'update'"),
    (row_beyond_the_end, "'update'"),
]
READ_AMISS: list[Broken] = [
    (read_behind_the_writer, "'before'"),
    (read_anew_before_the_writer, "'after'"),
    (two_writers, "'again'"),
    (no_writer, "nobody"),
    (another_row_read, "'update'"),
    (row_read_by_another_name, "'update'"),
    (in_place_under_another_layout, "'position'"),
]


def elements_written(plan: Plan) -> list[int]:
    """How many elements each rOperator writes that writes states."""
    graph = plan.graph
    states = {*graph.outputs[len(graph.outputs) - graph.states :]}
    return [
        sum(box_size(tuple(kernel.tile_ranges(tile).values())) for tile in range(kernel.task_count))
        for operator, kernel in zip(graph.operators, plan.kernels, strict=True)
        for binding in operator.writes
        if graph.root(binding.tensor).id in states
    ]


def _run(operator: int, index: int) -> Execute:
    return Execute(RTask(operator, index))


def _more() -> TensorExpr:
    """Each element of a cache, plus one."""
    axes = (Axis("s0", ROWS), Axis("s1", COLUMNS))
    body = Load(0, axes, F32) + 1.0
    return TensorExpr(axes=axes, inputs=(CACHE,), outputs=(Output(type=CACHE, indices=axes, body=body),))


def _operator(
    number: int, name: str, expr: TensorExpr, tile: tuple[int, ...], reads: tuple[int, ...], write: int
) -> ROperator:
    types = (*expr.inputs, *(output.type for output in expr.outputs))
    kernel = RKernel(
        expr=expr,
        layouts=tuple(Layout.row_major(type_.shape) for type_ in types),
        tile=RTile(task=tile),
        form=MapForm(),
    )
    return ROperator(
        id=number,
        name=name,
        kind="map",
        kernels=(kernel,),
        reads=tuple(
            Binding(tensor=tensor, origin=(0,) * type_.rank) for tensor, type_ in zip(reads, expr.inputs, strict=True)
        ),
        writes=(Binding(tensor=write, origin=(0, 0)),),
    )
