"""Fourier transforms and determinants against NumPy, mel weights by ONNX's own case."""

import numpy as np
import onnx
import pytest
from onnx import helper

from rammer.errors import InvalidModelError, UnsupportedFeatureError
from rammer.frontends.onnx import load_graph
from tests.support.onnx_reference import evaluate_model, model_of
from tests.support.operators import run_operator

RNG = np.random.default_rng(0)


def parts(x):
    return np.stack([x.real, x.imag], axis=-1)


def dft(x, axis, length=None, opset=20, **attributes):
    constants = {"axis": np.array(axis)} | ({} if length is None else {"length": np.array(length)})
    node = helper.make_node("DFT", ["x", "" if length is None else "length", "axis"], ["y"], **attributes)
    (y,) = evaluate_model(model_of([node], {"x": x}, ["y"], constants=constants, opset=opset), [x])
    return y


@pytest.mark.parametrize("extent", [1, 2, 7, 100, 129, 256, 257, 480, 1000])
@pytest.mark.parametrize("inverse", [0, 1])
def test_lengths_short_and_long_prime_and_not(extent, inverse):
    x = RNG.normal(size=(2, extent)) + 1j * RNG.normal(size=(2, extent))
    expected = np.fft.ifft(x) if inverse else np.fft.fft(x)
    found = dft(parts(x).astype(np.float32), 1, inverse=inverse)
    np.testing.assert_allclose(found, parts(expected), rtol=1e-4, atol=1e-5 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("axis", [0, 1, -2])
@pytest.mark.parametrize("length", [None, 4, 9])
def test_real_signals_cut_or_padded(axis, length):
    x = RNG.normal(size=(6, 5, 7))
    found = dft(x[..., np.newaxis], axis, length, onesided=1)
    expected = parts(np.fft.rfft(x, n=length, axis=axis + 1 if axis < 0 else axis))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("length", [None, 8, 9])
def test_half_a_spectrum_becomes_a_real_signal(length):
    x = RNG.normal(size=(2, 5)) + 1j * RNG.normal(size=(2, 5))
    found = dft(parts(x), 1, length, inverse=1, onesided=1)
    np.testing.assert_allclose(found[..., 0], np.fft.irfft(x, n=length), rtol=1e-9, atol=1e-9)


def test_a_length_of_a_large_prime_factor():
    with pytest.raises(UnsupportedFeatureError, match="prime factor 10007"):
        dft(np.zeros((1, 10007, 1), np.float32), 1)


def test_parts_in_the_last_dimension():
    with pytest.raises(InvalidModelError, match="parts"):
        dft(np.zeros((1, 8, 3), np.float32), 1)


def test_frames():
    x, window = RNG.normal(size=(2, 100, 1)), np.hanning(32)
    node = helper.make_node("STFT", ["x", "step", "window"], ["y"], onesided=1)
    constants = {"step": np.array(10), "window": window}
    (found,) = evaluate_model(model_of([node], {"x": x}, ["y"], constants=constants, opset=17), [x])
    frames = np.stack([x[:, start : start + 32, 0] * window for start in range(0, 69, 10)], axis=1)
    np.testing.assert_allclose(found, parts(np.fft.rfft(frames)), rtol=1e-9, atol=1e-9)
    real = model_of([node], {"x": x[..., 0]}, ["y"], constants=constants, opset=17)
    np.testing.assert_array_equal(evaluate_model(real, [x[..., 0]])[0], found)


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 20])
def test_determinants(rows):
    x = RNG.normal(size=(5, rows, rows))
    x[1, 0, 0] = 0  # the first row cannot be the pivot's
    x[2] = 0
    x[3, :, -1] = x[3, :, 0]
    np.testing.assert_allclose(run_operator("Det", [x]), np.linalg.det(x), rtol=1e-9, atol=1e-6)


def test_large_determinants_are_refused():
    x = np.zeros((65, 65), np.float32)
    model = model_of([helper.make_node("Det", ["x"], ["y"])], {"x": x}, ["y"], opset=onnx.defs.onnx_opset_version())
    with pytest.raises(UnsupportedFeatureError, match="65 rows"):
        load_graph(model)
