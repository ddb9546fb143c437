"""The skeleton `trees` on the processor: every form of it, beside the expression in NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rammer.devices.cpu.describe import SKELETONS
from rammer.devices.cpu.emit.kernel import emit_kernel
from rammer.errors import VerificationError
from rammer.frontends.trees.ensemble import ensemble, tree
from rammer.ir.evaluate import evaluate
from rammer.ir.task import RTile
from rammer.ir.tree_forms import TreesForm, TreeStrategy
from rammer.ir.types import DType
from rammer.operators.builder import GraphBuilder
from rammer.roller.construct import construct
from rammer.tiling.trees import tree_sum
from rammer.verify.forms import form_fault
from tests.support.kernels import AVX512, Bound, Compiler
from tests.support.trees import executable_of, graph_of, hard_rows, random_ensemble

INSTRUCTIONS = {
    "avx512": (),
    "avx2": ("-U__AVX512BW__",),
    "sse2": ("-U__AVX512BW__", "-U__AVX2__"),
    "any": ("-U__AVX512BW__", "-U__AVX2__", "-U__SSE2__"),
}

WHOLE = (TreeStrategy.QUICKSCORER, TreeStrategy.GEMM)


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    return Compiler(tmp_path_factory.mktemp("trees"))


def sum_of_leaves(rows, *, thresholds=20, **options):
    """The expression of an ensemble's sum, its slots' arrays and what it gives."""
    made = random_ensemble(3, hard=False, values=thresholds, **options)
    graph = graph_of(made, rows)
    operator = graph.operators[-1]
    assert operator.expr is not None
    codes = operator.expr.inputs[0]
    rng = np.random.default_rng(rows)
    found = tree_sum(operator.expr)
    assert found is not None
    most = (1 << found.fields.bound_bits) - 1  # leaves have it for a bound
    arrays = [rng.integers(0, min(thresholds, most) + 1, codes.shape).astype(codes.dtype.numpy)]
    arrays += [graph.constants[value] for value in operator.inputs[1:]]
    return operator.expr, arrays, evaluate(operator.expr, arrays)[0]


def forms(rows):
    """Row by row, and blocks of every number of words: all nodes of trees compared, those of some, or of none."""
    paths = (TreeStrategy.PERFECT, TreeStrategy.TRAVERSAL)
    found = [TreesForm(strategy=strategy, rows=1) for strategy in paths]
    found += [TreesForm(strategy=TreeStrategy.QUICKSCORER, rows=64, nodes=63)]
    found += [TreesForm(strategy=strategy, rows=256) for strategy in (*paths, TreeStrategy.PERMUTES)]
    found += [TreesForm(strategy=TreeStrategy.GEMM, rows=128, nodes=nodes) for nodes in (15, 63)]
    if rows > 1:
        found += [TreesForm(strategy=TreeStrategy.QUICKSCORER, rows=rows, nodes=15) for rows in (128, 256)]
        found += [TreesForm(strategy=strategy, rows=512, nodes=63) for strategy in WHOLE]
    return found


@pytest.mark.parametrize("instructions", INSTRUCTIONS)
def test_forms(instructions, compiler):
    """Blocks that rows do not fill, codes of one byte and of two, float32 and float64, groups, leaves of values."""
    cases: list[dict[str, Any]] = [
        {"rows": 1, "depth": 4, "width": 2},
        {"rows": 70, "depth": 5, "full": True},
        {"rows": 600, "depth": 5, "groups": 2, "total": DType.FLOAT64},
        {"rows": 130, "depth": 4, "width": 3, "thresholds": 900, "trees": 60, "features": 1, "total": DType.FLOAT64},
        {"rows": 65, "depth": 3, "thresholds": 900, "trees": 60, "features": 1},
    ]
    kernels: list[Any] = []
    texts: list[str] = []
    for case in cases:
        expr, arrays, wanted = sum_of_leaves(**case)
        bound = Bound(expr, range(1, 4), AVX512)
        found = tree_sum(bound.expr)
        assert found is not None
        for form in forms(case["rows"]):
            task = tuple(min(axis.extent, 512) if axis is found.rows else axis.extent for axis in bound.expr.axes)
            kernel = bound.workload.kernel(RTile(task=task), form)
            assert form_fault(kernel) is None
            texts.append(emit_kernel(kernel, f"kernel{len(texts)}"))
            kernels.append((bound, kernel, arrays, wanted))
    library = compiler.library(texts, flags=("-Og", *INSTRUCTIONS[instructions]))
    for number, (bound, kernel, arrays, wanted) in enumerate(kernels):
        result: np.ndarray = bound.run(kernel, library[f"kernel{number}"], arrays)[0]
        tolerance = 1e-5 if result.dtype == np.float32 else 1e-13
        np.testing.assert_allclose(result, wanted, rtol=tolerance, atol=tolerance, err_msg=str(kernel.form))


def chosen(expr):
    """The form of the fastest rKernel."""
    form = construct(Bound(expr, range(1, 4), AVX512).workload, replace(AVX512, skeletons=SKELETONS))[0].form
    assert isinstance(form, TreesForm)
    return form


def test_roller_takes_small_trees_whole_and_few_rows_by_paths():
    def of(rows, **options):
        form = chosen(sum_of_leaves(rows, **options)[0])
        return form.strategy, form.rows, form.nodes

    assert of(1, depth=5, full=True) == (TreeStrategy.PERFECT, 1, 0)
    assert of(2000, depth=3, full=True, trees=30) == (TreeStrategy.QUICKSCORER, 512, 15)
    assert of(2000, depth=5, full=True, trees=30) == (TreeStrategy.QUICKSCORER, 512, 63)
    assert of(2000, depth=12, full=True, trees=2) == (TreeStrategy.PERMUTES, 512, 0)


def test_roller_follows_paths_of_many_lengths_to_their_ends():
    inner = np.tile([True, False], 30)
    number = np.arange(61)
    chain = tree(np.where(np.append(inner, False), 0, -1), number / 61, number + 1, number + 2, number)
    made = ensemble([chain], features=1, compare=DType.FLOAT32, total=DType.FLOAT32)
    expr = graph_of(made, 1).operators[-1].expr
    assert expr is not None
    assert chosen(expr) == TreesForm(strategy=TreeStrategy.TRAVERSAL, rows=1)


def test_what_follows_a_sum_is_part_of_it():
    """A link, and a division, are done where the sums are."""
    made = random_ensemble(4, trees=20, depth=4, groups=2, hard=True, total=DType.FLOAT64)
    x = hard_rows(made, 100)
    net = executable_of(graph_of(made, 100), device="cpu", veus=2)
    skeletons = [operator["candidates"][operator["chosen"]]["skeleton"] for operator in net.report["operators"]]
    assert skeletons[-1] == "trees"
    np.testing.assert_allclose(net(x), made.evaluate(x), rtol=1e-14)


def test_other_sums_are_none():
    builder = GraphBuilder("sum")
    x = builder.input("x", sum_of_leaves(4, depth=2)[0].inputs[3])
    graph = builder.build(builder.add("ReduceSum", [x], {"axes": (0,), "keepdims": False}, name="sum"))
    expr = graph.operators[0].expr
    assert expr is not None
    assert tree_sum(expr) is None
    bound = Bound(expr, (), AVX512)
    kernel = bound.workload.kernel(
        RTile(task=tuple(a.extent for a in bound.expr.axes)), TreesForm(strategy=TreeStrategy.PERFECT, rows=1)
    )
    fault = form_fault(kernel)
    assert fault is not None
    assert fault[0] == "T10"
    assert VerificationError(*fault).code == "T10"
    with pytest.raises(ValueError, match="sums of leaves"):
        emit_kernel(kernel, "kernel")
