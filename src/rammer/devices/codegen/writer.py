"""Lines of C, indented; the one place where text is put together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_INDENT = "    "


class Writer:
    """Collects lines. `name` gives identifiers that are used once.

    Loops count in `index_type`. The statement `in_order`, if there is one, keeps a compiler from making vector code of
    the loop that begins with it.
    """

    def __init__(self, index_type: str = "int64_t", in_order: str = "") -> None:
        self.index_type = index_type
        self._in_order = in_order
        self._includes: dict[str, None] = {}
        self._lines: list[str] = []
        self._depth = 0
        self._names: dict[str, int] = {}
        self._macros = 0
        self._outermost_depth = 0
        self._defined: list[str] = []
        self._names_of_macros: set[str] = set()
        self._ended: list[str] = []

    def include(self, header: str) -> None:
        """A header that the text includes first, in the order of the calls."""
        self._includes[header] = None

    def line(self, text: str) -> None:
        """One line at the present depth."""
        self._lines.append(_INDENT * self._depth + text)

    @contextmanager
    def block(self, head: str = "", tail: str = "") -> Iterator[None]:
        """Braces around what is written inside; `tail` follows the last of them."""
        self.line(f"{head}{'' if head.endswith('(') else ' '}{{".lstrip())
        self._depth += 1
        yield
        self._depth -= 1
        self.line(f"}}{tail}")

    @contextmanager
    def macro(self, head: str, start: str = "", end: str = "") -> Iterator[None]:
        """The definition of a macro as what is written inside, between two texts; before it, macros defined there."""
        name = head.split("(", maxsplit=1)[0]
        if name in self._names_of_macros:
            raise ValueError(f"the macro {name} is there already")
        self._names_of_macros.add(name)
        around, depth = self._lines, self._depth
        if not self._macros:
            self._outermost_depth = depth
        self._lines, self._depth = [], self._outermost_depth
        self._macros += 1
        self.line(f"#define {head} {start}".rstrip())
        self._depth += 1
        yield
        self._depth -= 1
        if end:
            self.line(end)
        self._macros -= 1
        self._defined += [*(f"{line} \\" for line in self._lines[:-1]), self._lines[-1]]
        self._lines, self._depth = around, depth
        if not self._macros:
            self._lines += self._defined
            self._defined = []

    def undefine(self, name: str) -> None:
        """The end of a macro: here, or where that ends which this one is defined inside."""
        if self._macros:
            self._ended.append(name)
            return
        for ended in (name, *self._ended):
            self._names_of_macros.discard(ended)
            self.line(f"#undef {ended}")
        self._ended.clear()

    @contextmanager
    def loop(self, name: str, lo: str, hi: str, step: int = 1, *, lanes: bool = False) -> Iterator[None]:
        """A loop of `name` over `lo <= name < hi`; iterations of one over `lanes` may run at the same time."""
        if lanes:
            self.line("RAMMER_LANES")
        advance = f"{name}++" if step == 1 else f"{name} += {step}"
        with self.block(f"for ({self.index_type} {name} = {lo}; {name} < {hi}; {advance})"):
            if not lanes:
                self.in_order()
            yield

    def in_order(self) -> None:
        """What a loop that is not over lanes begins with."""
        if self._in_order:
            self.line(self._in_order)

    def name(self, prefix: str) -> str:
        """A fresh identifier: `prefix` and a number."""
        number = self._names.get(prefix, 0)
        self._names[prefix] = number + 1
        return f"{prefix}{number}"

    def let(self, type_: str, name: str, value: str) -> str:
        """A constant; returns its name."""
        self.line(f"const {type_} {name} = {value};")
        return name

    def text(self) -> str:
        """Everything written so far."""
        return "\n".join([*(f'#include "{header}"' for header in self._includes), *self._lines]) + "\n"
