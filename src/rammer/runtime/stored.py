"""Forms in which sections of a file take less room, and the sections again, bit by bit.

Float32 values that 16 bits hold are stored in 16 bits, text and tables deflated. What follows from less by a recipe is
stored as the recipe; what it is made of is a section, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial

import numpy as np

from rammer.devices.making import Making, making_of
from rammer.devices.restorer import Restorer
from rammer.ir.recipe import Array, Recipe
from rammer.ir.schema import SchemaError
from rammer.ir.types import Layout
from rammer.runtime.crew import Crew, Job
from rammer.runtime.deflated import deflated, inflated
from rammer.runtime.forms import DEFLATED, NARROW, RECIPE, parted, with_form
from rammer.runtime.narrow import narrowed, widenings
from rammer.runtime.pages import fresh_pages
from rammer.runtime.recipes import read_recipe, recipe_bytes

_WEIGHTS = "weights/"
_DIGEST_CHARACTERS = 32
_LOOK_BYTES = 64


class Sections(dict[str, memoryview]):
    """Sections by name; `recipes` say how some of them follow from less."""

    def __init__(self, content: Mapping[str, memoryview], recipes: Mapping[str, Recipe]) -> None:
        super().__init__(content)
        self.recipes = recipes


def stored(sections: Mapping[str, memoryview], recipes: Mapping[str, Recipe]) -> dict[str, memoryview]:
    """What a file holds for sections.

    Args:
        sections: bytes by name.
        recipes: how some of them follow from less, by name.
    """
    narrow = {name: narrowed(section) for name, section in sections.items()}
    # What 16 bits hold needs no recipe, unless what it is made of is there for another.
    bases = {_place(recipe.base): recipe.base for name, recipe in recipes.items() if narrow[name] is None}
    named = _named(bases, sections)
    whole = {**{name: _bytes(bases[place]) for place, name in named.items() if name not in sections}, **sections}
    flat: dict[str, memoryview] = {}
    for name, section in whole.items():
        base = named.get(_place(recipes[name].base), name) if name in recipes else name
        found = narrow[name] if name in narrow else narrowed(section)
        if base != name:
            flat[with_form(name, RECIPE)] = memoryview(recipe_bytes(recipes[name], base))
        elif found is not None:
            flat[with_form(name, found[0])] = found[1]
        elif (short := deflated(name, section)) is not None:
            flat[with_form(name, DEFLATED)] = short
        else:
            flat[name] = section
    return flat


def restored(
    flat: Mapping[str, memoryview], rooms: Mapping[str, memoryview], restorer: Restorer | None = None
) -> Sections:
    """The sections that `stored` was given, and what they are made of.

    Args:
        flat: what it gave.
        rooms: memory for the sections that are stored in 16 bits, twice as large as each, and for what recipes make, by
            their names in a file.
        restorer: what has filled the rooms already, and makes constants by recipes; None for NumPy.

    Raises:
        SchemaError: they do not fit together, or a form is not known.
    """
    content: dict[str, memoryview] = {}
    written: dict[str, memoryview] = {}
    widening: list[Job] = []
    for full_name, section in flat.items():
        name, form = parted(full_name)
        if name in content or name in written:
            raise SchemaError("its header names a section twice")
        try:
            if form is None:
                content[name] = section
            elif form == RECIPE:
                written[name] = section
            elif form == DEFLATED:
                content[name] = inflated(section)
            elif form in NARROW:
                content[name] = rooms[full_name]
                widening += widenings(section, form, content[name])
            else:
                raise ValueError(form)
        except ValueError as error:
            raise SchemaError(f"section '{full_name}' is stored in a form that is not known") from error
    if restorer is None:
        Crew(widening).finish()
    recipes = {name: read_recipe(text, content) for name, text in written.items()}
    try:
        content |= _followed(recipes, rooms, restorer)
    except (ValueError, OverflowError, MemoryError) as error:
        raise SchemaError(f"its recipes cannot be followed: {error}") from error
    names = (parted(full_name)[0] for full_name in flat)
    return Sections({name: content[name] for name in names}, recipes)


def _named(bases: Mapping[int, Array], sections: Mapping[str, memoryview]) -> dict[int, str]:
    """The section that each base is: one that is there with the same content, or one of its own."""
    looks: dict[tuple[int, bytes], list[str]] = {}
    for name, section in sections.items():
        looks.setdefault(_look(section), []).append(name)
    named = {}
    for place, base in bases.items():
        content = _bytes(base)
        equal = (name for name in looks.get(_look(content), ()) if np.array_equal(content, sections[name]))
        digest = hashlib.sha256(content).hexdigest()[:_DIGEST_CHARACTERS]
        named[place] = next(equal, f"{_WEIGHTS}{digest}")
    return named


def _look(content: memoryview) -> tuple[int, bytes]:
    """What tells most contents apart."""
    return content.nbytes, bytes(content[:_LOOK_BYTES])


def _place(base: Array) -> int:
    return base.ctypes.data


def _bytes(base: Array) -> memoryview:
    return np.ascontiguousarray(base).reshape(-1).view(np.uint8).data


def _followed(
    recipes: Mapping[str, Recipe], rooms: Mapping[str, memoryview], restorer: Restorer | None
) -> dict[str, memoryview]:
    """What recipes give: by a device's own code where that can, else by NumPy."""
    makings = {} if restorer is None else _makings(recipes)
    content = {name: _room(making, rooms.get(with_form(name, RECIPE))) for name, making in makings.items()}

    def follow(name: str, recipe: Recipe) -> None:
        content[name] = _made(recipe)

    jobs: list[Job] = [partial(follow, name, recipe) for name, recipe in recipes.items() if name not in makings]
    if restorer is not None and makings:
        jobs += [restorer.make(list(makings.values()), [content[name] for name in makings]).help] * len(makings)
    Crew(jobs).finish()
    return content


def _room(making: Making, room: memoryview | None) -> memoryview:
    """Memory for a constant: that which its file said it needs, if it does."""
    size_bytes = making.span * np.dtype(np.float32).itemsize
    return room if room is not None and room.nbytes == size_bytes else fresh_pages(size_bytes)


def _makings(recipes: Mapping[str, Recipe]) -> dict[str, Making]:
    found = {name: making_of(recipe) for name, recipe in recipes.items()}
    return {name: making for name, making in found.items() if making is not None}


def _made(recipe: Recipe) -> memoryview:
    """What a recipe gives."""
    array = recipe.array()
    layout = recipe.layout or Layout.row_major(array.shape)
    memory = fresh_pages(layout.span * array.itemsize)
    layout.pack_into(array, np.frombuffer(memory, array.dtype))
    return memory
