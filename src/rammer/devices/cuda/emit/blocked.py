"""An rTask of the skeleton `contract`, cut into blocks of rows and lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rammer.devices.cuda.emit.points import Side
from rammer.tiling.blocks import Blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedTile:
    """An rTask's sides by their part in the product, each list fastest first, and its blocks."""

    blocks: Blocks
    rows: tuple[Side, ...]
    lanes: tuple[Side, ...]
    batches: tuple[Side, ...]

    @classmethod
    def of(cls, blocks: Blocks, sides: Sequence[Side]) -> BlockedTile:
        """The tile that covers `sides`."""
        found = {side.axis: side for side in sides}
        rows, lanes, batches = (
            tuple(found[axis] for axis in axes) for axes in (blocks.row_axes, blocks.lane_axes, blocks.batch_axes)
        )
        return cls(blocks=blocks, rows=rows, lanes=lanes, batches=batches)
