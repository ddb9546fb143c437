"""Text from a model's names as a terminal can show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_NAMED = 3


def printable(text: str) -> str:
    r"""The text with an escape, such as \x1b, for each character that would do something instead of being seen.

    These are control characters (terminals take commands by them), line breaks, marks that turn the direction of
    writing around, and halves of surrogate pairs.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def listing(names: Sequence[str], separator: str = ", ") -> str:
    """A few names, and how many more there are."""
    hidden = len(names) - _NAMED
    return separator.join(names[:_NAMED]) + (f" and {hidden} more" if hidden > 0 else "")


def counted(number: int, noun: str) -> str:
    """A number of things: "1 rTask", "2 rTasks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def printable_data(data: Any) -> Any:  # noqa: ANN401
    """JSON data with every text as a terminal can show it: names in a report are there to be read."""
    if isinstance(data, str):
        return printable(data)
    if isinstance(data, list):
        return [printable_data(item) for item in data]
    return {printable(key): printable_data(item) for key, item in data.items()} if isinstance(data, dict) else data
