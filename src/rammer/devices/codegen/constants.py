"""The constants of a plan as blocks, named so that programs which have the same weights have the same blocks.

All blocks together are one segment: each begins where the one before it ends, at the next multiple of the alignment.
Small constants lie in the first block together; each large one is a block that is named by its content.
"""

from __future__ import annotations

import hashlib
import itertools
import mmap
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rammer.devices.base import Buffer

if TYPE_CHECKING:
    from rammer.ir.recipe import Recipe
    from rammer.ir.task import TaskGraph

CONSTANTS = "constants.bin"
_SHARED = "constants/"
_LARGE_BYTES = 8 << 10
_LARGE_PAGE_BYTES = 2 << 20
_DIGEST_CHARACTERS = 32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Constants:
    """The constants of a plan.

    Attributes:
        blocks: by name.
        names: in the order of the segment.
        offsets_bytes: of each constant in the segment, by its tensor.
        recipes: how blocks follow from smaller arrays, by name.
    """

    blocks: Mapping[str, Buffer]
    names: Sequence[str]
    offsets_bytes: Mapping[int, int]
    recipes: Mapping[str, Recipe]


def aligned_bytes(size_bytes: int, alignment_bytes: int) -> npt.NDArray[np.uint8]:
    """Zeroed memory that starts at a multiple of `alignment_bytes`, on large pages from the length of one on.

    On ordinary ones, what is read once waits for its pages' addresses, in a virtual machine above all.

    Raises:
        MemoryError: there is not so much.
    """
    if size_bytes >= _LARGE_PAGE_BYTES and sys.platform == "linux":
        return _on_large_pages(size_bytes, max(alignment_bytes, _LARGE_PAGE_BYTES))
    memory = np.zeros(size_bytes + alignment_bytes, dtype=np.uint8)
    skipped = -memory.ctypes.data % alignment_bytes
    return memory[skipped : skipped + size_bytes]


def _on_large_pages(size_bytes: int, alignment_bytes: int) -> npt.NDArray[np.uint8]:
    """Memory whose whole large pages are asked for; what is left at its end would take more than it needs."""
    try:
        pages = mmap.mmap(-1, size_bytes + alignment_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"no {size_bytes} bytes") from error
    memory: npt.NDArray[np.uint8] = np.frombuffer(pages, dtype=np.uint8)
    skipped = -memory.ctypes.data % alignment_bytes
    with suppress(OSError):  # a system without large pages
        pages.madvise(mmap.MADV_HUGEPAGE, skipped, size_bytes // _LARGE_PAGE_BYTES * _LARGE_PAGE_BYTES)
    return memory[skipped : skipped + size_bytes]


def starts_of(sizes_bytes: Iterable[int], alignment_bytes: int) -> list[int]:
    """Where each of some blocks begins in their segment, and where the last one ends."""
    return list(itertools.accumulate((_padded(size, alignment_bytes) for size in sizes_bytes), initial=0))


def pack_constants(graph: TaskGraph, used: Sequence[int], alignment_bytes: int) -> Constants:
    """The constants of a graph as blocks.

    Args:
        graph: whose constants.
        used: the root tensors of those that are read.
        alignment_bytes: of every constant.
    """
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - loading a model needs none of it

    sizes = {tensor: graph.tensors[tensor].nbytes for tensor in used}
    small = [tensor for tensor in used if sizes[tensor] < _LARGE_BYTES]
    starts = starts_of((sizes[tensor] for tensor in small), alignment_bytes)
    offsets = dict(zip(small, starts, strict=False))
    together = aligned_bytes(starts[-1], alignment_bytes)
    for tensor in small:
        _pack(graph, tensor, together[offsets[tensor] :][: sizes[tensor]])
    blocks: dict[str, Buffer] = {CONSTANTS: together.data}
    places = {CONSTANTS: 0}
    recipes: dict[str, Recipe] = {}
    end = starts[-1]
    large = [tensor for tensor in used if tensor not in offsets]
    rooms = _rooms({tensor: sizes[tensor] for tensor in large}, alignment_bytes)
    with ThreadPoolExecutor() as threads:  # NumPy and hashlib let others run while they copy and digest
        made = threads.map(partial(_block, graph), large, rooms)
    for tensor, (name, content) in zip(large, made, strict=True):
        if name not in blocks:
            blocks[name], places[name] = content.data, end
            end += _padded(sizes[tensor], alignment_bytes)
        offsets[tensor] = places[name]
        if tensor in graph.recipes:
            recipes.setdefault(name, replace(graph.recipes[tensor], layout=graph.tensors[tensor].layout))
    return Constants(blocks=blocks, names=list(blocks), offsets_bytes=offsets, recipes=recipes)


def _rooms(sizes: Mapping[int, int], alignment_bytes: int) -> list[npt.NDArray[np.uint8]]:
    """Memory for large constants: those that are less than a large page share some."""
    shared = [tensor for tensor, size in sizes.items() if size < _LARGE_PAGE_BYTES]
    starts = starts_of((sizes[tensor] for tensor in shared), alignment_bytes)
    together = aligned_bytes(starts[-1], alignment_bytes)
    places = dict(zip(shared, starts, strict=False))
    return [
        together[places[tensor] :][:size] if tensor in places else aligned_bytes(size, alignment_bytes)
        for tensor, size in sizes.items()
    ]


def _block(graph: TaskGraph, tensor: int, room: npt.NDArray[np.uint8]) -> tuple[str, npt.NDArray[np.uint8]]:
    """A large constant's name and bytes, in its zeroed room."""
    _pack(graph, tensor, room)
    return _SHARED + hashlib.sha256(room.data).hexdigest()[:_DIGEST_CHARACTERS], room


def _pack(graph: TaskGraph, tensor: int, storage: npt.NDArray[np.uint8]) -> None:
    """Write a constant into its zeroed storage."""
    array = graph.constants[tensor]
    graph.tensors[tensor].layout.pack_into(array, storage.view(array.dtype))


def _padded(size_bytes: int, alignment_bytes: int) -> int:
    return -(-size_bytes // alignment_bytes) * alignment_bytes
