"""What commands print: lines, tables and JSON on the standard output; errors, warnings and progress beside it."""

from __future__ import annotations

import json
import logging
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.text import Text

from rammer.errors import RammerError
from rammer.printable import printable

_WIDE = 140  # characters, from which on tables have all their columns
_LEAST_TEXT = 40  # characters of a line beside a label

# Text from models is shown as it is: rich's markup stays off.
errors = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
# As wide as the terminal, also through a pipe, else as COLUMNS says, else 80 characters.
output = Console(markup=False, highlight=False)


def is_wide() -> bool:
    """Whether there is room for all columns of a table."""
    return output.width >= _WIDE


def say(text: str) -> None:
    """Lines that are not broken, so that paths in them can be copied."""
    output.print("\n".join(map(printable, text.split("\n"))), soft_wrap=True)


def say_beside(label: Text | str, text: str) -> None:
    """A label with text beside it, whose lines fit the terminal; only words that are longer do not, such as paths."""
    room = max(output.width - len(label), _LEAST_TEXT)
    lines = textwrap.wrap(printable(text), room, break_long_words=False, break_on_hyphens=False)
    output.print(Text.assemble(label, f"\n{'':{len(label)}}".join(lines)), soft_wrap=True)


def print_json(data: object) -> None:
    """Data for a script to read."""
    print(json.dumps(data, sort_keys=True, allow_nan=False))


def print_error(error: RammerError, *, as_json: bool) -> None:
    """An error: for people on the standard error, for scripts as JSON where they look for the result."""
    if as_json:
        told = {"code": error.code, "message": error.message, "where": error.where, "to_do": error.hint}
        print_json({"error": told})
    else:
        errors.print(str(error), style="red")


@contextmanager
def notes_shown() -> Iterator[None]:
    """Warnings, and what Rammer logs as worth telling, are lines on the standard error meanwhile."""
    notes, log = _Notes(logging.WARNING), logging.getLogger("rammer")
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        log.addHandler(notes)
        try:
            yield
        finally:
            log.removeHandler(notes)


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        errors.print(f"note: {printable(record.getMessage())}", style="yellow")


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """In place of `warnings.showwarning`: where in Rammer a warning comes from is no matter here."""
    errors.print(f"warning: {printable(str(message))}", style="yellow")
