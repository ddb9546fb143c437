"""Fourier transforms of lines: products with matrices of roots of unity, long lines by Cooley and Tukey's factors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import reshaped, transposed
from rammer.frontends.node import ModelNode

_SHORT = 128
"""Lines of no more elements are one product."""

_LONGEST_PRIME = 4096
"""A line whose length has a greater prime factor would take a matrix of that many rows."""


@dataclass(frozen=True, slots=True)
class Complex:
    """Complex numbers as two operands of one shape; the imaginary parts of real ones are None."""

    real: Operand
    imaginary: Operand | None


def transform(node: ModelNode, x: Complex, *, inverse: bool) -> Complex:
    """The transform of lines, `[lines, n]`; the inverse one is not divided by n.

    Raises:
        UnsupportedFeatureError: n has a prime factor that is too large.
    """
    lines, extent = x.real.shape
    factor = _factor(node, extent)
    if factor == extent:
        return _product(node, x, inverse=inverse)
    rest = extent // factor
    # Element j1 * rest + j2 of a line is [j2, j1] of a matrix, frequency k1 + factor * k2 is [k2, k1].
    inner = transform(node, _each(node, x, (lines, factor, rest), (0, 2, 1), (lines * rest, factor)), inverse=inverse)
    turned = _turned(node, inner, rest, factor, inverse=inverse)
    outer = transform(
        node, _each(node, turned, (lines, rest, factor), (0, 2, 1), (lines * factor, rest)), inverse=inverse
    )
    return _each(node, outer, (lines, factor, rest), (0, 2, 1), (lines, extent))


def mirrored(node: ModelNode, x: Complex, length: int) -> Complex:
    """All frequencies `[lines, length]` of real signals from the first half: the others are their conjugates."""
    numbers = np.arange(length)
    sources = node.constant(np.minimum(numbers, length - numbers).astype(np.int64))
    real = node.add("Gather", x.real, sources, axis=1)
    if x.imaginary is None:
        return Complex(real, None)
    signs = node.constant(np.where(numbers <= length // 2, 1, -1).astype(real.dtype.numpy))
    return Complex(real, node.add("Mul", node.add("Gather", x.imaginary, sources, axis=1), signs))


def _factor(node: ModelNode, extent: int) -> int:
    """How many elements the inner transforms have: the greatest divisor that is short, or the least prime factor."""
    if extent <= _SHORT:
        return extent
    short = max(divisor for divisor in range(1, _SHORT + 1) if extent % divisor == 0)
    if short > 1:
        return short
    divisor = next((n for n in range(_SHORT + 1, int(extent**0.5) + 1) if extent % n == 0), extent)
    if divisor > _LONGEST_PRIME:
        raise node.unsupported(
            f"a Fourier transform of {extent} elements, which has the prime factor {divisor}",
            "pad it to a length of small factors, such as a power of two",
        )
    return divisor


def _each(
    node: ModelNode, x: Complex, shape: tuple[int, ...], perm: tuple[int, ...], result: tuple[int, ...]
) -> Complex:
    """Both parts in another order."""

    def moved(part: Operand) -> Operand:
        return reshaped(node, transposed(node, reshaped(node, part, shape), perm), result)

    return Complex(moved(x.real), None if x.imaginary is None else moved(x.imaginary))


def _product(node: ModelNode, x: Complex, *, inverse: bool) -> Complex:
    """Lines times the matrix of roots."""
    extent = x.real.shape[1]
    numbers = np.arange(extent)
    angles = np.outer(numbers, numbers) % extent * (2 * np.pi / extent)
    dtype = x.real.dtype.numpy
    cosines, sines = (node.constant(part.astype(dtype)) for part in (np.cos(angles), np.sin(angles)))
    plus, minus = ("Sub", "Add") if inverse else ("Add", "Sub")
    real = node.add("MatMul", x.real, cosines)
    imaginary = node.add("MatMul", x.real, sines)
    if x.imaginary is None:
        return Complex(real, imaginary if inverse else node.add("Neg", imaginary))
    real = node.add(plus, real, node.add("MatMul", x.imaginary, sines))
    own = node.add("MatMul", x.imaginary, cosines)
    return Complex(real, node.add(minus, own, imaginary))


def _turned(node: ModelNode, x: Complex, rest: int, factor: int, *, inverse: bool) -> Complex:
    """Element [j2, k1] times the root to the power of j2 * k1."""
    angles = np.outer(np.arange(rest), np.arange(factor)) * (2 * np.pi / (rest * factor)) * (1 if inverse else -1)
    dtype, shape = x.real.dtype.numpy, x.real.shape
    cosines, sines = (node.constant(part.astype(dtype)) for part in (np.cos(angles), np.sin(angles)))
    if x.imaginary is None:
        raise ValueError("a transform has imaginary parts")
    real, imaginary = (reshaped(node, part, (-(-shape[0] // rest), rest, factor)) for part in (x.real, x.imaginary))
    turned_real = node.add("Sub", node.add("Mul", real, cosines), node.add("Mul", imaginary, sines))
    turned_imaginary = node.add("Add", node.add("Mul", real, sines), node.add("Mul", imaginary, cosines))
    return Complex(reshaped(node, turned_real, shape), reshaped(node, turned_imaginary, shape))
