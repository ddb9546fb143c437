"""Saved models with other headers and sections: whole by their checksums, but not what was saved."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rammer.devices.base import Buffer
from rammer.devices.codegen.source import MANIFEST
from rammer.runtime.container import _PREFIX, open_container, write_container


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


def header_of(path: Path) -> dict[str, Any]:
    """The header of a saved model, as JSON data."""
    content = path.read_bytes()
    *_, length, _ = _PREFIX.unpack_from(content)
    header: dict[str, Any] = json.loads(content[_PREFIX.size : _PREFIX.size + length])
    return header


def with_header(path: Path, header: bytes) -> Path:
    """Replace a saved model's header by any bytes, with a right checksum."""
    content = path.read_bytes()
    magic, version, reserved, length, _ = _PREFIX.unpack_from(content)
    begin = _PREFIX.size + length
    prefix = _PREFIX.pack(magic, version, reserved, len(header), hashlib.sha256(header).digest())
    start = prefix + header
    path.write_bytes(start + bytes(-len(start) % 4096) + content[begin + -begin % 4096 :])
    return path


def with_sections(path: Path, change: Callable[[dict[str, bytes]], object]) -> Path:
    """Change sections of a saved model, with right checksums."""
    container = open_container(path)
    sections = {name: bytes(section) for name, section in container.sections().items()}
    change(sections)
    write_container(path, container.meta, sections)
    return path
