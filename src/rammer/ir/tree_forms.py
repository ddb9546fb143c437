"""Forms of the skeleton `trees`."""

from __future__ import annotations

from dataclasses import dataclass

from rammer.ir.kernel_form import KernelForm, Skeleton


@dataclass(frozen=True, slots=True, kw_only=True)
class TreesForm(KernelForm):
    """Sums of leaves by one thread, for blocks of `rows` rows, a multiple of 64, or row by row.

    In a block, trees of up to `nodes` nodes are taken whole, 64 rows to a word; in larger ones rows follow their paths:
    by `steps` steps, or where that is None until the last of eight is at a leaf.
    """

    rows: int
    nodes: int
    steps: int | None = None

    @property
    def skeleton(self) -> Skeleton:
        """See `KernelForm`."""
        return Skeleton.TREES

    @property
    def details(self) -> str:
        """See `KernelForm`."""
        paths = "along paths" if self.steps is None else f"along paths of {self.steps} steps"
        if self.rows == 1:
            return f"row by row, {paths}"
        how = f"trees of up to {self.nodes} nodes by words" if self.nodes else paths
        return f"blocks of {self.rows} rows, {how}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTreesForm(KernelForm):
    """Sums of leaves by a block, in whose shared memory the codes of `rows` rows and `nodes` nodes have room.

    Without room for nodes they are read where they are. A thread has `each` rows of its own, and follows each of them
    through `side` trees at a time; or it has pairs of a tree and a row, `side` at a time, and the leaves of `room`
    trees have room, too (`each` is 0 then). With `stops` paths end where all of a thread's are at leaves.
    """

    rows: int
    each: int
    side: int
    nodes: int
    room: int = 0
    stops: bool = False

    @property
    def skeleton(self) -> Skeleton:
        """See `KernelForm`."""
        return Skeleton.TREES

    @property
    def brings_operands(self) -> bool:
        """See `KernelForm`: nodes pass through shared memory once for each rTask, from L2."""
        return True

    @property
    def details(self) -> str:
        """See `KernelForm`."""
        where = f"{self.nodes} nodes in shared memory" if self.nodes else "nodes where they are"
        if self.each:
            return f"{self.rows} rows, {self.each} a thread through {self.side} trees at a time, {where}"
        return f"{self.rows} rows, {self.side} pairs of a tree and a row at a time, {where}"
