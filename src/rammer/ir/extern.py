"""Kernel channels: a user's own rKernel, as source code for an operator on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rammer.ir.graph import Attributes
from rammer.ir.types import TensorType


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSource:
    """The code of an rKernel for operands of certain types, and how the operator's domain may be cut.

    Attributes:
        code: C, or CUDA C++ for a GPU, with a `static` function `task` that computes one rTask. It takes pointers to
            the operands and to the results, row-major and dense, then for each axis of the domain the rTask's first
            point and the one behind its last, as `int64_t`; on a GPU then `char *` to the shared memory, and all
            threads of a block call it.
        tiles: sizes of an rTask along each axis of the domain, None for a whole axis. Each tile is a candidate.
        shared_bytes: shared memory of a block that an rTask takes.
    """

    code: str
    tiles: Sequence[Sequence[int | None]]
    shared_bytes: int = 0


MakeSource = Callable[..., KernelSource | None]
"""From the operands' types by position and the attributes by name to the source; None for what it is not made for."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExternKernel:
    """What makes the source of a user's rKernels for the operators of a kind."""

    name: str
    kind: str
    make: MakeSource

    def source(self, inputs: Sequence[TensorType], attributes: Attributes) -> KernelSource | None:
        """The source for operands of these types, None where there is none."""
        return self.make(*inputs, **attributes)
