"""Linear algebra of small matrices, against eager PyTorch."""

import itertools

import pytest

torch = pytest.importorskip("torch")

import rammer  # noqa: E402 - after the check for PyTorch
from rammer.errors import UnsupportedFeatureError  # noqa: E402
from tests.support.torch_modules import (  # noqa: E402
    Function,
    Module,
    check,
    check_step,
    generator,
    imported,
    integers,
    kinds,
    normal,
)

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.*is deprecated in favor of:UserWarning")]

linalg = torch.linalg


def square(*shape, dtype=torch.float32):
    return torch.randn(*shape, shape[-1], generator=generator(), dtype=dtype)


def definite(*shape, dtype=torch.float32):
    """Positive definite matrices."""
    a = square(*shape, dtype=dtype)
    return a @ a.mT + torch.eye(shape[-1], dtype=dtype)


SHAPES = [(1,), (2,), (5,), (2, 3, 4), (0,), (2, 0)]
DTYPES = [torch.float32, torch.float64]
TIES = integers(40, 4, 4, low=-1, high=2).float()
"""Many columns have several greatest elements, and many matrices are singular."""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_inverses_and_determinants(shape, dtype):
    a = square(*shape, dtype=dtype)
    tolerance = 1e-4 if dtype is torch.float32 else 1e-12
    check(lambda a: (linalg.inv(a), torch.inverse(a), *linalg.inv_ex(a)), a, tolerance=tolerance)
    check(lambda a: (linalg.det(a), *linalg.slogdet(a), torch.logdet(a)), a, tolerance=tolerance)
    check(lambda a: (linalg.det(a.mT), linalg.matrix_power(a, 3), linalg.matrix_power(a, -2)), a, tolerance=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_systems_of_equations(shape, dtype):
    a, b = square(*shape, dtype=dtype), torch.randn(*shape, 3, generator=generator(), dtype=dtype)
    tolerance = 1e-4 if dtype is torch.float32 else 1e-11

    def solved(a, b):
        vector = b[..., 0]
        result, information = linalg.solve_ex(a, vector)
        return linalg.solve(a, b), linalg.solve(a, b.mT, left=False), result, information, linalg.solve(a, vector)

    def by_factors(a, b):
        lu, pivots = linalg.lu_factor(a)
        both = [linalg.lu_solve(lu, pivots, b, adjoint=adjoint) for adjoint in (False, True)]
        right = [linalg.lu_solve(lu, pivots, b.mT, left=False, adjoint=adjoint) for adjoint in (False, True)]
        return both, right, torch.lu_solve(b, lu, pivots)

    check(solved, a, b, tolerance=tolerance)
    check(by_factors, a, b, tolerance=tolerance)


def test_several_right_sides_for_a_matrix():
    check(linalg.solve, square(4), normal(3, 4, 2), tolerance=1e-4)
    check(linalg.solve, square(3, 1, 4), normal(2, 4, 2), tolerance=1e-4)
    check(lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b), square(4), normal(3, 4, 2), tolerance=1e-4)
    check(linalg.tensorsolve, normal(2, 3, 6), normal(2, 3), tolerance=1e-4)


@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 5), (2, 5, 3), (1, 3), (3, 1), (3, 0), (0, 3)])
def test_factors_of_an_elimination(shape):
    def factors(a):
        lu, pivots, information = linalg.lu_factor_ex(a)
        moves, data = torch.lu_unpack(lu, pivots, unpack_data=False), torch.lu_unpack(lu, pivots, unpack_pivots=False)
        return lu, pivots, information, moves, data, torch.lu_unpack(lu, pivots), linalg.lu(a)

    check(factors, normal(*shape))
    check(factors, normal(*shape).double(), tolerance=1e-12)


def test_the_first_of_equal_pivots_and_pivots_that_are_zero():
    check(lambda a: (*linalg.lu_factor_ex(a), *linalg.lu(a)), TIES)
    check(lambda a: linalg.inv_ex(a)[1], TIES)
    check(lambda a: linalg.solve_ex(a, a[..., 0])[1], TIES)
    check(lambda a: (linalg.det(a), *linalg.slogdet(a)), TIES)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_triangles_of_positive_definite_matrices(shape, dtype):
    a, b = definite(*shape, dtype=dtype), torch.randn(*shape, 2, generator=generator(), dtype=dtype)
    tolerance = 1e-4 if dtype is torch.float32 else 1e-12

    def triangles(a):
        broken = a.tril() + 7 * torch.ones_like(a).triu(1)  # which the lower triangle alone does not show
        return linalg.cholesky(broken), torch.cholesky(a, upper=True), *linalg.cholesky_ex(broken.mT, upper=True)

    def solutions(a, b):
        lower, upper = linalg.cholesky(a), linalg.cholesky(a, upper=True)
        solved = torch.cholesky_solve(b, lower), torch.cholesky_solve(b, upper, upper=True)
        return solved, torch.cholesky_inverse(lower), torch.cholesky_inverse(upper, upper=True)

    check(triangles, a, tolerance=tolerance)
    check(solutions, a, b, tolerance=tolerance)


def test_information_on_matrices_that_are_not_positive_definite():
    a = definite(6, 4).clone()
    for number in range(4):
        a[number, number, number] = -1
    a[4, 2, 2] = torch.nan
    check(lambda a: linalg.cholesky_ex(a).info, a)
    check(lambda a: linalg.cholesky_ex(a, upper=True).info, torch.zeros(1, 3, 3))


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
def test_triangular_systems(upper, transpose):
    def solved(b, a):
        options = [(upper, transpose, unit) for unit in (False, True)]
        return [torch.triangular_solve(b, a, *each) for each in options]

    def tuples(b, a):
        return [tuple(each) for each in solved(b, a)]

    check(tuples, normal(2, 4, 3), definite(4), tolerance=1e-4)
    check(tuples, normal(4, 3), definite(2, 4), tolerance=1e-4)
    check(tuples, normal(1, 3), definite(1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 5), (2, 5, 3), (1, 3), (3, 1), (3, 0), (0, 3), (1, 1)])
def test_orthogonal_factors(shape, dtype):
    a = torch.randn(*shape, generator=generator(), dtype=dtype)

    def factors(a):
        return linalg.qr(a), linalg.qr(a, mode="complete"), linalg.qr(a, mode="r"), torch.qr(a)

    tolerance = 1e-5 if dtype is torch.float32 else 1e-13
    check(lambda a: [tuple(each) for each in factors(a)], a, tolerance=tolerance)
    check(lambda a: [tuple(each) for each in factors(a * 1e-30)], a.triu(), tolerance=tolerance)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3), (1, 1), (3, 0)])
def test_orthogonal_factors_in_the_form_of_reflections(shape):
    a = normal(*shape)
    packed, tau = torch.geqrf(a)
    vectors = packed[..., : tau.shape[-1]].contiguous()
    check(lambda a: tuple(torch.geqrf(a)), a)
    check(linalg.householder_product, vectors, tau)
    for left, transpose in itertools.product((False, True), repeat=2):
        other = normal(*shape[:-2], *((shape[-2], 2) if left else (2, shape[-2])))
        check(lambda *given, how=(left, transpose): torch.ormqr(*given, *how), vectors, tau, other)


@pytest.mark.parametrize("dtype", DTYPES)
def test_exponentials_of_matrices(dtype):
    a = torch.tensor([1e-3, 0.2, 1, 5, 20], dtype=dtype).reshape(-1, 1, 1) * square(5, 4, dtype=dtype)
    turning = a - a.mT
    tolerance = 1e-5 if dtype is torch.float32 else 1e-12
    check(linalg.matrix_exp, a, tolerance=tolerance)
    check(torch.matrix_exp, turning * 5, tolerance=10 * tolerance)
    check(linalg.matrix_exp, square(1, dtype=dtype), tolerance=tolerance)
    check(linalg.matrix_exp, square(2, 0))


def test_results_that_nobody_reads_cost_nothing():
    assert "Equal" not in kinds(linalg.cholesky, definite(3))
    assert kinds(linalg.det, square(2, 6)).count("ArgMax") == 5
    assert "GatherElements" not in kinds(lambda a: linalg.qr(a).R, square(3))


def test_matrices_of_many_rows():
    many = torch.eye(200)
    for function in (linalg.inv, linalg.cholesky, linalg.qr, lambda a: torch.cholesky_solve(a, a)):
        with pytest.raises(UnsupportedFeatureError, match="200 rows"):
            imported(function, many)
    check(lambda a: linalg.qr(a).R, normal(200, 2))
    with pytest.raises(UnsupportedFeatureError, match="without pivoting"):
        imported(lambda a: linalg.lu_factor(a, pivot=False), square(3))


def filtered(state, covariance, measured, observation, noise):
    """The update of a Kalman filter."""
    innovation = observation @ covariance @ observation.mT + noise
    gain = linalg.solve(innovation, observation @ covariance).mT
    state = state + gain @ (measured - observation @ state)
    return state, covariance - gain @ observation @ covariance


def test_a_kalman_filter_on_the_device():
    args = normal(3, 4, 1), definite(3, 4), normal(3, 2, 1), normal(2, 4), definite(2)
    found = rammer.compile(Function(filtered).eval(), "cpu", args=args)(*args)
    for ours, theirs in zip(found, filtered(*args), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_pivots_on_the_device():
    found = rammer.compile(Function(lambda a: tuple(linalg.lu_factor_ex(a))).eval(), "cpu", args=(TIES,))(TIES)
    for ours, theirs in zip(found, linalg.lu_factor_ex(TIES), strict=True):
        torch.testing.assert_close(ours, theirs)


class Weights(Module):
    """A matrix that is learnt."""

    def __init__(self, function):
        super().__init__()
        self.weight = torch.nn.Parameter(square(4) + 2 * torch.eye(4))
        self.function = function

    def forward(self, x):
        return self.function(self.weight, x)


@pytest.mark.parametrize(
    "function",
    [
        linalg.solve,
        lambda w, x: linalg.inv(w) @ x + torch.inverse(w.mT) @ x,
        lambda w, x: linalg.tensorinv(w.reshape(2, 2, 4)).reshape(4, 4) @ x,
        lambda w, x: linalg.matrix_power(w, -2) @ x,
        lambda w, x: linalg.inv_ex(w)[0] @ x,
        lambda w, x: linalg.slogdet(w).logabsdet * x + linalg.det(w.mT),
        lambda w, x: torch.cholesky_solve(x, linalg.cholesky(w @ w.mT + torch.eye(4))),
        lambda w, x: linalg.qr(w)[1] @ x,
        lambda w, x: linalg.householder_product(w, w[:, 0]) @ x,
        lambda w, x: linalg.matrix_exp(w) @ x,
    ],
)
def test_training(function):
    module = Weights(function)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    check_step(lambda module, x: module(x).square().mean(), module, optimizer, normal(4, 2))
