"""Sums of leaves as blocks compute them, on the host: every form beside the expression in NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rammer.devices.cuda.tiling.forms import room_bytes
from rammer.devices.cuda.tiling.trees import STRATEGIES, tree_kernels
from rammer.errors import OptionError
from rammer.ir.evaluate import evaluate
from rammer.ir.kernel_form import MapForm
from rammer.ir.tree_forms import SharedTreesForm, TreeStrategy
from rammer.ir.types import DType
from rammer.roller.construct import construct
from rammer.tiling.trees import tree_sum
from rammer.verify.forms import form_fault
from tests.support.host_cuda import ORDERS, Copies, Order, Policy
from tests.support.host_cuda.kernels import Case, KernelProgram
from tests.support.kernels import Bound
from tests.support.trees import graph_of, random_ensemble

SOME = (*ORDERS[:1], Order(policy=Policy.RANDOM, copies=Copies.LATE, seed=3))


def sum_of_leaves(rows, *, thresholds=20, **options):
    """The expression of an ensemble's sum, its slots' arrays and what it gives."""
    graph = graph_of(random_ensemble(3, hard=False, values=thresholds, **options), rows)
    operator = graph.operators[-1]
    assert operator.expr is not None
    found = tree_sum(operator.expr)
    assert found is not None
    codes = operator.expr.inputs[0]
    most = min(thresholds, (1 << found.fields.bound_bits) - 1)
    arrays = [np.random.default_rng(rows).integers(0, most + 1, codes.shape).astype(codes.dtype.numpy)]
    arrays += [graph.constants[value] for value in operator.inputs[1:]]
    return operator.expr, arrays


def variants(form: SharedTreesForm) -> list[SharedTreesForm]:
    """With room for all nodes, for a few trees, for small trees only."""
    return [replace(form, nodes=nodes) for nodes in dict.fromkeys((form.nodes, *((40, 12) if form.nodes else ())))]


CASES: dict[str, dict[str, Any]] = {
    "one row": {"rows": 1, "depth": 4, "width": 2},
    "few rows": {"rows": 37, "depth": 5, "groups": 2, "total": DType.FLOAT64},
    "wide codes": {"rows": 130, "depth": 4, "width": 3, "thresholds": 900, "trees": 60, "features": 1},
    "many rows": {"rows": 2000, "depth": 5, "full": True},
    "many values": {"rows": 600, "depth": 3, "width": 9, "total": DType.FLOAT64},
}


@pytest.mark.parametrize("name", CASES)
def test_forms(name, gpu):
    expr, arrays = sum_of_leaves(**CASES[name])
    vdevice = gpu.vdevice(gpu.options(veus=4))
    bound = Bound(expr, range(1, 4), vdevice)
    wanted = evaluate(expr, arrays)
    cases = []
    for kernel in tree_kernels(bound.workload, vdevice, room_bytes(vdevice)):
        assert isinstance(kernel.form, SharedTreesForm)
        for form in variants(kernel.form):
            made = bound.workload.kernel(kernel.tile, form)
            assert form_fault(made) is None
            cases.append(Case(bound=bound, kernel=made, inputs=arrays, wanted=wanted, constants=range(1, 4)))
    assert cases
    program = KernelProgram(cases, veus=4)
    loaded = program.load(gpu)
    tolerance = 1e-5 if wanted[0].dtype == np.float32 else 1e-13
    for order in SOME:
        for case, (found,) in zip(cases, program.outputs(gpu, loaded, order), strict=True):
            assert np.allclose(found, wanted[0], tolerance, tolerance), case.kernel.form.details


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies_by_name(strategy, gpu):
    expr, _ = sum_of_leaves(rows=300, depth=4)
    vdevice = replace(gpu.vdevice(gpu.options(veus=4)), trees=strategy)
    kernels = tree_kernels(Bound(expr, range(1, 4), vdevice).workload, vdevice, room_bytes(vdevice))
    assert {one.form.strategy for one in kernels if isinstance(one.form, SharedTreesForm)} == {strategy}


def test_all_nodes_of_deep_trees_are_not_compared(gpu):
    expr, _ = sum_of_leaves(rows=30, depth=5)
    vdevice = replace(gpu.vdevice(gpu.options(veus=4)), trees=TreeStrategy.GEMM)
    with pytest.raises(OptionError, match="'gemm' for trees of depth 5") as caught:
        tree_kernels(Bound(expr, range(1, 4), vdevice).workload, vdevice, room_bytes(vdevice))
    assert caught.value.hint


def test_codes_of_a_row_take_no_vectors(gpu):
    """Loads wait for each other, and threads are left: more elements of a thread are only more code."""
    graph = graph_of(random_ensemble(3, features=40, trees=60, hard=False), 1)
    expr = graph.operators[0].expr
    assert expr is not None
    vdevice = gpu.vdevice(gpu.options(veus=4))
    kernels = vdevice.rules.candidates(Bound(expr, range(1, 4), vdevice).workload, vdevice, to_measure=False)
    assert {kernel.form for kernel in kernels} == {MapForm(threads=vdevice.threads)}


def test_one_row_goes_to_nodes_where_they_are(gpu):
    vdevice = gpu.vdevice(gpu.options(veus=132))
    for rows, staged in ((1, False), (1000, True)):
        expr, _ = sum_of_leaves(rows=rows, trees=500, depth=3, full=True)
        form = construct(Bound(expr, range(1, 4), vdevice).workload, vdevice)[0].form
        assert isinstance(form, SharedTreesForm)
        assert (form.nodes > 0) is staged
