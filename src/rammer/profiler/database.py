"""The profile database: measured figures by key, in one SQLite file that any number of processes use at once."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from rammer.files import distrust, make_private
from rammer.ir.vdevice import Figure

MAX_FIGURES = 200_000  # some 60 MB
_BUSY_TIMEOUT_S = 60.0
_SCHEMA = """
create table if not exists figures (
    number integer primary key autoincrement,
    key text not null unique,
    value real not null,
    provenance text not null
)
"""


class DatabaseWarning(UserWarning):
    """The profile database was damaged, or cannot be used; what was in it is measured again."""


class Database:
    """Figures by key. What is stored once stays, so that equal compilations see equal figures.

    It holds the latest `MAX_FIGURES`. A file that is no database any more is put aside, with a warning. One that cannot
    be used, or lies where others may write, is left alone with a warning: nothing is found, and nothing kept.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unusable = False

    def find(self, keys: Iterable[str]) -> dict[str, Figure]:
        """The figures that are there."""
        found: dict[str, Figure] = {}
        with self._warned(), self._open() as connection:
            for key in keys:
                row = connection.execute("select value, provenance from figures where key = ?", (key,)).fetchone()
                if row is not None:
                    found[key] = Figure(*row)
        return found

    def keep(self, figures: Mapping[str, Figure]) -> None:
        """Store figures; a key that is there already keeps the one that it has."""
        with self._warned(), self._open() as connection:
            connection.executemany(
                "insert or ignore into figures (key, value, provenance) values (?, ?, ?)",
                [(key, figure.value, figure.provenance) for key, figure in figures.items()],
            )
            connection.execute(
                "delete from figures where number <= (select max(number) from figures) - ?", (MAX_FIGURES,)
            )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction, with the table in place."""
        try:
            connection = self._connect()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):  # locked or not writable: the file may well be whole
                raise
            self._put_aside(error)
            connection = self._connect()
        with closing(connection), connection:
            yield connection

    @contextmanager
    def _warned(self) -> Iterator[None]:
        """Go on with a warning, the first time, where the file cannot be used."""
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            first, self._unusable = not self._unusable, True
            if first:
                hint = "set RAMMER_CACHE_DIR to a folder that can be written and has room"
                message = f"figures measured now are not kept in {self._path}: {error}; {hint}"
                warnings.warn(message, DatabaseWarning, stacklevel=3)

    def _connect(self) -> sqlite3.Connection:
        folder = self._path.parent
        make_private(folder)
        if (reason := distrust(folder, among_others=True) or distrust(self._path)) is not None:
            raise PermissionError(reason)
        connection = sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT_S)
        try:
            connection.execute(_SCHEMA)
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _put_aside(self, error: sqlite3.Error) -> None:
        damaged = self._path.with_suffix(".damaged")
        with suppress(FileNotFoundError):  # another process was quicker
            self._path.replace(damaged)
        warnings.warn(f"{self._path}: {error}; it is now {damaged.name}", DatabaseWarning, stacklevel=2)
