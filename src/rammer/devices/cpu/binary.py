"""What a built model consists of, and which processors can run it."""

from __future__ import annotations

from rammer.devices.base import Binary
from rammer.devices.cpu.machine import Machine
from rammer.ir.schema import check_schema

KERNELS_LIBRARY = "kernels.so"
RUNTIME_LIBRARY = "runtime.so"


def requirements(machine: Machine) -> dict[str, str]:
    """What code built on `machine` needs, as an artifact keeps it."""
    return {
        "system": machine.system,
        "architecture": machine.architecture,
        "features": " ".join(machine.features),
    }


def mismatch(binary: Binary, machine: Machine) -> str | None:
    """Why `machine` cannot run `binary`, or None if it can."""
    needed, here = dict(binary.machine), requirements(machine)
    check_schema(needed, dict.fromkeys(here, str), "its machine")
    for fact in ("system", "architecture"):
        if needed[fact] != here[fact]:
            return f"it was built for {fact} {needed[fact]}, this is {fact} {here[fact]}"
    missing = sorted(set(needed["features"].split()) - set(machine.features))
    return f"it was built for a processor with {', '.join(missing)}" if missing else None
