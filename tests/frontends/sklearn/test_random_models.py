"""A thousand small random models of each family, on rows that are hard for them: labels equal, values to 1e-6."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn import (
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_selection,
    impute,
    linear_model,
    mixture,
    naive_bayes,
    neighbors,
    neural_network,
    preprocessing,
    svm,
    tree,
)
from sklearn.pipeline import make_pipeline, make_union

from tests.support.estimators import check

pytestmark = [pytest.mark.classical, pytest.mark.long]

MODELS = 1000


class Data:
    """Rows with ties, a constant column and targets; choices of options."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = np.random.default_rng(seed)
        count, width = int(rng.integers(30, 60)), int(rng.integers(2, 6))
        self.x = (rng.normal(size=(count, width)) * rng.choice([0.1, 1.0, 30.0], size=width)).round(2)
        self.x[:, 0] = rng.integers(0, 5, count) if rng.random() < 0.5 else self.x[:, 0]
        self.has_ties = rng.random() < 0.7
        self.constant = self.has_ties and rng.random() < 0.3
        if not self.has_ties:
            self.x += rng.normal(size=self.x.shape)
        if self.constant:
            self.x[:, -1] = 3.0
        self.y = self.x[:, 0] - 0.1 * self.x[:, 1] + 0.3 * rng.normal(size=count)
        classes = int(rng.integers(2, 5))
        ranks = np.argsort(np.argsort(self.y + 0.5 * rng.normal(size=count)))
        self.codes = ranks * classes // count
        names = self.pick(np.arange(classes), np.array(["no", "yes", "perhaps", "nobody knows"])[:classes])
        self.classes = names[self.codes]
        self.holes = np.where(rng.random(self.x.shape) < self.pick(0.0, 0.2), np.nan, self.x)

    def pick(self, *choices: Any) -> Any:
        """One of some values."""
        return choices[int(self.rng.integers(len(choices)))]

    @property
    def targets(self) -> Any:
        """One target, or two."""
        return self.pick(self.y, np.stack([self.y, -2 * self.y + self.x[:, 0]], axis=1))

    def rows(self, x: np.ndarray) -> np.ndarray:
        """The rows that a model was fitted with, and some beyond and between them."""
        found: np.ndarray = np.concatenate([x, x[:5] * 3 - 1, (x[:5] + x[5:10]) / 2])
        if self.constant:  # elsewhere, what is divided by its variance of 0 and a bit has few exact digits
            found[:, -1] = np.where(np.isnan(found[:, -1]), np.nan, 3.0)
        return found


def _linear(data: Data) -> tuple[Any, np.ndarray, dict[str, Any]]:
    straight = {"fit_intercept": data.pick(True, False)}
    if data.pick(True, False):
        name = data.pick("LinearRegression", "Ridge", "Lasso", "ElasticNet", "HuberRegressor", "SGDRegressor")
        target = data.y if name in ("HuberRegressor", "SGDRegressor") else data.targets
        return getattr(linear_model, name)(**straight).fit(data.x, target), data.rows(data.x), {}
    model = data.pick(
        linear_model.LogisticRegression(C=data.pick(0.1, 1.0, 10.0), max_iter=50, **straight),
        linear_model.RidgeClassifier(**straight),
        linear_model.Perceptron(random_state=0, **straight),
        linear_model.SGDClassifier(loss=data.pick("hinge", "log_loss", "modified_huber"), random_state=0, **straight),
        svm.LinearSVC(C=data.pick(0.1, 1.0), max_iter=50, **straight),
    )
    rows = data.rows(data.x)
    if hasattr(model.fit(data.x, data.classes), "predict_proba"):  # scikit-learn 1.4 has NaN where all are zero
        rows = rows[~np.isnan(model.predict_proba(rows)).any(axis=1)]
        if not len(rows):
            raise ValueError("no row has probabilities")
    return model, rows, {}


def _kernels(data: Data) -> tuple[Any, np.ndarray, dict[str, Any]]:
    options = {
        "kernel": data.pick("linear", "poly", "rbf", "sigmoid"),
        "gamma": data.pick("scale", "auto", 0.1),
        "coef0": data.pick(0.0, 0.5),
        "degree": data.pick(2, 3),
        "max_iter": 2000,
    }
    close = {"tiny": 1e-8}
    if data.pick(True, False):
        model = data.pick(svm.SVR, svm.NuSVR)(C=data.pick(0.5, 5.0), **options).fit(data.x, data.y)
        return model, data.rows(data.x), close
    more = {
        "decision_function_shape": data.pick("ovo", "ovr"),
        "class_weight": data.pick(None, "balanced"),
        "probability": data.pick(True, False, False),
        "random_state": 0,
    }
    model = data.pick(svm.SVC(C=data.pick(0.5, 5.0), **options, **more), svm.NuSVC(nu=0.05, **options, **more))
    model.fit(data.x, data.classes)
    return model, _decided(model, data.rows(data.x)), close


def _decided(model: Any, rows: np.ndarray) -> np.ndarray:
    """Rows without those between two classes but for the rounding of libsvm's sums, whose order decides about them."""
    pairs = copy(model)
    pairs.decision_function_shape = "ovo"
    margins = np.abs(pairs.decision_function(rows).reshape(len(rows), -1))
    decided = margins.min(axis=1) > 1e-12 * margins.max()
    return rows[decided] if decided.any() else rows


def _neighbours(data: Data) -> tuple[Any, np.ndarray, dict[str, Any]]:
    # Which of equally distant points counts is scikit-learn's own affair: there are none here.
    x = data.x + data.rng.normal(size=data.x.shape)
    options = {
        "n_neighbors": data.pick(1, 3, 5),
        "weights": data.pick("uniform", "distance"),
        "metric": data.pick("euclidean", "manhattan", "chebyshev"),
        "algorithm": "brute",
    }
    rows = np.concatenate([x + 0.01, x * 3 - 1])
    if data.pick(True, False):
        return neighbors.KNeighborsRegressor(**options).fit(x, data.targets), rows, {}
    return neighbors.KNeighborsClassifier(**options).fit(x, data.codes), rows, {}


def _bayes(data: Data) -> tuple[Any, np.ndarray, dict[str, Any]]:
    counts = np.abs(data.x).round().astype(int)
    name = data.pick("BernoulliNB", "ComplementNB", "GaussianNB", "MultinomialNB", "CategoricalNB")
    options = {} if name == "GaussianNB" else {"alpha": data.pick(0.1, 1.0)}
    options |= {} if name in ("GaussianNB", "ComplementNB") else {"fit_prior": data.pick(True, False)}
    rows = data.rows(data.x) if name == "GaussianNB" else counts
    return getattr(naive_bayes, name)(**options).fit(rows[: len(counts)], data.classes), rows, {"tiny": 1e-9}


def _networks(data: Data) -> tuple[Any, np.ndarray, dict[str, Any]]:
    options = {
        "hidden_layer_sizes": data.pick((3,), (4, 3), (8, 2, 4)),
        "activation": data.pick("identity", "logistic", "tanh", "relu"),
        "max_iter": 5,
        "random_state": data.seed,
    }
    if data.pick(True, False):
        return neural_network.MLPRegressor(**options).fit(data.x, data.targets), data.rows(data.x), {}
    return neural_network.MLPClassifier(**options).fit(data.x, data.classes), data.rows(data.x), {}


def _densities(data: Data) -> tuple[Any, np.ndarray, dict[str, Any]]:
    x = data.x + 0.1 * data.rng.normal(size=data.x.shape)
    close = {"tiny": 1e-8}
    name = data.pick("mixture", "linear", "quadratic")
    if name == "mixture":
        kind = data.pick("full", "tied", "diag", "spherical")
        options = {"n_components": 2, "covariance_type": kind, "random_state": 0, "max_iter": 10}
        model = data.pick(mixture.GaussianMixture, mixture.BayesianGaussianMixture)(**options)
        return model.fit(x), data.rows(x), close
    if name == "linear":
        solver, shrinkage = data.pick(("svd", None), ("lsqr", "auto"), ("eigen", 0.2))
        model = discriminant_analysis.LinearDiscriminantAnalysis(solver=solver, shrinkage=shrinkage)
    else:
        model = discriminant_analysis.QuadraticDiscriminantAnalysis(reg_param=0.1)
    return model.fit(x, data.classes), data.rows(x), close


def _scaled(data: Data) -> Any:
    """A transformer of columns that takes NaN."""
    return data.pick(
        preprocessing.StandardScaler(with_mean=data.pick(True, False), with_std=data.pick(True, False)),
        preprocessing.RobustScaler(quantile_range=data.pick((25.0, 75.0), (10.0, 90.0))),
        preprocessing.MinMaxScaler(data.pick((0, 1), (-3, 2)), clip=data.pick(True, False)),
        preprocessing.MaxAbsScaler(),
        preprocessing.PowerTransformer(standardize=data.pick(True, False)),
        preprocessing.QuantileTransformer(n_quantiles=10, output_distribution=data.pick("uniform", "normal")),
    )


def _imputed(data: Data) -> Any:
    """What leaves no NaN."""
    indicator = {"add_indicator": data.pick(True, False)}
    if data.has_ties:  # which of equally distant points counts is scikit-learn's own affair
        return impute.SimpleImputer(strategy=data.pick("mean", "median", "most_frequent"), **indicator)
    return impute.KNNImputer(n_neighbors=data.pick(1, 3), weights=data.pick("uniform", "distance"), **indicator)


def _prepared(data: Data) -> Any:
    """A transformer of columns without NaN."""
    kinds: list[Callable[[], Any]] = [
        lambda: preprocessing.PolynomialFeatures(data.pick(2, 3), interaction_only=data.pick(True, False)),
        lambda: preprocessing.Normalizer(norm=data.pick("l1", "l2", "max")),
        lambda: preprocessing.Binarizer(threshold=data.pick(0.1234, 0.5678)),  # nothing that was computed lies there
        lambda: feature_selection.SelectKBest(feature_selection.f_regression, k=data.pick(1, 2)),
        lambda: decomposition.PCA(data.pick(1, 2), whiten=data.pick(True, False)),
        feature_selection.VarianceThreshold,
    ]
    if not data.constant:
        kinds.append(lambda: preprocessing.SplineTransformer(4, extrapolation=data.pick("constant", "continue")))
    return data.pick(*kinds)()


def _transformers(data: Data) -> tuple[Any, np.ndarray, dict[str, Any]]:
    steps = [_scaled(data), _imputed(data)][:: data.pick(1, -1)]
    model = make_pipeline(*steps, _prepared(data))
    if data.pick(True, False):
        model = make_union(model, make_pipeline(_imputed(data), _scaled(data)))
    return model.fit(data.holes, data.y), data.rows(data.holes), {"tiny": 1e-8}


def _pipelines(data: Data) -> tuple[Any, np.ndarray, dict[str, Any]]:
    model = data.pick(
        linear_model.LogisticRegression(C=0.1, max_iter=30),
        linear_model.LogisticRegression(C=0.3, l1_ratio=1.0, penalty="l1", solver="liblinear"),
        tree.DecisionTreeClassifier(max_depth=3, random_state=0),
        naive_bayes.GaussianNB(),
    )
    if getattr(model, "solver", "") == "liblinear":
        data.codes, data.classes = data.codes % 2, data.codes % 2
    scaler = preprocessing.StandardScaler()
    steps = [_imputed(data), scaler, _prepared(data), model]
    return make_pipeline(*steps).fit(data.holes, data.codes), data.rows(data.holes), {"tiny": 1e-8}


def _several(data: Data) -> tuple[Any, np.ndarray, dict[str, Any]]:
    options = {"n_estimators": 3, "random_state": data.seed}
    member = data.pick(linear_model.LogisticRegression(max_iter=20), naive_bayes.GaussianNB(), None)
    model = data.pick(
        ensemble.BaggingClassifier(member, max_features=0.7, **options),
        ensemble.AdaBoostClassifier(data.pick(None, tree.DecisionTreeClassifier(max_depth=2)), **options),
        ensemble.VotingClassifier(
            [("a", naive_bayes.GaussianNB()), ("b", linear_model.LogisticRegression(max_iter=20))],
            voting=data.pick("hard", "soft"),
            weights=data.pick(None, [1, 2]),
        ),
        ensemble.GradientBoostingClassifier(max_depth=2, init=data.pick(None, "zero"), **options),
        ensemble.RandomForestClassifier(max_depth=3, **options),
    )
    return model.fit(data.x, data.classes), data.rows(data.x), {"tiny": 1e-9}


FAMILIES: Mapping[str, Callable[[Data], tuple[Any, np.ndarray, dict[str, Any]]]] = {
    "linear": _linear,
    "kernels": _kernels,
    "neighbours": _neighbours,
    "bayes": _bayes,
    "networks": _networks,
    "densities": _densities,
    "transformers": _transformers,
    "pipelines": _pipelines,
    "ensembles": _several,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_random_models(family: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(MODELS):
            try:
                model, rows, options = FAMILIES[family](Data(seed))
            except ValueError:  # scikit-learn cannot fit it: too few rows of a class, an infeasible nu
                continue
            try:
                check(model, rows, **options)
            except Exception as error:
                raise AssertionError(f"{family}, seed {seed}: {model}") from error
