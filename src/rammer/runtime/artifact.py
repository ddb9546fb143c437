"""Saved models: read back without the model and, on the same kind of machine, without a compiler."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from threading import Thread
from typing import Any

from rammer.devices.base import Binary, Device, Source
from rammer.errors import ArtifactCorruptError, ArtifactDeviceError, ArtifactVersionError, DeviceError, OptionError
from rammer.options import CompileOptions
from rammer.runtime.container import Buffer, open_container
from rammer.runtime.executable import Executable
from rammer.runtime.signature import Signature


class RebuiltWarning(UserWarning):
    """An artifact was built for another machine and was rebuilt from its source."""


def load_artifact(
    path: str | os.PathLike[str], options: CompileOptions, find_device: Callable[[str], Device]
) -> Executable:
    """Load what `Executable.save` wrote.

    Where the machine differs from the one it was built on, it is rebuilt from the sources in the file, with a
    `RebuiltWarning`; saving it again keeps the result.

    Raises:
        ArtifactNotFoundError: no such file, or it cannot be read.
        ArtifactCorruptError: truncated, altered or not an artifact.
        ArtifactVersionError: written by another version of the format, or of the tables in it.
        ArtifactDeviceError: it was built for a device that is unknown here, or for another machine and cannot be
            rebuilt here.
    """
    container = open_container(path)
    meta: Mapping[str, Any] = container.meta
    device_name = str(meta["device"])
    try:
        device = find_device(device_name)
    except OptionError as error:
        raise ArtifactDeviceError(
            f"{path} was compiled for the device '{device_name}', which this Rammer does not have", hint=error.hint
        ) from error
    starting = Thread(target=device.start, name="rammer-start")  # a GPU's driver takes longer than the file's check
    starting.start()
    try:
        sections = container.sections()
    finally:
        starting.join()
    source = Source(device=device_name, files=_under("source/", sections))
    binary = Binary(device=device_name, machine=meta["machine"], files=_under("binary/", sections))
    if "report" not in sections:
        raise ArtifactCorruptError(f"{path} cannot be used: it has no report", hint="compile the model again")
    if (reason := device.outdated(source)) is not None:
        raise ArtifactVersionError(
            f"{path} cannot be used: {reason}", hint="compile the model again and save it with this version"
        )
    reason = device.mismatch(binary)
    if reason is not None:
        warnings.warn(f"{path}: {reason}; rebuilding it for this machine", RebuiltWarning, stacklevel=3)
        try:
            binary = device.build(source, options)
        except DeviceError as error:
            raise ArtifactDeviceError(
                f"{path} was built for another machine ({reason}) and cannot be rebuilt here: {error.message}",
                hint=error.hint or "compile the model on this machine",
            ) from error
    return Executable(
        name=str(meta["name"]),
        signature=Signature.from_json(meta["signature"]),
        device=device,
        source=source,
        binary=binary,
        report=sections["report"],
        options=options,
    )


def _under(prefix: str, sections: Mapping[str, memoryview]) -> dict[str, Buffer]:
    return {name.removeprefix(prefix): section for name, section in sections.items() if name.startswith(prefix)}
