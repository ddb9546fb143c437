"""Models beyond the linear ones, beside scikit-learn."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn import (
    cluster,
    cross_decomposition,
    decomposition,
    discriminant_analysis,
    dummy,
    isotonic,
    kernel_approximation,
    kernel_ridge,
    mixture,
    naive_bayes,
    neighbors,
    neural_network,
    random_projection,
    svm,
)

from rammer.errors import InputValueError, MethodError, UnsupportedEstimatorsError
from rammer.frontends.builder import FoldingBuilder
from rammer.frontends.node import ModelNode
from rammer.frontends.sklearn.converters import svm as of_libsvm
from rammer.frontends.sklearn.tensor import Tensor
from rammer.ir.evaluate import evaluate_graph
from rammer.ir.graph import SourceLocation
from rammer.ir.types import DType, TensorType
from tests.support.estimators import check, compiled

pytestmark = [pytest.mark.classical, pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")]

GENERATOR = np.random.default_rng(17)
X = GENERATOR.normal(size=(80, 4)) * [1, 5, 0.1, 1] + [0, 1, 2, 3]
Y = X[:, 0] + 0.2 * X[:, 1] + 0.1 * GENERATOR.normal(size=80)
TWO = (Y > 0.3).astype(int)
THREE = np.array(["low", "middle", "very high"])[np.digitize(Y, [-0.3, 0.8])]
LABELS = np.stack([TWO, X[:, 0] > 0, X[:, 3] > 3], axis=1).astype(int)
COUNTS = GENERATOR.integers(0, 4, (80, 5))
GRID = np.stack(np.meshgrid(np.arange(6.0), np.arange(6.0)), axis=-1).reshape(-1, 2)
ROWS = np.concatenate([X, X + 0.3, X * 2])


def coupled(pairs):
    """What the converter makes of the probabilities of pairs."""
    builder, place = FoldingBuilder("pairs"), SourceLocation(model="pairs", node="pairs", op_type="SVC")
    x = builder.input("x", TensorType(DType.FLOAT64, pairs.shape))
    found = of_libsvm._coupled(Tensor(ModelNode(location=place, builder=builder), x))
    return evaluate_graph(builder.finish([("y", found.operand)], place), [pairs])[0]


# Naive Bayes.


@pytest.mark.parametrize("target", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("name", ["BernoulliNB", "CategoricalNB", "ComplementNB", "GaussianNB", "MultinomialNB"])
def test_naive_bayes(name, target):
    check(getattr(naive_bayes, name)().fit(COUNTS, target), COUNTS)


def test_options_of_naive_bayes():
    check(naive_bayes.BernoulliNB(binarize=1.5, fit_prior=False).fit(COUNTS, THREE), COUNTS)
    check(naive_bayes.BernoulliNB(binarize=None).fit(COUNTS > 1, THREE), (COUNTS > 1).astype(float))
    check(naive_bayes.ComplementNB(norm=True).fit(COUNTS, THREE), COUNTS)
    check(naive_bayes.GaussianNB(priors=[0.2, 0.5, 0.3]).fit(X, THREE), ROWS)
    model = naive_bayes.CategoricalNB().fit(COUNTS, THREE)
    with pytest.raises(InputValueError, match="category"):
        compiled(model).predict(COUNTS + 9)


# Neighbours.

METRICS = ["euclidean", "manhattan", "chebyshev", "cosine"]


@pytest.mark.parametrize("weights", ["uniform", "distance"])
@pytest.mark.parametrize("metric", METRICS)
def test_nearest_neighbours(metric, weights):
    options = {"n_neighbors": 4, "metric": metric, "weights": weights, "algorithm": "brute"}
    rows = X + 0.3 if weights == "distance" else ROWS
    # scikit-learn 1.4 fails for labels that are texts with two of the metrics.
    check(neighbors.KNeighborsClassifier(**options).fit(X, np.unique(THREE, return_inverse=True)[1]), rows)
    check(neighbors.KNeighborsRegressor(**options).fit(X, Y), rows)


def test_nearest_neighbours_of_powers():
    check(neighbors.KNeighborsRegressor(p=3).fit(X, Y), ROWS)
    check(neighbors.KNeighborsRegressor(p=1, weights="distance").fit(X, np.stack([Y, -Y], axis=1)), ROWS)


def test_a_row_at_a_fitted_point():
    for model in (
        neighbors.KNeighborsClassifier(3, weights="distance"),
        neighbors.KNeighborsRegressor(3, weights="distance"),
    ):
        check(model.fit(GRID, (GRID.sum(1) > 5).astype(int)), GRID)


def test_equal_distances_take_the_first():
    points, target = np.repeat(GRID, 2, axis=0), np.tile([0, 1], len(GRID))
    net = compiled(neighbors.KNeighborsClassifier(1).fit(points, target))
    np.testing.assert_array_equal(net.predict(GRID + 0.25), 0)
    net = compiled(neighbors.KNeighborsRegressor(3).fit(points, np.arange(len(points)) / 1.0))
    np.testing.assert_array_equal(net.predict(GRID[:1]), [(0 + 1 + 2) / 3])


def test_neighbours_of_several_targets():
    targets = np.stack([THREE, np.where(TWO, "yes", "no")], axis=1)
    check(neighbors.KNeighborsClassifier(3).fit(X, targets), X)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_nearest_centroid(metric):
    check(neighbors.NearestCentroid(metric=metric).fit(X, THREE), ROWS)
    check(neighbors.NearestCentroid(metric=metric, shrink_threshold=0.2).fit(X, TWO), ROWS)


def test_nearest_centroid_with_priors():
    if not hasattr(neighbors.NearestCentroid, "predict_proba"):
        pytest.skip("before scikit-learn 1.6")
    check(neighbors.NearestCentroid(priors="empirical").fit(X, THREE), ROWS)
    check(neighbors.NearestCentroid(priors="empirical").fit(X, TWO), ROWS)


def test_density():
    check(neighbors.KernelDensity(bandwidth=0.7).fit(X), ROWS)
    check(neighbors.KernelDensity().fit(X, sample_weight=np.abs(Y) + 0.1), X)


def test_what_neighbours_refuse():
    model = neighbors.KNeighborsRegressor(weights=np.exp, metric="canberra").fit(X, Y)
    with pytest.raises(UnsupportedEstimatorsError) as caught:
        compiled(model)
    assert len(caught.value.reasons) == 2


# Support vector machines.


@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "sigmoid"])
def test_kernels(kernel):
    options = {"kernel": kernel, "coef0": 0.5}
    check(svm.SVC(**options).fit(X, THREE), ROWS, tiny=1e-9)
    check(svm.SVC(**options).fit(X, TWO), ROWS, tiny=1e-9)
    check(svm.SVR(**options).fit(X, Y), ROWS, tiny=1e-9)
    check(svm.OneClassSVM(**options).fit(X), ROWS, tiny=1e-9)


def test_options_of_support_vector_machines():
    check(svm.NuSVC(nu=0.2, decision_function_shape="ovo").fit(X, THREE), ROWS, tiny=1e-9)
    check(svm.SVC(break_ties=True, gamma="auto").fit(X, THREE), ROWS, tiny=1e-9)
    check(svm.NuSVR(gamma=0.3, degree=2, kernel="poly").fit(X, Y), ROWS, tiny=1e-9)
    check(svm.SVC(kernel="precomputed").fit(X @ X.T, THREE), ROWS @ X.T, tiny=1e-9)
    check(svm.SVC(class_weight="balanced").fit(X[:, :2], np.arange(80) % 5), X[:, :2], tiny=1e-9)


@pytest.mark.parametrize("target", [TWO, THREE, np.arange(80) % 7], ids=["two", "three", "seven"])
def test_probabilities_that_libsvm_couples(target):
    check(svm.SVC(probability=True, random_state=0).fit(X, target), ROWS, tiny=1e-9)
    options = {"probability": True, "random_state": 0, "nu": 0.1, "decision_function_shape": "ovo"}
    check(svm.NuSVC(**options).fit(X, target), ROWS, tiny=1e-9)
    net = compiled(svm.SVC().fit(X, target))
    with pytest.raises(MethodError, match="predict_proba"):
        net.predict_proba(X)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_six_rounds_couple_all_pairs(count):
    """Pairs of every certainty that libsvm tells apart."""
    certainties = [1e-7, 1e-3, 0.1, 0.5, 0.9, 1 - 1e-3, 1 - 1e-7]
    first, second = np.triu_indices(count, 1)
    wins = np.stack(np.meshgrid(*[certainties] * min(len(first), 4)), axis=-1).reshape(-1, min(len(first), 4))
    wins = np.concatenate([wins, wins], axis=1)[:, : len(first)]
    pairs = np.zeros((len(wins), count, count))
    pairs[:, first, second], pairs[:, second, first] = wins, 1 - wins
    likely = coupled(pairs)
    np.testing.assert_allclose(likely.sum(axis=1), 1.0)


# Networks.


@pytest.mark.parametrize("activation", ["identity", "logistic", "tanh", "relu"])
def test_networks(activation):
    options = {"hidden_layer_sizes": (7, 5), "activation": activation, "max_iter": 30, "random_state": 0}
    check(neural_network.MLPClassifier(**options).fit(X, THREE), ROWS)
    check(neural_network.MLPRegressor(**options).fit(X, Y), ROWS)


def test_targets_of_networks():
    options = {"hidden_layer_sizes": (5,), "max_iter": 30, "random_state": 0}
    check(neural_network.MLPClassifier(**options).fit(X, TWO), ROWS)
    check(neural_network.MLPClassifier(**options).fit(X, LABELS), ROWS)
    check(neural_network.MLPRegressor(**options).fit(X, np.stack([Y, -Y], axis=1)), ROWS)


# Mixtures and discriminants.


@pytest.mark.parametrize("covariance", ["full", "tied", "diag", "spherical"])
def test_mixtures(covariance):
    options = {"n_components": 3, "covariance_type": covariance, "random_state": 0}
    check(mixture.GaussianMixture(**options).fit(X), ROWS, tolerance=1e-6, tiny=1e-9)
    check(mixture.BayesianGaussianMixture(**options, max_iter=30).fit(X), ROWS, tiny=1e-9)


def test_weights_of_bayesian_mixtures():
    prior = {"weight_concentration_prior_type": "dirichlet_distribution"}
    check(mixture.BayesianGaussianMixture(n_components=2, random_state=0, **prior).fit(X), ROWS, tiny=1e-9)


@pytest.mark.parametrize("target", [TWO, THREE], ids=["two", "three"])
def test_discriminants(target):
    for solver in ("svd", "eigen", "lsqr"):
        model = discriminant_analysis.LinearDiscriminantAnalysis(solver=solver).fit(X, target)
        check(model, ROWS, tiny=1e-9)
    check(discriminant_analysis.QuadraticDiscriminantAnalysis(reg_param=0.1).fit(X, target), ROWS, tiny=1e-9)


@pytest.mark.parametrize("target", [TWO, THREE], ids=["two", "three"])
def test_logarithms_of_probabilities_too_small_for_numbers(target):
    far = np.concatenate([ROWS, 100 * X])
    check(discriminant_analysis.LinearDiscriminantAnalysis().fit(X, target), far, tiny=1e-9)
    check(discriminant_analysis.QuadraticDiscriminantAnalysis(reg_param=0.1).fit(X, target), far, tiny=1e-9)
    check(naive_bayes.GaussianNB().fit(X, target), far, tiny=1e-9)


# Clusters.


@pytest.mark.parametrize("rows", [X, GRID], ids=["x", "grid"])
def test_clusters(rows):
    more = np.concatenate([rows, rows * 1.5 + 0.1])
    options = {"n_clusters": 3, "n_init": 1, "random_state": 0}
    check(cluster.KMeans(**options).fit(rows), more, tiny=1e-6)
    check(cluster.MiniBatchKMeans(**options).fit(rows), more, tiny=1e-6)
    check(cluster.BisectingKMeans(4, random_state=0).fit(rows), more, tiny=1e-6)
    check(cluster.MeanShift().fit(rows), more)
    check(cluster.Birch(n_clusters=3).fit(rows), more, tiny=1e-6)
    check(cluster.AffinityPropagation(random_state=0).fit(rows[:30]), more)


# Projections.


@pytest.mark.parametrize(
    "model",
    [
        decomposition.PCA(2),
        decomposition.PCA(3, whiten=True),
        decomposition.IncrementalPCA(2, whiten=True),
        decomposition.FastICA(2, random_state=0),
        decomposition.FastICA(whiten=False, random_state=0, max_iter=20),
        decomposition.TruncatedSVD(2),
        decomposition.FactorAnalysis(2),
        decomposition.KernelPCA(2),
        decomposition.KernelPCA(3, kernel="rbf", gamma=0.2),
        decomposition.KernelPCA(2, kernel="cosine"),
        decomposition.KernelPCA(2, kernel="poly", gamma=0.1),
        random_projection.GaussianRandomProjection(3, random_state=0),
        random_projection.SparseRandomProjection(3, random_state=0),
        kernel_approximation.Nystroem(n_components=10, random_state=0),
        kernel_approximation.RBFSampler(n_components=10, random_state=0),
        cluster.FeatureAgglomeration(2),
    ],
    ids=repr,
)
def test_projections(model):
    check(model.fit(X), ROWS, tiny=1e-9)


def test_projections_that_are_fitted_with_targets():
    check(neighbors.NeighborhoodComponentsAnalysis(2, max_iter=5).fit(X, THREE), ROWS, tiny=1e-9)
    for name in ("PLSRegression", "PLSCanonical", "CCA"):
        model = getattr(cross_decomposition, name)(2).fit(X, np.stack([Y, X[:, 1] - Y], axis=1))
        check(model, ROWS, tiny=1e-9)
    check(cross_decomposition.PLSRegression(2, scale=False).fit(X, Y), ROWS, tiny=1e-9)


def test_components_of_a_singular_covariance_have_no_likelihood():
    x = np.random.default_rng(0).normal(size=(30, 3))
    x[:, 2] = 1.0
    model = decomposition.PCA(2).fit(x)
    with pytest.raises(np.linalg.LinAlgError):
        model.score_samples(x)
    net = check(model, x)
    assert [method.name for method in net.form.methods] == ["transform"]


def test_nothing_is_likely_by_a_precision_that_no_covariance_has():
    """A column whose variance is lost in rounding: the precision's determinant may come out negative."""
    x = np.random.default_rng(0).normal(size=(30, 3))
    model = decomposition.PCA(2).fit(x)
    model.get_precision = lambda: np.diag([1.0, -1e-9, 1.0])
    assert np.isneginf(model.score_samples(x)).all()
    check(model, x)


def test_kernel_pca_refuses_other_kernels():
    with pytest.raises(UnsupportedEstimatorsError, match="kernel"):
        compiled(decomposition.KernelPCA(2, kernel=lambda a, b: a @ b).fit(X))


# Others.


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly", "laplacian", "sigmoid"])
def test_kernel_ridge(kernel):
    check(kernel_ridge.KernelRidge(kernel=kernel, gamma=0.1).fit(X, Y), ROWS, tiny=1e-9)
    check(kernel_ridge.KernelRidge(kernel=kernel).fit(X, np.stack([Y, -Y], axis=1)), ROWS, tiny=1e-9)


@pytest.mark.parametrize("beyond", ["nan", "clip", "raise"])
def test_isotonic_regression(beyond):
    model = isotonic.IsotonicRegression(out_of_bounds=beyond).fit(X[:, :1], Y)
    check(model, X[:, :1] if beyond == "raise" else ROWS[:, :1])
    if beyond == "raise":
        with pytest.raises(InputValueError, match="outside"):
            compiled(model).predict([[99.0]])


@pytest.mark.skipif(not hasattr(dummy.DummyRegressor().fit(X, Y), "n_features_in_"), reason="the width is unknown")
def test_dummies():
    for strategy in ("prior", "most_frequent"):
        check(dummy.DummyClassifier(strategy=strategy).fit(X, THREE), X)
    check(dummy.DummyClassifier(strategy="constant", constant="low").fit(X, THREE), X)
    for strategy in ("mean", "median"):
        check(dummy.DummyRegressor(strategy=strategy).fit(X, Y), X)
    with pytest.raises(UnsupportedEstimatorsError, match="random"):
        compiled(dummy.DummyClassifier(strategy="uniform").fit(X, THREE))


def test_on_the_processor():
    check(svm.SVC().fit(X, THREE), ROWS, tiny=1e-9, device="cpu")
    check(neighbors.KNeighborsClassifier(3, weights="distance").fit(X, THREE), X + 0.1, device="cpu")
    check(mixture.GaussianMixture(2, random_state=0).fit(X), ROWS, tiny=1e-9, device="cpu")
