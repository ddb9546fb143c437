"""Scalar simplification changes no value."""

import math

import numpy as np
import pytest

from rammer.ir.expr import Axis, Call, Cast, Const, Load, ScalarFn, const, rebuild
from rammer.ir.types import DType
from rammer.passes.helpers.simplify import holds, simplified

F16, F32, BF16, I8, I32, I64, U8, BOOL = (
    DType.FLOAT16,
    DType.FLOAT32,
    DType.BFLOAT16,
    DType.INT8,
    DType.INT32,
    DType.INT64,
    DType.UINT8,
    DType.BOOL,
)


def element(dtype):
    return Load(0, (Axis("i", 3),), dtype)


def simple(node):
    return rebuild([node], simplified)[0]


def test_calls_of_constants_are_computed():
    assert simple(Call(ScalarFn.MUL, (const(2.5, F32), const(4.0, F32)))) is const(10.0, F32)
    assert simple(Call(ScalarFn.LT, (const(1, I64), const(2, I64)))) is const(True, BOOL)
    assert simple(Call(ScalarFn.EXP, (const(0.0, F32),))) is const(1.0, F32)


def test_arithmetic_rounds_as_its_type_does():
    third = simple(Call(ScalarFn.DIV, (const(1.0, F32), const(3.0, F32))))
    assert isinstance(third, Const)
    assert third.value == float(np.float32(1) / np.float32(3))
    assert math.isinf(simple(Call(ScalarFn.DIV, (const(1.0, F32), const(0.0, F32)))).value)


def test_a_known_condition_chooses():
    x, y = element(F32), const(0.0, F32)
    assert simple(Call(ScalarFn.SELECT, (const(True, BOOL), x, y))) is x
    assert simple(Call(ScalarFn.SELECT, (const(False, BOOL), x, y))) is y


def test_exact_conversions_there_and_back_vanish():
    assert simple(Cast(F16, Cast(F32, element(F16)))) is element(F16)
    assert simple(Cast(I32, Cast(I64, element(I32)))) is element(I32)


@pytest.mark.parametrize("dtype", [F32, I32])
def test_small_powers_are_products(dtype):
    x = element(dtype)
    square = Call(ScalarFn.MUL, (x, x))
    for exponent, wanted in ((1, x), (2, square), (3, Call(ScalarFn.MUL, (square, x)))):
        assert simple(Call(ScalarFn.POW, (x, const(exponent, dtype)))) == wanted
    for other in (0, 4, -1):
        power = Call(ScalarFn.POW, (x, const(other, dtype)))
        assert simple(power) == power


@pytest.mark.parametrize(
    ("dtype", "bounds", "vanishes"),
    [(DType.INT8, (-128.0, 127.0), True), (DType.UINT8, (0.0, 255.0), True), (DType.INT8, (0.0, 255.0), False)],
)
def test_a_type_that_holds_what_was_clipped_is_left_out(dtype, bounds, vanishes):
    clipped = Call(ScalarFn.MIN, (Call(ScalarFn.MAX, (element(F32), const(bounds[0], F32))), const(bounds[1], F32)))
    node = Cast(DType.INT32, Cast(dtype, clipped))
    assert simple(node) is (Cast(DType.INT32, clipped) if vanishes else node)


def test_roundings_stay():
    rounded = Cast(F32, Cast(F16, element(F32)))
    assert simple(rounded) is rounded


def test_constants_are_converted():
    assert simple(Cast(F32, Const(0.1, BF16))) is const(0.10009765625, F32)
    assert simple(Cast(I32, const(2.75, F32))) is const(2, I32)


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        (F32, F16, True),
        (F32, BF16, True),
        (F16, BF16, False),
        (BF16, F16, False),
        (F32, I32, False),
        (DType.FLOAT64, I32, True),
        (F16, U8, True),
        (BF16, U8, True),
        (BF16, DType.INT16, False),
        (I32, U8, True),
        (U8, I8, False),
        (I8, U8, False),
        (I32, F32, False),
        (U8, BOOL, True),
        (BOOL, U8, False),
    ],
)
def test_which_types_hold_which(wide, narrow, expected):
    assert holds(wide, narrow) is expected
