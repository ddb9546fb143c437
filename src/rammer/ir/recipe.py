"""How a large constant follows from a smaller array: a file holds the smaller one, and `load` makes the constant again.

Sums and products are NumPy's, element by element in float64 and in a fixed order: the same bits on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.ir.types import DType, Layout

Array = npt.NDArray[Any]  # NumPy's stubs give `generic` no arithmetic
_PIECE = 1 << 13  # filters that are transformed at a time: what lies between stays in a core's cache


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """Times factors that broadcast to the array, in float64, rounded to float32."""

    factor: npt.NDArray[np.float64]

    def __call__(self, array: Array) -> Array:
        """The array after this step."""
        product = np.empty(array.shape, np.float32)
        with np.errstate(all="ignore"):
            np.multiply(array, self.factor, out=product, dtype=np.float64, casting="unsafe")  # piece by piece
        return product


@dataclass(frozen=True, slots=True)
class Transposed:
    """Dimensions in another order."""

    order: tuple[int, ...]

    def __call__(self, array: Array) -> Array:
        """The array after this step."""
        return array.transpose(self.order)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterLine:
    """A filter along one dimension: taps that lie `stride` apart are a phase, each phase is cut into `groups`.

    `matrix` gives each point as a sum of a group's taps.
    """

    stride: int
    groups: int
    matrix: tuple[tuple[float, ...], ...]

    def grouped(self, taps: Array) -> Array:
        """`[..., taps]` as `[..., phases * groups, taps of a group]`; what is missing is zero."""
        count, length = taps.shape[-1], len(self.matrix[0])
        whole = self.stride * self.groups * length
        padded = np.pad(taps, [(0, 0)] * (taps.ndim - 1) + [(0, whole - count)])
        by_phase = padded.reshape(*taps.shape[:-1], self.groups, length, self.stride)
        by_phase = np.moveaxis(by_phase, -1, -3)[..., : min(self.stride, count), :, :]
        return by_phase.reshape(*taps.shape[:-1], -1, length)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredWeights:
    """Weights `[m, c, rows, columns]` at the points of minimal filtering: `[points, m, c, sums, sums]`, float32.

    Points are in the order of rows, then columns; sums are over phases and groups.
    """

    rows: FilterLine
    columns: FilterLine

    def __call__(self, array: Array) -> Array:
        """The array after this step."""
        along_columns = self.columns.grouped(array)  # [m, c, taps, sums, taps]
        along_both = self.rows.grouped(np.moveaxis(along_columns, 2, -1))  # [m, c, sums, taps, sums, taps]
        taps = along_both.transpose(5, 3, 4, 2, 1, 0)  # features innermost, as most kernels want them
        sums = taps.shape[2:]
        flat = taps.reshape(*taps.shape[:2], -1)
        points = np.empty((len(self.rows.matrix), len(self.columns.matrix), flat.shape[-1]), np.float32)
        for start in range(0, flat.shape[-1], _PIECE):
            piece = slice(start, start + _PIECE)
            values = flat[..., piece].astype(np.float64)
            at_rows = np.stack([_combined(row, values) for row in self.rows.matrix])
            for number, column in enumerate(self.columns.matrix):
                points[:, number, piece] = _combined(column, np.moveaxis(at_rows, 1, 0))
        result: Array = points.reshape(-1, *sums).transpose(0, 4, 3, 1, 2)
        return result


Step = Scaled | Transposed | FilteredWeights


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recipe:
    """What a constant is made of: `base`, row-major, what is done to it, in order, and how the result is stored.

    A `layout` of None is the row-major one.
    """

    base: Array
    steps: tuple[Step, ...] = ()
    layout: Layout | None = None

    def then(self, *steps: Step) -> Recipe:
        """The recipe of what these steps make of the constant."""
        return replace(self, steps=(*self.steps, *steps))

    def array(self) -> Array:
        """The constant, in its logical shape."""
        array = self.base
        for step in self.steps:
            array = step(array)
        return array


def taken(recipe: Recipe, rows: slice) -> Recipe | None:
    """The recipe of some rows of a constant; None where it is not just scaled."""
    match recipe.steps:
        case (Scaled(factor),):
            return Recipe(base=recipe.base[rows], steps=(Scaled(factor[rows] if len(factor) > 1 else factor),))
    return None


def concatenated(recipes: Sequence[Recipe | None], axis: int) -> Recipe | None:
    """The recipe of constants one behind another along an axis; None where not each is just scaled, of one type."""
    bases: list[Array] = []
    factors: list[npt.NDArray[np.float64]] = []
    for recipe in recipes:
        match recipe:
            case Recipe(base=base, steps=(Scaled(factor),)) if not bases or base.dtype == bases[0].dtype:
                shape = [base.shape[dim] if dim == axis else extent for dim, extent in enumerate(factor.shape)]
                bases.append(base)
                factors.append(np.broadcast_to(factor, shape))
            case _:
                return None
    return Recipe(base=np.concatenate(bases, axis), steps=(Scaled(np.concatenate(factors, axis)),))


def in_16_bits(array: Array) -> Array | None:
    """Float32 values in a type of 16 bits that holds them all exactly; None where neither does."""
    words = np.ascontiguousarray(array).reshape(-1).view(np.uint32)

    def narrow(words: npt.NDArray[np.uint32], dtype: DType) -> Array | None:
        with np.errstate(all="ignore"):
            halves: Array = words.view(np.float32).astype(dtype.numpy)
            return halves if np.array_equal(halves.astype(np.float32).view(np.uint32), words) else None

    for dtype in (DType.FLOAT16, DType.BFLOAT16):
        halves = None if narrow(words[:_PIECE], dtype) is None else narrow(words, dtype)  # most others end early
        if halves is not None:
            return halves.reshape(array.shape)
    return None


def _combined(coefficients: Sequence[float], values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The sum of `coefficients[i] * values[i]`, in order."""
    terms = [(coefficient, value) for coefficient, value in zip(coefficients, values, strict=True) if coefficient]
    total = np.zeros(values.shape[1:]) if not terms else terms[0][1] * terms[0][0]
    for coefficient, value in terms[1:]:
        total += value if coefficient == 1 else value * coefficient
    return total
