"""Estimators made of decision trees, beside what their libraries predict."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

import rammer
from rammer.errors import NotAModelError, OptionError, UnsupportedEstimatorsError
from rammer.frontends.sklearn.node import accepts_nan as takes_nan
from rammer.ir.tree_forms import TreeStrategy
from rammer.runtime.estimator_form import estimator_from_json, estimator_to_json
from tests.support.estimators import check, compiled

ensemble = pytest.importorskip("sklearn.ensemble")
tree = pytest.importorskip("sklearn.tree")
linear_model = pytest.importorskip("sklearn.linear_model")
naive_bayes = pytest.importorskip("sklearn.naive_bayes")
neighbors = pytest.importorskip("sklearn.neighbors")
make_pipeline = pytest.importorskip("sklearn.pipeline").make_pipeline
pytestmark = pytest.mark.classical

FORESTS = ["DecisionTree", "ExtraTree", "RandomForest", "ExtraTrees"]


@pytest.fixture(scope="module")
def data():
    """Rows on a coarse grid with a constant column, the same with NaN, a target and classes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 6)).round(1)
    x[:, 4] = 1.0
    y = x[:, 0] + (x[:, 1] > 0) + rng.normal(size=200) * 0.1
    return x, np.where(rng.random(x.shape) < 0.1, np.nan, x), y, np.array(["a", "b", "c"])[rng.integers(0, 3, 200)]


def made(name, **options):
    home = tree if hasattr(tree, name) else ensemble
    many = {} if home is tree else {"n_estimators": 5}
    return getattr(home, name)(random_state=0, **many, **options)


@pytest.mark.parametrize("name", FORESTS)
def test_forests(name, data):
    x, holes, y, classes = data
    holes = holes if takes_nan(made(f"{name}Regressor")) else x
    check(made(f"{name}Regressor").fit(holes, y), holes)
    check(made(f"{name}Regressor").fit(x, np.stack([y, -y], axis=1)), holes)
    check(made(f"{name}Classifier", max_depth=4).fit(holes, classes), holes)
    check(made(f"{name}Classifier", max_depth=4).fit(x, np.stack([classes, classes == "a"], axis=1)), holes)


@pytest.mark.parametrize("strategy", TreeStrategy)
def test_strategies_by_name(strategy, data):
    """Every one gives what scikit-learn does, with NaN and infinities."""
    x, holes, _, label = data
    model = ensemble.HistGradientBoostingClassifier(max_iter=3, max_depth=4, random_state=0).fit(holes, label)
    net = rammer.compile(model, "cpu", trees=strategy)
    rows = np.concatenate([holes[:7], np.where(x > 1.5, np.inf, x)[:8]])
    np.testing.assert_allclose(net.predict_proba(rows), model.predict_proba(rows), rtol=1e-12)
    operators = net.program_for(len(rows), "predict_proba").report["operators"]
    chosen = [operator["candidates"][operator["chosen"]] for operator in operators]
    assert [one["details"].split(",")[0] for one in chosen if one["skeleton"] == "trees"] == [strategy]


@pytest.mark.parametrize(
    ("strategy", "options", "device", "says"),
    [
        ("quickscorer", {}, "cpu", "trees='quickscorer' for trees of depth 1"),
        ("gemm", {"max_depth": 2}, "reference", "trees='gemm' on reference"),
        ("permutes", {"max_depth": 2}, "cuda:sm_90", "trees='permutes' on cuda"),
    ],
)
def test_strategies_that_do_not_hold_are_refused(strategy, options, device, says, data):
    x, _, y, _ = data
    net = rammer.compile(made("RandomForestRegressor", **options).fit(x, y + x[:, 3] * x[:, 2]), device, trees=strategy)
    with pytest.raises(OptionError, match=says) as caught:
        net.predict(x)
    assert caught.value.hint


def test_numbers_too_large_for_float32_are_refused(data):
    x, _, y, _ = data
    net = rammer.compile(made("RandomForestRegressor").fit(x, y), device="reference")
    huge = x[:3].copy()
    huge[1, 0] = 1e300
    with pytest.raises(rammer.errors.CallError, match="float32"):
        net.predict(huge)


def test_gradient_boosting(data):
    x, _, y, classes = data
    check(made("GradientBoostingRegressor").fit(x, y), x)
    check(made("GradientBoostingClassifier").fit(x, classes), x)
    check(made("GradientBoostingClassifier").fit(x, classes == "a"), x)
    check(made("GradientBoostingClassifier", loss="exponential").fit(x, classes == "a"), x)


@pytest.mark.parametrize("categories", [True, False])
def test_histogram_gradient_boosting(categories, data):
    _, holes, y, classes = data
    rng = np.random.default_rng(1)
    mixed = holes.copy()
    mixed[:, 1], mixed[:, 3] = rng.integers(0, 10, 200) * 7 - 3, rng.integers(0, 40, 200)
    options = {"max_iter": 4, "categorical_features": [1, 3] if categories else None, "random_state": 0}
    rows = mixed.copy()
    rows[:20, 1], rows[20:40, 3], rows[40:60, 0], rows[60:80, 2] = 99, np.nan, np.inf, -np.inf
    for loss in ("squared_error", "poisson"):
        check(ensemble.HistGradientBoostingRegressor(loss=loss, **options).fit(mixed, y - y.min()), rows)
    check(ensemble.HistGradientBoostingClassifier(**options).fit(mixed, classes), rows)
    check(ensemble.HistGradientBoostingClassifier(**options).fit(mixed, mixed[:, 3] > 20), rows)


def test_isolation_forest(data):
    x, *_ = data
    check(made("IsolationForest", max_features=0.6, contamination=0.1).fit(x), x)


def test_ada_boost(data):
    x, _, y, classes = data
    by_trees = [made("AdaBoostClassifier")]
    others = [ensemble.AdaBoostClassifier(naive_bayes.GaussianNB(), n_estimators=4, random_state=0)]
    if "algorithm" in by_trees[0].get_params():  # scikit-learn 1.4 has votes by probabilities, too
        options = {"n_estimators": 4, "random_state": 0, "algorithm": "SAMME"}
        by_trees.append(ensemble.AdaBoostClassifier(**options))
        others.append(ensemble.AdaBoostClassifier(naive_bayes.GaussianNB(), **options))
    for model in (*by_trees, *others):
        check(model.fit(x, classes), x)
        check(model.fit(x, classes == "a"), x)
    check(made("AdaBoostRegressor").fit(x, y), x)
    other = ensemble.AdaBoostRegressor(linear_model.LinearRegression(), n_estimators=5, random_state=0).fit(x, y)
    net = check(other, x)
    with pytest.raises(rammer.errors.InputValueError, match="NaN"):
        net.predict(np.full((1, 6), np.nan))


@pytest.mark.parametrize("options", [{}, {"loss": "exponential"}], ids=["log_loss", "exponential"])
def test_gradient_boosting_begins_with_other_predictions(options, data):
    x, _, y, classes = data
    sure = made("RandomForestClassifier")  # of which many leaves are of one class
    for target in (classes, classes == "a", y > 1)[1 if options else 0 :]:
        model = ensemble.GradientBoostingClassifier(init=sure, n_estimators=3, **options).fit(x, target)
        check(model, np.concatenate([x, x * 3]))
    begun = ensemble.GradientBoostingRegressor(init=made("RandomForestRegressor"), n_estimators=3).fit(x, y)
    check(begun, x)


def test_settings_of_which_some_releases_of_scikit_learn_take_no_nan(data):
    x, holes, y, classes = data
    for model in (
        made("RandomForestRegressor", criterion="absolute_error").fit(x, y),
        made("DecisionTreeClassifier", monotonic_cst=[1, 0, 0, -1, 0, 0], max_depth=4).fit(x, classes == "a"),
        made("ExtraTreesRegressor", monotonic_cst=[1, 0, 0, -1, 0, 0]).fit(x, y),
    ):
        net = check(model, x)
        first = model.estimators_[0] if hasattr(model, "estimators_") else model
        if first._support_missing_values(holes):
            check(model, holes)
        else:
            with pytest.raises(rammer.errors.InputValueError, match="NaN"):
                net.predict(holes)


def test_all_reasons_are_given_at_once(data):
    x, _, y, _ = data
    bad = neighbors.KNeighborsRegressor(metric="canberra", weights=np.exp)
    begun = ensemble.GradientBoostingRegressor(init=bad, n_estimators=1).fit(x, y)
    other = ensemble.AdaBoostRegressor(bad, n_estimators=1).fit(x, y)
    for model, place in ((begun, "init_"), (other, "estimators_.0")):
        with pytest.raises(UnsupportedEstimatorsError, match="canberra") as caught:
            rammer.compile(model)
        assert [where for _, where, _ in caught.value.reasons] == [f"{type(model).__name__}.{place}"] * 2


def test_only_columns_that_trees_look_at_are_read(data):
    x, _, y, _ = data
    net = rammer.compile(tree.DecisionTreeRegressor(max_depth=1).fit(x, y), device="reference")
    assert sum(column.used for column in net.form.columns) == 1


def test_xgboost(data):
    xgboost = pytest.importorskip("xgboost")
    x, holes, y, classes = data
    codes = np.unique(classes, return_inverse=True)[1]
    options = {"n_estimators": 4, "max_depth": 3}
    check(xgboost.XGBRegressor(**options).fit(holes, y), holes)
    check(xgboost.XGBRegressor(**options, objective="count:poisson").fit(holes, y - y.min()), holes, tolerance=3e-6)
    check(xgboost.XGBRegressor(**options, missing=1.0).fit(x, y), holes)
    check(xgboost.XGBRegressor(**options, multi_strategy="multi_output_tree").fit(x, np.stack([y, -y], 1)), x)
    check(xgboost.XGBRFRegressor(**options).fit(x, y), x)
    check(xgboost.XGBClassifier(**options).fit(holes, codes), holes, tolerance=3e-6)
    check(xgboost.XGBClassifier(**options).fit(holes, codes > 0), holes, tolerance=3e-6)
    early = xgboost.XGBClassifier(n_estimators=30, early_stopping_rounds=2, learning_rate=1.0)
    check(early.fit(x[:100], codes[:100], eval_set=[(x[100:], codes[100:])], verbose=False), x, tolerance=3e-6)
    check(xgboost.XGBRegressor(n_estimators=4, booster="gblinear").fit(x, y), x, tolerance=1e-5, tiny=1e-6)


def test_lightgbm(data):
    lightgbm = pytest.importorskip("lightgbm")
    x, holes, y, classes = data
    options = {"n_estimators": 4, "num_leaves": 7, "min_child_samples": 3, "verbose": -1}
    check(lightgbm.LGBMRegressor(**options).fit(holes, y), holes)
    check(lightgbm.LGBMRegressor(**options, linear_tree=True).fit(holes, y), holes)
    check(lightgbm.LGBMRegressor(**options, objective="tweedie").fit(holes, y - y.min()), holes)
    check(lightgbm.LGBMClassifier(**options).fit(holes, classes), holes)
    check(lightgbm.LGBMClassifier(**options).fit(holes, classes == "a"), holes)
    check(lightgbm.LGBMClassifier(**options, boosting_type="rf", subsample=0.5, subsample_freq=1).fit(x, classes), x)


def test_catboost(data):
    catboost = pytest.importorskip("catboost")
    x, holes, y, classes = data
    options = {"iterations": 4, "depth": 3, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
    check(catboost.CatBoostRegressor(**options).fit(holes, y), holes)
    check(catboost.CatBoostRegressor(**options, loss_function="Poisson").fit(holes, y - y.min()), holes)
    check(catboost.CatBoostRegressor(**options, loss_function="MultiRMSE").fit(x, np.stack([y, -y], axis=1)), x)
    check(catboost.CatBoostClassifier(**options).fit(holes, classes), holes)
    check(catboost.CatBoostClassifier(**options).fit(holes, classes == "a"), holes)
    texts = catboost.CatBoostRegressor(**options, cat_features=[0]).fit(
        [[c, v] for c, v in zip(classes, y, strict=True)], y
    )
    with pytest.raises(UnsupportedEstimatorsError, match="categorical features"):
        rammer.compile(texts)


def check_booster(booster, theirs, x, tolerance=3e-6):
    """`predict` of a booster beside what the library gives, on many rows and on one."""
    net = compiled(booster)
    assert [method.name for method in net.form.methods] == ["predict"]
    for rows in (x, x[:1]):
        ours, wanted = net.predict(rows), theirs(rows)
        assert (ours.shape, ours.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(ours, wanted, rtol=tolerance, atol=1e-7)
    return net


def test_boosters_of_xgboost(data, tmp_path):
    xgboost = pytest.importorskip("xgboost")
    x, holes, y, classes = data
    codes = np.unique(classes, return_inverse=True)[1]

    def trained(target, rounds=4, x=holes, types=None, **options):
        matrix = xgboost.DMatrix(x, target, feature_types=types, enable_categorical=types is not None)
        evals = [(xgboost.DMatrix(x[::2], target[::-2]), "other")]
        stop = 2 if rounds > 4 else None
        options = {"max_depth": 3, **options}
        return xgboost.train(options, matrix, rounds, evals=evals, early_stopping_rounds=stop, verbose_eval=False)

    for target, options in (
        (y, {}),
        (y, {"booster": "dart", "rate_drop": 0.5}),
        (codes > 0, {"objective": "binary:logistic"}),
        (codes, {"objective": "multi:softprob", "num_class": 3}),
        (codes, {"objective": "multi:softmax", "num_class": 3}),
        (np.stack([y, -y], axis=1), {"multi_strategy": "multi_output_tree"}),
    ):
        booster = trained(target, **options)
        check_booster(booster, lambda rows, booster=booster: booster.predict(xgboost.DMatrix(rows)), holes)
    early = trained(y, rounds=30, learning_rate=1.0)
    assert early.best_iteration + 1 < early.num_boosted_rounds()
    check_booster(early, lambda rows: early.predict(xgboost.DMatrix(rows)), holes)
    early.save_model(tmp_path / "model.ubj")
    loaded = xgboost.Booster(model_file=tmp_path / "model.ubj")
    check_booster(loaded, lambda rows: early.predict(xgboost.DMatrix(rows)), holes)
    mixed, types = np.column_stack([np.arange(len(x)) % 5, x]), ["c", *"q" * x.shape[1]]
    of_codes = trained(y + mixed[:, 0] % 2, x=mixed, types=types)
    matrix_of = partial(xgboost.DMatrix, feature_types=types, enable_categorical=True)
    check_booster(of_codes, lambda rows: of_codes.predict(matrix_of(rows)), mixed)


def test_boosters_of_lightgbm(data, tmp_path):
    lightgbm = pytest.importorskip("lightgbm")
    _, holes, y, classes = data
    codes = np.unique(classes, return_inverse=True)[1]
    usual = {"num_leaves": 7, "min_data_in_leaf": 3, "verbose": -1}
    for target, options in (
        (y, {}),
        (codes > 0, {"objective": "binary"}),
        (codes, {"objective": "multiclass", "num_class": 3}),
        (y, {"boosting": "rf", "bagging_fraction": 0.5, "bagging_freq": 1}),
    ):
        booster = lightgbm.train(usual | options, lightgbm.Dataset(holes, target), 4)
        check_booster(booster, booster.predict, holes)
        booster.save_model(tmp_path / "model.txt")
        check_booster(lightgbm.Booster(model_file=tmp_path / "model.txt"), booster.predict, holes)


def test_models_of_catboost(data, tmp_path):
    catboost = pytest.importorskip("catboost")
    _, holes, y, classes = data
    usual = {"iterations": 4, "depth": 3, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
    for target, loss in ((y, "RMSE"), (classes == "a", "Logloss"), (classes, "MultiClass"), (y - y.min(), "Poisson")):
        model = catboost.CatBoost(usual | {"loss_function": loss}).fit(holes, target)
        check_booster(model, model.predict, holes)
        model.save_model(str(tmp_path / "model.cbm"))
        check_booster(catboost.CatBoost().load_model(str(tmp_path / "model.cbm")), model.predict, holes)


def test_boosters_find_columns_by_name(data):
    pd = pytest.importorskip("pandas")
    x, _, y, _ = data
    frame = pd.DataFrame(x, columns=[f"c{place}" for place in range(x.shape[1])])
    turned = frame[list(reversed(frame.columns))].assign(more=0.0)
    xgboost, lightgbm, catboost = map(pytest.importorskip, ("xgboost", "lightgbm", "catboost"))
    options = {"iterations": 4, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
    named = lightgbm.Dataset(x, y, feature_name=list(frame.columns))  # LightGBM 4.0 fits no DataFrame with NumPy 2
    models = [
        xgboost.train({}, xgboost.DMatrix(frame, y), 4),
        lightgbm.train({"verbose": -1}, named, 4),
        catboost.CatBoost(options).fit(frame, y),
        catboost.CatBoostRegressor(**options).fit(frame, y),
        make_pipeline(catboost.CatBoostRegressor(**options)).fit(frame, y),
    ]
    nameless = lightgbm.LGBMRegressor(n_estimators=4, verbose=-1).fit(x, y)
    np.testing.assert_allclose(compiled(nameless).predict(frame), nameless.predict(x), rtol=1e-6)
    for model in models:
        given = x if isinstance(model, lightgbm.Booster) else frame
        given = xgboost.DMatrix(frame) if isinstance(model, xgboost.Booster) else given
        net = compiled(model)
        assert [column.name for column in net.form.columns] == list(frame.columns)
        np.testing.assert_allclose(net.predict(turned), model.predict(given), rtol=1e-6)


def test_what_is_no_model_of_a_library(data):
    xgboost = pytest.importorskip("xgboost")
    x, _, y, _ = data
    with pytest.raises(NotAModelError, match="DMatrix"):
        rammer.compile(xgboost.DMatrix(x))
    codes = np.column_stack([np.arange(len(x)) % 5, x])
    like_a_frame = xgboost.DMatrix(
        codes, y, feature_names=[*"abcdefg"], feature_types=["c", *"qqqqqq"], enable_categorical=True
    )
    with pytest.raises(UnsupportedEstimatorsError, match="categories"):
        rammer.compile(xgboost.train({}, like_a_frame, 1))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float32", "object", "U3", "S3"])
def test_labels_of_every_dtype(dtype, data):
    x = data[0]
    names = ["no", "yes"] if dtype in ("object", "U3", "S3") else [0, 1]
    classes = np.array(names, dtype)[(x[:, 0] > 0).astype(int)]
    model = tree.DecisionTreeClassifier(max_depth=2).fit(x, classes)
    net = check(model, x)
    assert net.predict(x).dtype == model.predict(x).dtype
    assert estimator_from_json(json.loads(json.dumps(estimator_to_json(net.form)))) == net.form


def test_labels_that_no_file_has_room_for(data):
    x = data[0]
    model = tree.DecisionTreeClassifier(max_depth=2).fit(x, np.where(x[:, 0] > 0, b"\xff", b"no"))
    with pytest.raises(UnsupportedEstimatorsError, match=r"labels of dtype \|S2"):
        rammer.compile(model, "reference")


def test_probabilities_of_both_classes_by_xgboost(data):
    """Of a class that is all but certain, one bit of the other's probability is much."""
    xgboost = pytest.importorskip("xgboost")
    x, holes, *_ = data
    model = xgboost.XGBClassifier(n_estimators=40, learning_rate=0.5).fit(holes, x[:, 0] > 0)
    likely = model.predict_proba(holes)
    assert likely.min() < 0.02
    np.testing.assert_allclose(rammer.compile(model, "cpu").predict_proba(holes), likely, rtol=1e-6)


def test_numbers_of_classes_by_xgboost(data):
    xgboost = pytest.importorskip("xgboost")
    x, *_, label = data
    model = xgboost.XGBClassifier(n_estimators=3, objective="multi:softmax")
    model.fit(x, np.unique(label, return_inverse=True)[1])
    found = check(model, x).predict(x)
    assert found.dtype == model.predict(x).dtype
