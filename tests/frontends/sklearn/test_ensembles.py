"""Estimators that put others together, beside scikit-learn."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.linear_model import LinearRegression, LogisticRegression, Perceptron, Ridge
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import (
    ClassifierChain,
    MultiOutputClassifier,
    MultiOutputRegressor,
    RegressorChain,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import SVC, LinearSVC

from rammer.errors import UnsupportedEstimatorsError
from tests.support.estimators import check, compiled

pytestmark = [pytest.mark.classical, pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")]

GENERATOR = np.random.default_rng(23)
X = GENERATOR.normal(size=(80, 4))
Y = X[:, 0] + 0.2 * X[:, 1] + 0.1 * GENERATOR.normal(size=80)
TWO = np.where(Y > 0.1, "yes", "no")
THREE = np.array(["low", "middle", "very high"])[np.digitize(Y, [-0.3, 0.5])]
LABELS = np.stack([Y > 0, X[:, 0] > 0, X[:, 3] > 0.2], axis=1).astype(int)
TARGETS = np.stack([Y, X[:, 2] - Y], axis=1)
MEMBERS = [("a", LogisticRegression()), ("b", GaussianNB()), ("c", make_pipeline(StandardScaler(), SVC()))]
both = pytest.mark.parametrize("target", [TWO, THREE], ids=["two", "three"])


@both
def test_voting(target):
    check(VotingClassifier(MEMBERS).fit(X, target), X)
    check(VotingClassifier(MEMBERS, weights=[1, 2, 3.5]).fit(X, target), X)
    check(VotingClassifier(MEMBERS[:2], voting="soft", weights=[1, 2]).fit(X, target), X)
    check(VotingClassifier([*MEMBERS[:2], ("d", "drop")], voting="soft", flatten_transform=False).fit(X, target), X)
    regressors = [("a", LinearRegression()), ("b", Ridge(10.0))]
    check(VotingRegressor(regressors, weights=[1, 3]).fit(X, Y), X)


@both
@pytest.mark.parametrize("passthrough", [False, True])
def test_stacking(target, passthrough):
    check(StackingClassifier(MEMBERS, cv=2, passthrough=passthrough).fit(X, target), X)
    members = [("a", LinearSVC()), ("b", Perceptron())]
    check(StackingClassifier(members, LinearSVC(), cv=2, stack_method="predict").fit(X, target), X)
    regressors = [("a", LinearRegression()), ("b", Ridge(10.0)), ("c", "drop")]
    check(StackingRegressor(regressors, cv=2, passthrough=passthrough).fit(X, Y), X)


@both
def test_bagging(target):
    options = {"n_estimators": 4, "max_features": 0.6, "random_state": 0}
    check(BaggingClassifier(LogisticRegression(), **options).fit(X, target), X)
    check(BaggingClassifier(LinearSVC(), bootstrap_features=True, **options).fit(X, target), X)
    check(BaggingRegressor(Ridge(), **options).fit(X, Y), X)


def test_bags_that_lack_a_class():
    rare = np.where(np.arange(80) < 2, "rare", THREE)
    model = BaggingClassifier(KNeighborsClassifier(3), n_estimators=6, max_samples=0.1, random_state=1).fit(X, rare)
    assert any(len(member.classes_) < 4 for member in model.estimators_)
    check(model, X)


def test_logarithms_of_bags_are_added_up_as_such():
    rare = np.where(np.arange(80) < 2, "rare", THREE)
    model = BaggingClassifier(make_pipeline(GaussianNB()), n_estimators=6, max_samples=0.1, random_state=1).fit(X, rare)
    assert any(len(member.classes_) < 4 for member in model.estimators_)
    check(model, np.concatenate([X, 100 * X]), tiny=1e-9)


@both
@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_calibration(target, method):
    check(CalibratedClassifierCV(LinearSVC(), method=method, cv=2).fit(X, target), X)
    check(CalibratedClassifierCV(GaussianNB(), method=method, cv=2, ensemble=False).fit(X, target), X)


def test_several_targets():
    check(MultiOutputRegressor(Ridge()).fit(X, TARGETS), X)
    check(MultiOutputClassifier(LogisticRegression()).fit(X, np.stack([THREE, TWO], axis=1)), X)
    check(RegressorChain(Ridge(), order=[1, 0]).fit(X, TARGETS), X)
    check(ClassifierChain(LogisticRegression(), order=[2, 0, 1]).fit(X, LABELS), X)


@pytest.mark.parametrize("base", [LogisticRegression(), LinearSVC(), GaussianNB()], ids=repr)
def test_one_against_others(base):
    for target in (TWO, THREE):
        check(OneVsOneClassifier(base).fit(X, target), X)
        check(OneVsRestClassifier(base).fit(X, target), X)
    check(OneVsRestClassifier(base).fit(X, LABELS), X)


def test_a_class_that_every_row_has():
    check(OneVsRestClassifier(LogisticRegression()).fit(X, np.stack([LABELS[:, 0], np.ones(80, int)], axis=1)), X)


def test_targets_are_transformed_back():
    positive = np.exp(Y)
    check(TransformedTargetRegressor(Ridge(), func=np.log, inverse_func=np.exp).fit(X, positive), X)
    check(TransformedTargetRegressor(Ridge(), func=np.log1p, inverse_func=np.expm1).fit(X, positive), X)
    for scaler in (StandardScaler(), MinMaxScaler(), RobustScaler(), StandardScaler(with_mean=False)):
        check(TransformedTargetRegressor(Ridge(), transformer=scaler).fit(X, TARGETS), X)
    check(TransformedTargetRegressor(Ridge()).fit(X, Y), X)
    own = {"func": np.log, "inverse_func": lambda y: 2 * np.exp(y), "check_inverse": False}
    model = TransformedTargetRegressor(Ridge(), **own).fit(X, positive)
    with pytest.raises(UnsupportedEstimatorsError, match="of targets"):
        compiled(model)
