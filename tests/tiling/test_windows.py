"""How many neighbouring points a thread computes together where operands are short sums."""

import pytest

from rammer.ir.expr import Axis
from rammer.tiling.windows import neighbours, points_together

ROW, COLUMN = Axis("row", 16), Axis("column", 16)


@pytest.mark.parametrize(
    ("columns", "rows", "threads", "together"),
    [
        (16, 1, 128, 4),
        (16, 1, 512, 2),  # or some threads would have none
        (16, 1, 1024, 1),
        (8, 2, 128, 4),
        (2, 8, 128, 2),
        (6, 2, 128, 1),  # beyond the axis there is nothing to share
        (1, 16, 128, 4),  # along the other axis
    ],
)
def test_points_together(columns, rows, threads, together):
    sides = [(COLUMN, columns), (ROW, rows)]
    assert points_together(sides, 16, 64, threads) == together


def test_neighbours_run_along_the_first_axis_that_has_several_points():
    assert neighbours([(COLUMN, 1), (ROW, 4)]) == (ROW, 4)
    assert neighbours([(COLUMN, 1), (ROW, 1)]) == (COLUMN, 1)
