"""Saved models with another header: whole by their checksums, but from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rammer.devices.base import Buffer
from rammer.devices.codegen.source import MANIFEST
from rammer.runtime.container import open_container, write_container


def rewrite(path: Path, **meta: Any) -> Path:
    """Replace entries of a saved model's header."""
    container = open_container(path)
    sections = {name: bytes(section) for name, section in container.sections().items()}
    write_container(path, {**container.meta, **meta}, sections)
    return path


def of_another_version(path: Path) -> Path:
    """Make a saved model one of a Rammer whose tables had version 0 and other sizes."""
    container = open_container(path)
    files: dict[str, Buffer] = {name: bytes(section) for name, section in container.sections().items()}
    files |= {name: bytes(7) for name in files if name.startswith("source/") and name.endswith(".bin")}
    files[f"source/{MANIFEST}"] = json.dumps({"abi": 0}).encode()
    write_container(path, container.meta, files)
    return path


def built_elsewhere(path: Path) -> Path:
    """Make a saved model one of a processor with an instruction set that nobody has: avx9000."""
    machine: Any = open_container(path).meta["machine"]
    return rewrite(path, machine={**machine, "features": f"{machine['features']} avx9000"})
