"""Files whose checksums are right and whose recipes of constants are not what anybody wrote."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from rammer.ir.recipe import FilteredWeights, FilterLine, Recipe, Scaled, Step, Transposed
from rammer.ir.types import Layout
from rammer.runtime.container import (
    _MAGIC,
    _PREFIX,
    FORMAT_VERSION,
    _padding,
    _pieces,
    container_pieces,
    open_container,
)

NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 64, 1000, 65_535, 1 << 20, 1 << 31, 1 << 32, 1 << 62, 1 << 63),
    *(1.5, float("nan"), None, True, "x", [], [1], {}),
)


def recipes(seed: int, count: int) -> Iterator[Recipe]:
    """Sound recipes: scaled, transposed and filtered weights of three types, in many layouts."""
    generator = random.Random(seed)
    while count:
        recipe = _recipe(generator)
        if recipe.layout is None or recipe.layout.span < 1 << 20:
            count -= 1
            yield recipe


def _recipe(generator: random.Random) -> Recipe:
    rng = np.random.default_rng(generator.randrange(1 << 30))
    rank = 4 if generator.random() < 0.7 else generator.randint(1, 5)
    shape = [generator.choice([1, 1, 2, 3, 3, 5, 7, 16, 17, 33]) for _ in range(rank)]
    dtype = generator.choice([np.float32, np.float16, ml_dtypes.bfloat16])
    base = rng.standard_normal(shape).astype(dtype)
    steps: list[Step] = []
    for kind in generator.choice([("scaled",), ("turned",), ("scaled", "turned"), ("turned", "scaled", "turned")]):
        if kind == "turned":
            order = generator.sample(range(rank), rank)
            steps.append(Transposed(tuple(order)))
            shape = [shape[dim] for dim in order]
        else:
            steps.append(Scaled(rng.standard_normal([generator.choice([1, extent]) for extent in shape])))
    if rank == 4 and generator.random() < 0.7:
        steps.append(FilteredWeights(rows=_line(generator, shape[2]), columns=_line(generator, shape[3])))
    whole = Recipe(base=base, steps=tuple(steps))
    return Recipe(base=base, steps=whole.steps, layout=_layout(generator, whole.array().shape))


def _line(generator: random.Random, taps: int) -> FilterLine:
    length, points, stride = generator.randint(1, 8), generator.randint(1, 16), generator.choice([1, 1, 1, 2, 3, 7])
    matrix = tuple(tuple(generator.choice([0, 0, 1, 1, -1, 0.3]) for _ in range(length)) for _ in range(points))
    return FilterLine(stride=stride, groups=-(-taps // (stride * length)), matrix=matrix)


def _layout(generator: random.Random, shape: tuple[int, ...]) -> Layout | None:
    order = generator.sample(range(len(shape)), len(shape))
    match generator.randrange(4):
        case 0:
            return None
        case 1:
            return Layout.ordered(shape, order)
    return Layout.panelled(shape, order[1:], order[0], generator.choice([1, 4, 8, 16, 32]))


def sections_of(recipe: Recipe) -> dict[str, bytes]:
    """What a file holds for a constant `a` that is stored as this recipe, by names with forms."""
    layout = recipe.layout or Layout.row_major(recipe.array().shape)
    content = layout.pack(np.asarray(recipe.array())).tobytes()
    whole = b"".join(map(bytes, container_pieces({}, {"a": content}, {"a": recipe})))
    opened, sections = open_container(whole), {}
    offset = opened._start
    for name, length, _ in opened._table:
        sections[name] = whole[offset : offset + length]
        offset += length + _padding(length)
    return sections


def forged(sections: Mapping[str, bytes], generator: random.Random) -> bytes:
    """A file with one of these sections, or its header, changed."""
    changed = dict(sections)
    name = generator.choice(sorted(changed))
    if name.endswith("|recipe"):
        changed[name] = json.dumps(_changed(json.loads(changed[name]), generator)).encode()
    elif generator.random() < 0.5:
        changed[name] = changed[name][: generator.randrange(len(changed[name]) + 1)]
    else:
        form = generator.choice(["", "|float16", "|bfloat16", "|deflated", "|recipe"])
        changed[name.partition("|")[0] + form] = changed.pop(name)
    table = [[one, len(part), [zlib.crc32(part[p]) for p in _pieces(len(part))]] for one, part in changed.items()]
    header: Any = {"meta": {}, "sections": table}
    if generator.random() < 0.2:
        header = _changed(header, generator)
    text = json.dumps(header).encode()
    start = _PREFIX.pack(_MAGIC, FORMAT_VERSION, 0, len(text), hashlib.sha256(text).digest()) + text
    parts = [start, *changed.values()]
    return b"".join(part + bytes(_padding(len(part))) for part in parts)


def _changed(tree: Any, generator: random.Random) -> Any:
    """JSON data with one to three of its values left out, doubled, in another order, near what they were, or others."""
    root = {"": copy.deepcopy(tree)}
    for _ in range(generator.choice([1, 1, 2, 3])):
        path = generator.choice(list(_places(root[""])))
        at: Any = root
        *outer, last = ("", *path)
        for key in outer:
            at = at[key]
        value = at[last]
        if type(value) in (int, float) and generator.random() < 0.6:
            at[last] = generator.choice([value + 1, value - 1, 2 * value, *NUMBERS])
        elif isinstance(value, list) and value and generator.random() < 0.8:
            generator.choice([value.pop, lambda v=value: v.append(v[0]), lambda v=value: generator.shuffle(v)])()
        else:
            at[last] = generator.choice(NUMBERS)
    return root[""]


def _places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key in tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield from _places(tree[key], (*path, key))
