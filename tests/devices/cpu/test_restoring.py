"""Sections restored by the runtime's library: the bits that NumPy makes, every changed byte found, and where it may."""

from __future__ import annotations

import mmap
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto

import rammer
from rammer.devices.base import Buffer
from rammer.devices.cpu import restoring
from rammer.devices.cpu.binary import requirements
from rammer.devices.cpu.build import RUNTIME_FILES
from rammer.devices.cpu.library import Library
from rammer.devices.cpu.machine import read_machine
from rammer.devices.cpu.native import Runtime
from rammer.devices.cpu.restoring import CpuRestorer
from rammer.devices.cpu.toolchain import LINK_FLAGS, RUNTIME_FLAGS, find_toolchain, native_flags
from rammer.devices.making import making_of
from rammer.devices.restorer import Piece
from rammer.errors import ArtifactCorruptError
from rammer.ir.recipe import FilteredWeights, FilterLine, Recipe, Scaled, Step, Transposed
from rammer.ir.types import Layout
from rammer.options import CompileOptions
from rammer.runtime import container
from rammer.runtime.container import open_container, write_container
from rammer.runtime.opening import begin
from tests.runtime.test_stored import model

RNG = np.random.default_rng(5)
OPTIONS = CompileOptions()


@pytest.fixture(scope="module", params=["for any processor", "for this one"])
def restorer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CpuRestorer:
    """The library built without and with this processor's instructions, which have code of their own."""
    folder = tmp_path_factory.mktemp("runtime")
    for name in RUNTIME_FILES:
        (folder / name).write_bytes((files("rammer.devices.cpu") / "runtime" / name).read_bytes())
    units = [name for name in RUNTIME_FILES if name.endswith(".c")]
    native = native_flags(read_machine().features) if request.param == "for this one" else ()
    arguments = [*RUNTIME_FLAGS, *native, *units, *LINK_FLAGS, "-o", "runtime.so"]
    find_toolchain(OPTIONS.cc).run(arguments, folder=folder, timeout_s=120)
    return CpuRestorer(Runtime(Library((folder / "runtime.so").read_bytes(), folder)))


@pytest.mark.parametrize("size_bytes", [0, 1, 7, 8, 63, 64, 127, 128, 129, 191, 4096, 100_001])
def test_checksums_are_those_of_zlib(size_bytes: int, restorer: CpuRestorer) -> None:
    content = RNG.bytes(size_bytes + 3)
    right = Piece(start=3, size_bytes=size_bytes, checksum=zlib.crc32(content[3:]))
    memory = mmap.mmap(-1, 1)
    for piece, altered in ((right, None), (right._replace(checksum=right.checksum ^ 1), 1)):
        work = restorer.check(memoryview(content), [right, piece], memory, [])
        work.help()
        assert work.altered() == altered


ALL = np.arange(1 << 16, dtype=np.uint16)
WIDE = {
    "float16": ALL[(ALL & 0x7C00) != 0x7C00].view(np.float16).astype(np.float32),  # numbers, the smallest among them
    "not a number": ALL.view(np.float16).astype(np.float32),
    "bfloat16": (ALL.astype(np.uint32) << 16).view(np.float32),
    "large": np.tile(np.arange(1 << 11, dtype=np.float32), 1500),
}


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("late_ns", [0, 1 << 40], ids=["large pages", "ordinary ones"])
def test_what_16_bits_hold_is_widened_to_the_same_bits(
    name: str, late_ns: int, restorer: CpuRestorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "_PIECE_BYTES", 1 << 20)
    section = WIDE[name].tobytes()
    write_container(tmp_path / "m", {}, {"small": b"abc", "a": section, "b": section[:-4]})
    plain = restorer.check

    def check(*arguments: object) -> restoring.Checking:
        work = plain(*arguments)  # type: ignore[arg-type] # whatever it is given
        work._work.late_ns = late_ns
        return work

    monkeypatch.setattr(restorer, "check", check)
    found = open_container(tmp_path / "m").sections(restorer)
    assert {one: bytes(content) for one, content in found.items()} == {
        "small": b"abc",
        "a": section,
        "b": section[:-4],
    }


ROWS = FilterLine(stride=1, groups=1, matrix=((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0)))
PHASES = FilterLine(stride=2, groups=2, matrix=((1.0, 0.1), (0.0, 0.0), (-1.0, 0.3)))
AS_IT_IS = FilterLine(stride=1, groups=1, matrix=((1.0,),))
SAME = Scaled(np.ones((1, 1, 1, 1)))


def scaled(*shape: int) -> Scaled:
    return Scaled(RNG.standard_normal(shape))


def weights(dtype: npt.DTypeLike, *shape: int) -> npt.NDArray[np.generic]:
    return RNG.standard_normal(shape).astype(dtype)


def panels(shape: tuple[int, ...], order: tuple[int, ...], dim: int) -> Layout:
    return Layout.panelled(shape, order, dim, 16)


F32, F16, BF16 = np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
FILTERED = FilteredWeights(rows=ROWS, columns=ROWS)
# name: (weights, steps, the layout of the result's shape)
MADE: dict[str, tuple[npt.NDArray[np.generic], tuple[Step, ...], Callable[[tuple[int, ...]], Layout] | None]] = {
    "panels of features": (weights(F32, 37, 19, 3, 3), (FILTERED,), lambda s: panels(s, (0, 2, 3, 4), 1)),
    "panels of channels": (weights(F16, 20, 33, 3, 3), (FILTERED,), lambda s: panels(s, (0, 1, 3, 4), 2)),
    "row-major": (weights(BF16, 16, 32, 3, 3), (scaled(16, 1, 1, 1), FILTERED), None),
    "channels last": (
        weights(F32, 40, 3, 3, 24),
        (Transposed((0, 3, 1, 2)), FILTERED),
        lambda s: panels(s, (0, 2, 3, 4), 1),
    ),
    "phases and groups, taps missing": (
        weights(F32, 18, 5, 7, 3),
        (scaled(1, 5, 1, 1), FilteredWeights(rows=PHASES, columns=ROWS)),
        lambda s: panels(s, (3, 0, 2, 4), 1),
    ),
    "one line alone": (weights(F16, 5, 3, 1, 3), (FilteredWeights(rows=AS_IT_IS, columns=ROWS),), None),
    "scaled": (weights(F16, 21, 34), (scaled(21, 1),), None),
    "scaled both ways": (weights(F16, 21, 34), (scaled(21, 34),), lambda s: panels(s, (1,), 0)),
    "scaled, few features": (weights(BF16, 3, 2, 5, 5), (scaled(3, 1, 1, 1),), lambda s: panels(s, (2, 1, 3), 0)),
    "scaled, channels last": (weights(F16, 48, 40, 3, 3), (scaled(48, 1, 1, 1), Transposed((0, 2, 3, 1))), None),
    "scaled, of one row": (weights(F16, 70), (scaled(1),), None),
    "every number, and none": (ALL.view(np.float16).reshape(64, 64, 4, 4), (SAME,), None),
}


@pytest.mark.parametrize("name", MADE)
def test_constants_are_made_to_the_same_bits(name: str, restorer: CpuRestorer) -> None:
    base, steps, layout = MADE[name]
    recipe = Recipe(base=base, steps=steps)
    array = recipe.array()
    recipe = replace(recipe, layout=None if layout is None else layout(array.shape))
    wanted = (recipe.layout or Layout.row_major(array.shape)).pack(array)
    making = making_of(recipe)
    assert making is not None
    found = np.zeros(making.span, np.float32)
    work = restorer.make([making, making], [found.data.cast("B"), np.zeros_like(found).data.cast("B")])
    work.help()
    np.testing.assert_array_equal(found.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize(
    ("base", "steps"),
    [
        (weights(np.float64, 4, 4), (scaled(4, 1),)),
        (weights(F16, 4, 4), (Transposed((1, 0)),)),  # stays float16
        (weights(F16, 4, 4), (scaled(4, 1), scaled(1, 4))),
        (weights(F16, 2, 2, 2, 2, 2), (scaled(2, 1, 1, 1, 1),)),
        (weights(F32, 3, 3, 3, 3), (scaled(1, 1, 3, 1), FILTERED)),
        (weights(F32, 3, 3, 3, 3), (FILTERED, Scaled(np.ones((1, 1, 1, 1, 1))))),
        (weights(F32, 0, 3, 3, 3), (FILTERED,)),
        (
            weights(F32, 3, 3, 9, 3),
            (FilteredWeights(rows=FilterLine(stride=1, groups=1, matrix=((0.5,) * 9,)), columns=ROWS),),
        ),
        (
            weights(F32, 3, 3, 1, 3),
            (FilteredWeights(rows=FilterLine(stride=1, groups=1, matrix=((0.5,),) * 17), columns=ROWS),),
        ),
    ],
)
def test_what_the_library_has_no_code_for_is_left_to_numpy(
    base: npt.NDArray[np.generic], steps: tuple[Step, ...]
) -> None:
    assert making_of(Recipe(base=base, steps=steps)) is None


def test_recipes_of_both_kinds_are_followed(restorer: CpuRestorer, tmp_path: Path) -> None:
    base = weights(F16, 64, 64)
    recipes = {
        "by the library": Recipe(base=base, steps=(scaled(64, 1),), layout=Layout.panelled((64, 64), (1,), 0, 16)),
        "by NumPy": Recipe(base=base, steps=(scaled(64, 1), scaled(1, 64)), layout=Layout.row_major((64, 64))),
    }
    sections = {name: recipe.layout.pack(recipe.array()).tobytes() for name, recipe in recipes.items() if recipe.layout}
    write_container(tmp_path / "m", {}, sections, recipes)
    found = open_container(tmp_path / "m").sections(restorer)
    assert {name: bytes(found[name]) for name in sections} == sections


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "m.rammer"
    rammer.compile(model(TensorProto.FLOAT16), veus=2).save(path)
    return path


def test_a_file_is_restored_by_its_own_code(saved: Path) -> None:
    with begin(saved, OPTIONS) as check:
        assert isinstance(check._restorer, CpuRestorer)
        found = check.sections()
    by_numpy = open_container(saved).sections()
    assert found.keys() == by_numpy.keys()
    assert all(found[name] == by_numpy[name] for name in found)
    assert any(making_of(recipe) for recipe in found.recipes.values())


def test_work_begins_before_numpy_is_imported(saved: Path) -> None:
    code = f"""
import sys
from rammer.options import CompileOptions
from rammer.runtime.opening import begin
with begin({str(saved)!r}, CompileOptions()) as check:
    print(check._restorer is not None, "numpy" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True False\n"), done.stderr


def test_every_altered_section_is_named(saved: Path, tmp_path: Path) -> None:
    content = bytearray(saved.read_bytes())
    opened = open_container(saved)
    offset = opened._start
    for name, length, _ in opened._table:
        content[offset + length // 2] ^= 4
        (tmp_path / "altered").write_bytes(content)
        with pytest.raises(ArtifactCorruptError, match="does not match its checksum") as caught:
            rammer.load(tmp_path / "altered")
        assert f"'{name}'" in str(caught.value)
        content[offset + length // 2] ^= 4
        offset += -(-length // 4096) * 4096


def test_who_leaves_early_waits_for_nobody(saved: Path) -> None:
    with pytest.raises(ZeroDivisionError), begin(saved, OPTIONS):
        raise ZeroDivisionError
    with begin(saved, OPTIONS) as check:
        check._work.give_up()  # type: ignore[union-attr] # there is work
        assert check._work.altered() is None  # type: ignore[union-attr]


def read(name: str) -> Buffer | None:
    return None


def refuse(name: str) -> Buffer | None:
    raise AssertionError(name)


def test_code_that_does_not_run_here_restores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    here = requirements(read_machine())
    monkeypatch.setattr("rammer.devices.cpu.native._runtimes", {})
    assert restoring.find(here, read, OPTIONS) is None  # there is none
    assert restoring.find(here, lambda name: b"no library", OPTIONS) is None
    assert restoring.find({**here, "architecture": "other"}, refuse, OPTIONS) is None
    assert restoring.find({}, read, OPTIONS) is None
