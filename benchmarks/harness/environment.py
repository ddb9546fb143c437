"""What a measurement was made with."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.harness.contestant import Contestant, installed_version

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "out"

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def environment(contestants: Iterable[Contestant]) -> dict[str, Json]:
    """Versions, commit, machine and load, as JSON data."""
    versions: Mapping[str, str | None] = {
        "python": platform.python_version(),
        **{name: installed_version(name) for name in ("numpy", "onnx", "rammer-compiler")},
    }
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "system": platform.platform(),
        "load_average": list(os.getloadavg()),
        "versions": dict(versions),
        "contestants": {contestant.name: contestant.version() for contestant in contestants},
    }


def _git(*arguments: str) -> str | None:
    """What git says of this checkout; None where there is no git or no checkout."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
