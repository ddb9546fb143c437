"""The memory footprint of a schedule, beside what the cache that all vEUs share has room for."""

from __future__ import annotations

from rammer.ir.program import Schedule
from rammer.ir.task import TaskGraph, TensorRole
from rammer.ir.vdevice import VDevice
from rammer.schedule import memory


def uncached_bytes(graph: TaskGraph, schedule: Schedule, device: VDevice) -> int:
    """Bytes of the arena of all that rTasks hand on, where that is more than the shared cache holds; else 0.

    It is 0, too, where vEUs have no caches of their own, as on GPUs: others fetch a line from memory to write it.
    """
    shared_bytes = max((level.capacity_bytes for level in device.levels[:-1] if level.shared), default=0)
    made_bytes = sum(tensor.nbytes for tensor in graph.tensors if tensor.role is TensorRole.INTERMEDIATE)
    if not device.own_cache_bytes or made_bytes <= shared_bytes:
        return 0
    arena_bytes = memory.plan(graph, schedule, device.alignment_bytes, device.homes).arena_bytes
    return arena_bytes if arena_bytes > shared_bytes else 0
