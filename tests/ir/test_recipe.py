"""Recipes of constants: the same bits as what passes compute, and what becomes of them on the way."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from rammer.ir.recipe import FilteredWeights, FilterLine, Recipe, Scaled, Transposed, concatenated, in_16_bits, taken

RNG = np.random.default_rng(5)


def line(points: int, taps: int, *, stride: int = 1, groups: int = 1) -> FilterLine:
    numbers = RNG.standard_normal((points, taps))
    numbers[0, 1:] = 0.0
    numbers[0, 0] = 1.0
    return FilterLine(stride=stride, groups=groups, matrix=tuple(map(tuple, numbers.tolist())))


def exactly(line: FilterLine, taps: list[Fraction]) -> list[list[Fraction]]:
    """Each point of each phase and group, by the definition."""
    length, stride = len(line.matrix[0]), line.stride
    found = []
    for phase in range(min(stride, len(taps))):
        for group in range(line.groups):
            own = [(group * length + tap) * stride + phase for tap in range(length)]
            values = [taps[place] if place < len(taps) else Fraction(0) for place in own]
            found.append(
                [sum((Fraction(c) * v for c, v in zip(row, values, strict=True)), Fraction(0)) for row in line.matrix]
            )
    return found


@pytest.mark.parametrize(
    ("kernel", "rows", "columns"),
    [
        ((3, 3), line(6, 3), line(4, 3)),
        ((1, 5), line(1, 1), line(8, 5)),
        ((7, 5), line(4, 2, stride=2, groups=2), line(5, 3, groups=2)),
        ((2, 3), line(1, 1, stride=3), line(6, 3)),
    ],
)
def test_filtered_weights_are_sums_of_taps(kernel: tuple[int, int], rows: FilterLine, columns: FilterLine) -> None:
    weight = RNG.standard_normal((3, 2, *kernel)).astype(np.float32)
    found = FilteredWeights(rows=rows, columns=columns)(weight)
    assert found.dtype == np.float32
    for m in range(3):
        for c in range(2):
            along_rows = [exactly(rows, [Fraction(float(t)) for t in weight[m, c, :, k]]) for k in range(kernel[1])]
            for a in range(found.shape[3]):
                for p in range(len(rows.matrix)):
                    wanted = exactly(columns, [along_rows[k][a][p] for k in range(kernel[1])])
                    for b in range(found.shape[4]):
                        own = found[p * len(columns.matrix) :, m, c, a, b][: len(columns.matrix)]
                        np.testing.assert_allclose(own, [float(w) for w in wanted[b]], rtol=1e-6, atol=1e-9)


def test_pieces_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = RNG.standard_normal((20, 31, 3, 3)).astype(np.float32)
    step = FilteredWeights(rows=line(6, 3), columns=line(6, 3))
    whole = step(weight)
    monkeypatch.setattr("rammer.ir.recipe._PIECE", 7)
    assert np.array_equal(step(weight), whole)


def test_scaled_is_rounded_once_from_float64() -> None:
    halves = RNG.standard_normal((40, 30)).astype(np.float16)
    factor = RNG.standard_normal((40, 1))
    found = Recipe(base=halves, steps=(Scaled(factor),)).array()
    assert np.array_equal(found, (halves.astype(np.float64) * factor).astype(np.float32))


@pytest.mark.parametrize(("dtype", "size"), [(np.float16, 1.0), (ml_dtypes.bfloat16, 1e30)])
def test_what_16_bits_hold_is_found_exactly(dtype: type, size: float) -> None:
    wide = (RNG.standard_normal((90, 100)) * size).astype(dtype).astype(np.float32)
    found = in_16_bits(wide)
    assert found is not None
    assert found.dtype == dtype
    assert found.shape == wide.shape
    assert np.array_equal(found.astype(np.float32), wide)
    wide[-1, -1] = np.float32(1 + 2.0**-20)
    assert in_16_bits(wide) is None
    negative_zero = np.full((2, 2), -0.0, np.float32)
    halves_of_zero = in_16_bits(negative_zero)
    assert halves_of_zero is not None
    assert np.signbit(halves_of_zero).all()


def test_parts_and_rows_of_scaled_constants() -> None:
    recipes = [
        Recipe(base=RNG.standard_normal((n, 4)).astype(np.float16), steps=(Scaled(RNG.standard_normal((n, 1))),))
        for n in (3, 5)
    ]
    joined = concatenated(recipes, 0)
    assert joined is not None
    assert np.array_equal(joined.array(), np.concatenate([recipe.array() for recipe in recipes]))
    part = taken(joined, slice(2, 6))
    assert part is not None
    assert np.array_equal(part.array(), joined.array()[2:6])
    along = [Recipe(base=np.ones((2, n), np.float16), steps=(Scaled(np.full((2, 1), n / 3.0)),)) for n in (3, 5)]
    beside = concatenated(along, 1)
    assert beside is not None
    assert np.array_equal(beside.array(), np.concatenate([recipe.array() for recipe in along], 1))
    same_factor = Recipe(base=np.ones((4, 2), np.float16), steps=(Scaled(np.full((1, 2), 0.1)),))
    rows = taken(same_factor, slice(1, 3))
    assert rows is not None
    assert np.array_equal(rows.array(), same_factor.array()[1:3])


def test_other_recipes_are_not_joined() -> None:
    scaled = Recipe(base=np.ones((2, 2), np.float16), steps=(Scaled(np.ones((2, 1))),))
    for other in (None, scaled.then(Transposed((1, 0))), Recipe(base=np.ones((2, 2), np.float32), steps=scaled.steps)):
        assert concatenated([scaled, other], 0) is None
    assert taken(scaled.then(Transposed((1, 0))), slice(0, 1)) is None
