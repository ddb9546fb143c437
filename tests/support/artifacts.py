"""Saved models with another header: whole by their checksums, but from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rammer.runtime.container import read_container, write_container


def rewrite(path: Path, **meta: Any) -> Path:
    """Replace entries of a saved model's header."""
    old, sections = read_container(path)
    write_container(path, {**old, **meta}, {name: bytes(section) for name, section in sections.items()})
    return path


def built_elsewhere(path: Path) -> Path:
    """Make a saved model one of a processor with an instruction set that nobody has: avx9000."""
    old: Any = read_container(path)[0]
    return rewrite(path, machine={**old["machine"], "features": f"{old['machine']['features']} avx9000"})
