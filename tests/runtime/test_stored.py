"""What files hold for constants that follow from less: smaller, and the same bits when they are read."""

from __future__ import annotations

import json
import mmap
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rammer
from rammer.errors import ArtifactCorruptError
from rammer.ir.recipe import FilteredWeights, FilterLine, Recipe, Scaled, Transposed
from rammer.ir.types import Layout
from rammer.runtime import pages
from rammer.runtime.container import Json, open_container, write_container
from rammer.runtime.pages import Rooms, fresh_pages
from rammer.runtime.programs import ProgramSet
from rammer.runtime.recipes import recipe_bytes

META: dict[str, Json] = {}
RNG = np.random.default_rng(11)
PLAIN = RNG.standard_normal((32, 3, 3, 64)).astype(np.float32)
LINE = FilterLine(stride=1, groups=1, matrix=((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0)))
FILTERED = Recipe(
    base=PLAIN,
    steps=(Transposed((0, 3, 1, 2)), FilteredWeights(rows=LINE, columns=LINE)),
    layout=Layout.panelled((16, 32, 64, 1, 1), (0, 2, 3, 4), 1, 16),
)
HALVES = RNG.standard_normal((128, 96)).astype(np.float16)
SCALED = Recipe(base=HALVES, steps=(Scaled(RNG.standard_normal((128, 1))),), layout=Layout.ordered((128, 96), (1, 0)))


def section(recipe: Recipe) -> bytes:
    assert recipe.layout is not None
    return recipe.layout.pack(recipe.array()).tobytes()


def names_in(path: Path) -> dict[str, int]:
    """Sections as they lie in a file, with their bytes."""
    return {name: length for name, length, _ in open_container(path)._table}


def test_a_constant_is_stored_as_what_it_is_made_of(tmp_path: Path) -> None:
    sections = {"a": section(FILTERED), "b": PLAIN.tobytes(), "c": section(SCALED), "d": b"else"}
    write_container(tmp_path / "m", META, sections, {"a": FILTERED, "c": SCALED})
    stored = names_in(tmp_path / "m")
    assert [name for name in stored if not name.startswith("weights/")] == ["a|recipe", "b", "c|recipe", "d"]
    (own,) = (length for name, length in stored.items() if name.startswith("weights/"))
    assert own == HALVES.nbytes
    found = open_container(tmp_path / "m").sections()
    assert {name: bytes(found[name]) for name in sections} == sections
    again = {name: found[name] for name in sections}
    write_container(tmp_path / "again", META, again, found.recipes)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()


def test_what_16_bits_hold_needs_no_recipe_of_its_own(tmp_path: Path) -> None:
    whole = Recipe(base=HALVES, steps=(Scaled(np.ones((1, 1))),), layout=Layout.row_major((128, 96)))
    write_container(tmp_path / "m", META, {"a": section(whole)}, {"a": whole})
    assert list(names_in(tmp_path / "m")) == ["a|float16"]
    write_container(tmp_path / "m", META, {"a": section(whole), "b": section(SCALED)}, {"a": whole, "b": SCALED})
    assert sum(names_in(tmp_path / "m").values()) < HALVES.nbytes + 6000
    found = open_container(tmp_path / "m").sections()
    assert bytes(found["a"]) == section(whole)
    assert bytes(found["b"]) == section(SCALED)


def changed(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda recipe: recipe.update(fields)


def in_step(kind: str, **fields: Any) -> Callable[[dict[str, Any]], None]:
    def change(recipe: dict[str, Any]) -> None:
        (body,) = (body for name, body in recipe["steps"] if name == kind)
        body.update(fields)

    return change


def in_layout(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda recipe: recipe["layout"].update(fields)


@pytest.mark.parametrize(
    "change",
    [
        changed(base="none"),
        changed(base="a"),
        changed(dtype="float12"),
        changed(dtype="float64"),
        changed(shape=[32, 3, 3, 65]),
        changed(shape=[-1]),
        changed(steps=[["doubled", {}]]),
        changed(steps=[]),
        in_step("transposed", order=[0, 1, 2]),
        in_step("transposed", order=[0, 0, 1, 2]),
        in_step("filtered", rows={"stride": 1, "groups": 1 << 40, "matrix": LINE.matrix}),
        in_step("filtered", rows={"stride": 0, "groups": 1, "matrix": LINE.matrix}),
        in_step("filtered", rows={"stride": 1, "groups": 1, "matrix": []}),
        in_step("filtered", rows={"stride": 1, "groups": 1, "matrix": [[1.0], [1.0, 2.0]]}),
        in_layout(span=1),
        in_layout(span=1 << 60),
        in_layout(strides=[1, 1, 1, 1, 1 << 70]),
        in_step("transposed", order=[1 << 70, 1, 2, 3]),
        changed(shape=[1 << 70]),
        in_layout(strides=[1 << 40, 1, 2, 4, 8]),
        in_layout(strides=[1]),
        in_layout(panel={"dim": 9, "width": 16, "stride": 1024}),
        in_layout(panel={"dim": 1, "width": 0, "stride": 1024}),
        in_layout(panel={"dim": 1, "width": 16, "stride": 1 << 40}),
    ],
)
def test_recipes_that_do_not_fit_are_refused(change: Callable[[dict[str, Any]], None], tmp_path: Path) -> None:
    sections = {"a": section(FILTERED), "b": PLAIN.tobytes()}
    write_container(tmp_path / "m", META, sections, {"a": FILTERED})
    content = open_container(tmp_path / "m")
    start = content._start
    recipe = json.loads(bytes(content._content[start : start + names_in(tmp_path / "m")["a|recipe"]]))
    change(recipe)
    write_container(tmp_path / "m", META, {"a|recipe": json.dumps(recipe).encode(), "b": PLAIN.tobytes()})
    with pytest.raises(ArtifactCorruptError, match="recipe"):
        open_container(tmp_path / "m").sections()


def factors_of(text: str) -> Callable[[dict[str, Any]], None]:
    return in_step("scaled", factor=text)


def test_strides_that_nobody_takes_are_bounded(tmp_path: Path) -> None:
    """The library would multiply them by 0, NumPy refuses them."""
    for changed_layout in (in_layout(strides=[1 << 62, 1]), in_layout(panel={"dim": 0, "width": 8, "stride": 1 << 62})):
        row = Recipe(base=HALVES[:1], steps=(Scaled(np.full((1, 1), 0.3)),), layout=Layout.row_major((1, 96)))
        recipe = json.loads(recipe_bytes(row, "b"))
        changed_layout(recipe)
        write_container(tmp_path / "m", META, {"a|recipe": json.dumps(recipe).encode(), "b": HALVES[:1].tobytes()})
        with pytest.raises(ArtifactCorruptError, match="strides beyond all memory"):
            open_container(tmp_path / "m").sections()


@pytest.mark.parametrize("change", [factors_of("?"), factors_of("AAAA"), in_step("scaled", shape=[64, 2])])
def test_factors_that_do_not_fit_are_refused(change: Callable[[dict[str, Any]], None], tmp_path: Path) -> None:
    write_container(tmp_path / "m", META, {"a": section(SCALED), "b": HALVES.tobytes()}, {"a": SCALED})
    content = open_container(tmp_path / "m")
    recipe = json.loads(bytes(content._content[content._start :][: names_in(tmp_path / "m")["a|recipe"]]))
    change(recipe)
    write_container(tmp_path / "m", META, {"a|recipe": json.dumps(recipe).encode(), "b": HALVES.tobytes()})
    with pytest.raises(ArtifactCorruptError, match="recipe"):
        open_container(tmp_path / "m").sections()


def model(dtype: int, size: int = 28) -> onnx.ModelProto:
    """Convolutions with batch normalisations, most of whose weights are transformed or folded."""
    rng = np.random.default_rng(2)
    numpy_type = helper.tensor_dtype_to_np_dtype(dtype)
    nodes, constants, x, channels = [], [], "x", 32
    for i, features in enumerate((64, 64, 64)):
        weight = (rng.standard_normal((features, channels, 3, 3)) / (3 * channels**0.5)).astype(numpy_type)
        constants.append(numpy_helper.from_array(weight, f"w{i}"))
        for name in ("scale", "shift", "mean", "var"):
            values = rng.uniform(0.5, 1.5, features).astype(numpy_type)
            constants.append(numpy_helper.from_array(values, f"{name}{i}"))
        nodes.append(helper.make_node("Conv", [x, f"w{i}"], [f"c{i}"], pads=[1] * 4))
        norm = [f"c{i}", *(f"{name}{i}" for name in ("scale", "shift", "mean", "var"))]
        nodes.append(helper.make_node("BatchNormalization", norm, [f"y{i}"]))
        x, channels = f"y{i}", features
    ends = [helper.make_tensor_value_info(n, dtype, [1, c, size, size]) for n, c in (("x", 32), (x, channels))]
    graph = helper.make_graph(nodes, "normed", ends[:1], ends[1:], constants)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 22)])


def contents(net: rammer.Executable) -> Mapping[str, bytes]:
    return {name: bytes(content) for name, content in net._source.files.items()}


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_no_weight_is_stored_twice(dtype: int, tmp_path: Path) -> None:
    net = rammer.compile(model(dtype), veus=2)
    assert any(len(recipe.steps) > 1 for recipe in net._source.recipes.values()), "none is transformed"
    net.save(tmp_path / "m")
    weights = sum(initial.ByteSize() for initial in model(dtype).graph.initializer)
    stored = {name: length for name, length in names_in(tmp_path / "m").items() if length >= 20_000}
    constants = sum(length for name, length in stored.items() if "constants/" in name or "weights/" in name)
    assert constants < 1.1 * weights
    loaded = rammer.load(tmp_path / "m")
    assert contents(loaded) == contents(net)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()


def test_programs_of_a_set_share_what_follows_from_less(tmp_path: Path) -> None:
    programs = ProgramSet()
    for size in (28, 14):
        programs.add(rammer.compile(model(TensorProto.FLOAT, size), veus=2))
    programs.save(tmp_path / "m")
    loaded = rammer.load(tmp_path / "m")
    for key, program in programs.programs.items():
        assert contents(loaded.programs[key]) == contents(program)
    one, other = (program._source for program in loaded.programs.values())
    both = one.recipes.keys() & other.recipes.keys()
    assert both
    for name in both:
        assert np.shares_memory(np.frombuffer(one.files[name]), np.frombuffer(other.files[name]))
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()


TEXT = b"".join(b"line %d of a long text\n" % number for number in range(2000))


def test_text_and_tables_are_deflated_and_constants_are_not(tmp_path: Path) -> None:
    noise = RNG.bytes(50_000)
    begins_well = TEXT + RNG.bytes(10 * len(TEXT))
    sections = {"text": TEXT, "source/constants/ab": TEXT, "noise": noise, "mixed": begins_well, "short": TEXT[:4000]}
    sections["alike"] = bytes([7]) * (1 << 20)
    write_container(tmp_path / "m", META, sections)
    stored = names_in(tmp_path / "m")
    assert list(stored) == ["text|deflated", "source/constants/ab", "noise", "mixed", "short", "alike"]
    assert stored["text|deflated"] < len(TEXT) / 2
    assert {name: bytes(content) for name, content in open_container(tmp_path / "m").sections().items()} == sections


@pytest.mark.parametrize(
    "content", [b"", b"abc", zlib.compress(TEXT)[:-5], zlib.compress(TEXT) + b"x", zlib.compress(bytes(1 << 20))]
)
def test_what_was_not_deflated_is_refused(content: bytes, tmp_path: Path) -> None:
    write_container(tmp_path / "m", META, {"a|deflated": content})
    with pytest.raises(ArtifactCorruptError, match="stored in a form"):
        open_container(tmp_path / "m").sections()


@pytest.mark.parametrize("size_bytes", [0, 1, 5000])
def test_memory_of_what_is_restored_begins_with_a_page(size_bytes):
    memory = fresh_pages(size_bytes)
    assert memory.nbytes == size_bytes
    assert not any(memory)
    if size_bytes:
        assert np.frombuffer(memory, np.uint8).ctypes.data % mmap.PAGESIZE == 0


@pytest.mark.parametrize("ordinary_s", [0.0, 1e9, -1e9], ids=["as it goes", "large pages are quick", "they are slow"])
def test_rooms_begin_with_pages_and_hold_zeros_once_these_are_made(
    ordinary_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_ORDINARY_S", ordinary_s)
    monkeypatch.setattr(pages, "_JOB_BYTES", 4 << 20)
    sizes_bytes = {"a": 5000, "none": 0, "b": (9 << 20) + 2, "c": 1}
    rooms = Rooms(sizes_bytes)
    for job in rooms.jobs():
        job()
    assert {name: room.nbytes for name, room in rooms.by_name.items()} == sizes_bytes
    for name, room in rooms.by_name.items():
        assert not any(room[:: mmap.PAGESIZE // 2])
        room[:] = name[:1].encode() * room.nbytes
        assert np.frombuffer(room, np.uint8).ctypes.data % mmap.PAGESIZE == 0 or not room.nbytes
    assert all(set(room) <= set(name[:1].encode()) for name, room in rooms.by_name.items())
    assert Rooms({}).jobs() == []
