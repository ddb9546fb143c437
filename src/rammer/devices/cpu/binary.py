"""What a built model consists of, and which processors can run it."""

from __future__ import annotations

from collections.abc import Mapping

from rammer.devices.cpu.machine import Machine
from rammer.ir.schema import check_schema

ABI = 5
"""The version of the tables that the runtime reads, and of its functions."""

KERNELS_LIBRARY = "kernels.so"
RUNTIME_LIBRARY = "runtime.so"


def requirements(machine: Machine) -> dict[str, str]:
    """What code built on `machine` needs, as an artifact keeps it."""
    return {
        "system": machine.system,
        "architecture": machine.architecture,
        "features": " ".join(machine.features),
    }


def mismatch(needed: Mapping[str, str], machine: Machine) -> str | None:
    """Why `machine` cannot run code that needs this (see `requirements`), or None if it can."""
    needed, here = dict(needed), requirements(machine)
    check_schema(needed, dict.fromkeys(here, str), "its machine")
    for fact in ("system", "architecture"):
        if needed[fact] != here[fact]:
            return f"it was built for {fact} {needed[fact]}, this is {fact} {here[fact]}"
    missing = sorted(set(needed["features"].split()) - set(machine.features))
    return f"it was built for a processor with {', '.join(missing)}" if missing else None
