"""Forms of the skeleton `trees`."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rammer.ir.kernel_form import KernelForm, Skeleton


class TreeStrategy(enum.StrEnum):
    """How the leaf is found that a row comes to. The first three are Hummingbird's (Nakandala et al., OSDI 2020)."""

    GEMM = "gemm"  # compare all nodes; those of the leaf's path choose its value among all leaves'
    PERFECT = "perfect"  # follow the path, by as many steps as the deepest tree has
    TRAVERSAL = "traversal"  # follow the path until it ends
    QUICKSCORER = "quickscorer"  # compare all nodes; from sets of leaves, as bit vectors, the leaf's number
    PERMUTES = "permutes"  # as `perfect`, with the highest levels in registers, permuted


@dataclass(frozen=True, slots=True, kw_only=True)
class TreesForm(KernelForm):
    """Sums of leaves by one thread, for blocks of `rows` rows, a multiple of 64, or row by row.

    Where all nodes are compared, 64 rows to a word, this is done in trees of up to `nodes` nodes; in larger ones rows
    follow their paths until the last of eight is at a leaf.
    """

    strategy: TreeStrategy
    rows: int
    nodes: int = 0

    @property
    def skeleton(self) -> Skeleton:
        """See `KernelForm`."""
        return Skeleton.TREES

    @property
    def details(self) -> str:
        """See `KernelForm`."""
        how = f"{self.strategy}, " + ("row by row" if self.rows == 1 else f"blocks of {self.rows} rows")
        return f"{how}, trees of up to {self.nodes} nodes by words" if self.nodes else how


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTreesForm(KernelForm):
    """Sums of leaves by a block, in whose shared memory the codes of `rows` rows and `nodes` nodes have room.

    Without room for nodes they are read where they are. A thread has `each` rows of its own, and takes each of them
    through `side` trees at a time; or it has pairs of a tree and a row, `side` at a time, and the leaves of `room`
    trees have room, too (`each` is 0 then).
    """

    strategy: TreeStrategy
    rows: int
    each: int
    side: int
    nodes: int
    room: int = 0

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
        how = f"{self.strategy}, {self.rows} rows"
        if self.each:
            return f"{how}, {self.each} a thread through {self.side} trees at a time, {where}"
        return f"{how}, {self.side} pairs of a tree and a row at a time, {where}"
