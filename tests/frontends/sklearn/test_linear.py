"""Linear models, beside scikit-learn."""

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn")
linear_model = pytest.importorskip("sklearn.linear_model")

from sklearn import svm  # noqa: E402 - after the check for scikit-learn

from tests.support.estimators import check  # noqa: E402

pytestmark = [pytest.mark.classical, pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")]

GENERATOR = np.random.default_rng(3)
X = GENERATOR.normal(size=(90, 6)) * [1, 10, 0.1, 1, 1, 0] + [0, 3, 0, 0, 0, 2]
NOISE = GENERATOR.normal(size=90)
Y = X @ [1.0, 0.2, -3, 0, 0.5, 0] + 0.1 * NOISE
TWO = (np.median(Y) < Y).astype(int)
THREE = np.array(["low", "middle", "very high"])[np.digitize(Y + NOISE, np.quantile(Y, [0.4, 0.7]))]
TARGETS = np.stack([Y, -2 * Y + NOISE], axis=1)

REGRESSORS = (
    *("ARDRegression", "BayesianRidge", "ElasticNet", "ElasticNetCV", "HuberRegressor", "Lars", "LarsCV", "Lasso"),
    *("LassoCV", "LassoLars", "LassoLarsCV", "LassoLarsIC", "LinearRegression", "OrthogonalMatchingPursuit", "Ridge"),
    *("OrthogonalMatchingPursuitCV", "PassiveAggressiveRegressor", "QuantileRegressor", "RidgeCV", "SGDRegressor"),
    *("TheilSenRegressor", "RANSACRegressor"),
)
SEVERAL = ("LinearRegression", "Ridge", "RidgeCV", "Lasso", "ElasticNet", "OrthogonalMatchingPursuit")
OF_TASKS = ("MultiTaskElasticNet", "MultiTaskElasticNetCV", "MultiTaskLasso", "MultiTaskLassoCV")


def made(name, **options):
    return getattr(linear_model, name)(**options)


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors(name):
    check(made(name).fit(X, Y), X)


@pytest.mark.parametrize("name", ["LinearRegression", "Ridge", "Lasso", "SGDRegressor"])
def test_regressors_without_intercept(name):
    check(made(name, fit_intercept=False).fit(X, Y), X)


@pytest.mark.parametrize("name", [*SEVERAL, *OF_TASKS])
def test_regressors_of_several_targets(name):
    check(made(name).fit(X, TARGETS), X)


def test_regressors_of_a_column():
    for name in ("LinearRegression", "Ridge", "Lasso"):
        check(made(name).fit(X, Y[:, None]), X)


@pytest.mark.parametrize(("power", "link"), [(0, "auto"), (1, "auto"), (1.5, "log"), (2, "auto"), (3, "log")])
def test_generalised_linear_models(power, link):
    check(made("TweedieRegressor", power=power, link=link).fit(X, np.exp(0.1 * Y)), X)


def test_poisson_and_gamma():
    check(made("PoissonRegressor").fit(X, np.exp(0.1 * Y)), X)
    check(made("GammaRegressor").fit(X, np.exp(0.1 * Y)), X)


@pytest.mark.parametrize("target", [TWO, THREE, TWO.astype(bool), TWO * 2.0], ids=["two", "texts", "bools", "floats"])
@pytest.mark.parametrize("name", ["LogisticRegression", "SGDClassifier", "RidgeClassifier", "Perceptron"])
def test_classifiers(name, target):
    check(made(name).fit(X, target), X)


@pytest.mark.parametrize("name", ["LogisticRegressionCV", "PassiveAggressiveClassifier", "RidgeClassifierCV"])
def test_other_classifiers(name):
    check(made(name).fit(X, THREE), X)


@pytest.mark.parametrize("loss", ["hinge", "log_loss", "modified_huber", "squared_hinge", "perceptron"])
@pytest.mark.parametrize("target", [TWO, THREE], ids=["two", "three"])
def test_losses_of_sgd(loss, target):
    # Where all classes have the probability 0, scikit-learn gave NaN before it gave equal shares.
    far = 1 if sklearn.__version__ < "1.6" else 100
    check(made("SGDClassifier", loss=loss, random_state=0).fit(X, target), np.concatenate([X, X * far, X / 1e6]))


def test_logistic_regression_of_one_solver_against_the_rest():
    check(made("LogisticRegression", solver="liblinear").fit(X, TWO), X)
    check(made("LogisticRegression", l1_ratio=1.0, penalty="l1", solver="saga", C=0.1).fit(X, THREE), X)


def test_support_vector_machines_that_are_linear():
    check(svm.LinearSVC().fit(X, THREE), X)
    check(svm.LinearSVC().fit(X, TWO), X)
    check(svm.LinearSVR().fit(X, Y), X)
    check(made("SGDOneClassSVM", random_state=0).fit(X), X)


def test_several_labels_of_ridges():
    targets = np.stack([TWO, THREE == "low", Y > 3], axis=1).astype(int)
    check(made("RidgeClassifier").fit(X, targets), X)


def test_weights_of_zero_are_not_read():
    net = check(made("Lasso", alpha=0.5).fit(X, Y), X)
    weights = made("Lasso", alpha=0.5).fit(X, Y).coef_
    assert [column.used for column in net.form.columns] == [bool(weight) for weight in weights]
    check(made("Lasso", alpha=1e6).fit(X, Y), X)


def test_on_the_processor():
    check(made("LogisticRegression").fit(X, THREE), X, device="cpu")
    check(made("TweedieRegressor", power=1).fit(X, np.exp(0.1 * Y)), X, device="cpu")
