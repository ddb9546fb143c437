"""All devices by name, imported when they are asked for. A new device is a folder beside this file and a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from rammer.devices.cuda.architecture import KIND, NAMED
from rammer.errors import OptionError

if TYPE_CHECKING:
    from rammer.devices.base import Buffer, Device
    from rammer.devices.restorer import Restorer
    from rammer.options import CompileOptions

_CLASSES: Mapping[str, str] = {
    "cpu": "CpuDevice",
    "reference": "ReferenceDevice",
}
"""The class in `device.py` of the folder of that name."""

DEVICES = tuple(_CLASSES)
"""What every machine has."""

GPUS = ("cuda", *(f"cuda:{name}" for name in NAMED))
"""What takes the `cuda` extra: the GPU at hand first, then GPUs of named architectures to compile for."""

_STARTS: Mapping[str, str] = {KIND: "rammer.devices.cuda.start"}
"""Modules whose `start` begins what takes long and must be there before a model is loaded, by device."""


_RESTORERS: Mapping[str, str] = {"cpu": "rammer.devices.cpu.restoring"}
"""Modules whose `find` gives what restores the sections of a file by code that the file itself brings, by device."""


@cache
def find_device(name: str) -> Device:
    """The device that users call `name`.

    Raises:
        OptionError: there is none.
    """
    known = (*DEVICES, *GPUS)
    if name not in known:
        raise OptionError(f"device '{name}'", hint=f"choose one of {', '.join(known)}")
    folder, _, architecture = name.partition(":")
    module = import_module(f"rammer.devices.{folder}.device")
    device: Device = (
        module.CudaDevice(architecture=architecture or None) if name in GPUS else getattr(module, _CLASSES[name])()
    )
    return device


def start_device(name: str) -> None:
    """Begin what a device takes long for, before the rest of it is imported; `load` says what fails."""
    if name in _STARTS:
        import_module(_STARTS[name]).start()


def find_restorer(
    name: str, machine: Mapping[str, str], read: Callable[[str], Buffer | None], options: CompileOptions
) -> Restorer | None:
    """What restores the sections of a file by the code of a binary in it; None where there is none that runs here.

    Args:
        name: the binary's device.
        machine: what it needs, see `Binary`.
        read: gives a file of it by its name, None where it is not there.
        options: how models are loaded.
    """
    if name not in _RESTORERS:
        return None
    restorer: Restorer | None = import_module(_RESTORERS[name]).find(machine, read, options)
    return restorer
