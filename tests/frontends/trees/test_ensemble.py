"""Ensembles: what `evaluate` gives, and that graphs in codes give the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rammer.errors import InvalidModelError
from rammer.frontends.trees.codes import code_type, coded
from rammer.frontends.trees.ensemble import Missing, TreeEnsemble, below, ensemble, rounded_down, single_leaf, tree
from rammer.ir.evaluate import evaluate_graph
from rammer.ir.types import DType
from tests.support.trees import executable_of, graph_of, hard_rows, random_ensemble


def by_hand(source: TreeEnsemble, row: np.ndarray) -> list[float]:
    """One row, node by node, in plain Python."""
    nodes, sums = source.nodes, [float(b) for b in source.base]
    for root, target in zip(source.roots, source.target, strict=True):
        at = int(root)
        while nodes.feature[at] >= 0:
            x, kind = float(row[nodes.feature[at]]), nodes.missing[at]
            is_zero = kind == Missing.ZERO and abs(x) <= float(np.float32(1e-35))
            if kind != Missing.NONE and (math.isnan(x) or is_zero):
                left = bool(nodes.missing_left[at])
            else:
                x = 0.0 if math.isnan(x) else x
                left = x <= nodes.threshold[at]
                if nodes.set[at] >= 0:
                    values = source.sets[nodes.set[at]]
                    left = any(lo <= x <= hi for lo, hi in values.intervals) == values.members_left
            at = int(nodes.left[at] if left else nodes.right[at])
        for place in range(source.width):
            sums[target + place] += float(nodes.value[at, place])
    return [total / source.divisor for total in sums]


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(0, 4), st.integers(1, 3), st.integers(1, 3), st.sampled_from(["32", "64"]))
def test_graphs_agree_with_the_definition(seed, depth, width, groups, bits):
    dtype = DType(f"float{bits}")
    made = random_ensemble(seed, depth=depth, width=width, groups=groups, dtype=dtype, total=DType.FLOAT64)
    rows = hard_rows(made, 40, seed)
    wanted = np.array([by_hand(made, row) for row in rows])
    np.testing.assert_allclose(made.evaluate(rows), wanted, rtol=1e-12, atol=1e-12)
    found = evaluate_graph(graph_of(made, len(rows)), [rows])[0].astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize(("rows", "hard"), [(1, True), (0, True), (300, True), (300, False)])
def test_devices_agree(device, rows, hard):
    made = random_ensemble(5, trees=9, depth=4, groups=2, hard=hard, total=DType.FLOAT64)
    x = hard_rows(made, rows)
    executable = executable_of(graph_of(made, rows), device=device)
    np.testing.assert_allclose(executable(x), made.evaluate(x), rtol=1e-14)


def test_float32_sums_are_those_of_the_library_order():
    made = random_ensemble(1, trees=40, depth=3, hard=False)
    x = hard_rows(made, 64)
    np.testing.assert_array_equal(executable_of(graph_of(made, 64), device="cpu")(x), made.evaluate(x))


def test_trees_of_one_leaf_take_no_codes():
    made = ensemble(
        [single_leaf([1.0, 2.0]), single_leaf([3.0, 4.0])], features=2, compare=DType.FLOAT32, total=DType.FLOAT64
    )
    (found,) = evaluate_graph(graph_of(made, 3), [np.zeros((3, 2), np.float32)])
    np.testing.assert_array_equal(found, [[4.0, 6.0]] * 3)


def test_many_thresholds_take_wider_codes():
    line = np.sort(np.random.default_rng(0).normal(size=300))
    trees = [tree([0, -1, -1], [t, 0, 0], [1, 0, 0], [2, 0, 0], [0, 1, 10]) for t in line]
    made = ensemble(trees, features=1, compare=DType.FLOAT64, total=DType.FLOAT64)
    ranks = coded(made).ranks
    assert ranks is not None
    assert ranks.missing.dtype == np.uint16
    rows = line[:, None]
    np.testing.assert_array_equal(evaluate_graph(graph_of(made, 300), [rows])[0], made.evaluate(rows))
    assert [code_type(most) for most in (255, 256)] == [DType.UINT8, DType.UINT16]


@pytest.mark.parametrize("features", [2, 300])
@pytest.mark.parametrize("rows", [1, 70])
def test_both_sides_for_missing_values_share_a_search(features, rows):
    rng = np.random.default_rng(3)
    trees = [
        tree([feature, -1, -1], [t, 0, 0], [1, 0, 0], [2, 0, 0], [0, 1, 10], missing_left=[left, False, False])
        for feature in range(features)
        for t in rng.normal(size=2)
        for left in (False, True)
    ]
    made = ensemble(trees, features=features, compare=DType.FLOAT32, total=DType.FLOAT64)
    ranks = coded(made).ranks
    assert ranks is not None
    assert (len(ranks.thresholds), ranks.missing.shape) == (features, (2, features))
    x = np.where(rng.random((rows, features)) < 0.4, np.nan, rng.normal(size=(rows, features))).astype(np.float32)
    np.testing.assert_array_equal(executable_of(graph_of(made, rows), device="cpu")(x), made.evaluate(x))


@pytest.mark.parametrize(("depth", "columns"), [(17, 3), (16, 2)])
def test_more_thresholds_than_codes_are_several_columns(depth, columns):
    node = np.arange((1 << (depth + 1)) - 1)
    level = np.floor(np.log2(node + 1)).astype(int)
    threshold = (2 * (node + 1 - (1 << level)) + 1) * 2.0 ** (depth - 1 - level)
    one = tree(np.where(level < depth, 0, -1), threshold, 2 * node + 1, 2 * node + 2, node)
    other = tree([0, -1, -1], [0.5, 0, 0], [1, 0, 0], [2, 0, 0], [0, 1, 10])
    made = ensemble([one, other], features=1, compare=DType.FLOAT64, total=DType.FLOAT64)
    ranks = coded(made).ranks
    assert ranks is not None
    assert ranks.feature.tolist() == [0] * columns
    rows = np.random.default_rng(0).integers(-1, 1 << depth, (500, 1)) * 1.0
    np.testing.assert_array_equal(evaluate_graph(graph_of(made, 500), [rows])[0], made.evaluate(rows))


@given(st.floats(allow_nan=False), st.floats(width=32, allow_nan=False))
def test_thresholds_rounded_down_decide_alike(threshold, x):
    assert (np.float32(x) <= rounded_down(threshold, DType.FLOAT32)) == (x <= threshold)


@given(st.floats(width=32, allow_nan=False), st.floats(width=32, allow_nan=False))
def test_strict_comparisons_decide_alike(threshold, x):
    assert (x <= below(threshold, DType.FLOAT32)) == (x < threshold)


def test_rows_of_other_features_are_refused():
    made = random_ensemble(1, features=4)
    with pytest.raises(InvalidModelError, match="rows of 4 features"):
        graph_of(made, 3, features=5)
