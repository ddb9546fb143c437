"""Constants of forged files: the library makes what NumPy makes or neither makes any, and touches no other memory.

python -m tests.devices.cpu.test_forged LIBRARY SEED COUNT     what a process under AddressSanitizer runs
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from rammer.devices.cpu.build import RUNTIME_FILES
from rammer.devices.cpu.library import Library
from rammer.devices.cpu.machine import read_machine
from rammer.devices.cpu.native import Runtime
from rammer.devices.cpu.restoring import CpuRestorer
from rammer.devices.cpu.toolchain import LINK_FLAGS, RUNTIME_FLAGS, find_toolchain, native_flags
from rammer.errors import ArtifactCorruptError
from rammer.ir.types import Layout
from rammer.options import CompileOptions
from rammer.runtime import container, pages, stored
from rammer.runtime.container import open_container
from tests.support.forged_recipes import forged, recipes, sections_of

OPTIONS = CompileOptions()
SANITIZERS = ["-g", "-fsanitize=address,undefined", "-fno-sanitize=alignment", "-fno-sanitize-recover=all"]


def built(folder: Path, *more: str) -> Path:
    """The runtime's library with more flags."""
    for name in RUNTIME_FILES:
        (folder / name).write_bytes((files("rammer.devices.cpu") / "runtime" / name).read_bytes())
    units = [name for name in RUNTIME_FILES if name.endswith(".c")]
    arguments = [*RUNTIME_FLAGS, *native_flags(read_machine().features), *more, *units, *LINK_FLAGS, "-o", "runtime.so"]
    find_toolchain(OPTIONS.cc).run(arguments, folder=folder, timeout_s=240)
    return folder / "runtime.so"


def made(file: bytes, restorer: CpuRestorer | None) -> Mapping[str, bytes] | None:
    """The sections of a file, None where it is refused."""
    try:
        return {name: bytes(section) for name, section in open_container(file).sections(restorer).items()}
    except ArtifactCorruptError:
        return None


def overlaps(file: bytes) -> bool:
    """Whether elements lie on each other, of which either may be there in the end."""
    found = open_container(file).sections()
    for recipe in found.recipes.values():
        shape = recipe.array().shape
        addresses = (recipe.layout or Layout.row_major(shape)).addresses(shape)
        if np.unique(addresses).size < addresses.size:
            return True
    return False


def compare(library: Path, seed: int, count: int) -> tuple[int, int]:
    """How many of some files were accepted and refused, by the library and by NumPy alike."""
    restorer = CpuRestorer(Runtime(Library(library.read_bytes(), library.parent)))
    generator, accepted, refused = random.Random(seed), 0, 0
    for recipe in recipes(seed, count):
        sections = sections_of(recipe)
        for file in (forged(sections, generator) for _ in range(10)):
            ours, theirs = made(file, restorer), made(file, None)
            assert ours == theirs or (None not in (ours, theirs) and overlaps(file)), (file[:400], sections)
            accepted, refused = accepted + (ours is not None), refused + (ours is None)
    return accepted, refused


def test_forged_recipes_make_the_same_or_nothing(tmp_path: Path) -> None:
    accepted, refused = compare(built(tmp_path), 1, 25)
    assert accepted > 10
    assert refused > 100


def sanitizers() -> list[str]:
    """The compiler's libraries for its sanitizers, which a process has to load first."""
    command = find_toolchain(OPTIONS.cc).command
    names = ("libasan.so", "libubsan.so")
    found = [
        subprocess.run(
            [*command, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in names
    ]
    return [path for path in found if Path(path).is_absolute()]


@pytest.mark.long
def test_forged_recipes_lead_to_no_other_memory(tmp_path: Path) -> None:
    libraries = sanitizers()
    if len(libraries) < 2:
        pytest.skip("the C compiler has no AddressSanitizer")
    library = built(tmp_path, *SANITIZERS)
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-m", "tests.devices.cpu.test_forged", str(library), "2", "100"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout.split()[0]) > 50


class Exact(pages.Rooms):
    """Rooms in memory of which the sanitizer knows where it ends."""

    def __init__(self, sizes_bytes: Mapping[str, int]) -> None:
        super().__init__({})
        ends = list(itertools.accumulate(sizes_bytes.values(), initial=0))
        self.starts = dict(zip(sizes_bytes, ends, strict=False))
        self.memory = bytearray(max(ends[-1], 1))  # type: ignore[assignment]
        view = memoryview(self.memory)
        self.by_name = {name: view[start : start + sizes_bytes[name]] for name, start in self.starts.items()}


if __name__ == "__main__":
    vars(container)["Rooms"] = Exact
    vars(stored)["fresh_pages"] = lambda size_bytes: memoryview(bytearray(size_bytes))
    print(*compare(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
