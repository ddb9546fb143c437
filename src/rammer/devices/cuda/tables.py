"""The types of `runtime/tables.cuh`, as the host sees them."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from rammer.devices.codegen.tables import WAIT

COUNTER = np.dtype([("signals", "<u4"), ("reserved", "<u4", 7)])
STATUS = np.dtype([("stalled", "<u4"), ("reserved", "<u4")])
SPAN = np.dtype([("start", "<i8"), ("end", "<i8")])
CLOCK = np.dtype([("cycles", "<i8"), ("nanoseconds", "<i8")])
DONE = 0xFFFFFFFF


class Program(ctypes.Structure):
    """`rammer_program`: the persistent kernel's parameter."""

    _fields_ = (
        ("records", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("pointers", ctypes.c_void_p),
        ("counters", ctypes.c_void_p),
        ("reached", ctypes.c_void_p),
        ("status", ctypes.c_void_p),
        ("spans", ctypes.c_void_p),
        ("clocks", ctypes.c_void_p),
        ("timeout_ns", ctypes.c_uint64),
        ("run", ctypes.c_uint32),
        ("met", ctypes.c_uint32),
    )


def device_records(records: npt.NDArray[np.void], signals: npt.NDArray[np.uint32]) -> npt.NDArray[np.void]:
    """Records as the interpreter reads them: a Wait also tells how often its counter is signalled in a run."""
    found = records.copy()
    waits = found["opcode"] == WAIT
    found["c"][waits] = signals[found["a"][waits]]
    return found
