"""Mixtures of normal distributions and discriminants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.frontends.sklearn.converters.classes import labels_of_scores, two_columns
from rammer.frontends.sklearn.converters.linear import labels, scores
from rammer.frontends.sklearn.converters.projection import discriminants
from rammer.frontends.sklearn.functions import expit
from rammer.frontends.sklearn.node import Entry, Labels, Node, numbers
from rammer.frontends.sklearn.table import Table
from rammer.frontends.sklearn.tensor import Tensor, stacked


def _factors(model: Any) -> list[npt.NDArray[np.float64]]:
    """What the distance from each mean is multiplied by: a matrix, or a vector of its diagonal."""
    precisions = numbers(model.precisions_cholesky_)
    count, width = model.means_.shape
    match model.covariance_type:
        case "full" | "diag":
            return list(precisions)
        case "tied":
            return [precisions] * count
    return [np.full(width, precision) for precision in precisions]


def _weighted(node: Node, table: Table) -> Tensor:
    """The logarithms of density times weight `[rows, components]`."""
    model = node.estimator
    x = table.all(node)
    means = numbers(model.means_)
    # A component's density at its own mean is what it has besides the distance.
    constants = np.diag(model._estimate_log_prob(means)) + model._estimate_log_weights()
    squares = []
    for mean, factor in zip(means, _factors(model), strict=True):
        apart = x - mean
        white = apart @ factor if factor.ndim == 2 else apart * factor
        squares.append((white * white).sum())
    return stacked(squares) * -0.5 + numbers(constants)


def _component(node: Node, table: Table) -> Labels:
    found = node.tensor("weighted", table)
    return Labels(found.argmax(), np.arange(found.shape[1]))


def _responsibilities(node: Node, table: Table) -> Tensor:
    found = node.tensor("weighted", table)
    return (found - found.log_sum_exp(keep=True)).exp()


def _quadratic(node: Node, table: Table) -> Tensor:
    """The logarithms of the classes' densities times priors."""
    model = node.estimator
    x = table.all(node)
    squares, constants = [], []
    for mean, rotation, scaling, prior in zip(
        model.means_, model.rotations_, model.scalings_, model.priors_, strict=True
    ):
        white = (x - numbers(mean)) @ (numbers(rotation) * numbers(scaling) ** -0.5)
        squares.append((white * white).sum())
        constants.append(np.log(prior) - 0.5 * np.log(scaling).sum())
    return stacked(squares) * -0.5 + numbers(constants)


def _quadratic_scores(node: Node, table: Table) -> Tensor:
    found = node.tensor("joint", table)
    return found.column(1) - found.column(0) if found.shape[1] == 2 else found


def _linear_probabilities(node: Node, table: Table) -> Tensor:
    found = node.tensor("decision_function", table)
    if len(found.shape) == 2:
        return found.softmax()
    likely = expit(found)
    return two_columns(1.0 - likely, likely)


def _linear_logarithms(node: Node, table: Table) -> Tensor:
    """Of a probability of 0, that of the smallest normal number."""
    likely = node.tensor("predict_proba", table)
    least = node.filled(float(np.finfo(np.float64).smallest_normal), *likely.shape)
    return likely.equals(0.0).choose(least, likely).log()


def _quadratic_logarithms(node: Node, table: Table) -> Tensor:
    if "predict_log_proba" in vars(type(node.estimator)):  # until scikit-learn took logarithms of densities instead
        return node.tensor("predict_proba", table).log()
    found = node.tensor("joint", table)
    return found - found.log_sum_exp(keep=True)


_MIXTURE = Entry(
    methods={
        "weighted": _weighted,
        "predict": _component,
        "predict_proba": _responsibilities,
        "score_samples": lambda node, table: node.tensor("weighted", table).log_sum_exp(),
    }
)

ENTRIES: Mapping[str, Entry] = {
    "BayesianGaussianMixture": _MIXTURE,
    "GaussianMixture": _MIXTURE,
    "LinearDiscriminantAnalysis": Entry(
        methods={
            "decision_function": scores,
            "predict": labels,
            "predict_proba": _linear_probabilities,
            "predict_log_proba": _linear_logarithms,
            "transform": discriminants,
        },
        lacks=lambda model: ["transform"] if model.solver == "lsqr" else [],
    ),
    "QuadraticDiscriminantAnalysis": Entry(
        methods={
            "joint": _quadratic,
            "decision_function": _quadratic_scores,
            "predict": lambda node, table: labels_of_scores(node, node.tensor("decision_function", table)),
            "predict_proba": lambda node, table: node.tensor("joint", table).softmax(),
            "predict_log_proba": _quadratic_logarithms,
        }
    ),
}
