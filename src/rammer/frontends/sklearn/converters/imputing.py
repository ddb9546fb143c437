"""Imputers of missing values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.frontends.sklearn.converters.distances import Nearest, nan_euclidean, nearest
from rammer.frontends.sklearn.converters.encoding import is_nan, plain
from rammer.frontends.sklearn.node import Entry, Node
from rammer.frontends.sklearn.table import Column, Positions, Table, beside
from rammer.frontends.sklearn.tensor import Tensor, concatenated, stacked
from rammer.ir.types import DType


def _is_missing(x: Tensor, value: float) -> Tensor:
    return x.is_nan() if np.isnan(value) else x.equals(value)


def _missing_code(node: Node, table: Table, position: int) -> float:
    """The number that stands for a missing value in a column."""
    value = plain(node.estimator.missing_values)
    vocabulary = table.columns[position].vocabulary
    if is_nan(value):
        return float("nan")
    if value is None or isinstance(value, str):
        if vocabulary is None:
            raise node.unsupported("missing values that are texts, in a column that an earlier step computed")
        table.read_as(position, texts=True)
        return float(vocabulary.code(value))
    return float(value)


def _simple(node: Node, table: Table) -> Table:
    model = node.estimator
    statistics = np.asarray(model.statistics_)
    texts = model._fit_dtype.kind in "OU"
    kept = [i for i, value in enumerate(statistics) if model.keep_empty_features or not is_nan(plain(value))]
    fills, codes = np.zeros(table.width), np.zeros(table.width)
    for position in range(table.width):
        codes[position] = _missing_code(node, table, position)
        if position in kept:
            fills[position] = _fill(node, table, position, statistics[position], texts=texts)

    def make(_: Any, wanted: Positions) -> Tensor:
        x = table.passed(node, wanted)
        return _missing(node, x, codes[wanted]).choose(node.constant_tensor(fills[wanted]), x)

    if not texts:
        for position in range(table.width):
            table.read_as(position, texts=False)
    columns = [
        replace(column, sources=frozenset(), vocabulary=column.vocabulary if texts else None)
        if is_nan(codes[position])
        else column
        for position, column in enumerate(table.columns)
    ]
    filled = Table(tuple(columns), make).select(kept)
    return beside([filled, _indicated(node, table, codes, model.indicator_)]) if model.add_indicator else filled


def _fill(node: Node, table: Table, position: int, value: Any, *, texts: bool) -> float:
    if not texts:
        return float(value)
    vocabulary = table.columns[position].vocabulary
    if vocabulary is None:
        raise node.unsupported("texts imputed in a column that an earlier step computed")
    table.read_as(position, texts=True)
    return float("nan") if is_nan(plain(value)) else float(vocabulary.code(plain(value)))


def _missing(node: Node, x: Tensor, codes: npt.NDArray[np.float64]) -> Tensor:
    """Which elements of columns are missing."""
    if np.isnan(codes).all():
        return x.is_nan()
    found = x.equals(codes)
    return found if not np.isnan(codes).any() else found | (x.is_nan() & Tensor(node, node.constant(np.isnan(codes))))


def _indicated(node: Node, table: Table, codes: npt.NDArray[np.float64], indicator: Any) -> Table:
    """Which features are missing, of those that an indicator was fitted to show."""

    def make(_: Any, wanted: Positions) -> Tensor:
        return _missing(node, table.passed(node, wanted), codes[wanted]).real()

    shown = Table(tuple(Column(dtype=DType.BOOL) for _ in table.columns), make)
    return shown.select(indicator.features_)


def _indicator(node: Node, table: Table) -> Table:
    model = node.estimator
    codes = np.array([_missing_code(node, table, position) for position in range(table.width)])
    if model.features == "missing-only" and model.error_on_new:
        others = np.setdiff1d(np.arange(table.width), model.features_)
        if others.size:
            found = _missing(node, table.passed(node, others), codes[others])
            node.refuse(found.any(), f"a missing value where there was none when {node.location.node} was fitted")
    return _indicated(node, table, codes, model)


def _texts_unlike(model: Any) -> Iterable[str]:
    statistics = np.asarray(model.statistics_)
    if statistics.dtype.kind not in "biufOU":
        yield f"statistics of dtype {statistics.dtype}"


def _knn(node: Node, table: Table) -> Table:
    """Each missing value becomes the mean of its column in the nearest rows that have it."""
    model = node.estimator
    fitted = np.asarray(model._fit_X, np.float64)
    missing = np.asarray(model._mask_fit_X)
    valid = np.asarray(model._valid_mask)
    value = float(model.missing_values)
    for position in range(table.width):
        table.read_as(position, texts=False)

    def make(_: Any, wanted: Positions) -> Tensor:
        x = table.all(node)
        holes = _is_missing(x, value)
        distances = nan_euclidean(node, x, holes, fitted, missing)
        parts = [_neighbours_mean(node, x, holes, distances, fitted, missing, int(i)) for i in wanted]
        return stacked(parts)

    columns = tuple(replace(column, sources=frozenset(), vocabulary=None) for column in table.columns)
    kept = np.flatnonzero(valid) if not model.keep_empty_features else np.arange(table.width)
    filled = Table(columns, make).select(kept)
    codes = np.full(table.width, value)
    return beside([filled, _indicated(node, table, codes, model.indicator_)]) if model.add_indicator else filled


def _neighbours_mean(
    node: Node,
    x: Tensor,
    holes: Tensor,
    distances: Tensor,
    fitted: npt.NDArray[np.float64],
    missing: npt.NDArray[np.bool_],
    column: int,
) -> Tensor:
    donors = np.flatnonzero(~missing[:, column])
    own = x.column(column)
    if not donors.size:
        return holes.column(column).choose(node.constant_tensor(0.0), own)
    values = fitted[donors, column]
    apart = distances.take(donors)
    none = apart.is_nan().all()
    count = min(int(node.estimator.n_neighbors), len(donors))
    found = nearest(node, apart.is_nan().choose(node.constant_tensor(np.inf), apart), count)
    taken = [place.look_up(values) for place in found.places]
    mean = taken[0] if count == 1 else _weighted_mean(node, found, taken)  # of one it is that one, not rounded
    mean = none.choose(node.constant_tensor(float(values.mean())), mean)
    return holes.column(column).choose(mean, own)


def _weighted_mean(node: Node, found: Nearest, taken: Sequence[Tensor]) -> Tensor:
    """What is taken from the nearest rows, weighted as the estimator says; those infinitely far do not count."""
    weights = [1.0 / distance for distance in found.distances] if node.estimator.weights == "distance" else None
    known = [distance < np.inf for distance in found.distances]
    zero = node.constant_tensor(0.0)
    if weights is None:
        shares = [is_known.real() for is_known in known]
    else:
        exact = (found.distances[0]).equals(0.0)
        shares = [
            exact.choose(distance.equals(0.0).real(), is_known.choose(weight, zero))
            for distance, weight, is_known in zip(found.distances, weights, known, strict=True)
        ]
    total, count_of = zero, zero
    for share, number in zip(shares, taken, strict=True):
        total, count_of = share * number + total, share + count_of
    return total / count_of


def _knn_refusals(model: Any) -> Iterable[str]:
    if callable(model.weights):
        yield "weights= a function"
    if model.metric != "nan_euclidean":
        yield f"metric={model.metric!r}"
    if not isinstance(model.missing_values, int | float):
        yield f"missing_values={model.missing_values!r}"


def _iterative(node: Node, table: Table) -> Table:
    """The fitted regressors run once more, in the order in which they were fitted."""
    model = node.estimator
    first = node.part("initial_imputer_", model.initial_imputer_)
    started = first.table(table)
    kept = [i for i in range(table.width) if model.keep_empty_features or i in _observed(model)]
    values = [started.take(node, [place]) for place in range(len(kept))]
    x = table.take(node, kept)
    holes = _is_missing(x, float(model.missing_values))
    lower, upper = np.broadcast_to(model._min_value, (len(kept),)), np.broadcast_to(model._max_value, (len(kept),))
    for number, step in enumerate(model.imputation_sequence_):
        neighbours = beside([_of_tensor(values[i]) for i in step.neighbor_feat_idx])
        regressor = node.part(f"imputation_sequence_.{number}", step.estimator)
        own = step.feat_idx
        found = regressor.tensor("predict", neighbours).clip(float(lower[own]), float(upper[own]))
        values[own] = holes.take([own]).choose(found.new_axis(1), values[own])
    columns = tuple(replace(table.columns[i], sources=frozenset(), vocabulary=None) for i in kept)
    filled = Table(columns, lambda _, wanted: concatenated([values[i] for i in wanted]))
    codes = np.full(table.width, float(model.missing_values))
    return beside([filled, _indicated(node, table, codes, model.indicator_)]) if model.add_indicator else filled


def _observed(model: Any) -> set[int]:
    return {i for i, value in enumerate(model.initial_imputer_.statistics_) if not is_nan(plain(value))}


def _of_tensor(column: Tensor) -> Table:
    return Table((Column(),), lambda node, _: replace(column, node=node))


def _iterative_refusals(model: Any) -> Iterable[str]:
    if model.sample_posterior:
        yield "sample_posterior=True: its results are random"
    if not isinstance(model.missing_values, int | float):
        yield f"missing_values={model.missing_values!r}"


def _iterative_parts(model: Any) -> Iterable[tuple[str, Any]]:
    yield "initial_imputer_", model.initial_imputer_
    for number, step in enumerate(model.imputation_sequence_):
        yield f"imputation_sequence_.{number}", step.estimator


ENTRIES: Mapping[str, Entry] = {
    "SimpleImputer": Entry(methods={"transform": _simple}, refusals=_texts_unlike, accepts_nan=True),
    "MissingIndicator": Entry(methods={"transform": _indicator}, accepts_nan=True),
    "KNNImputer": Entry(methods={"transform": _knn}, refusals=_knn_refusals, accepts_nan=True),
    "IterativeImputer": Entry(
        methods={"transform": _iterative}, refusals=_iterative_refusals, parts=_iterative_parts, accepts_nan=True
    ),
}
