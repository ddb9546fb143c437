"""Several programs of one model, for several shapes of its inputs, with their constants kept once."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, Self

from rammer.errors import InputShapeError
from rammer.ir.recipe import Recipe
from rammer.ir.schema import Schema
from rammer.printable import listing
from rammer.runtime.container import Buffer, Json, container_pieces, write_container
from rammer.runtime.executable import Executable

Shapes = tuple[tuple[int, ...], ...]
"""The shapes of a program's inputs, in the order of its signature."""

Build = Callable[[Shapes, str], Executable]
"""Compiles the program for shapes, of an entry."""

SetReader = Callable[["ProgramSet", Json], object]
"""Makes of a set that was loaded, and of what it was saved with (`about`), the model that it was saved from."""

SET_META: Schema = {
    "kind": str,
    "about": {},
    "programs": [{"entry": str, "meta": {}, "sections": {str: str}}],
}
DEFAULT_LIMIT = 64
_SHARED_BYTES = 4096  # from which on equal sections are stored once: a section takes a page at least


class Key(NamedTuple):
    """What a program of a set is found by."""

    entry: str
    shapes: Shapes


class ProgramSet:
    """The programs of one model by the shapes of their inputs; whatever constants are equal are in memory once.

    Each program is an `Executable` with a signature of its own. Which shapes there should be, and how inputs are padded
    to them, is for the owner of the set: it asks `select` for the shapes that it wants to call.

        def build(shapes, entry):
            return compile_with(model, replace(options, input_shapes={"x": shapes[0]}))

        programs = ProgramSet(build, limit=16)
        y = programs.select(((8, 128),))(x)  # compiled the first time
        programs.save("model.rammer", kind="rows", about={"buckets": [1, 8, 64]})

    A model with several functions (a classifier that gives labels or probabilities) has several entries, by names of
    its owner's. A program that keeps state has states of its own; where those of two programs have the same types and
    both update the same in place, a state of one may be given to calls of the other (`state=`).

    All methods may be called from several threads. A program that is missing is built by the thread that asks first;
    others that ask for it wait, and those that ask for another program do not.

    Args:
        build: makes a program that is missing; None for a set that only has what was added.
        limit: the most programs to keep; the one that was asked for least recently goes first. A program that is still
            in use elsewhere stays alive there.
    """

    def __init__(self, build: Build | None = None, *, limit: int = DEFAULT_LIMIT) -> None:
        if limit < 1:
            raise ValueError(f"a limit of {limit} programs")
        self._build = build
        self._limit = limit
        self._programs: OrderedDict[Key, Executable] = OrderedDict()
        self._building: dict[Key, threading.Lock] = {}
        self._lock = threading.Lock()

    def add(self, program: Executable, entry: str = "") -> None:
        """Take a program in, under the shapes of its inputs; nobody may be calling it. It may replace another one."""
        key = Key(entry, shapes_of(program))
        with self._lock:
            program.share(self._programs.values())
            self._programs[key] = program
            self._programs.move_to_end(key)
            while len(self._programs) > self._limit:
                self._programs.popitem(last=False)

    def select(self, shapes: Shapes, entry: str = "") -> Executable:
        """The program for shapes, built now if there is none.

        Raises:
            InputShapeError: there is none, and the set cannot build it.
            RammerError: what building it raises.
        """
        key = Key(entry, shapes)
        with self._lock:
            found = self._used(key)
            if found is not None:
                return found
            if self._build is None:
                raise self._missing(key)
            turn = self._building.setdefault(key, threading.Lock())
        with turn:
            with self._lock:
                found = self._used(key)
            if found is not None:
                return found
            try:
                built = self._build(shapes, entry)
                self.add(built, entry)
            finally:
                with self._lock:
                    self._building.pop(key, None)
            return built

    @property
    def programs(self) -> dict[Key, Executable]:
        """The programs that there are now, in the order of their keys."""
        with self._lock:
            return dict(sorted(self._programs.items()))

    def __len__(self) -> int:
        return len(self._programs)

    def clone(self) -> Self:
        """The same programs once more, each a clone; what is missing is built for each set by itself.

        `copy.copy` and `copy.deepcopy` make clones.

        Raises:
            OutOfMemoryError: there is too little memory.
            DeviceUnavailableError: there is too little memory on the device.
        """
        twin = type(self)(self._build, limit=self._limit)
        with self._lock:
            twin._programs.update((key, program.clone()) for key, program in self._programs.items())
        return twin

    def __copy__(self) -> Self:
        return self.clone()

    def __deepcopy__(self, memo: object) -> Self:
        return self.clone()

    def save(self, path: str | os.PathLike[str], *, kind: str = "", about: Json = None) -> None:
        """Write all programs to one file, each constant once. `rammer.load` reads it.

        Args:
            path: where to.
            kind: names what makes a model of the set again when it is loaded (`SET_READERS` of
                `rammer.pipelines.saved`); "" gives the set itself.
            about: JSON data for that reader.

        Raises:
            ArtifactWriteError: the file cannot be written, or the device's programs live in memory only.
        """
        write_container(path, *self._content(kind, about))

    def to_bytes(self, *, kind: str = "", about: Json = None) -> bytes:
        """The content of the file that `save` writes; `rammer.load` takes it, too.

        Raises:
            ArtifactWriteError: the device's programs live in memory only.
        """
        return b"".join(container_pieces(*self._content(kind, about)))

    def _content(self, kind: str, about: Json) -> tuple[dict[str, Json], dict[str, Buffer], dict[str, Recipe]]:
        """Meta data and sections of a file, and how some of these follow from less."""
        stored: dict[str, Buffer] = {}
        recipes: dict[str, Recipe] = {}
        names: dict[str, str] = {}
        listed: list[Json] = []
        for number, (key, program) in enumerate(self.programs.items()):
            placed: dict[str, str] = {}
            sections, made = program.content()
            for name, content in sorted(sections.items()):
                section = f"{number}/{name}"
                if len(content) >= _SHARED_BYTES:
                    section = names.setdefault(hashlib.sha256(content).hexdigest(), section)
                stored.setdefault(section, content)
                placed[name] = section
            recipes |= {placed[name]: recipe for name, recipe in made.items()}
            listed.append({"entry": key.entry, "meta": program.description(), "sections": placed})
        return {"kind": kind, "about": {} if about is None else about, "programs": listed}, stored, recipes

    def _used(self, key: Key) -> Executable | None:
        """A program that there is, noted as used; the lock is held."""
        found = self._programs.get(key)
        if found is not None:
            self._programs.move_to_end(key)
        return found

    def _missing(self, key: Key) -> InputShapeError:
        there = listing([_text(known.shapes) for known in sorted(self._programs) if known.entry == key.entry])
        return InputShapeError(
            f"there is no program for inputs of {_text(key.shapes)}",
            hint=f"there are programs for {there or 'nothing'}; compile the model again for others",
        )

    def __repr__(self) -> str:
        return f"<rammer.ProgramSet of {len(self)} programs>"


def shapes_of(program: Executable) -> Shapes:
    """The shapes of a program's inputs."""
    return tuple(port.type.shape for port in program.signature.inputs)


def _text(shapes: Shapes) -> str:
    return " and ".join(str(list(shape)) for shape in shapes)
