"""All devices by name, imported when they are asked for. A new device is a folder beside this file and a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

from rammer.devices.base import Device
from rammer.devices.cuda.architecture import NAMED
from rammer.errors import OptionError


def _cpu() -> Device:
    from rammer.devices.cpu.device import CpuDevice  # noqa: PLC0415 - see the module

    return CpuDevice()


def _reference() -> Device:
    from rammer.devices.reference.device import ReferenceDevice  # noqa: PLC0415 - see the module

    return ReferenceDevice()


def _cuda(architecture: str | None) -> Device:
    from rammer.devices.cuda.device import CudaDevice  # noqa: PLC0415 - see the module

    return CudaDevice(architecture=architecture)


_MAKERS: Mapping[str, Callable[[], Device]] = {
    "cpu": _cpu,
    "reference": _reference,
    "cuda": partial(_cuda, None),
    **{f"cuda:{name}": partial(_cuda, name) for name in NAMED},
}

DEVICES = ("cpu", "reference")
"""What every machine has."""

GPUS = tuple(name for name in _MAKERS if name not in DEVICES)
"""What takes the `cuda` extra: the GPU at hand first, then GPUs of named architectures to compile for."""


@cache
def find_device(name: str) -> Device:
    """The device that users call `name`.

    Raises:
        OptionError: there is none.
    """
    if name not in _MAKERS:
        raise OptionError(f"device '{name}'", hint=f"choose one of {', '.join(_MAKERS)}")
    return _MAKERS[name]()
