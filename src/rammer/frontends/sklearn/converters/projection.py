"""Decompositions and other projections of rows: products with fitted matrices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.frontends.sklearn.converters.affine import affine
from rammer.frontends.sklearn.converters.kernels import KERNELS, kernel_of
from rammer.frontends.sklearn.node import Entry, Node, numbers
from rammer.frontends.sklearn.table import Column, Table
from rammer.frontends.sklearn.tensor import Tensor

_Matrix = npt.NDArray[np.float64]


def projected(node: Node, table: Table, weights: Any, offset: Any = 0.0) -> Table:
    """`table @ weights + offset`, of which only the columns that are asked for are computed."""
    matrix = numbers(weights)
    offsets = np.broadcast_to(numbers(offset), matrix.shape[1:])
    return Table(
        tuple(Column() for _ in range(matrix.shape[1])),
        lambda _, wanted: affine(node, table, matrix[:, wanted], offsets[wanted]),
    )


def _centered(node: Node, table: Table, mean: Any, weights: Any) -> Table:
    """`(table - mean) @ weights`."""
    matrix = numbers(weights)
    if mean is None:
        return projected(node, table, matrix)
    return projected(node, table, matrix, -numbers(mean) @ matrix)


def _principal(node: Node, table: Table) -> Table:
    model = node.estimator
    weights = numbers(model.components_).T
    if model.whiten:
        scale = np.sqrt(numbers(model.explained_variance_))
        scale[scale < np.finfo(np.float64).eps] = np.finfo(np.float64).eps
        weights = weights / scale
    return _centered(node, table, model.mean_, weights)


def _independent(node: Node, table: Table) -> Table:
    model = node.estimator
    return _centered(node, table, model.mean_ if model.whiten else None, numbers(model.components_).T)


def _factors(node: Node, table: Table) -> Table:
    model = node.estimator
    components = numbers(model.components_)
    weighted = components / numbers(model.noise_variance_)
    covariance = np.linalg.inv(np.eye(len(components)) + weighted @ components.T)
    return _centered(node, table, model.mean_, weighted.T @ covariance)


def _components(node: Node, table: Table) -> Table:
    components = node.estimator.components_
    dense = components.toarray() if hasattr(components, "toarray") else components
    return projected(node, table, numbers(dense).T)


def _log_likelihood(node: Node, table: Table) -> Tensor:
    """Of a normal distribution with the model's mean and precision.

    As scikit-learn has it, nothing is likely where rounding has left a precision that no covariance has.
    """
    model = node.estimator
    precision = numbers(model.get_precision())
    apart = table.all(node) - numbers(model.mean_)
    sign, logarithm = np.linalg.slogdet(precision)
    constant = 0.5 * (float(logarithm) if sign > 0 else -np.inf) - 0.5 * len(precision) * np.log(2 * np.pi)
    return (apart * (apart @ precision)).sum() * -0.5 + float(constant)


def _singular(model: Any) -> Iterator[str]:
    """What a model whose covariance has no inverse raises an error for."""
    try:
        model.get_precision()
    except np.linalg.LinAlgError:
        yield "score_samples"


def _least_squares(node: Node, table: Table) -> Table:
    model = node.estimator
    weights = numbers(model.x_rotations_) / numbers(model._x_std)[:, None]
    return _centered(node, table, model._x_mean, weights)


def _least_squares_prediction(node: Node, table: Table) -> Tensor:
    model = node.estimator
    weights, mean, scale = numbers(model.coef_).T, numbers(model._x_mean), numbers(model._x_std)
    # Whether the weights are those of scaled features differs between versions: a prediction tells.
    probe = np.ravel(model.predict((mean + scale)[None])) - np.ravel(model.intercept_)
    if not np.allclose(probe, scale @ weights):
        weights = weights / scale[:, None]
    found = affine(node, table, weights, numbers(model.intercept_) - mean @ weights)
    return found.reshape(node.rows) if getattr(model, "_predict_1d", False) else found


def discriminants(node: Node, table: Table) -> Table:
    """The axes along which classes lie apart."""
    model = node.estimator
    weights = numbers(model.scalings_)[:, : model._max_components]
    return _centered(node, table, model.xbar_ if model.solver == "svd" else None, weights)


def _kernel_components(node: Node, table: Table) -> Table:
    model = node.estimator
    values = numbers(model.eigenvalues_)
    found = np.flatnonzero(values)
    weights = np.zeros(model.eigenvectors_.shape)
    weights[:, found] = numbers(model.eigenvectors_)[:, found] / np.sqrt(values[found])
    # Centring the kernel and multiplying by the weights is one product of the kernel.
    rows, count = numbers(model._centerer.K_fit_rows_), len(weights)
    sums = weights.sum(0)
    offset = float(model._centerer.K_fit_all_) * sums - rows @ weights
    kernel = kernel_of(node, table, numbers(model.X_fit_), model.kernel, model.gamma_, model.degree, model.coef0)
    return Table(
        tuple(Column() for _ in sums),
        lambda _, wanted: (kernel() @ (weights - sums / count)[:, wanted]) + offset[wanted],
    )


def _unknown_kernel(model: Any) -> Iterable[str]:
    if model.kernel not in KERNELS:
        yield f"kernel={model.kernel!r}"


def _nystroem(node: Node, table: Table) -> Table:
    model = node.estimator
    parameters = {"gamma": model.gamma, "degree": model.degree, "coef0": model.coef0}
    gamma = 1.0 / table.width if parameters["gamma"] is None else parameters["gamma"]
    degree = 3 if parameters["degree"] is None else parameters["degree"]
    constant = 1.0 if parameters["coef0"] is None else parameters["coef0"]
    kernel = kernel_of(node, table, numbers(model.components_), model.kernel, gamma, degree, constant)
    weights = numbers(model.normalization_).T
    return Table(tuple(Column() for _ in weights.T), lambda _, wanted: kernel() @ weights[:, wanted])


def _random_features(node: Node, table: Table) -> Table:
    model = node.estimator
    weights, offsets = numbers(model.random_weights_), numbers(model.random_offset_)
    scale = float(np.sqrt(2.0 / weights.shape[1]))
    found = projected(node, table, weights, offsets)
    return Table(found.columns, lambda _, wanted: found.take(node, wanted).apply("Cos") * scale)


def _agglomerated(node: Node, table: Table) -> Table:
    """The means of clusters of features."""
    labels = np.asarray(node.estimator.labels_)
    members = (labels[:, None] == np.unique(labels)).astype(np.float64)
    return projected(node, table, members / members.sum(0))


def _not_the_mean(model: Any) -> Iterable[str]:
    if model.pooling_func is not np.mean:
        yield f"pooling_func={getattr(model.pooling_func, '__name__', model.pooling_func)!r}"


_LEAST_SQUARES = Entry(methods={"predict": _least_squares_prediction, "transform": _least_squares})
_PRINCIPAL = Entry(methods={"transform": _principal, "score_samples": _log_likelihood}, lacks=_singular)

ENTRIES: Mapping[str, Entry] = {
    "PCA": _PRINCIPAL,
    "IncrementalPCA": _PRINCIPAL,
    "FastICA": Entry(methods={"transform": _independent}),
    "FactorAnalysis": Entry(methods={"transform": _factors, "score_samples": _log_likelihood}, lacks=_singular),
    "KernelPCA": Entry(methods={"transform": _kernel_components}, refusals=_unknown_kernel),
    "Nystroem": Entry(methods={"transform": _nystroem}, refusals=_unknown_kernel),
    "RBFSampler": Entry(methods={"transform": _random_features}),
    "FeatureAgglomeration": Entry(methods={"transform": _agglomerated}, refusals=_not_the_mean),
    **dict.fromkeys(
        ("GaussianRandomProjection", "NeighborhoodComponentsAnalysis", "SparseRandomProjection", "TruncatedSVD"),
        Entry(methods={"transform": _components}),
    ),
    **dict.fromkeys(("CCA", "PLSCanonical", "PLSRegression"), _LEAST_SQUARES),
}
