"""Transformers of features, beside scikit-learn."""

import numpy as np
import pytest

pytest.importorskip("sklearn")
pd = pytest.importorskip("pandas")

from sklearn import feature_selection, impute, preprocessing  # noqa: E402 - after the check for scikit-learn
from sklearn.compose import make_column_transformer  # noqa: E402
from sklearn.experimental import enable_iterative_imputer  # noqa: E402, F401 - makes IterativeImputer known
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402

from rammer.errors import InputValueError, UnsupportedEstimatorsError  # noqa: E402
from tests.support.estimators import check, compiled  # noqa: E402

pytestmark = [pytest.mark.classical, pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")]

GENERATOR = np.random.default_rng(11)
X = GENERATOR.normal(size=(90, 4)) * [1, 5, 0.1, 1] + [0, 1, 2, 3]
Y = X[:, 0] + 0.2 * X[:, 1] + 0.1 * GENERATOR.normal(size=90)
TIES = np.round(X, 1)
HOLES = np.where(GENERATOR.random(X.shape) < 0.2, np.nan, X)
BEYOND = np.concatenate([X, 3 * X, -X])
COLORS = np.array(["red", "green", "light blue", "grey"])[GENERATOR.integers(0, 4, 90)]
SIZES = GENERATOR.integers(0, 5, 90)
FRAME = pd.DataFrame({"color": COLORS, "size": SIZES, "x": X[:, 0], "gap": HOLES[:, 1]})
FRAME["gap text"] = pd.Series(COLORS, dtype=object).where(GENERATOR.random(90) > 0.2, np.nan)


# Functions of one column.


@pytest.mark.parametrize("function", [np.sqrt, np.log1p, np.abs, np.exp, np.sign, np.log10, np.expm1, None])
def test_functions(function):
    check(preprocessing.FunctionTransformer(function).fit(np.abs(X)), np.abs(X))


def test_functions_are_accurate_near_zero():
    tiny = np.array([[1e-12, -1e-9], [0.0, 1e-5], [700.0, -0.5]])
    for function in (np.log1p, np.expm1):
        check(preprocessing.FunctionTransformer(function).fit(tiny), tiny)


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("method", ["yeo-johnson", "box-cox"])
def test_powers(method, standardize):
    rows = HOLES if method == "yeo-johnson" else np.abs(X) + 0.1
    model = preprocessing.PowerTransformer(method=method, standardize=standardize).fit(rows)
    check(model, rows, tiny=1e-9)
    model.lambdas_[:] = [0.0, 2.0, 1.0, 0.5]
    check(model, rows, tiny=1e-9)


def test_box_cox_refuses_what_is_not_positive():
    net = compiled(preprocessing.PowerTransformer(method="box-cox").fit(np.abs(X) + 0.1))
    with pytest.raises(InputValueError, match="positive"):
        net.transform(np.zeros((1, 4)))


@pytest.mark.parametrize("rows", [X, TIES, HOLES, TIES * [1, 1, 0, 1]], ids=["x", "ties", "holes", "constant"])
@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_quantiles(distribution, rows):
    model = preprocessing.QuantileTransformer(n_quantiles=20, output_distribution=distribution).fit(rows)
    check(model, np.concatenate([rows, 2 * rows, model.quantiles_[:, :4]]), tiny=1e-9)


@pytest.mark.parametrize("encode", ["ordinal", "onehot", "onehot-dense"])
@pytest.mark.parametrize("strategy", ["uniform", "quantile", "kmeans"])
def test_bins(encode, strategy):
    model = preprocessing.KBinsDiscretizer(4, encode=encode, strategy=strategy).fit(TIES)
    edges = np.stack([own[:3] for own in model.bin_edges_], axis=1)
    check(model, np.concatenate([TIES, 2 * TIES, edges]))


def test_bins_in_float32():
    check(preprocessing.KBinsDiscretizer(4, dtype=np.float32).fit(X), X)


@pytest.mark.parametrize("interaction", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_polynomials(interaction, bias):
    check(preprocessing.PolynomialFeatures(3, interaction_only=interaction, include_bias=bias).fit(X), X)
    check(preprocessing.PolynomialFeatures((2, 3), include_bias=bias).fit(X), X)


@pytest.mark.parametrize("extrapolation", ["constant", "linear", "continue", "periodic", "error"])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_splines(extrapolation, degree):
    columns = slice(1 if degree == 1 and extrapolation == "linear" else 4)
    model = preprocessing.SplineTransformer(5, degree=degree, extrapolation=extrapolation, include_bias=degree < 3)
    check(model.fit(X[:, columns]), (X if extrapolation == "error" else BEYOND)[:, columns], tiny=1e-9)


def test_splines_at_quantiles_and_beyond_their_knots():
    model = preprocessing.SplineTransformer(6, knots="quantile", extrapolation="error").fit(X)
    check(model, X, tiny=1e-9)
    with pytest.raises(InputValueError, match="knots"):
        compiled(model).transform(3 * X)


# Missing values.


@pytest.mark.parametrize("strategy", ["mean", "median", "most_frequent", "constant"])
@pytest.mark.parametrize("indicator", [False, True])
def test_simple_imputer(strategy, indicator):
    check(impute.SimpleImputer(strategy=strategy, add_indicator=indicator).fit(HOLES), HOLES)


def test_simple_imputer_of_numbers_that_mean_missing():
    check(impute.SimpleImputer(missing_values=-1).fit(SIZES[:, None] - 1), SIZES[:, None] - 1.0)
    check(impute.SimpleImputer(missing_values=0, strategy="most_frequent").fit(TIES), TIES)


@pytest.mark.parametrize("keep", [False, True])
def test_columns_that_are_missing_altogether(keep):
    rows = HOLES * [1, np.nan, 1, 1]
    check(impute.SimpleImputer(keep_empty_features=keep).fit(rows), rows)
    check(impute.KNNImputer(keep_empty_features=keep).fit(rows), rows)


@pytest.mark.parametrize("features", ["missing-only", "all"])
def test_missing_indicator(features):
    rows = np.concatenate([HOLES[:, :2], X[:, 2:]], axis=1)
    check(impute.MissingIndicator(features=features).fit(rows), rows)
    if features == "missing-only":
        with pytest.raises(InputValueError, match="missing"):
            compiled(impute.MissingIndicator().fit(rows)).transform(HOLES)


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_nearest_neighbours_impute(weights):
    model = impute.KNNImputer(n_neighbors=3, weights=weights, add_indicator=True).fit(HOLES)
    alone = np.array([[np.nan] * 4, [1.0, np.nan, np.nan, np.nan]])
    check(model, np.concatenate([HOLES, alone, HOLES * 1.1]))


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_one_neighbour_gives_its_own_value(weights):
    """Not that value times a weight and divided by it, which rounds: a quantile transform shows the last bit."""
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((400, 3)) < 0.2, np.nan, rng.normal(size=(400, 3)))
    model = impute.KNNImputer(n_neighbors=1, weights=weights).fit(rows[:200])
    found = compiled(model).transform(rows[200:])
    for column in range(3):
        given = np.concatenate([rows[:, column], [np.nanmean(rows[:200, column])]])
        assert np.isin(found[:, column], given).all()


def test_iterative_imputer():
    for options in ({}, {"estimator": LinearRegression(), "imputation_order": "roman", "max_value": 4.0}):
        check(impute.IterativeImputer(max_iter=3, random_state=0, add_indicator=True, **options).fit(HOLES), HOLES)


# Categories.

CATEGORIES = FRAME[["color", "size", "gap text", "gap"]].assign(gap=np.round(HOLES[:, 1] / 5))
UNSEEN = CATEGORIES.assign(color="purple", size=77)


@pytest.mark.parametrize("drop", [None, "first", "if_binary"])
@pytest.mark.parametrize("unknown", ["error", "ignore", "infrequent_if_exist"])
def test_one_hot(drop, unknown):
    model = preprocessing.OneHotEncoder(drop=drop, handle_unknown=unknown).fit(CATEGORIES)
    check(model, CATEGORIES)
    if unknown == "error":
        with pytest.raises(InputValueError, match="unknown category"):
            compiled(model).transform(UNSEEN)
    else:
        check(model, UNSEEN)


@pytest.mark.parametrize("unknown", ["error", "ignore", "infrequent_if_exist"])
@pytest.mark.parametrize("limit", [{"min_frequency": 20}, {"max_categories": 3}])
def test_one_hot_of_infrequent_categories(unknown, limit):
    model = preprocessing.OneHotEncoder(handle_unknown=unknown, **limit).fit(CATEGORIES)
    check(model, CATEGORIES)
    if unknown != "error":
        check(model, UNSEEN)


def test_one_hot_of_one_element_type():
    check(preprocessing.OneHotEncoder(dtype=np.float32).fit(SIZES[:, None]), SIZES[:, None])
    check(preprocessing.OneHotEncoder(sparse_output=False).fit(COLORS[:, None]), COLORS[:, None])
    objects = np.array([["a", 1], ["b", 2], ["a", None], [np.nan, 1]], object)
    check(preprocessing.OneHotEncoder().fit(objects), objects)
    bools = np.array([[True, False], [False, False]])
    check(preprocessing.OneHotEncoder().fit(bools), bools)


def test_ordinal():
    check(preprocessing.OrdinalEncoder().fit(CATEGORIES), CATEGORIES)
    check(preprocessing.OrdinalEncoder(encoded_missing_value=-3, dtype=np.int64).fit(CATEGORIES), CATEGORIES)
    check(preprocessing.OrdinalEncoder(min_frequency=20).fit(CATEGORIES), CATEGORIES)
    lenient = {"handle_unknown": "use_encoded_value", "unknown_value": -1}
    check(preprocessing.OrdinalEncoder(**lenient).fit(CATEGORIES), pd.concat([CATEGORIES, UNSEEN]))
    net = compiled(preprocessing.OrdinalEncoder().fit(CATEGORIES))
    with pytest.raises(InputValueError, match="unknown category"):
        net.transform(UNSEEN)


@pytest.mark.parametrize("target", [Y, (Y > 0).astype(int), COLORS], ids=["continuous", "binary", "multiclass"])
def test_target(target):
    check(preprocessing.TargetEncoder(random_state=0).fit(CATEGORIES, target), pd.concat([CATEGORIES, UNSEEN]))


def test_texts_are_imputed_and_encoded():
    model = make_pipeline(
        make_column_transformer(
            (
                make_pipeline(impute.SimpleImputer(strategy="most_frequent"), preprocessing.OneHotEncoder()),
                ["gap text", "color"],
            ),
            (preprocessing.OrdinalEncoder(), ["color"]),
            (make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler()), ["x", "gap"]),
        ),
        LogisticRegression(),
    ).fit(FRAME, COLORS)
    check(model, FRAME)
    check(model, FRAME, device="cpu")


def test_saved_models_keep_their_texts(tmp_path):
    import rammer

    model = preprocessing.OneHotEncoder(handle_unknown="ignore").fit(CATEGORIES)
    compiled(model, "cpu").save(tmp_path / "model.rammer")
    rows = pd.concat([CATEGORIES, UNSEEN])
    np.testing.assert_array_equal(
        rammer.load(tmp_path / "model.rammer").transform(rows), model.transform(rows).toarray()
    )


def test_a_column_is_text_or_number():
    both = make_column_transformer((preprocessing.OneHotEncoder(), [0]), (preprocessing.StandardScaler(), [0]))
    with pytest.raises(UnsupportedEstimatorsError, match="as texts and as numbers"):
        compiled(both.fit(SIZES[:, None].astype(object)))


# Selection.


@pytest.mark.parametrize(
    "selector",
    [
        feature_selection.SelectKBest(feature_selection.f_regression, k=2),
        feature_selection.SelectPercentile(feature_selection.f_regression, percentile=40),
        feature_selection.SelectFpr(feature_selection.f_regression),
        feature_selection.SelectFdr(feature_selection.f_regression),
        feature_selection.SelectFwe(feature_selection.f_regression),
        feature_selection.GenericUnivariateSelect(feature_selection.f_regression, mode="k_best", param=2),
        feature_selection.SelectFromModel(Lasso(0.1)),
        feature_selection.SequentialFeatureSelector(LinearRegression(), n_features_to_select=2, cv=2),
        feature_selection.RFE(LinearRegression(), n_features_to_select=2),
        feature_selection.RFECV(LinearRegression(), cv=2),
    ],
    ids=lambda selector: type(selector).__name__,
)
def test_selectors(selector):
    check(selector.fit(X, Y), X)


def test_variance_threshold_lets_nan_through():
    check(feature_selection.VarianceThreshold().fit(HOLES * [1, 0, 1, 1]), HOLES)


def test_selection_reaches_the_input():
    model = make_pipeline(
        impute.SimpleImputer(),
        preprocessing.StandardScaler(),
        preprocessing.PolynomialFeatures(2),
        feature_selection.SelectKBest(feature_selection.f_regression, k=2),
        LinearRegression(),
    ).fit(HOLES, Y)
    net = check(model, HOLES)
    made = {step.place.rpartition(".")[2]: (step.computed, step.width) for step in net.form.steps}
    assert made["polynomialfeatures"] == (2, 15)
    assert made["selectkbest"] == (2, 2)
    assert made["simpleimputer"] == made["standardscaler"]
    assert made["simpleimputer"][0] < 4
    assert sum(column.used for column in net.form.columns) == made["simpleimputer"][0]
