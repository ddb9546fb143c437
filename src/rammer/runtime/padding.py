"""Inputs of fewer elements than a program takes: arrays that begin with them and are 0 elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from rammer.devices.base import Resident
from rammer.ir.types import TensorType
from rammer.runtime.signature import Port, host_input
from rammer.runtime.views import check_input_view


def padded(array: Any, port: Port, resident: Resident | None) -> Any:  # noqa: ANN401 - an array of any library
    """An array for an input that begins with a given one, where that lies.

    Args:
        array: the given one, of any library, with extents that are at most those of the input.
        port: the input.
        resident: the model, where its device has memory of its own.

    Raises:
        CallError: the array is not what the input is, but for its extents.
        DeviceUnavailableError: there is too little memory on the device.
    """
    given = Port(port.name, TensorType(port.type.dtype, tuple(array.shape)))
    if resident is not None and not isinstance(array, np.ndarray):
        stream = resident.stream_of(None)
        view = resident.view(array, stream)
        if view is not None:
            check_input_view(given, view, 1)
            return resident.padded(view[0], given.type, port.type.shape, stream)
    part = host_input(array, given)
    whole = np.zeros(port.type.shape, part.dtype)
    whole[tuple(map(slice, part.shape))] = part
    return whole
