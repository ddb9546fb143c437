"""Every rule about task graphs: a graph that breaks it is rejected with its code, and the message says where."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np
import pytest

from rammer.errors import VerificationError
from rammer.ir.expr import Axis, Output, Reduce, ReduceFn, ScalarFn, TensorExpr, call, cast, const, load
from rammer.ir.kernel_form import (
    GemmForm,
    GemmShape,
    GemvForm,
    Instruction,
    KernelForm,
    MapForm,
    ReduceForm,
    WarpgroupGemmForm,
)
from rammer.ir.recipe import Recipe
from rammer.ir.task import Binding, RTile, TaskGraph, TensorRole
from rammer.ir.types import DType, Layout, Panel, TensorType
from rammer.verify import tasks
from tests.support.expressions import grouped, one_operator
from tests.support.plans import with_sources
from tests.support.taskgraphs import (
    RESIDENT,
    TaskGraphMaker,
    branches,
    chain,
    diamond,
    random_task_graph,
    recurrent,
)
from tests.support.updates import READ_AMISS, STORED_AMISS, cached_rows, full_turn, place_that_is_not_loaded

F32 = DType.FLOAT32


def base() -> TaskGraph:
    """Tensor 0 -> map0 -> 1, alias 2 -> map1 -> 3 -> contract2 with constant 4 -> 5."""
    maker = TaskGraphMaker()
    first = maker.elementwise([maker.input((4, 8))], tiles=[(2, 4), (4, 8)])
    second = maker.elementwise([maker.alias(first, (8, 4))], tiles=[(2, 4)])
    return with_sources(maker.finish([maker.matmul(second, maker.constant((4, 6)), tiles=[(4, 6)])]))


def with_tensor(graph: TaskGraph, number: int, **changes: Any) -> TaskGraph:
    tensors = list(graph.tensors)
    tensors[number] = replace(tensors[number], **changes)
    return replace(graph, tensors=tuple(tensors))


def with_operator(graph: TaskGraph, number: int, **changes: Any) -> TaskGraph:
    operators = list(graph.operators)
    operators[number] = replace(operators[number], **changes)
    return replace(graph, operators=tuple(operators))


def with_kernel(graph: TaskGraph, number: int, **changes: Any) -> TaskGraph:
    kernels = tuple(replace(kernel, **changes) for kernel in graph.operators[number].kernels)
    return with_operator(graph, number, kernels=kernels)


def with_expr(graph: TaskGraph, number: int, change: Callable[[TensorExpr], TensorExpr]) -> TaskGraph:
    return with_kernel(graph, number, expr=change(graph.operators[number].kernels[0].expr))


def with_store(graph: TaskGraph, number: int, change: Callable[[Output, tuple[Axis, ...]], Output]) -> TaskGraph:
    def change_expr(expr: TensorExpr) -> TensorExpr:
        return replace(expr, outputs=(change(expr.outputs[0], expr.axes),))

    return with_expr(graph, number, change_expr)


def rejected(graph: TaskGraph) -> VerificationError:
    with pytest.raises(VerificationError) as caught:
        tasks.verify(graph)
    return caught.value


def test_the_base_is_accepted() -> None:
    tasks.verify(base())


def bad_number(graph: TaskGraph) -> TaskGraph:
    return with_tensor(graph, 1, id=7)


def dangling_binding(graph: TaskGraph) -> TaskGraph:
    return with_operator(graph, 1, reads=(Binding(tensor=9, origin=(0, 0)),))


def unlisted_input(graph: TaskGraph) -> TaskGraph:
    return replace(graph, inputs=())


def constant_of_another_shape(graph: TaskGraph) -> TaskGraph:
    return replace(graph, constants={4: np.zeros((6, 4), dtype=np.float32)})


def recipe_of_something_else(graph: TaskGraph) -> TaskGraph:
    return replace(graph, recipes={4: Recipe(base=graph.constants[4] + 1)})


def overlapping_layout(graph: TaskGraph) -> TaskGraph:
    return with_tensor(graph, 3, layout=Layout(strides=(3, 1), span=32))


def layout_beyond_span(graph: TaskGraph) -> TaskGraph:
    return with_tensor(graph, 4, layout=replace(Layout.panelled((4, 6), (0,), 1, 4), span=31))


def panel_of_no_dimension(graph: TaskGraph) -> TaskGraph:
    return with_tensor(graph, 3, layout=Layout(strides=(4, 1), span=32, panel=Panel(dim=2, width=4, stride=16)))


def transposed_output(graph: TaskGraph) -> TaskGraph:
    return with_tensor(graph, 5, layout=Layout.ordered((8, 6), (1, 0)))


def alias_of_another_size(graph: TaskGraph) -> TaskGraph:
    smaller = TensorType(F32, (8, 3))
    return with_tensor(graph, 2, type=smaller, layout=Layout.row_major(smaller.shape))


def alias_of_a_transposed_root(graph: TaskGraph) -> TaskGraph:
    return with_tensor(graph, 1, layout=Layout.ordered((4, 8), (1, 0)))


def alias_of_an_alias(graph: TaskGraph) -> TaskGraph:
    return with_tensor(graph, 3, alias_of=2)


def alias_of_another_role(graph: TaskGraph) -> TaskGraph:
    return with_tensor(graph, 2, role=TensorRole.OUTPUT)


def binding_out_of_bounds(graph: TaskGraph) -> TaskGraph:
    return with_operator(graph, 1, reads=(Binding(tensor=2, origin=(1, 0)),))


def binding_missing(graph: TaskGraph) -> TaskGraph:
    return with_operator(graph, 1, reads=())


def binding_of_another_rank(graph: TaskGraph) -> TaskGraph:
    return with_operator(graph, 1, reads=(Binding(tensor=2, origin=(0,)),))


def binding_inside_a_panel(graph: TaskGraph) -> TaskGraph:
    """The product reads columns 2 to 5 of a constant with panels of 4 columns."""
    wider = TensorType(F32, (4, 8))
    panelled = Layout.panelled(wider.shape, (0,), 1, 4)
    graph = with_tensor(graph, 4, type=wider, layout=panelled)
    graph = replace(graph, constants={4: np.zeros(wider.shape, dtype=np.float32)})
    left, _, out = graph.operators[2].kernels[0].layouts
    graph = with_kernel(graph, 2, layouts=(left, panelled, out))
    return with_operator(graph, 2, reads=(graph.operators[2].reads[0], Binding(tensor=4, origin=(0, 2))))


def slot_of_another_dtype(graph: TaskGraph) -> TaskGraph:
    return with_tensor(graph, 0, type=TensorType(DType.INT32, (4, 8)))


def stored_as_another_dtype(graph: TaskGraph) -> TaskGraph:
    return with_store(graph, 1, lambda output, axes: replace(output, body=cast(DType.INT32, output.body)))


def no_candidates(graph: TaskGraph) -> TaskGraph:
    return with_operator(graph, 1, kernels=())


def candidates_disagree(graph: TaskGraph) -> TaskGraph:
    first, second = graph.operators[0].kernels
    other = replace(first.expr.outputs[0], body=first.expr.outputs[0].body + 1.0)
    return with_operator(graph, 0, kernels=(first, replace(second, expr=replace(second.expr, outputs=(other,)))))


def tile_of_another_rank(graph: TaskGraph) -> TaskGraph:
    return with_kernel(graph, 1, tile=RTile(task=(2,)))


def tile_of_size_zero(graph: TaskGraph) -> TaskGraph:
    return with_kernel(graph, 1, tile=RTile(task=(0, 4)))


def register_tile_too_large(graph: TaskGraph) -> TaskGraph:
    return with_kernel(graph, 1, form=MapForm(block=(4, 4)))


def no_threads(graph: TaskGraph) -> TaskGraph:
    return with_kernel(graph, 2, form=ReduceForm(threads=0))


def lane_of_no_axis(graph: TaskGraph) -> TaskGraph:
    return with_kernel(graph, 1, tile=RTile(task=(2, 4), lane=2))


def gemm(**changes: Any) -> GemmForm:
    """Of 16 warps, which share out a product of 8 rows and 6 columns."""
    form = GemmForm(
        threads=512,
        instruction=Instruction.FFMA,
        threadblock=GemmShape(16, 8, 32),
        warp=GemmShape(16, 8, 16),
        stages=2,
    )
    return replace(form, **changes)


def as_product(graph: TaskGraph, form: KernelForm) -> TaskGraph:
    return with_kernel(graph, 2, tile=RTile(task=(8, 6), lane=1), form=form)


def warp_tiles_that_do_not_divide(graph: TaskGraph) -> TaskGraph:
    return as_product(graph, gemm(warp=GemmShape(16, 8, 24)))


def more_warps_than_a_block_has(graph: TaskGraph) -> TaskGraph:
    return as_product(graph, gemm(threads=32))


def tiles_that_leave_points_out(graph: TaskGraph) -> TaskGraph:
    return as_product(graph, gemm(threadblock=GemmShape(4, 8, 32), warp=GemmShape(4, 8, 16)))


def vectors_that_threads_do_not_share_out(graph: TaskGraph) -> TaskGraph:
    return as_product(graph, GemvForm(threads=512, width=48, vector=2))


def rows_that_do_not_divide_a_warp(graph: TaskGraph) -> TaskGraph:
    return as_product(graph, replace(RESIDENT, across=3))


def columns_that_do_not_divide_a_tile(graph: TaskGraph) -> TaskGraph:
    return as_product(graph, replace(RESIDENT, columns=7))


def slices_that_warps_do_not_have(graph: TaskGraph) -> TaskGraph:
    return as_product(graph, replace(RESIDENT, slices=17))


def narrow_weights_that_are_float32(graph: TaskGraph) -> TaskGraph:
    return as_product(graph, replace(RESIDENT, columns=1, instruction=Instruction.MMA_F16))


def product_without_a_sum(graph: TaskGraph) -> TaskGraph:
    return with_kernel(graph, 1, tile=RTile(task=(2, 4), lane=1), form=gemm())


def map_with_reduction(graph: TaskGraph) -> TaskGraph:
    return with_kernel(graph, 2, form=MapForm())


def warpgroups_without_matrices(graph: TaskGraph) -> TaskGraph:
    """Their operands are float32 that nobody has rounded."""
    shape = GemmShape(64, 8, 64)
    form = WarpgroupGemmForm(instruction=Instruction.WGMMA_F16, threadblock=shape, stages=1, swapped=False, finishers=1)
    return with_kernel(graph, 2, tile=RTile(task=graph.operators[2].kernels[0].tile.task, lane=1), form=form)


def intermediate_taken_for_a_constant(graph: TaskGraph) -> TaskGraph:
    return with_kernel(graph, 2, constants=frozenset({0}))


def constant_of_no_slot(graph: TaskGraph) -> TaskGraph:
    return with_kernel(graph, 2, constants=frozenset({2}))


def kernel_for_another_layout(graph: TaskGraph) -> TaskGraph:
    wrong = Layout.ordered((8, 4), (1, 0))
    return with_kernel(graph, 1, layouts=(wrong, graph.operators[1].kernels[0].layouts[1]))


def store_out_of_bounds(graph: TaskGraph) -> TaskGraph:
    return with_store(graph, 1, lambda output, axes: replace(output, indices=(axes[0] + 1, axes[1])))


def store_twice(graph: TaskGraph) -> TaskGraph:
    return with_store(graph, 1, lambda output, axes: replace(output, indices=(axes[0] // 2, axes[1])))


def store_not_using_an_axis(graph: TaskGraph) -> TaskGraph:
    return with_store(graph, 1, lambda output, axes: replace(output, indices=(axes[0], const(0, DType.INT64))))


def load_out_of_bounds(graph: TaskGraph) -> TaskGraph:
    def change(expr: TensorExpr) -> TensorExpr:
        row, column = expr.axes
        body = load(0, expr.inputs[0], (row + 1, column))
        return replace(expr, outputs=(replace(expr.outputs[0], body=body),))

    return with_expr(graph, 1, change)


def load_out_of_bounds_somewhere(graph: TaskGraph) -> TaskGraph:
    """An index that interval arithmetic cannot follow: |row - 8| is 8 for row 0."""

    def change(expr: TensorExpr) -> TensorExpr:
        row, column = expr.axes
        body = load(0, expr.inputs[0], (call(ScalarFn.ABS, row - 8), column))
        return replace(expr, outputs=(replace(expr.outputs[0], body=body),))

    return with_expr(graph, 1, change)


def load_of_no_slot(graph: TaskGraph) -> TaskGraph:
    def change(expr: TensorExpr) -> TensorExpr:
        return replace(expr, outputs=(replace(expr.outputs[0], body=load(1, expr.inputs[0], expr.axes)),))

    return with_expr(graph, 1, change)


def write_to_input(graph: TaskGraph) -> TaskGraph:
    return with_operator(graph, 0, writes=(Binding(tensor=0, origin=(0, 0)),))


def written_twice(graph: TaskGraph) -> TaskGraph:
    """A second map0, which also comes first."""
    operators = (graph.operators[0], *(replace(operator, id=operator.id + 1) for operator in graph.operators))
    return replace(graph, operators=operators)


def read_before_write(graph: TaskGraph) -> TaskGraph:
    first, second, third = graph.operators
    return replace(graph, operators=(replace(second, id=0), replace(first, id=1), third))


def read_without_write(graph: TaskGraph) -> TaskGraph:
    """map1 stores rows 0 to 3 only, the product reads all eight."""

    def change(expr: TensorExpr) -> TensorExpr:
        axes = (Axis("s0", 4), expr.axes[1])
        return replace(expr, axes=axes, outputs=(replace(expr.outputs[0], indices=axes, body=const(1.0, F32)),))

    return with_expr(graph, 1, change)


def output_incomplete(graph: TaskGraph) -> TaskGraph:
    """The product stores rows 0 to 6 of eight."""

    def change(expr: TensorExpr) -> TensorExpr:
        row, column = Axis("s0", 7), expr.axes[1]
        body = load(1, expr.inputs[1], (const(0, DType.INT64), column))
        store = replace(expr.outputs[0], indices=(row, column), body=body)
        return replace(expr, axes=(row, column), outputs=(store,))

    return with_expr(graph, 2, change)


def instead(build: Callable[[], TaskGraph]) -> Callable[[TaskGraph], TaskGraph]:
    @wraps(build)
    def broken(_: TaskGraph) -> TaskGraph:
        return build()

    return broken


# Per rule: how the base is broken, and what the message names.
BROKEN: list[tuple[str, Callable[[TaskGraph], TaskGraph], str]] = [
    ("T01", bad_number, "tensor 1 'intermediate1'"),
    ("T01", dangling_binding, "rOperator 1 'map1'"),
    ("T02", unlisted_input, "tensor 0 'input0'"),
    ("T02", constant_of_another_shape, "tensor 4 'constant4'"),
    ("T03", overlapping_layout, "tensor 3 'intermediate3'"),
    ("T03", layout_beyond_span, "tensor 4 'constant4'"),
    ("T03", panel_of_no_dimension, "tensor 3 'intermediate3'"),
    ("T03", transposed_output, "tensor 5 'intermediate5'"),
    ("T04", alias_of_another_size, "tensor 2 'intermediate2'"),
    ("T04", alias_of_a_transposed_root, "tensor 2 'intermediate2'"),
    ("T04", alias_of_an_alias, "tensor 3 'intermediate3'"),
    ("T04", alias_of_another_role, "tensor 2 'intermediate2'"),
    ("T05", binding_out_of_bounds, "node-1"),
    ("T05", binding_missing, "node-1"),
    ("T05", binding_of_another_rank, "node-1"),
    ("T06", binding_inside_a_panel, "node-2"),
    ("T07", slot_of_another_dtype, "node-0"),
    ("T07", stored_as_another_dtype, "node-1"),
    ("T08", no_candidates, "node-1"),
    ("T08", candidates_disagree, "node-0"),
    ("T09", tile_of_another_rank, "node-1"),
    ("T09", tile_of_size_zero, "node-1"),
    ("T09", register_tile_too_large, "node-1"),
    ("T09", no_threads, "node-2"),
    ("T09", lane_of_no_axis, "node-1"),
    ("T09", warp_tiles_that_do_not_divide, "node-2"),
    ("T09", more_warps_than_a_block_has, "node-2"),
    ("T09", tiles_that_leave_points_out, "node-2"),
    ("T09", vectors_that_threads_do_not_share_out, "node-2"),
    ("T09", rows_that_do_not_divide_a_warp, "node-2"),
    ("T09", columns_that_do_not_divide_a_tile, "node-2"),
    ("T09", slices_that_warps_do_not_have, "node-2"),
    ("T10", narrow_weights_that_are_float32, "node-2"),
    ("T10", product_without_a_sum, "node-1"),
    ("T10", map_with_reduction, "node-2"),
    ("T10", warpgroups_without_matrices, "node-2"),
    ("T11", kernel_for_another_layout, "node-1"),
    ("T12", store_out_of_bounds, "node-1"),
    ("T12", store_twice, "node-1"),
    ("T12", store_not_using_an_axis, "node-1"),
    ("T13", load_out_of_bounds, "node-1"),
    ("T13", load_out_of_bounds_somewhere, "node-1"),
    ("T13", load_of_no_slot, "node-1"),
    ("T14", write_to_input, "node-0"),
    ("T15", written_twice, "node-0"),
    ("T16", read_before_write, "node-1"),
    ("T16", read_without_write, "node-2"),
    ("T18", intermediate_taken_for_a_constant, "node-2"),
    ("T18", constant_of_no_slot, "node-2"),
    ("T17", output_incomplete, "tensor 5 'intermediate5'"),
    ("T19", recipe_of_something_else, "tensor 4 'constant4'"),
    *(("T12", instead(broken), place) for broken, place in STORED_AMISS),
    ("T13", instead(place_that_is_not_loaded), "'update'"),
    *(("T22", instead(broken), place) for broken, place in READ_AMISS),
]


@pytest.mark.parametrize(("code", "break_it", "place"), BROKEN, ids=[f"{c}-{f.__name__}" for c, f, _ in BROKEN])
def test_a_broken_graph_is_rejected(code: str, break_it: Callable[[TaskGraph], TaskGraph], place: str) -> None:
    error = rejected(break_it(base()))
    assert error.code == code, str(error)
    assert place in str(error)


def test_states_in_place_are_accepted() -> None:
    tasks.verify(cached_rows())
    tasks.verify(full_turn())


def test_every_rule_has_a_broken_graph() -> None:
    of_predicates = {"T20", "T21"}  # in test_predicates.py
    assert {code for code, _, _ in BROKEN} == set(tasks.RULES) - of_predicates


def test_a_written_constant_is_rejected() -> None:
    maker = TaskGraphMaker()
    source, constant = maker.input((2, 2)), maker.constant((2, 2))
    maker.elementwise([source], into=constant)
    assert rejected(maker.finish([maker.elementwise([source])])).code == "T14"


@pytest.mark.parametrize("form", [gemm(), GemvForm(threads=512, width=64, vector=4)])
def test_forms_that_fit_are_accepted(form: KernelForm) -> None:
    tasks.verify(with_kernel(as_product(base(), form), 2, constants=frozenset({1})))


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_are_accepted(seed: int) -> None:
    tasks.verify(random_task_graph(random.Random(seed), 8))


@pytest.mark.parametrize("graph", [chain(3), diamond(), branches(3, 2), recurrent(2, 3)], ids=lambda graph: graph.name)
def test_made_graphs_are_accepted(graph: TaskGraph) -> None:
    tasks.verify(graph)


def test_interleaved_stores_are_accepted() -> None:
    tasks.verify(one_operator(grouped(3, 4, 5), RTile(task=(2, 3, 2))))


def test_interleaved_stores_that_collide_are_rejected() -> None:
    expr = grouped(3, 4, 5)
    g, m, i = expr.axes
    clashing = replace(expr, outputs=(replace(expr.outputs[0], indices=(g * 3 + m, i)),))
    assert rejected(one_operator(clashing, RTile(task=(2, 3, 2)))).code == "T12"


def test_a_store_order_that_no_affine_map_has_is_accepted() -> None:
    """A permutation by remainder: element i goes to (i * 3) % 8."""
    i = Axis("s0", 8)
    source = TensorType(F32, (8,))
    store = Output(type=source, indices=((i * 3) % 8,), body=load(0, source, (i,)))
    tasks.verify(one_operator(TensorExpr(axes=(i,), inputs=(source,), outputs=(store,)), RTile(task=(3,))))


def test_a_gather_may_read_anywhere() -> None:
    i = Axis("s0", 4)
    table, picks = TensorType(F32, (9,)), TensorType(DType.INT64, (4,))
    body = load(0, table, (load(1, picks, (i,)),))
    store = Output(type=TensorType(F32, (4,)), indices=(i,), body=body)
    tasks.verify(one_operator(TensorExpr(axes=(i,), inputs=(table, picks), outputs=(store,)), RTile(task=(2,))))


def test_empty_and_scalar_tensors_are_accepted() -> None:
    r = Axis("r0", 0)
    source = TensorType(F32, (0,))
    store = Output(type=TensorType(F32, ()), indices=(), body=Reduce(ReduceFn.SUM, (r,), load(0, source, (r,))))
    tasks.verify(one_operator(TensorExpr(axes=(), inputs=(source,), outputs=(store,)), RTile(task=())))
