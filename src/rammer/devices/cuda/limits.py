"""What the persistent kernel has room for: arrays among its parameters, records in a block's shared memory."""

from __future__ import annotations

import ctypes

from rammer.devices.codegen.tables import CALLER
from rammer.devices.cuda.tables import Program, record_dtype
from rammer.errors import TooManyArraysError

_PARAMETER_BYTES = 32_764  # CUDA C++ Programming Guide, "__global__ function parameters": CUDA 12.1, Volta and newer
_NAMED_BYTES = 48 << 10  # of shared memory, that code may name
_QUEUE_BYTES = 1 << 10  # more than a vEU's queue takes there, beside its records
_WARPGROUPS_BYTES = 4 << 10  # more than a product of warpgroups names there
_CHUNK = 16
_CHUNKS_BYTES = 12 << 10  # of shared memory, for records; the rest is better used by rTasks
_LARGE_CHUNK = 32
_L1_BYTES = 32 << 10  # of a multiprocessor's shared memory that larger chunks leave: its L1 has them then
_ADDRESS_BYTES = 8
_HINT = "compile for the device 'cpu' instead"

MOST_ARRAYS = (_PARAMETER_BYTES - ctypes.sizeof(Program)) // _ADDRESS_BYTES - CALLER - 1  # and one for tensor maps
"""Inputs and outputs of a model."""


def chunk_of(slots: int, room_bytes: int = 0) -> int:
    """Records with room for `slots` operands that are fetched together; there are two such chunks in shared memory.

    Each chunk makes a run 0.45 us longer (docs/experiments/streams-and-code.md), so they are larger where rTasks leave
    `room_bytes` of shared memory for them.
    """
    return max(_largest_chunk(slots, _CHUNK, _CHUNKS_BYTES), _largest_chunk(slots, _LARGE_CHUNK, room_bytes))


def records_room_bytes(arrays: int, room_bytes: int) -> int:
    """What `arrays` inputs and outputs leave for records, of the shared memory that rTasks leave; 0 if nothing."""
    named_bytes = min(room_bytes - _L1_BYTES, _NAMED_BYTES - _WARPGROUPS_BYTES)
    return max(0, named_bytes - _QUEUE_BYTES - _addresses_bytes(arrays))


def check_room(arrays: int, slots: int, where: str, room_bytes: int = _NAMED_BYTES) -> None:
    """Refuse a model that has too many arrays.

    Args:
        arrays: its inputs and outputs.
        slots: operands of the operator that has most.
        where: that operator.
        room_bytes: what rTasks leave of shared memory.

    Raises:
        TooManyArraysError: the kernel has no room for them.
    """
    if arrays > MOST_ARRAYS:
        raise TooManyArraysError(
            f"the model has {arrays} inputs and outputs, a GPU's kernel takes {MOST_ARRAYS} at most", hint=_HINT
        )
    chunk = chunk_of(slots, records_room_bytes(arrays, room_bytes))
    named_bytes = _addresses_bytes(arrays) + _chunks_bytes(chunk, slots) + _QUEUE_BYTES
    if named_bytes > min(room_bytes, _NAMED_BYTES):
        raise TooManyArraysError(
            f"an operator with {slots} operands, in a model with {arrays} inputs and outputs, takes {named_bytes} "
            f"bytes of shared memory; there are {min(room_bytes, _NAMED_BYTES)}",
            where=where,
            hint=_HINT,
        )


def _addresses_bytes(arrays: int) -> int:
    return _ADDRESS_BYTES * (CALLER + arrays + 1)


def _largest_chunk(slots: int, most: int, room_bytes: int) -> int:
    chunk = most
    while chunk > 1 and _chunks_bytes(chunk, slots) > room_bytes:
        chunk //= 2
    return chunk


def _chunks_bytes(chunk: int, slots: int) -> int:
    return 2 * chunk * record_dtype(slots).itemsize
