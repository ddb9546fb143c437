"""All devices by name. A new device is a folder beside this file and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from rammer.devices.base import Device
from rammer.devices.cpu.device import CpuDevice
from rammer.devices.reference.device import ReferenceDevice
from rammer.errors import OptionError

DEVICES: Mapping[str, Device] = {device.name: device for device in (CpuDevice(), ReferenceDevice())}


def find_device(name: str) -> Device:
    """The device that users call `name`.

    Raises:
        OptionError: there is none.
    """
    if name not in DEVICES:
        raise OptionError(f"device '{name}'", hint=f"choose one of {', '.join(DEVICES)}")
    return DEVICES[name]
