"""Arrays by their addresses."""

from __future__ import annotations

import ctypes

import numpy as np

from rammer.ir.graph import Array
from rammer.ir.types import TensorType


def array_at(address: int, type_: TensorType) -> Array:
    """The array of a type that lies at an address of the host's memory, row by row; whoever owns it keeps it there."""
    if type_.nbytes == 0:
        return np.empty(type_.shape, type_.dtype.numpy)
    memory = memoryview((ctypes.c_char * type_.nbytes).from_address(address))
    array: Array = np.frombuffer(memory.cast("B"), type_.dtype.numpy)
    return array.reshape(type_.shape)
