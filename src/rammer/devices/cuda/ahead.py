"""Constants that a vEU brings into L2 before the rTask that reads them waits for its other operands (DESIGN D6).

Each record names a part of the constants that the next rTask of its vEU streams, at most `limit_bytes` of it, and half
as much more of one of several matrices, so that memory stays busy while vEUs hand over. More would only take its turn
from what rTasks read now (ADR 0015). Nothing is asked for where all constants fit L2, which keeps them between runs,
nor where hardly any are left beside those that are streamed, as in decoders: vEUs then hand over sooner, and L2 keeps
what it will (docs/experiments/decode.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from rammer.devices.codegen.tables import CONSTANT
from rammer.devices.cuda.tables import NOTHING, SEGMENT_SHIFT
from rammer.ir.region import box_size, read_boxes
from rammer.ir.task import RKernel
from rammer.ir.vdevice import VDevice

_HANDOVERS = 2  # that memory is kept busy for: results on their way, then the first loads
_OF_SEVERAL = 1.5  # times as much for an rTask of several matrices, which waits longest (docs/experiments/decode.md)
_LEAST_BYTES = 16 << 10  # less comes soon enough without being asked for
_LEAST_KEPT = 1 / 64  # of the shared cache: constants worth keeping there while others are streamed
_GRAIN_BYTES = 16  # addresses and sizes that a bulk prefetch takes are multiples of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """An rKernel and the slots of the constants that it streams from memory each time."""

    kernel: RKernel
    slots: tuple[int, ...]


def ahead_limit_bytes(vdevice: VDevice, *, streamed_bytes: int, kept_bytes: int) -> int:
    """What a vEU may ask for ahead; 0 where constants need no room made for them in the cache that the vEUs share.

    That is where all fit it, or where there are hardly any but those that are streamed.

    Args:
        vdevice: the machine.
        streamed_bytes: of the constants that rTasks stream from memory if they do not fit.
        kept_bytes: of all others.
    """
    shared_bytes = max((level.capacity_bytes for level in vdevice.levels[:-1] if level.shared), default=0)
    if streamed_bytes + kept_bytes <= shared_bytes or kept_bytes < shared_bytes * _LEAST_KEPT:
        return 0
    return int(_HANDOVERS * vdevice.handover_us.value * vdevice.levels[-1].bandwidth_bytes_per_us.value)


def look_ahead(
    records: npt.NDArray[np.void], firsts: Sequence[int], streamed: Mapping[int, Streamed], limit_bytes: int
) -> None:
    """Write into each record what the next rTask of its vEU streams: `ahead_offset` and `ahead_bytes`.

    Args:
        records: of all vEUs one after another.
        firsts: where each vEU's records begin and end.
        streamed: by the number of an rKernel.
        limit_bytes: at most so much for an rTask of one matrix, half as much more for one of several.
    """
    if limit_bytes < _LEAST_BYTES:
        return
    for begin, end in itertools.pairwise(firsts):
        tasks = [i for i in range(begin, end) if records["kernel"][i] != NOTHING]
        for before, task in itertools.pairwise(tasks):
            found = streamed.get(int(records["kernel"][task]))
            if found is None or records["predicated"][task]:  # what is skipped needs none
                continue
            parts = _parts(found, int(records["tile"][task]))
            slot, first_byte, size_bytes = max(parts, key=lambda part: part[2], default=(0, 0, 0))
            if size_bytes >= _LEAST_BYTES:
                segment, offset_bytes = divmod(int(records["operands"][task, slot]), 1 << SEGMENT_SHIFT)
                if segment != CONSTANT:  # what a run reads of a state lies in turns in two places
                    continue
                begin = (offset_bytes + first_byte) // _GRAIN_BYTES * _GRAIN_BYTES
                end = offset_bytes + first_byte + size_bytes
                several = sum(part[2] >= _LEAST_BYTES for part in parts) > 1
                most = int(limit_bytes * (_OF_SEVERAL if several else 1))
                records["ahead_offset"][before] = begin
                records["ahead_bytes"][before] = min(end - begin, most) // _GRAIN_BYTES * _GRAIN_BYTES


@lru_cache(maxsize=4096)
def _parts(streamed: Streamed, tile: int) -> tuple[tuple[int, int, int], ...]:
    """(slot, first byte, bytes) of the constants that an rTask reads, from the slot's first element on.

    Only parts that lie together: where an rTask reads here and there, most of what lies between is not for it.
    """
    kernel = streamed.kernel
    boxes = read_boxes(kernel.expr.usual, kernel.tile_ranges(tile))
    parts = []
    for slot in streamed.slots:
        box = boxes[slot]
        if box is None or box_size(box) == 0:
            continue
        layout, size_bytes = kernel.layouts[slot], kernel.expr.inputs[slot].dtype.itemsize_bytes
        first = layout.address([span.lo for span in box])
        last = layout.address([span.hi - 1 for span in box])
        if last - first < 2 * box_size(box):
            parts.append((slot, first * size_bytes, (last - first + 1) * size_bytes))
    return tuple(parts)
