"""What adaptive models have learnt, kept in files: processes that run the same model on alike machines share it."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rammer.devices.cache import write_atomically
from rammer.files import open_file
from rammer.ir.schema import OrNull, Schema, SchemaError, read_json

_log = logging.getLogger(__name__)

_SCHEMA: Schema = {
    "outcomes": [
        {"arm": str, "against": str, "name": str, "verdict": str, "pairs": int, "ratio": OrNull(float)},
    ],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of an arm.

    Attributes:
        name: of the arm.
        verdict: "quicker", "no quicker", "too slow", "predicted too slow" or "failed".
        pairs: of calls that were compared.
        ratio: the median of its time over that of the program it was compared with; None without a pair.
    """

    name: str
    verdict: str
    pairs: int
    ratio: float | None


class Learnt:
    """Outcomes of one model's trials on a kind of machine: of which program, compared with which.

    A file that is damaged is written anew, and one that cannot be written left alone, with a warning in the log.
    """

    def __init__(self, path: Path) -> None:
        """Outcomes in a file, which need not be there yet."""
        self._path = path
        self._known = self._read()

    def find(self, arm: str, against: str) -> Outcome | None:
        """What became of a program beside another one, by their digests."""
        return self._known.get((arm, against))

    def keep(self, arm: str, against: str, outcome: Outcome) -> None:
        """Add an outcome to what the file has by now; what is known of the two already stays."""
        self._known = {(arm, against): outcome} | self._known | self._read()
        outcomes = [
            {"arm": one, "against": other, **asdict(found)} for (one, other), found in sorted(self._known.items())
        ]
        text = json.dumps({"outcomes": outcomes}, indent=1) + "\n"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, text.encode())
        except OSError as error:
            _log.warning("what was learnt is not kept in %s: %s", self._path, error)

    def _read(self) -> dict[tuple[str, str], Outcome]:
        try:
            with open_file(self._path) as file:
                data: Any = read_json(file.read(), _SCHEMA, "what was learnt")
        except FileNotFoundError:
            return {}
        except (OSError, SchemaError) as error:
            _log.warning("what was learnt in %s is not used: %s", self._path, error)
            return {}
        return {
            (one["arm"], one["against"]): Outcome(
                name=one["name"], verdict=one["verdict"], pairs=one["pairs"], ratio=one["ratio"]
            )
            for one in data["outcomes"]
        }
