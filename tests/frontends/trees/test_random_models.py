"""A thousand small random models of each library, on rows that are hard for them: raw scores are all equal."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from rammer.frontends.sklearn.node import accepts_nan
from rammer.frontends.trees import catboost, lightgbm, scikit_learn, xgboost
from rammer.frontends.trees.ensemble import TreeEnsemble

sklearn_ensemble = pytest.importorskip("sklearn.ensemble")
pytestmark = [pytest.mark.classical, pytest.mark.long]

MODELS = 1000


class Data:
    """Rows on a grid with a constant column, NaN, and a column of categories; rows to predict are harder."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        count, width = int(rng.integers(20, 80)), int(rng.integers(2, 6))
        self.x = rng.normal(size=(count, width)).round(int(rng.integers(0, 3)))
        self.x[:, 0] = rng.integers(0, 9, count) if rng.random() < 0.5 else 1.0
        self.x[:, -1] = rng.normal(size=count)
        self.y = self.x.sum(axis=1) + rng.normal(size=count)
        self.classes = rng.integers(0, int(rng.integers(2, 4)), count)
        self.classes[:3] = [0, 1, 1]
        self.holes = np.where(rng.random(self.x.shape) < rng.choice([0.0, 0.2]), np.nan, self.x)

    def pick(self, *choices):
        """One of some values."""
        return choices[int(self.rng.integers(len(choices)))]

    def rows(self, source: TreeEnsemble, *, finite: bool = False) -> np.ndarray:
        """The rows, thresholds, their neighbours, and values that are peculiar."""
        known = source.nodes.threshold[np.isfinite(source.nodes.threshold)]
        with np.errstate(over="ignore"):
            pool = [known, np.nextafter(known, -np.inf), np.nextafter(known, np.inf), known.astype(np.float32)]
        odd = [0.0, -0.0, 1e-36, -1e-35, 2.5, -0.5, 99.0, np.nan, *([] if finite else [np.inf, -np.inf])]
        found = self.rng.choice(np.concatenate([*pool, np.array(odd)]), size=(30, self.x.shape[1]))
        return np.concatenate([self.holes, found])


def equal(found, wanted, model) -> None:
    np.testing.assert_array_equal(found, np.reshape(wanted, found.shape), err_msg=str(model))


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_scikit_learn_forests():
    for seed in range(MODELS):
        data = Data(seed)
        name = data.pick("RandomForest", "ExtraTrees")
        kind, method = data.pick(("Regressor", "predict"), ("Classifier", "predict_proba"))
        model = getattr(sklearn_ensemble, f"{name}{kind}")(
            n_estimators=3, max_depth=data.pick(None, 2, 4), random_state=seed
        )
        takes_nan = accepts_nan(model)  # some do since scikit-learn 1.6
        x = data.holes if takes_nan else data.x
        model.fit(x, data.y if kind == "Regressor" else data.classes)
        source = scikit_learn.read_forest(model)
        rows = data.rows(source, finite=True)
        rows = rows if takes_nan else np.nan_to_num(rows)
        equal(source.evaluate(rows), getattr(model, method)(rows), model)


def test_scikit_learn_histograms():
    for seed in range(MODELS):
        data = Data(seed)
        categories, bins = data.pick((None, 5), (None, 255), ([0], 16))
        options = {"max_iter": 3, "min_samples_leaf": 2, "max_bins": bins, "random_state": seed}
        kind = data.pick("Regressor", "Classifier")
        model = getattr(sklearn_ensemble, f"HistGradientBoosting{kind}")(categorical_features=categories, **options)
        model.fit(data.holes, data.y if kind == "Regressor" else data.classes)
        source = scikit_learn.read_hist_gradient_boosting(model, encoded=False)
        rows = data.rows(source, finite=categories is not None)
        equal(source.evaluate(rows), model._raw_predict(rows), model)


def test_xgboost():
    library = pytest.importorskip("xgboost")
    for seed in range(MODELS):
        data = Data(seed)
        options = {
            "max_depth": data.pick(1, 3, 6),
            "booster": data.pick("gbtree", "dart"),
            "tree_method": data.pick("exact", "hist", "approx"),
            "base_score": data.pick(0.5, 0.1),
            "nthread": 1,
            "seed": seed,
        }
        several = data.pick(True, False)
        options |= {"objective": "multi:softprob", "num_class": 3} if several else {}
        types = None
        if options["tree_method"] != "exact" and data.pick(True, False):
            types = ["c", *("q",) * (data.x.shape[1] - 1)]
            options["max_cat_to_onehot"] = data.pick(1, 5)
        made = {"feature_types": types, "enable_categorical": types is not None}
        model = library.train(options, library.DMatrix(data.holes, data.classes if several else data.y, **made), 3)
        source = xgboost.read_booster(model).margin
        assert source is not None
        rows = data.rows(source, finite=True).astype(np.float32)
        wanted = model.predict(library.DMatrix(rows, **made), output_margin=True)
        equal(source.evaluate(rows), wanted, options)


def test_lightgbm():
    library = pytest.importorskip("lightgbm")
    for seed in range(MODELS):
        data = Data(seed)
        options = {
            "num_leaves": data.pick(2, 7, 31),
            "min_data_in_leaf": 1,
            "min_data_per_group": 1,
            "cat_smooth": 1,
            "boosting": data.pick("gbdt", "dart"),
            "zero_as_missing": data.pick(True, False),
            "use_missing": data.pick(True, False),
            "max_cat_to_onehot": data.pick(1, 4),
            "min_data_in_bin": 1,
            "verbose": -1,
            "seed": seed,
            "num_threads": 1,
        }
        categories = [0] if data.pick(True, False) else []
        model = library.train(options, library.Dataset(data.holes, data.y, categorical_feature=categories), 3)
        source = lightgbm.read_booster(model).raw
        rows = data.rows(source)
        equal(source.evaluate(rows), model.predict(rows, raw_score=True), options)


def test_catboost():
    library = pytest.importorskip("catboost")
    for seed in range(MODELS):
        data = Data(seed)
        options = {
            "iterations": 3,
            "depth": data.pick(1, 3),
            "grow_policy": data.pick("SymmetricTree", "Depthwise", "Lossguide"),
            "nan_mode": data.pick("Min", "Max"),
            "verbose": 0,
            "allow_writing_files": False,
            "thread_count": 1,
            "random_seed": seed,
        }
        model = library.CatBoostRegressor(**options).fit(data.holes, data.y)
        source = catboost.read_model(model).raw
        rows = data.rows(source)
        wanted = model.predict(rows, prediction_type="RawFormulaVal")
        np.testing.assert_allclose(source.evaluate(rows)[:, 0], wanted, rtol=1e-12, atol=1e-12, err_msg=str(options))
