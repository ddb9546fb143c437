"""Saved models: read back without the model and, on the same kind of machine, without a compiler."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rammer.devices.base import Binary, Device, Placing, Source
from rammer.errors import ArtifactDeviceError, ArtifactVersionError, DeviceError, OptionError
from rammer.ir.schema import Schema, SchemaError, check_schema
from rammer.options import CompileOptions
from rammer.runtime.chained import CHAIN, ChainedDevice, veus_of
from rammer.runtime.container import Buffer, Check, corrupt
from rammer.runtime.executable import Executable
from rammer.runtime.module import CompiledModule
from rammer.runtime.programs import DEFAULT_LIMIT, SET_META, ProgramSet, SetReader
from rammer.runtime.signature import Port, Signature
from rammer.runtime.stored import Sections
from rammer.runtime.structure import form_from_json
from rammer.runtime.tensors import FindLibrary

if TYPE_CHECKING:
    from rammer.ir.graph import Array

Place = Callable[[Device, Source, Buffer, CompileOptions], tuple[Source, Buffer]]
"""Puts a program, given by its source and its task graph, on as many execution units as the options say: its source and
its report."""

_log = logging.getLogger(__name__)
_META: Schema = {"name": str, "device": str, "machine": {str: str}, "signature": {}}


class RebuiltWarning(UserWarning):
    """An artifact was built for another machine and was rebuilt from its source."""


def load_artifact(
    check: Check,
    options: CompileOptions,
    find_device: Callable[[str], Device],
    find_library: FindLibrary,
    find_reader: Callable[[str], SetReader],
    place: Place,
    *,
    advise: bool,
) -> Any:  # noqa: ANN401 - what a program set was made into is for its reader to say
    """Load what `Executable.save` or `ProgramSet.save` wrote.

    Where the machine differs from the one it was built on, it is rebuilt from the sources in the file, with a
    `RebuiltWarning`; saving it again keeps the result.

    Args:
        check: the file, whose check is under way.
        options: how to build and run it.
        find_device: gives a device by its name.
        find_library: gives the library whose tensors are of a class.
        find_reader: gives what reads a set of programs of a kind.
        place: puts a program on another number of execution units.
        advise: whether to say so where the machine has more of them than the programs.

    Returns:
        An `Executable`, or what the reader of the set's kind makes of a `ProgramSet`.

    Raises:
        ArtifactCorruptError: altered.
        ArtifactVersionError: written by another version of the tables in it.
        ArtifactDeviceError: it was built for a device that is unknown here, or for another machine and cannot be
            rebuilt here.
        OptionError: the options name another number of execution units, and it cannot be had.
        OutOfMemoryError: with that number it takes more memory than there is.
    """
    path, meta = check.container.source, cast(Mapping[str, Any], check.container.meta)
    reading = _Reading(path=path, options=options, find_device=find_device, find_library=find_library, place=place)
    try:
        if "programs" not in meta:
            device = reading.device_of(meta)
            executable = reading.executable(meta, device, check.sections())
            if advise:
                reading.advise(device)
            return executable
        check_schema(meta, SET_META, "its header.meta")
        devices = [reading.device_of(program["meta"]) for program in meta["programs"]]
        sections = check.sections()
        programs = ProgramSet(limit=max(len(devices), DEFAULT_LIMIT))
        for device, program in zip(devices, meta["programs"], strict=True):
            own = _of_program(sections, program["sections"])
            programs.add(reading.executable(program["meta"], device, own), program["entry"])
        if devices and advise:
            reading.advise(devices[0])
        return find_reader(meta["kind"])(programs, meta["about"])
    except SchemaError as error:
        raise corrupt(path, str(error)) from error


@dataclass(slots=True, kw_only=True)
class _Reading:
    """What it takes to make executables of what a file holds; `widest` is how many execution units one has at most."""

    path: str
    options: CompileOptions
    find_device: Callable[[str], Device]
    find_library: FindLibrary
    place: Place
    widest: int = 0

    def device_of(self, meta: Mapping[str, Any]) -> Device:
        """The device of a program, whose description is checked."""
        check_schema(meta, _META, "its header.meta")
        try:
            return self.find_device(meta["device"])
        except OptionError as error:
            raise ArtifactDeviceError(
                f"{self.path} was compiled for the device '{meta['device']}', which this Rammer does not have",
                hint=error.hint,
            ) from error

    def executable(self, meta: Mapping[str, Any], device: Device, sections: Sections) -> Executable:
        """A program from its description and its sections by name."""
        signature = Signature.from_json(meta["signature"])
        recipes = {name.removeprefix("source/"): recipe for name, recipe in sections.recipes.items()}
        source = Source(device=meta["device"], files=_Files("source/", sections), recipes=recipes)
        binary = Binary(device=meta["device"], machine=meta["machine"], files=_Files("binary/", sections))
        if is_chain := CHAIN in source.files:
            device = ChainedDevice(device)
        if (reason := device.outdated(source, signature.array_bytes)) is not None:
            raise ArtifactVersionError(
                f"{self.path} cannot be used: {reason}", hint="compile the model again and save it with this version"
            )
        if (reason := device.mismatch(binary)) is not None:
            binary = self._rebuilt(device, source, reason)
        report, tasks = _Files("", sections)["report"], sections.get("tasks", b"")
        veus = veus_of(source)
        self.widest = max(self.widest, 1 if is_chain else veus)  # a chain keeps its number
        if self.options.veus is not None and self.options.veus != veus:
            source, report = self.place(device, source, tasks, self.options)
        form = None if "form" not in meta else form_from_json(meta["form"], signature)
        kind = Executable if form is None else partial(CompiledModule, form=form, find_library=self.find_library)
        return kind(
            name=meta["name"],
            signature=signature,
            device=device,
            source=source,
            binary=binary,
            report=report,
            tasks=tasks,
            initial=[_initial(sections, i, port) for i, port in enumerate(signature.states)],
            options=self.options,
        )

    def advise(self, device: Device) -> None:
        """Say so where the machine has more execution units than the programs, and nobody named a number.

        Programs of one unit are for calls side by side: they use all cores as they are.
        """
        if (
            self.options.veus is None
            and isinstance(device, Placing)
            and 1 < self.widest < (here := device.usual_veus())
        ):
            _log.warning(
                "%s is for %d vEUs, this machine has %d cores: name a number, veus=%d or veus=%d",
                *(self.path, self.widest, here, here, self.widest),
            )

    def _rebuilt(self, device: Device, source: Source, reason: str) -> Binary:
        warnings.warn(f"{self.path}: {reason}; rebuilding it for this machine", RebuiltWarning, stacklevel=6)
        _log.info("rebuilding %s: %s", self.path, reason)
        try:
            return device.build(source, self.options)
        except DeviceError as error:
            raise ArtifactDeviceError(
                f"{self.path} was built for another machine ({reason}) and cannot be rebuilt here: {error.message}",
                hint=error.hint or "compile the model on this machine",
            ) from error


def _of_program(sections: Sections, placed: Mapping[str, str]) -> Sections:
    """The sections of a program of a set, whose file has each of them once."""
    stored = _Files("", sections)
    return Sections(
        {name: memoryview(stored[section]) for name, section in placed.items()},
        {name: sections.recipes[section] for name, section in placed.items() if section in sections.recipes},
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
