"""`load`. What reads a saved model is imported while its file is checked and a GPU's driver starts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from rammer.devices.registry import find_restorer, start_device
from rammer.guarded import guarded
from rammer.ir.schema import Schema, SchemaError, check_schema
from rammer.options import CompileOptions
from rammer.runtime.container import Check, Container, Json, open_container

if TYPE_CHECKING:
    from rammer.devices.restorer import Restorer

_ONE: Schema = {"device": str, "machine": {str: str}}
_SET: Schema = {"programs": [{"meta": _ONE, "sections": {str: str}}]}


def load(
    file: str | os.PathLike[str] | bytes, options: CompileOptions | None = None, *, veus: int | None = None
) -> Any:  # noqa: ANN401 - what was saved
    """Load what `save` wrote; needs neither the model nor, on a machine of the same kind, a compiler.

    Args:
        file: its path, or what `to_bytes` gave.
        options: how to run it, and to build it where it was built for another machine. What was decided when it was
            compiled stays, `veus` excepted.
        veus: execution units to use; None is those of the options (`RAMMER_VEUS`), else as many as it was saved with.
            For another number the same tasks are placed anew: results are the same bits. Of processors.

    Returns:
        What was saved: an `Executable`, a `CompiledModule`, a `ProgramSet` or what one was saved from.

    Raises:
        ArtifactError: the file cannot be used.
        DeviceUnavailableError: it was compiled for a device that is not here.
        OptionError: the programs cannot be placed on so many execution units.
        OutOfMemoryError: memory ran out.
    """
    options = options or CompileOptions()
    if veus is not None:
        options = replace(options, veus=veus)
    with guarded("loaded"), begin(file, options) as check, _started(check.container.meta):
        from rammer.saved import restored  # noqa: PLC0415 - meanwhile, see above

        return restored(check, options, advise=True)


def begin(file: str | os.PathLike[str] | bytes, options: CompileOptions) -> Check:
    """Open a file and begin to check it, by the code that its first program brings where that runs here.

    Raises:
        ArtifactError: it cannot be opened, its header is altered, or it is cut short.
    """
    container = open_container(file)
    programs = _programs(container.meta)
    return container.check(_restorer(container, programs[0], options) if programs else None)


class _Built(NamedTuple):
    """A program of a file: its device, what its binary needs, and the names of sections, where these are others."""

    device: str
    machine: Mapping[str, str]
    names: Mapping[str, str] | None


def _restorer(container: Container, program: _Built, options: CompileOptions) -> Restorer | None:
    def read(name: str) -> memoryview | None:
        section = f"binary/{name}"
        return container.file(section if program.names is None else program.names.get(section, ""))

    return find_restorer(program.device, program.machine, read, options)


@contextmanager
def _started(meta: Mapping[str, Json]) -> Iterator[None]:
    """Start the devices of a file's programs meanwhile."""
    devices = {program.device for program in _programs(meta)}
    threads = [Thread(target=start_device, args=(name,), name="rammer-start") for name in devices]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()


def _programs(meta: Mapping[str, Json]) -> list[_Built]:
    """The programs in a header; none where it has another form, which whoever reads it reports."""
    found = cast(Mapping[str, Any], meta)
    try:
        if "programs" not in found:
            check_schema(found, _ONE, "")
            return [_Built(found["device"], found["machine"], None)]
        check_schema(found, _SET, "")
    except SchemaError:
        return []
    return [_Built(one["meta"]["device"], one["meta"]["machine"], one["sections"]) for one in found["programs"]]
