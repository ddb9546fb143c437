"""How large tensors and models can be: the one place that says so, before memory is touched."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rammer.errors import OutOfMemoryError, TensorSizeError
from rammer.ir.types import TensorType

if TYPE_CHECKING:
    from rammer.ir.graph import Graph
    from rammer.ir.program import Plan
    from rammer.ir.vdevice import VDevice

MOST_DIMENSIONS = 64
"""Of a tensor: as many as NumPy's arrays can have."""

MOST_BYTES = 1 << 47
"""Of a tensor: what a process can address."""

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def check_tensor(type_: TensorType, *, where: str = "") -> None:
    """Check that a tensor of a type can be.

    Args:
        type_: of any tensor of a model: an input, a constant or a result.
        where: its place in the user's model, for the message.

    Raises:
        TensorSizeError: it has too many dimensions or elements.
    """
    if type_.rank > MOST_DIMENSIONS:
        raise TensorSizeError(
            f"a tensor of {type_.rank} dimensions; {MOST_DIMENSIONS} are possible",
            where=where,
            hint="join dimensions that are used together, or leave out those of extent 1",
        )
    # NumPy makes no array of nothing, either, whose other extents are too many.
    size_bytes = math.prod(extent or 1 for extent in type_.shape) * type_.dtype.itemsize_bytes
    if size_bytes > MOST_BYTES:
        raise TensorSizeError(
            f"{type_} takes {size_text(size_bytes)}; a process can address {size_text(MOST_BYTES)}", where=where
        )


def check_arrays(graph: Graph, device: VDevice) -> None:
    """Check that what a call takes and gives fits in a device's memory.

    Raises:
        OutOfMemoryError: it does not.
    """
    sides_bytes = {
        side: sum(graph.values[value].type.nbytes for value in values)
        for side, values in (("inputs", graph.inputs), ("outputs", graph.outputs))
    }
    check_memory(sides_bytes, device.levels[-1].capacity_bytes, where=graph.name)


def check_plan(plan: Plan, device: VDevice) -> None:
    """Check that a model fits in a device's memory with all that it needs there.

    Raises:
        OutOfMemoryError: it does not.
    """
    from rammer.ir.task import TensorRole  # noqa: PLC0415 - loading a model needs none of it

    parts_bytes = {
        f"{role.value}s": sum(
            tensor.nbytes for tensor in plan.graph.tensors if tensor.role is role and tensor.alias_of is None
        )
        for role in (TensorRole.INPUT, TensorRole.OUTPUT, TensorRole.CONSTANT)
    }
    capacity_bytes = device.levels[-1].capacity_bytes
    for memory, arena_bytes in enumerate(plan.memory.arenas_bytes):
        others_bytes = {} if memory else parts_bytes
        check_memory({**others_bytes, "values between operators": arena_bytes}, capacity_bytes, where=plan.graph.name)


def check_memory(parts_bytes: Mapping[str, int], there_bytes: int, *, where: str = "") -> None:
    """Check that what has to be in memory at the same time fits there.

    Args:
        parts_bytes: what takes how much.
        there_bytes: what the memory holds.
        where: the place in the user's model, for the message.

    Raises:
        OutOfMemoryError: it does not fit.
    """
    needed_bytes = sum(parts_bytes.values())
    if needed_bytes > there_bytes:
        parts = ", ".join(f"{name} {size_text(size_bytes)}" for name, size_bytes in parts_bytes.items() if size_bytes)
        raise OutOfMemoryError(
            f"{size_text(needed_bytes)} of memory are needed ({parts}), {size_text(there_bytes)} are there", where=where
        )


def host_memory_bytes() -> int:
    """The memory of the machine that compiles."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def size_text(size_bytes: int) -> str:
    """A size in the largest unit that leaves a whole number in front."""
    power = max(0, size_bytes.bit_length() - 1) // 10
    if power >= len(_UNITS):
        return f"more than {1 << 10} {_UNITS[-1]}"
    return f"{size_bytes / (1 << 10 * power):.4g} {_UNITS[power]}"
