"""Support vector machines with kernels, by libsvm's rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.frontends.sklearn.converters.kernels import kernel_of
from rammer.frontends.sklearn.functions import expit
from rammer.frontends.sklearn.node import Entry, Labels, Node, numbers
from rammer.frontends.sklearn.table import Table
from rammer.frontends.sklearn.tensor import Tensor
from rammer.ir.types import DType

_KERNELS = ("linear", "poly", "precomputed", "rbf", "sigmoid")
_LEAST_PROBABILITY = 1e-7
"""Of a class against another."""
_COUPLING_TOLERANCE = 0.005
"""Over the number of classes."""
_COUPLING_ROUNDS = 6
"""Of a million random sets of pairs (2 to 15 classes, probabilities from 1e-7 on) none took more than four."""


def _kernel(node: Node, table: Table) -> Tensor:
    model = node.estimator
    if model.kernel == "precomputed":
        return table.take(node, model.support_)
    points = numbers(model.support_vectors_)
    return kernel_of(node, table, points, model.kernel, model._gamma, model.degree, model.coef0)()


def _pair_weights(model: Any) -> npt.NDArray[np.float64]:
    """The weight of each support vector in the score of each pair of classes."""
    coefficients, counts = numbers(model._dual_coef_), np.asarray(model._n_support)
    ends = np.cumsum(counts)
    own = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    pairs = list(combinations(range(len(counts)), 2))
    weights = np.zeros((coefficients.shape[1], len(pairs)))
    for place, (i, j) in enumerate(pairs):
        weights[own[i], place] = coefficients[j - 1, own[i]]
        weights[own[j], place] = coefficients[i, own[j]]
    return weights


def _pair_scores(node: Node, table: Table) -> Tensor:
    """Libsvm's score of each pair of classes, positive for the first of them."""
    model = node.estimator
    return _kernel(node, table) @ _pair_weights(model) + numbers(model._intercept_)


def votes(node: Node, is_second: Tensor, confidences: Tensor, classes: int) -> Tensor:
    """Scores of classes from those of their pairs: votes, and confidences below a third of a vote.

    Args:
        node: what computes them.
        is_second: whether the second class of each pair won `[rows, pairs]`.
        confidences: how much so, negative where the first one did.
        classes: how many there are.
    """
    first, second = _members(classes)
    counts = is_second.real() @ second + (~is_second).real() @ first
    sums = confidences @ (second - first)
    return counts + sums / ((sums.abs() + 1.0) * 3.0)


def _members(classes: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Which class is the first, and which the second, of each pair: two matrices `[pairs, classes]`."""
    pairs = np.array(list(combinations(range(classes), 2)))
    return np.eye(classes)[pairs[:, 0]], np.eye(classes)[pairs[:, 1]]


def _scores(node: Node, table: Table) -> Tensor:
    model = node.estimator
    found = node.tensor("pairs", table)
    if len(model.classes_) == 2:
        return -found.reshape(node.rows)
    if model.decision_function_shape == "ovo":
        return found
    return votes(node, found < 0.0, -found, len(model.classes_))


def _labels(node: Node, table: Table) -> Labels:
    model = node.estimator
    count = len(model.classes_)
    if model.break_ties and count > 2:
        return node.labels(node.tensor("decision_function", table).argmax())
    is_first = node.tensor("pairs", table) > 0.0
    if count == 2:
        return node.labels((~is_first).reshape(node.rows).to(DType.INT64))
    first, second = _members(count)
    return node.labels((is_first.real() @ first + (~is_first).real() @ second).argmax())


def _probabilities(node: Node, table: Table) -> Tensor:
    """The probabilities of classes from those of their pairs: sigmoids of the pairs' scores, coupled."""
    model = node.estimator
    count = len(model.classes_)
    wins = expit(-(node.tensor("pairs", table) * numbers(model._probA) + numbers(model._probB)))
    wins = wins.clip(_LEAST_PROBABILITY, 1.0 - _LEAST_PROBABILITY)
    first, second = (np.eye(count)[list(places)] for places in zip(*combinations(range(count), 2), strict=True))
    above = np.einsum("pi,pj->pij", first, second).reshape(len(first), -1)
    below = np.einsum("pi,pj->pij", second, first).reshape(len(first), -1)
    return _coupled((wins @ above + (1.0 - wins) @ below).reshape(node.rows, count, count))


def _coupled(pairs: Tensor) -> Tensor:
    """The probabilities of classes that fit those of pairs best, to libsvm's tolerance and by its steps.

    The second method of Wu, Lin and Weng, Probability estimates for multi-class classification by pairwise coupling
    (JMLR 2004): p minimises p Q p. A row that the rounds are not enough for has no probabilities: NaN.

    Args:
        pairs: how likely the second index's class loses to the first's `[rows, classes, classes]`; 0 on the diagonal.
    """
    rows, count, _ = pairs.shape
    node = pairs.node
    eye = np.eye(count)
    squares = (pairs * pairs).sum(axis=1)
    matrix = squares.new_axis(2) * eye - pairs * pairs.transpose(0, 2, 1)
    likely = Tensor(node, node.constant(np.full((1, 1), 1.0 / count))).expand(rows, count)
    for _ in range(_COUPLING_ROUNDS):
        products, total = _gradient(matrix, likely)
        is_near = _is_near(products, total)
        moved = likely
        for place in range(count):
            own = matrix.take([place], axis=1).reshape(rows, count)
            square, product = squares.take([place]), products.take([place])
            step = (total - product) / square
            scale = step + 1.0
            moved = (moved + step * eye[place]) / scale
            total = (total + step * (step * square + product * 2.0)) / scale / scale
            products = (products + step * own) / scale
        likely = is_near.choose(likely, moved)
    return _is_near(*_gradient(matrix, likely)).choose(likely, np.nan)


def _gradient(matrix: Tensor, likely: Tensor) -> tuple[Tensor, Tensor]:
    """`Q p` `[rows, classes]` and `p Q p` `[rows, 1]`."""
    products = (matrix * likely.new_axis(1)).sum(axis=2)
    return products, (likely * products).sum(keep=True)


def _is_near(products: Tensor, total: Tensor) -> Tensor:
    """Where libsvm stops."""
    return (products - total).abs().max(keep=True) < _COUPLING_TOLERANCE / products.shape[1]


def _value(node: Node, table: Table) -> Tensor:
    model = node.estimator
    weights = numbers(model._dual_coef_).T
    return (_kernel(node, table) @ weights).reshape(node.rows) + float(model._intercept_[0])


def _outlier_samples(node: Node, table: Table) -> Tensor:
    return node.tensor("decision_function", table) + float(np.ravel(node.estimator.offset_)[0])


def _outlier(node: Node, table: Table) -> Labels:
    return Labels((node.tensor("decision_function", table) > 0.0).to(DType.INT64), np.array([-1, 1]))


def _refusals(model: Any) -> Iterable[str]:
    if model.kernel not in _KERNELS:
        yield f"kernel={getattr(model.kernel, '__name__', model.kernel)!r}"
    if model._sparse:
        yield "a fit with a sparse matrix"
    classes = getattr(model, "classes_", ())
    if getattr(model, "break_ties", False) and model.decision_function_shape == "ovo" and len(classes) > 2:
        yield "break_ties with decision_function_shape='ovo'"


_CLASSIFIER = Entry(
    methods={
        "pairs": _pair_scores,
        "decision_function": _scores,
        "predict": _labels,
        "predict_proba": _probabilities,
    },
    refusals=_refusals,
)
_REGRESSOR = Entry(methods={"predict": _value}, refusals=_refusals)

ENTRIES: Mapping[str, Entry] = {
    "NuSVC": _CLASSIFIER,
    "NuSVR": _REGRESSOR,
    "OneClassSVM": Entry(
        methods={"decision_function": _value, "score_samples": _outlier_samples, "predict": _outlier},
        refusals=_refusals,
    ),
    "SVC": _CLASSIFIER,
    "SVR": _REGRESSOR,
}
