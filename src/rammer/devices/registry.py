"""All devices by name. A new device is a folder beside this file and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from rammer.devices.base import Device
from rammer.devices.cpu.device import CpuDevice
from rammer.devices.cuda.architecture import NAMED
from rammer.devices.cuda.device import CudaDevice
from rammer.devices.reference.device import ReferenceDevice
from rammer.errors import OptionError

DEVICES: Mapping[str, Device] = {device.name: device for device in (CpuDevice(), ReferenceDevice())}

"""What every machine has."""

GPUS: Mapping[str, Device] = {
    device.name: device for device in (CudaDevice(), *(CudaDevice(architecture=name) for name in NAMED))
}
"""What takes the `cuda` extra: the GPU at hand first, then GPUs of named architectures to compile for."""


def find_device(name: str) -> Device:
    """The device that users call `name`.

    Raises:
        OptionError: there is none.
    """
    known = {**DEVICES, **GPUS}
    if name not in known:
        raise OptionError(f"device '{name}'", hint=f"choose one of {', '.join(known)}")
    return known[name]
