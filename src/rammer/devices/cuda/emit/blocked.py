"""An rTask of the skeleton `gemm`, cut into threadblock tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rammer.devices.cuda.emit.points import Side
from rammer.ir.kernel_form import GemmForm
from rammer.ir.task import RKernel
from rammer.tiling.gemm import gemm_axes


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedTile:
    """An rTask's sides by their part in the product, each list fastest first, and its form."""

    form: GemmForm
    rows: tuple[Side, ...]
    lanes: tuple[Side, ...]
    batches: tuple[Side, ...]

    @classmethod
    def of(cls, kernel: RKernel, form: GemmForm, sides: Sequence[Side]) -> BlockedTile:
        """The tile that covers `sides`."""
        assert kernel.tile.lane is not None  # along which N runs
        axes = gemm_axes(kernel.expr, kernel.tile.lane)
        found = {side.axis: side for side in sides}
        rows, lanes, batches = (tuple(found[axis] for axis in of) for of in (axes.m, axes.n, axes.batch))
        return cls(form=form, rows=rows, lanes=lanes, batches=batches)
