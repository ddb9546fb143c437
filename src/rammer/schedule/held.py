"""What a schedule holds at a time, beside what the cache that all vEUs share has room for."""

from __future__ import annotations

from rammer.ir.program import Schedule
from rammer.ir.task import TaskGraph, TensorRole
from rammer.ir.vdevice import VDevice
from rammer.schedule import memory


def held_bytes(graph: TaskGraph, schedule: Schedule, device: VDevice) -> int:
    """Memory for all that rTasks hand on, where that is more than the shared cache holds; else 0.

    It counts on devices whose vEUs have caches of their own: they bring lines from memory to write them, too.
    """
    shared_bytes = max((level.capacity_bytes for level in device.levels[:-1] if level.shared), default=0)
    made_bytes = sum(tensor.nbytes for tensor in graph.tensors if tensor.role is TensorRole.INTERMEDIATE)
    if not device.own_cache_bytes or made_bytes <= shared_bytes:
        return 0
    arena_bytes = memory.plan(graph, schedule, device.alignment_bytes, device.homes).arena_bytes
    return arena_bytes if arena_bytes > shared_bytes else 0
