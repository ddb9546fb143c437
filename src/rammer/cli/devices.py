"""`rammer devices`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from rammer.cli.arguments import JsonOption
from rammer.cli.output import errors, output, print_json, say_beside
from rammer.errors import DeviceError
from rammer.options import CompileOptions


def devices_command(
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure the machines again; RAMMER_FIGURES=measured compiles by that.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the devices and what is known of them here."""
    from rammer.devices.cache import PEAKS, clear
    from rammer.devices.registry import DEVICES, GPUS, find_device
    from rammer.inspection import tables

    options = CompileOptions()
    if measure:
        if errors.is_terminal:
            errors.print("measuring the machine, which takes some seconds")
        clear(options.cache_dir, [PEAKS])
        options = replace(options, figures="measured")
    here, *elsewhere = GPUS
    found: dict[str, dict[str, Any]] = {}
    for name in (*DEVICES, here):
        try:
            found[name] = {key: _plain(value) for key, value in asdict(find_device(name).describe(options)).items()}
        except DeviceError as error:
            found[name] = {"unavailable": error.message, "to_do": error.hint}
    if as_json:
        print_json(found)
        return
    for name, description in found.items():
        if "unavailable" in description:
            say_beside(f"{name}  ", f"not available: {description['unavailable']}")
            say_beside("      to do: ", description["to_do"])
        else:
            output.print(tables.device(name, description))
    say_beside("elsewhere  ", f"a GPU that is not here can be compiled for: {', '.join(elsewhere)}")


def _plain(value: object) -> object:
    """Dataclass fields as JSON data: enum keys by their value, tuples as lists."""
    if isinstance(value, Mapping):
        return {getattr(key, "value", key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value
