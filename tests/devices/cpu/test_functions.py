"""Elementary functions on the processor, in units in the last place: as docs/numerics.md says."""

import re
from pathlib import Path

import numpy as np
import pytest

import rammer
from tests.support.ulp import FUNCTIONS, arguments, erf_plus_one_model, function_model, ulps

COUNT = 1 << 16
PAGE = Path(__file__).parents[3] / "docs" / "numerics.md"
ROWS = re.findall(r"^\| ((?:`\w+` ?)+)\| ([0-9.]+) \|", PAGE.read_text(), re.MULTILINE)
BOUNDS = {name: float(bound) for names, bound in ROWS for name in re.findall(r"\w+", names)}


def test_the_page_bounds_every_function():
    assert set(BOUNDS) == {*FUNCTIONS, "Pow"}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_functions_of_one_operand(kind):
    x = arguments(COUNT)
    found = rammer.compile(function_model(kind, x.size), "cpu", veus=1)(x)
    with np.errstate(all="ignore"):
        assert ulps(found, FUNCTIONS[kind](x.astype(np.float64))) <= BOUNDS[kind]


def test_powers():
    x = np.abs(arguments(COUNT))
    e = np.random.default_rng(1).uniform(-4, 4, x.size).astype(np.float32)
    found = rammer.compile(function_model("Pow", x.size), "cpu", veus=1).run({"x": x, "e": e})["y"]
    with np.errstate(all="ignore"):
        assert ulps(found, np.power(x.astype(np.float64), e.astype(np.float64))) <= BOUNDS["Pow"]


def test_one_plus_the_error_function():
    """GELU's factor: within 2 units of what is next to 1, nothing left over far below 0."""
    x = np.concatenate([arguments(COUNT), np.array([-7.2, -3e38], np.float32)])
    found = rammer.compile(erf_plus_one_model(x.size), "cpu", veus=1)(x)
    with np.errstate(all="ignore"):
        exact = 1 + FUNCTIONS["Erf"](x.astype(np.float64))
    np.testing.assert_array_less(np.abs(found - exact)[~np.isnan(x)], 2 * 2.0**-23)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(x))
    assert not found[x < -7.1].any()
