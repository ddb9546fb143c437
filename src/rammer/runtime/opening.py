"""Files of models opened and checked, before NumPy is imported."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from rammer.devices.registry import find_restorer
from rammer.ir.schema import Schema, SchemaError, check_schema
from rammer.options import CompileOptions
from rammer.runtime.container import Check, Container, Json, open_container

if TYPE_CHECKING:
    from rammer.devices.restorer import Restorer

_ONE: Schema = {"device": str, "machine": {str: str}}
_SET: Schema = {"programs": [{"meta": _ONE, "sections": {str: str}}]}


class Built(NamedTuple):
    """A program of a file: its device, what its binary needs, and the names of sections, where these are others."""

    device: str
    machine: Mapping[str, str]
    names: Mapping[str, str] | None


def begin(file: str | os.PathLike[str] | bytes, options: CompileOptions) -> Check:
    """Open a file and begin to check it, by the code that its first program brings where that runs here.

    Raises:
        ArtifactError: it cannot be opened, its header is altered, or it is cut short.
    """
    container = open_container(file)
    programs = programs_of(container.meta)
    return container.check(_restorer(container, programs[0], options) if programs else None)


def programs_of(meta: Mapping[str, Json]) -> list[Built]:
    """The programs in a header; none where it has another form, which whoever reads it reports."""
    found = cast(Mapping[str, Any], meta)
    try:
        if "programs" not in found:
            check_schema(found, _ONE, "")
            return [Built(found["device"], found["machine"], None)]
        check_schema(found, _SET, "")
    except SchemaError:
        return []
    return [Built(one["meta"]["device"], one["meta"]["machine"], one["sections"]) for one in found["programs"]]


def _restorer(container: Container, program: Built, options: CompileOptions) -> Restorer | None:
    def read(name: str) -> memoryview | None:
        section = f"binary/{name}"
        return container.file(section if program.names is None else program.names.get(section, ""))

    return find_restorer(program.device, program.machine, read, options)
