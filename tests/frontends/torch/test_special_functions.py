"""Special functions, and functions of the representation of numbers, against eager PyTorch."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rammer.errors import UnsupportedFeatureError  # noqa: E402 - after the check for PyTorch
from rammer.frontends.torch.types import array_of  # noqa: E402
from rammer.ir.evaluate import evaluate_graph  # noqa: E402
from tests.support.torch_modules import Module, check, check_step, imported, integers, normal  # noqa: E402

pytestmark = pytest.mark.torch

INF, NAN = math.inf, math.nan
EDGES = torch.tensor([0.0, -0.0, INF, -INF, NAN, 1.0, 2.0])
PLACES = torch.cat([torch.linspace(-12, 12, 401), torch.logspace(-20, 20, 81)])
"""Small, common and great numbers, some of them whole."""

FUNCTIONS = {
    "digamma": torch.digamma,
    "erfc": torch.erfc,
    "erfcx": torch.special.erfcx,
    "i0": torch.i0,
    "i0e": torch.special.i0e,
    "i1": torch.special.i1,
    "i1e": torch.special.i1e,
    "lgamma": torch.lgamma,
    "log_ndtr": torch.special.log_ndtr,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    _check_relatively(FUNCTIONS[name], PLACES, 5e-6)
    _check_relatively(FUNCTIONS[name], PLACES.double(), 2e-13)
    check(FUNCTIONS[name], EDGES)
    check(FUNCTIONS[name], EDGES.double())
    check(FUNCTIONS[name], integers(20, low=1))


@pytest.mark.parametrize("kind", ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "spherical_bessel_j0"])
def test_bessel_functions_that_oscillate(kind):
    function = getattr(torch.special, kind)
    near, far = torch.linspace(0.01, 40, 401), torch.tensor([1e-15, 1e-4, 300.0, 2000.0])
    check(function, torch.cat([near, far]), tolerance=5e-6)
    check(function, near.double(), tolerance=1e-6)  # PyTorch's own is that far off at the second zero
    check(function, torch.cat([EDGES, -near]))


@pytest.mark.parametrize("kind", ["modified_bessel_", "scaled_modified_bessel_"])
@pytest.mark.parametrize("order", [0, 1])
def test_bessel_functions_that_fade(kind, order):
    function = getattr(torch.special, f"{kind}k{order}")
    positive = PLACES[(PLACES > 0) & (PLACES < 1e30)]
    _check_relatively(function, positive[positive < 80], 5e-6)
    _check_relatively(function, positive[positive < 600].double(), 2e-13)
    check(function, torch.cat([EDGES, -positive]))
    check(getattr(torch.special, f"modified_bessel_i{order}"), torch.linspace(-12, 12, 99))


POLYNOMIALS = (
    *(f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
    *(f"{name}_polynomial_{kind}" for name, kind in (("laguerre", "l"), ("legendre", "p"), ("hermite", "h"))),
    "hermite_polynomial_he",
)


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_orthogonal_polynomials(name):
    function, x = getattr(torch.special, name), torch.linspace(-1.5, 2.5, 41)
    check(lambda x: [function(x, number) for number in (-1, 0, 1, 2, 3, 5, 9, 20, 2.5)], x)
    for number, problem in ((65, "number 65"), (torch.tensor(3), "a tensor")):
        with pytest.raises(UnsupportedFeatureError, match=problem):
            imported(lambda x, number=number: function(x, number), x)


@pytest.mark.parametrize("name", ["digamma", "erfc", "i0", "i1", "lgamma"])
def test_functions_are_rounded_to_16_bits_once(name):
    function = {**FUNCTIONS, "i1": torch.special.i1e}[name]
    x = torch.linspace(0.1, 9, 90)
    check(lambda x: function(x.half()).float(), x, tolerance=1e-3)
    check(lambda x: function(x.bfloat16()).float(), x, tolerance=8e-3)


def test_the_logarithm_of_the_gamma_function_keeps_digits_near_its_zeros():
    near = torch.tensor([1e-6, -1e-6, 3e-4, -0.02])
    for ours, theirs in _results(torch.lgamma, torch.cat([1 + near, 2 + near])):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    check(torch.lgamma, torch.tensor([-1.0, -7.0, -1e30, -1e-40, 1e-40, 3e38]))
    check(lambda x: (torch.mvlgamma(x, 1), torch.mvlgamma(x, 3)), torch.linspace(2, 20, 30))


def test_poles_of_the_digamma_function():
    check(torch.digamma, torch.tensor([-1.0, -4.0, -1e30, 1e-40, -1e-40, -1e-20]))


@pytest.mark.parametrize("order", [0, 1, 2, 3, 4, 9, 20])
def test_derivatives_of_the_digamma_function(order):
    apart = PLACES[((PLACES - PLACES.round()).abs() > 0.01) & (PLACES < 100)]  # elsewhere PyTorch's own is inexact
    right = apart[apart > 0]
    _check_relatively(lambda x: torch.polygamma(order, x), right, 1e-5)
    _check_relatively(lambda x: torch.polygamma(order, x), right.double() if order > 9 else apart.double(), 1e-9)
    check(lambda x: torch.polygamma(order, x), torch.tensor([0.0, -0.0, NAN, 1.0, 2.0]))
    check(lambda x: torch.special.polygamma(order, x), integers(9, low=1))


def test_derivatives_at_poles_and_beyond():
    check(lambda x: (torch.polygamma(2, x), torch.polygamma(3, x)), torch.tensor([-1.0, -6.0]))
    check(lambda x: torch.polygamma(1, x), torch.tensor([INF, -INF, 1e30]))
    with pytest.raises(UnsupportedFeatureError, match="polygamma of order 21"):
        imported(lambda x: torch.polygamma(21, x), PLACES)


def test_quantiles_of_the_normal_distribution():
    p = torch.cat([torch.linspace(0.001, 0.999, 99), torch.logspace(-37, -4, 34)])
    _check_relatively(torch.special.ndtri, p, 2e-6)
    _check_relatively(torch.special.ndtri, p.double(), 1e-12)
    check(torch.special.ndtri, torch.tensor([0.0, 1.0, 0.5, -0.1, 1.1, INF, NAN]))


def test_training_with_the_logarithm_of_the_gamma_function():
    class Beta(Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Parameter(torch.linspace(0.3, 12, 9))
            self.b = torch.nn.Parameter(torch.linspace(7, 0.2, 9))

        def forward(self, x):
            density = torch.lgamma(self.a + self.b) - torch.lgamma(self.a) - torch.lgamma(self.b)
            return density + (self.a - 1) * x.log() + (self.b - 1) * (-x).log1p()

    module = Beta()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    check_step(lambda module, x: -module(x).sum(), module, optimizer, torch.linspace(0.1, 0.9, 9))


def test_extremes_that_ignore_nan():
    a = torch.tensor([NAN, 1.0, NAN, -INF, 2.0, INF])
    b = torch.tensor([1.0, NAN, NAN, NAN, 3.0, NAN])
    check(lambda a, b: (torch.fmax(a, b), torch.fmin(a, b)), a, b)
    check(lambda a, b: (torch.fmax(a, b), torch.fmin(a, b)), normal(3, 1), normal(4))
    check(lambda a, b: (torch.fmax(a, b), torch.fmin(a, b)), normal(3, 1), integers(4))
    check(lambda a, b: (torch.fmax(a, b), torch.fmin(a, b)), integers(3, 1), integers(4, dtype=torch.int32))
    check(lambda a, b: (torch.fmax(a, b), torch.fmin(a, b)), normal(5) > 0, normal(3, 5) > 0)


def test_products_with_powers_of_two():
    x = torch.tensor([1.0, -1.0, 1.5, 0.0, -0.0, INF, NAN, 1e-45, 3e38, 1.1754944e-38])
    powers = torch.tensor([-300, -277, -149, -127, -126, -103, -24, -1, 0, 1, 127, 128, 254, 276, 300])[:, None]
    _check_exactly(torch.ldexp, x, powers)
    _check_exactly(torch.ldexp, x, powers.int())
    _check_exactly(torch.ldexp, x.half(), powers.short())
    _check_exactly(torch.ldexp, normal(99), powers)
    wide = torch.tensor([-2200, -2097, -1074, -1022, -970, -52, 5, 1023, 1024, 2046, 2200])[:, None]
    _check_exactly(torch.ldexp, torch.cat([x, normal(99)]).double(), wide)
    _check_exactly(torch.ldexp, integers(3), integers(3))
    check(torch.ldexp, normal(5), normal(3, 1))


def test_mantissas_and_exponents():
    powers = 2.0 ** torch.arange(-149, 128)
    beside = torch.cat([powers, torch.nextafter(powers, EDGES[2]), -torch.nextafter(powers, EDGES[0])])
    _check_exactly(torch.frexp, torch.cat([EDGES, beside, normal(50)]))
    wide = torch.cat([2.0 ** torch.arange(-1074, 1024, 3, dtype=torch.float64), EDGES.double(), normal(50).double()])
    _check_exactly(torch.frexp, torch.cat([wide, torch.nextafter(wide, wide * 0)]))
    _check_exactly(torch.frexp, torch.cat([EDGES, normal(50), torch.tensor([6e-8, 65504.0, 6.1e-5])]).half())
    check(lambda x: torch.frexp(x)[1] + torch.frexp(x).exponent, normal(7))


def test_complex_numbers_of_parts_that_broadcast():
    check(lambda a, b: torch.view_as_real(torch.complex(a, b)), normal(3, 1), normal(4))
    check(lambda a, b: torch.view_as_real(torch.complex(a, b) * 2j), normal(2, 3), torch.tensor(1.5))


def _results(function, *args):
    """What Rammer's graph gives, and what PyTorch gives."""
    found = evaluate_graph(imported(function, *args).graph, [array_of(x, "an input") for x in args])
    expected = function(*args)
    expected = [expected] if isinstance(expected, torch.Tensor) else expected
    return [(ours, array_of(theirs, "a result")) for ours, theirs in zip(found, expected, strict=True)]


def _check_relatively(function, x, tolerance):
    """Equal but for a part of each number's size; functions that have zeros among negative numbers, also of 1."""
    for ours, theirs in _results(function, x):
        assert ours.dtype == theirs.dtype
        least = tolerance if function in (torch.digamma, torch.lgamma) else np.finfo(theirs.dtype).tiny
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=least)


def _check_exactly(function, *args):
    for ours, theirs in _results(function, *args):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
