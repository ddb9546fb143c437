"""Pipelines, unions, column transformers and searches, beside scikit-learn."""

import numpy as np
import pytest

pytest.importorskip("sklearn")
pd = pytest.importorskip("pandas")

from sklearn.compose import ColumnTransformer, make_column_transformer  # noqa: E402 - after the check
from sklearn.linear_model import LinearRegression, LogisticRegression  # noqa: E402
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV  # noqa: E402
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline  # noqa: E402
from sklearn.preprocessing import (  # noqa: E402
    Binarizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    RobustScaler,
    StandardScaler,
)

import rammer  # noqa: E402
from rammer.errors import (  # noqa: E402
    InputNameError,
    InputShapeError,
    InputTypeError,
    InputValueError,
    MethodError,
    NotFittedError,
    UnsupportedEstimatorsError,
)
from tests.support.copies import COPIES  # noqa: E402
from tests.support.estimators import check, compiled  # noqa: E402

pytestmark = pytest.mark.classical

GENERATOR = np.random.default_rng(5)
X = GENERATOR.normal(size=(80, 5)) * [1, 5, 0.1, 1, 1] + [0, 1, 2, 3, 4]
Y = (X[:, 0] + 0.2 * X[:, 1] > 0.3).astype(int)
HOLES = np.where(GENERATOR.random(X.shape) < 0.2, np.nan, X)
SCALERS = [
    StandardScaler(),
    RobustScaler(),
    MaxAbsScaler(),
    MinMaxScaler((-1, 2), clip=True),
    StandardScaler(with_mean=False),
]


@pytest.mark.parametrize(
    "scaler", [*SCALERS, StandardScaler(with_std=False), RobustScaler(unit_variance=True)], ids=repr
)
def test_scalers_let_nan_through(scaler):
    check(scaler.fit(HOLES), np.concatenate([HOLES, 3 * HOLES]))


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_rows_are_normalised(norm):
    tiny = X[:40] * np.geomspace(1e-18, 1e-13, 40)[:, None]  # of which scikit-learn leaves the first as they are
    check(Normalizer(norm=norm).fit(X), np.concatenate([X, tiny, np.zeros((1, 5))]), tiny=1e-30)


def test_binarizer_at_its_threshold():
    check(Binarizer(threshold=2.0).fit(X), np.round(X))


def test_pipelines():
    check(make_pipeline(StandardScaler(), MinMaxScaler(), LogisticRegression()).fit(X, Y), X)
    check(Pipeline([("no", "passthrough"), ("scale", RobustScaler())]).fit(X), X)
    check(Pipeline([("scale", RobustScaler()), ("no", "passthrough")]).fit(X), X)


def test_unions():
    parts = [("a", StandardScaler()), ("b", "passthrough"), ("c", "drop"), ("d", Normalizer())]
    check(FeatureUnion(parts, transformer_weights={"a": 2.0}).fit(X), X)


@pytest.mark.parametrize("remainder", ["drop", "passthrough", MinMaxScaler()], ids=repr)
def test_column_transformers(remainder):
    parts = [
        ("a", StandardScaler(), [3, 1]),
        ("b", "passthrough", [1]),
        ("c", "drop", [0]),
        ("none", RobustScaler(), []),
    ]
    check(ColumnTransformer(parts, remainder=remainder, transformer_weights={"a": 3.0}).fit(X), X)


def test_columns_by_name():
    frame = pd.DataFrame(X, columns=list("abcde"))
    model = make_pipeline(
        make_column_transformer((StandardScaler(), ["d", "a"]), remainder="drop"), LogisticRegression()
    ).fit(frame, Y)
    net = check(model, frame)
    mixed = frame[["e", "d", "c", "a"]].assign(more="text")
    np.testing.assert_array_equal(net.predict(mixed), model.predict(frame))
    with pytest.raises(InputNameError, match="a"):
        net.predict(frame[["d"]])


def test_searches_stand_for_their_best():
    grid = {"logisticregression__C": [0.1, 1.0]}
    check(GridSearchCV(make_pipeline(StandardScaler(), LogisticRegression()), grid, cv=2).fit(X, Y), X)
    check(RandomizedSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, n_iter=2, cv=2).fit(X, Y), X)


def test_more_rows_than_a_program_has():
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y)
    check(model, np.tile(X, (30, 1)), device="cpu")


def test_saved_models(tmp_path):
    texts = np.array(["no", "certainly"])[Y]
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, texts)
    compiled(model, "cpu").save(tmp_path / "model.rammer")
    net = rammer.load(tmp_path / "model.rammer")
    assert net.predict(X).dtype == texts.dtype
    np.testing.assert_array_equal(net.predict(X), model.predict(X))


@pytest.mark.parametrize("again", COPIES.values(), ids=COPIES)
def test_copies_and_another_number_of_units(again):
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y)
    net = compiled(model, "cpu")
    twin = again(net)
    assert twin.form == net.form
    placed = rammer.load(twin.to_bytes(), veus=3)
    for other in (twin, placed):
        np.testing.assert_array_equal(other.predict_proba(X), net.predict_proba(X))


def test_refused_rows():
    net = compiled(make_pipeline(StandardScaler(), LinearRegression()).fit(X, Y))
    for bad in (np.nan, np.inf, -np.inf):
        rows = X.copy()
        rows[7, 2] = bad
        with pytest.raises(InputValueError, match="row 7"):
            net.predict(rows)
    with pytest.raises(InputValueError, match="infinity"):
        compiled(StandardScaler().fit(X)).transform(np.where(X > 2, np.inf, X))


def test_wrong_calls():
    net = compiled(LinearRegression().fit(X, Y))
    with pytest.raises(InputShapeError):
        net.predict(X[:, :3])
    with pytest.raises(InputShapeError):
        net.predict(X[0])
    with pytest.raises(InputTypeError):
        net.predict(np.full((3, 5), "text"))
    with pytest.raises(MethodError, match="predict"):
        net.predict_proba(X)


def test_all_that_cannot_be_converted_is_listed():
    from sklearn.manifold import Isomap
    from sklearn.neural_network import BernoulliRBM

    model = make_pipeline(FeatureUnion([("i", Isomap()), ("s", BernoulliRBM(2))]), LogisticRegression()).fit(X + 2, Y)
    with pytest.raises(UnsupportedEstimatorsError) as caught:
        compiled(model)
    assert [place for _, place, _ in caught.value.reasons] == [
        "Pipeline.featureunion.i",
        "Pipeline.featureunion.s",
    ]


def test_estimators_have_to_be_fitted():
    with pytest.raises(NotFittedError):
        compiled(make_pipeline(StandardScaler(), LogisticRegression()))


def test_columns_that_nothing_reads_are_not_computed():
    weights = LogisticRegression(C=0.02, l1_ratio=1.0, penalty="l1", solver="liblinear")
    model = make_pipeline(StandardScaler(), weights).fit(X, Y)
    zeros = int((model[-1].coef_ == 0).sum())
    assert zeros
    (step,) = check(model, X).form.steps
    assert (step.place, step.width, step.computed) == ("Pipeline.standardscaler", 5, 5 - zeros)
