"""The walk-throughs in docs/adding-*.md as changes that can be made, on a copy of the tree, or that the tree holds.

A page changes files by ```diff blocks (hunks between `@@` lines, without line numbers), adds files by a comment
`<!-- new file: PATH -->` before a block, shows what then works by `<!-- run -->` before a Python block, and names the
tests that then pass in lines that start with `.venv/bin/pytest`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(
    r"(?:^<!-- (?P<label>[^\n]*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_COPIED = ("src", "tests", "examples", "benchmarks", "docs", "pyproject.toml", "README.md")
_TESTS = ".venv/bin/pytest "


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page; `label` is the comment before it."""

    label: str
    language: str
    text: str


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    for found in _BLOCK.finditer(page):
        yield Block(found["label"] or "", found["language"], found["text"])


def copy_tree(target: Path) -> None:
    """What the walk-throughs change, and what their tests need."""
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, target / name)


def change(page: str, root: Path) -> None:
    """Make all changes of a page in a tree.

    Raises:
        ValueError: what a diff takes away or leaves is not in the file, or is there twice.
    """
    for block in blocks(page):
        if block.label.startswith("new file: "):
            path = root / block.label.removeprefix("new file: ")
            if path.exists():
                raise ValueError(f"{path} is there already")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "diff":
            _patch(block.text, root)


def _patch(diff: str, root: Path) -> None:
    name, hunks = _hunks(diff)
    text = (root / name).read_text(encoding="utf-8")
    for old, new in hunks:
        if text.count(old) != 1:
            raise ValueError(f"{name} holds this {text.count(old)} times:\n{old}")
        text = text.replace(old, new)
    (root / name).write_text(text, encoding="utf-8")


def check_made(page: str, root: Path) -> None:
    """Check that a tree holds all changes that the diffs of a page make.

    Raises:
        ValueError: what one adds or leaves is not in the file, or is there twice, or what it takes away still is.
    """
    for block in blocks(page):
        if block.language == "diff":
            name, hunks = _hunks(block.text)
            text = (root / name).read_text(encoding="utf-8")
            for old, new in hunks:
                if new and text.count(new) != 1:
                    raise ValueError(f"{name} holds this {text.count(new)} times:\n{new}")
                if old not in new and old in text:
                    raise ValueError(f"{name} still holds this:\n{old}")


def _hunks(diff: str) -> tuple[str, list[tuple[str, str]]]:
    """The file that a diff changes, and what it replaces by what."""
    head, *hunks = re.split(r"^@@\n", diff, flags=re.MULTILINE)
    name = re.search(r"^\+\+\+ b/(.*)$", head, re.MULTILINE)
    if name is None:
        raise ValueError(f"a diff names no file: {diff}")
    pairs = []
    for hunk in hunks:
        # An empty line is context without its leading blank, which editors take away.
        lines = [line if line != "\n" else " \n" for line in hunk.splitlines(keepends=True)]
        old, new = ("".join(line[1:] for line in lines if line[0] in f" {sign}") for sign in "-+")
        pairs.append((old, new))
    return name[1], pairs


def programs(page: str) -> list[str]:
    """The Python programs that work once the changes are made."""
    return [block.text for block in blocks(page) if block.label == "run"]


def pytest_arguments(page: str) -> list[list[str]]:
    """Arguments of pytest, for each command of the page."""
    lines = (line for block in blocks(page) for line in block.text.splitlines())
    return [line.removeprefix(_TESTS).split() for line in lines if line.startswith(_TESTS)]
