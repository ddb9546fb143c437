"""Saved models: read back without the model and, on the same kind of machine, without a compiler."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from threading import Thread
from typing import Any

import numpy as np

from rammer.devices.base import Binary, Device, Source
from rammer.errors import ArtifactDeviceError, ArtifactVersionError, DeviceError, OptionError
from rammer.ir.graph import Array
from rammer.ir.schema import Schema, SchemaError, check_schema
from rammer.options import CompileOptions
from rammer.runtime.container import Buffer, Container, corrupt, open_container
from rammer.runtime.executable import Executable
from rammer.runtime.module import CompiledModule
from rammer.runtime.signature import Port, Signature
from rammer.runtime.structure import form_from_json
from rammer.runtime.tensors import FindLibrary

_META: Schema = {"name": str, "device": str, "machine": {str: str}, "signature": {}}


class RebuiltWarning(UserWarning):
    """An artifact was built for another machine and was rebuilt from its source."""


def load_artifact(
    path: str | os.PathLike[str],
    options: CompileOptions,
    find_device: Callable[[str], Device],
    find_library: FindLibrary,
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
    try:
        return _load(path, container, options, find_device, find_library)
    except SchemaError as error:
        raise corrupt(path, str(error)) from error


def _load(
    path: str | os.PathLike[str],
    container: Container,
    options: CompileOptions,
    find_device: Callable[[str], Device],
    find_library: FindLibrary,
) -> Executable:
    meta: Mapping[str, Any] = container.meta
    check_schema(meta, _META, "its header.meta")
    signature = Signature.from_json(meta["signature"])
    device_name = meta["device"]
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
    source = Source(device=device_name, files=_Files("source/", sections))
    binary = Binary(device=device_name, machine=meta["machine"], files=_Files("binary/", sections))
    if (reason := device.outdated(source, signature.array_bytes)) is not None:
        raise ArtifactVersionError(
            f"{path} cannot be used: {reason}", hint="compile the model again and save it with this version"
        )
    reason = device.mismatch(binary)
    if reason is not None:
        warnings.warn(f"{path}: {reason}; rebuilding it for this machine", RebuiltWarning, stacklevel=4)
        try:
            binary = device.build(source, options)
        except DeviceError as error:
            raise ArtifactDeviceError(
                f"{path} was built for another machine ({reason}) and cannot be rebuilt here: {error.message}",
                hint=error.hint or "compile the model on this machine",
            ) from error
    form = None if "form" not in meta else form_from_json(meta["form"], signature)
    kind = Executable if form is None else partial(CompiledModule, form=form, find_library=find_library)
    return kind(
        name=meta["name"],
        signature=signature,
        device=device,
        source=source,
        binary=binary,
        report=_Files("", sections)["report"],
        initial=[_initial(sections, i, port) for i, port in enumerate(signature.states)],
        options=options,
    )


def _initial(sections: Mapping[str, memoryview], position: int, port: Port) -> Array:
    """The value that a state begins with."""
    stored = _Files("state/", sections)[str(position)]
    if len(stored) != port.type.nbytes:
        raise SchemaError(f"the initial value of '{port.name}' has {len(stored)} bytes, not {port.type.nbytes}")
    array: Array = np.frombuffer(stored, port.type.dtype.numpy)
    return array.reshape(port.type.shape)


class _Files(dict[str, Buffer]):
    """The sections whose names begin with a prefix, by what follows it."""

    def __init__(self, prefix: str, sections: Mapping[str, memoryview]) -> None:
        super().__init__(
            (name.removeprefix(prefix), data) for name, data in sections.items() if name.startswith(prefix)
        )
        self._prefix = prefix

    def __missing__(self, name: str) -> Buffer:
        raise SchemaError(f"it has no section '{self._prefix}{name}'")
