"""Trees of scikit-learn's estimators, beside the estimators themselves: bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from rammer.frontends.sklearn.node import accepts_nan
from rammer.frontends.trees import scikit_learn
from tests.support.trees import through_graph

tree = pytest.importorskip("sklearn.tree")
ensemble = pytest.importorskip("sklearn.ensemble")
pytestmark = pytest.mark.classical


@pytest.fixture(scope="module")
def data():
    """Rows on a coarse grid, so that they meet thresholds; a constant column; targets; rows with NaN."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5)).round(1)
    x[:, 4] = 1.0
    y = x[:, 0] + (x[:, 1] > 0) + rng.normal(size=300) * 0.1
    classes = rng.integers(0, 3, 300)
    holes = np.where(rng.random(x.shape) < 0.1, np.nan, x)
    return x, y, classes, holes


@pytest.mark.parametrize("name", ["DecisionTree", "ExtraTree", "RandomForest", "ExtraTrees"])
def test_forests(name, data):
    x, y, classes, holes = data
    home = tree if name in ("DecisionTree", "ExtraTree") else ensemble
    holes = holes if accepts_nan(getattr(home, f"{name}Regressor")()) else x  # extra trees do from scikit-learn 1.6 on
    options = {"random_state": 0} | ({} if home is tree else {"n_estimators": 8})
    regressor = getattr(home, f"{name}Regressor")(**options).fit(holes, y)
    classifier = getattr(home, f"{name}Classifier")(max_depth=4, **options).fit(holes, classes)
    for rows in (holes, x, x[:1], x[:0]):
        found = through_graph(scikit_learn.read_forest(regressor), rows)
        np.testing.assert_array_equal(found[:, 0], regressor.predict(rows) if len(rows) else [])
        shares = through_graph(scikit_learn.read_forest(classifier), rows)
        np.testing.assert_array_equal(shares, classifier.predict_proba(rows) if len(rows) else shares)
    several = getattr(home, f"{name}Classifier")(max_depth=4, **options).fit(x, np.stack([classes, classes > 1], 1))
    found = through_graph(scikit_learn.read_forest(several), x)
    np.testing.assert_array_equal(found, np.concatenate(several.predict_proba(x), axis=1))


def test_float64_rows_beside_a_threshold_are_rounded_to_float32():
    x = np.array([[0.1], [0.3]])
    fitted = tree.DecisionTreeRegressor().fit(x, [0.0, 1.0])
    border = fitted.tree_.threshold[0]
    rows = border + np.arange(-50, 50)[:, None] * 1e-9
    np.testing.assert_array_equal(through_graph(scikit_learn.read_forest(fitted), rows)[:, 0], fitted.predict(rows))


def test_gradient_boosting(data):
    x, y, classes, _ = data
    for kind, target, options in (
        ("Regressor", y, {}),
        ("Regressor", y, {"loss": "huber", "init": "zero"}),
        ("Classifier", classes, {}),
        ("Classifier", classes > 1, {}),
    ):
        fitted = getattr(ensemble, f"GradientBoosting{kind}")(n_estimators=8, **options).fit(x, target)
        found = through_graph(scikit_learn.read_gradient_boosting(fitted), x)
        np.testing.assert_array_equal(found, fitted._raw_predict(x.astype(np.float32)))


@pytest.mark.parametrize("categories", [True, False])
def test_hist_gradient_boosting(categories, data):
    _, y, classes, holes = data
    rng = np.random.default_rng(1)
    mixed = holes.copy()
    mixed[:, 0], mixed[:, 3] = rng.integers(0, 10, 300), rng.integers(0, 40, 300)
    options = {"max_iter": 8, "categorical_features": [0, 3] if categories else None}
    for kind, target in (("Regressor", y + mixed[:, 0] % 3), ("Classifier", classes), ("Classifier", mixed[:, 3] > 20)):
        fitted = getattr(ensemble, f"HistGradientBoosting{kind}")(**options).fit(mixed, target)
        rows = mixed.copy()
        rows[:20, 0], rows[20:40, 3], rows[40:60, 1], rows[60:80, 2] = 99, np.nan, np.inf, -np.inf
        found = through_graph(scikit_learn.read_hist_gradient_boosting(fitted), fitted._preprocess_X(rows, reset=False))
        np.testing.assert_array_equal(found, fitted._raw_predict(rows))


def test_a_split_of_missing_values_alone():
    x = np.array([[1.0], [2.0], [np.nan], [np.nan]] * 20)
    fitted = ensemble.HistGradientBoostingRegressor(max_iter=2, min_samples_leaf=2).fit(x, np.isnan(x[:, 0]) * 1.0)
    rows = np.array([[np.inf], [np.nan], [-np.inf], [5.0]])
    found = through_graph(scikit_learn.read_hist_gradient_boosting(fitted), rows)
    np.testing.assert_array_equal(found, fitted._raw_predict(rows))


def test_isolation_forest(data):
    x = data[0]
    for options in ({"max_features": 0.6}, {"max_samples": 2}, {"max_samples": 1.0}):
        fitted = ensemble.IsolationForest(n_estimators=8, random_state=0, **options).fit(x)
        total = through_graph(scikit_learn.read_isolation_forest(fitted), x)[:, 0]
        found = -(2.0 ** (-total / scikit_learn.isolation_scale(fitted)))
        np.testing.assert_allclose(found, fitted.score_samples(x), rtol=1e-15)


def test_ada_boost(data):
    x, y, classes, _ = data
    fitted = ensemble.AdaBoostClassifier(n_estimators=6).fit(x, classes)
    found = through_graph(scikit_learn.read_ada_boost(fitted), x)
    rounding = 1e-15 if scikit_learn.votes_by_shares(fitted) else 0.0  # of logarithms
    np.testing.assert_allclose(found, fitted.decision_function(x), rtol=1e-12 if rounding else 0.0, atol=rounding)
    fitted = ensemble.AdaBoostRegressor(n_estimators=6).fit(x, y)
    wanted = np.stack([member.predict(x) for member in fitted.estimators_], axis=1)
    np.testing.assert_array_equal(through_graph(scikit_learn.read_each(fitted), x), wanted)
