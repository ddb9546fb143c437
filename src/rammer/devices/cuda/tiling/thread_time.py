"""How long a block takes for an rTask whose threads work each for itself: everything but products in tiles.

Its time is that of the busiest thread: how often it waits for memory, what it issues while the others do as much, how
often it exchanges values and meets the others; and that of what passes through the caches meanwhile.
"""

from __future__ import annotations

from functools import lru_cache

from rammer.devices.cuda.tiling.figures import ThreadFigures
from rammer.devices.cuda.tiling.lines import SECTOR_BYTES, slot_bytes
from rammer.devices.cuda.tiling.thread_work import thread_work
from rammer.ir.task import RKernel
from rammer.ir.types import DType
from rammer.ir.vdevice import VDevice

_CACHED = 0.3  # of shared memory, which operands of products leave to the cache


def straight_instructions(kernel: RKernel) -> float:
    """Instructions of the busiest thread between two waits for memory: a loop's turn, or all of them."""
    work = thread_work(kernel, 0)
    return work.instructions / max(1.0, work.waits)


@lru_cache(maxsize=4096)
def thread_us(kernel: RKernel, vdevice: VDevice, figures: ThreadFigures) -> float:
    """Time of one full rTask, in microseconds."""
    shared = next(level for level in vdevice.levels if not level.shared)
    work = thread_work(kernel, int(shared.capacity_bytes * _CACHED))
    whole = [axis.extent for axis in kernel.expr.axes]
    lanes_per_us = vdevice.flops_per_us[DType.FLOAT32].value / 2
    l2 = next(level for level in vdevice.levels if level.shared)
    in_l2 = sum(slot_bytes(kernel, whole, SECTOR_BYTES)) <= l2.capacity_bytes
    share = min(1.0, kernel.task_count / vdevice.veu_count)
    moved_us = sum(slot_bytes(kernel, kernel.tile.task, SECTOR_BYTES)) * share
    return (
        figures.start_us
        + work.waits * figures.wait_us
        + work.instructions * work.threads / (lanes_per_us * figures.issued)
        + work.exchanges * figures.exchange_us
        + work.barriers * figures.barrier_us
        + work.found * figures.found_us
        + max(work.missed * figures.missed_us, moved_us * (figures.l2_us if in_l2 else figures.memory_us))
    )
