"""What benchmarks fit and compile, kept in a folder: preparing takes minutes, measuring should not wait for it."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rammer
from rammer.runtime.executable import Executable


@dataclass(frozen=True, slots=True)
class Kept:
    """A folder; None: nothing is found the next time."""

    folder: Path | None

    def get(self, name: str, make: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever is kept
        """What is made, or what was made before. It can be pickled."""
        if self.folder is None:
            return make()
        path = self.path(f"{name}.pickle")
        if not path.exists():
            part = path.with_suffix(".part")
            part.write_bytes(pickle.dumps(make()))
            part.replace(path)
        return pickle.loads(path.read_bytes())  # noqa: S301 - our own

    def executable(self, name: str, make: Callable[[], Executable]) -> Executable:
        """Likewise, of compiled models."""
        if self.folder is None:
            return make()
        path = self.path(f"{name}.rammer")
        if not path.exists():
            make().save(path)
        loaded: Executable = rammer.load(path)
        return loaded

    def path(self, name: str) -> Path:
        """Where a file of that name may be kept."""
        folder = Path(tempfile.mkdtemp()) if self.folder is None else self.folder
        folder.mkdir(parents=True, exist_ok=True)
        return folder / name
