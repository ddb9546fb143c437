"""The types of `runtime/tables.cuh`, as the host sees them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

WAITS, SIGNALS = 2, 16  # of a record at most
SEGMENT_SHIFT = 48
NOTHING = 0xFFFFFFFF
DONE = 0xFFFFFFFF

WAIT = np.dtype([("counter", "<u4"), ("threshold", "<u4"), ("signals", "<u4")])
COUNTER = np.dtype([("signals", "<u4"), ("reserved", "<u4", 7)])
TAGGED = np.dtype([("value", "<f4"), ("tag", "<u4")])
VEU = np.dtype(
    [(name, "<u4") for name in ("runs", "late_run", "late", "seen", "claims", "launches")] + [("reserved", "<u4", 2)]
)
STATUS = np.dtype([("run", "<u4"), ("stalled", "<u4")])
SPAN = np.dtype([("begin", "<i8"), ("ready", "<i8"), ("computed", "<i8"), ("end", "<i8")])
CLOCK = np.dtype([("cycles", "<i8"), ("nanoseconds", "<i8")])


MAP_BYTES = 128  # of a tensor map as the GPU reads it
TENSOR_MAP = np.dtype(
    [
        ("segment", "<u4"),
        ("format", "<u4"),
        ("offset_bytes", "<u8"),
        ("extents", "<u8", 4),
        ("strides_bytes", "<u8", 3),
        ("box", "<u4", 4),
    ]
)
"""A tensor map: elements of a format, from an offset in a segment on, fastest dimension first; a copy takes a box."""


def record_dtype(slots: int) -> np.dtype[np.void]:
    """The record that has room for `slots` operands, an even number."""
    return np.dtype(
        [
            ("kernel", "<u4"),
            ("tile", "<u4"),
            ("run", "<u4"),
            ("ahead_bytes", "<u4"),
            ("number", "<u4"),
            ("step", "<u4"),
            ("wait_count", "<u2"),
            ("signal_count", "<u2"),
            ("busy", "u1"),
            ("joins", "u1"),
            ("predicated", "<u2"),
            ("waits", WAIT, (WAITS,)),
            ("signals", "<u4", (SIGNALS,)),
            ("ahead_offset", "<u8"),
            ("operands", "<u8", (slots,)),
        ]
    )


class Program(ctypes.Structure):
    """`rammer_program`, the persistent kernel's parameter, but for the segments' addresses at its end."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = (
        ("records", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("counters", ctypes.c_void_p),
        ("veus", ctypes.c_void_p),
        ("status", ctypes.c_void_p),
        ("spans", ctypes.c_void_p),
        ("clocks", ctypes.c_void_p),
        ("timeout_ns", ctypes.c_uint64),
        ("turns", ctypes.c_void_p),
        ("turn_count", ctypes.c_uint32),
        ("met", ctypes.c_uint32),
    )


def program_type(segments: int) -> type[Program]:
    """`rammer_program` with the addresses of so many segments."""

    class WithSegments(Program):  # fields are added behind those of the base
        _fields_ = (("segments", ctypes.c_uint64 * segments),)

    return WithSegments
