"""What a skeleton's file takes where it is included: constants and functors, as macros that end behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rammer.devices.codegen.writer import Writer


@contextmanager
def parameters(writer: Writer) -> Iterator[Parameters]:
    """Macros that are there until the block ends."""
    given = Parameters(writer)
    yield given
    for name in given.names:
        writer.undefine(name)


class Parameters:
    """The macros of one `parameters` block; a `head` is a name with the macro's own parameters."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.names: list[str] = []

    def constant(self, name: str, value: int | str) -> None:
        """A number, or another text."""
        self.names.append(name.split("(", maxsplit=1)[0])
        self._writer.line(f"#define {name} {value}")

    def value(self, head: str, body: Callable[[], str]) -> None:
        """A functor that is an expression: `body` writes what it takes, and returns the text of the value."""
        with self._macro(head, "({", "})"):
            self._writer.line(f"{body()};")

    def statements(self, head: str, body: Callable[[], None]) -> None:
        """A functor that is a block of statements."""
        with self._macro(head, "{", "}"):
            body()

    def declarations(self, head: str, body: Callable[[], None]) -> None:
        """A functor that declares what later ones take."""
        with self._macro(head, "", ""):
            body()

    @contextmanager
    def _macro(self, head: str, start: str, end: str) -> Iterator[None]:
        self.names.append(head.split("(", maxsplit=1)[0])
        with self._writer.macro(head, start, end):
            yield
