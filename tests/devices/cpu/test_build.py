"""From a plan to shared objects: sources, the compiler, the cache."""

import errno
import os
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rammer.devices import cache as cache_module
from rammer.devices.base import Binary, no_progress
from rammer.devices.cache import Cache, CacheWarning, content_key
from rammer.devices.codegen.constants import CONSTANTS
from rammer.devices.codegen.source import MANIFEST, RECORDS, SLOTS
from rammer.devices.codegen.tables import RECORD, SLOT, KernelEntry, Manifest
from rammer.devices.cpu import build as build_module
from rammer.devices.cpu import toolchain as toolchain_module
from rammer.devices.cpu.binary import KERNELS_LIBRARY, RUNTIME_LIBRARY, mismatch, requirements
from rammer.devices.cpu.build import build
from rammer.devices.cpu.launch import LoadedModel
from rammer.devices.cpu.machine import read_machine
from rammer.devices.cpu.source import assemble
from rammer.devices.cpu.toolchain import find_toolchain
from rammer.errors import CacheError, CompilerFailedError, CompilerNotFoundError, DeviceUnavailableError
from rammer.ir.program import Execute, RProgram
from rammer.ir.task import Binding, RTask, RTile, TensorRole
from rammer.ir.types import DType, Layout, TensorType
from rammer.options import CompileOptions
from tests.support.cpu import (
    chain,
    compiled,
    emit_kernel,
    expected,
    map_kernel,
    operator,
    plan_of,
    run,
    source_of,
    tensor,
)

X = np.linspace(-3, 5, 64, dtype=np.float32)
MACHINE = read_machine()


@pytest.fixture(autouse=True)
def _quick_runtime(monkeypatch):
    """Nearly every test has a cache of its own, for which the runtime is compiled anew; nobody asks how fast it is."""
    flags = tuple("-O0" if flag == "-O3" else flag for flag in toolchain_module.RUNTIME_FLAGS)
    monkeypatch.setattr(build_module, "RUNTIME_FLAGS", flags)


def two_kernels():
    """A chain whose second rOperator has another tile, so two functions."""
    plan = chain(length=3, veus=1)
    changed = replace(plan.graph.operators[1], kernels=(replace(map_kernel(64, 1, 2, lambda x, c: x * 2.0 + c * 3.0)),))
    operators = (plan.graph.operators[0], changed, plan.graph.operators[2])
    return replace(plan, graph=replace(plan.graph, operators=operators))


def options(folder, **given):
    return CompileOptions(cache_dir=folder, **given)


def entries(folder):
    return sorted(path for path in (folder / "rammer-objects").rglob("*") if path.is_file())


def script(folder, text):
    """An executable shell script."""
    path = folder / "fake-cc"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


# --- Source -----------------------------------------------------------------------------------------------------------


def test_equal_rkernels_are_one_function():
    source = source_of(two_kernels())
    kernels = Manifest.from_bytes(source.files[MANIFEST]).kernels
    assert [kernel.where for kernel in kernels] == ["'op0', 'op2'", "'op1'"]
    assert sorted(name for name in source.files if name.endswith(".c")) == sorted(
        f"kernels/{kernel.symbol}.c" for kernel in kernels
    )


def test_source_is_the_same_in_every_process():
    program = (
        "import hashlib; from tests.support.cpu import chain, source_of\n"
        "files = source_of(chain(length=5, veus=3, tiles=2, programs=2)).files\n"
        "print(hashlib.sha256(b''.join(n.encode() + bytes(d) for n, d in files.items())).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=Path(__file__).parents[3],
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_records_and_slots():
    """An operator that reads a part of an alias of an intermediate tensor, and a packed constant."""
    tensors = [
        tensor(0, 64, TensorRole.INPUT),
        tensor(1, 64, TensorRole.INTERMEDIATE),
        replace(
            tensor(2, 64, TensorRole.INTERMEDIATE),
            type=TensorType(DType.FLOAT32, (4, 16)),
            layout=Layout.row_major((4, 16)),
            alias_of=1,
        ),
        tensor(3, 3, TensorRole.CONSTANT),
        replace(
            tensor(4, 6, TensorRole.CONSTANT),
            type=TensorType(DType.FLOAT32, (2, 3)),
            layout=Layout.ordered((2, 3), (1, 0)),
        ),
        tensor(5, 64, TensorRole.OUTPUT),
    ]
    first = map_kernel(64, 2, 1, lambda x: x * 2.0)
    second = replace(map_kernel(64, 1, 3, lambda x, a, b: x * a + b), tile=RTile(task=(64,)))
    reads = (
        Binding(tensor=2, origin=(2, 3)),
        Binding(tensor=3, origin=(1,)),
        Binding(tensor=4, origin=(1, 2)),
    )
    graph = replace(
        chain(length=1, veus=1).graph,
        tensors=tuple(tensors),
        constants={3: np.arange(3, dtype=np.float32), 4: np.arange(6, dtype=np.float32).reshape(2, 3)},
        operators=(operator(0, first, (0,), 1), replace(operator(1, second, (), 5), reads=reads)),
        inputs=(0,),
        outputs=(5,),
    )
    steps = ((Execute(RTask(0, 1)), Execute(RTask(0, 0)), Execute(RTask(1, 0))),)
    source = source_of(plan_of(graph, RProgram(steps=steps, counter_count=0)))
    assert np.frombuffer(source.files[RECORDS], RECORD).tolist() == [(0, 0, 1, 0), (0, 0, 0, 0), (0, 1, 0, 2)]
    assert np.frombuffer(source.files[SLOTS], SLOT).tolist() == [
        (2, 0, 0),
        (0, 0, 0),
        (0, 0, 4 * (2 * 16 + 3)),
        (1, 0, 4 * 1),
        (1, 0, 64 + 4 * (2 * 2 + 1)),
        (3, 0, 0),
    ]
    constants = np.frombuffer(source.files[CONSTANTS], np.float32)
    assert constants[:3].tolist() == [0, 1, 2]
    assert constants[16:22].tolist() == [0, 3, 1, 4, 2, 5]


def test_operators_without_rtasks_have_no_code():
    plan = two_kernels()
    (program,) = plan.schedule.programs
    steps = tuple(tuple(s for s in queue if s != Execute(RTask(1, 0))) for queue in program.steps)
    source = source_of(plan_of(plan.graph, replace(program, steps=steps)))
    manifest = Manifest.from_bytes(source.files[MANIFEST])
    assert len(manifest.kernels) == 1
    assert [entry.where for entry in manifest.operators] == ["'op0'", "'op2'"]


# --- Objects ----------------------------------------------------------------------------------------------------------


def test_objects_do_not_depend_on_where_they_are_built(tmp_path):
    source = source_of(two_kernels())
    first = build(source, MACHINE, options(tmp_path / "a"), no_progress)
    second = build(source, MACHINE, options(tmp_path / "another" / "place"), no_progress)
    assert first.files == second.files
    assert set(first.files) == {KERNELS_LIBRARY, RUNTIME_LIBRARY}


def test_second_build_calls_no_compiler(tmp_path, monkeypatch):
    source = source_of(two_kernels())
    first = build(source, MACHINE, options(tmp_path), no_progress)
    monkeypatch.setattr(toolchain_module.Toolchain, "run", lambda *_, **__: pytest.fail("compiled again"))
    assert build(source, MACHINE, options(tmp_path), no_progress).files == first.files


def test_models_share_objects(tmp_path):
    build(source_of(chain(length=1, veus=1)), MACHINE, options(tmp_path), no_progress)
    before = set(entries(tmp_path))
    build(source_of(chain(length=7, veus=2)), MACHINE, options(tmp_path), no_progress)
    assert set(entries(tmp_path)) == before


def test_progress_counts_up(tmp_path):
    seen = []
    build(source_of(two_kernels()), MACHINE, options(tmp_path), lambda done, total: seen.append((done, total)))
    assert sorted(seen) == [(1, 3), (2, 3), (3, 3)]


def test_many_kernels_share_translation_units(tmp_path, monkeypatch):
    source, given = source_of(two_kernels()), options(tmp_path)
    alone = build(source, MACHINE, given, no_progress)
    monkeypatch.setattr(build_module, "_MOST_ALONE", 1)
    seen = []
    together = build(source, MACHINE, given, lambda done, total: seen.append((done, total)))
    assert sorted(seen) == [(1, 2), (2, 2)]
    one, other = (run(LoadedModel(source, binary, MACHINE, given), X) for binary in (alone, together))
    np.testing.assert_array_equal(one, other)


def test_translation_units_of_a_great_many_kernels():
    own = [KernelEntry(symbol=f"map_{i}", where=f"'op{i}'") for i in range(300)]
    users = [KernelEntry(symbol=f"extern_{i}", where=f"'own{i}'") for i in range(2)]
    assert build_module.units_of(own[:256]) == [[entry] for entry in own[:256]]
    units = build_module.units_of([users[0], *own, users[1]])
    assert [entry for unit in units for entry in unit] == [*own, *users]
    assert [len(unit) for unit in units] == [16] * 18 + [12, 1, 1]


def test_headers_are_at_hand(tmp_path):
    def emit(kernel, symbol):
        return '#include "shared.h"\n' + emit_kernel(kernel, symbol) + "SHARED\n"

    headers = {"shared.h": '#include "more.h"\n', "more.h": "#define SHARED\n", "other.h": "what nobody includes"}
    source = assemble(chain(length=1, veus=1), emit, headers, 64)
    assert {name for name in source.files if name.endswith(".h")} == {"kernels/shared.h", "kernels/more.h"}
    first = build(source, MACHINE, options(tmp_path), no_progress)
    changed = assemble(chain(length=1, veus=1), emit, {**headers, "more.h": "#define SHARED /* nothing */\n"}, 64)
    before = len(entries(tmp_path))
    assert build(changed, MACHINE, options(tmp_path), no_progress).files == first.files
    assert len(entries(tmp_path)) == before + 1  # a header is part of the key


def test_mismatch_says_what_differs(tmp_path):
    binary = Binary(device="cpu", machine=requirements(MACHINE), files={})
    assert mismatch(binary.machine, MACHINE) is None
    assert "architecture" in str(mismatch(binary.machine, replace(MACHINE, architecture="other")))
    if MACHINE.features:
        lesser = replace(MACHINE, features=MACHINE.features[1:])
        assert MACHINE.features[0] in str(mismatch(binary.machine, lesser))
        assert mismatch(requirements(lesser), MACHINE) is None


def test_code_that_does_not_load(tmp_path):
    source = source_of(chain(length=1, veus=1))
    binary = build(source, MACHINE, options(tmp_path), no_progress)
    damaged = replace(binary, files={**binary.files, KERNELS_LIBRARY: b"no library"})
    with pytest.raises(DeviceUnavailableError, match="does not load"):
        LoadedModel(source, damaged, MACHINE, options(tmp_path))
    swapped = replace(binary, files={**binary.files, KERNELS_LIBRARY: binary.files[RUNTIME_LIBRARY]})
    with pytest.raises(DeviceUnavailableError, match="no function 'map_"):
        LoadedModel(source, swapped, MACHINE, options(tmp_path))


# --- Compilers --------------------------------------------------------------------------------------------------------


def test_no_compiler(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(CompilerNotFoundError) as caught:
        find_toolchain(None)
    assert caught.value.code == "R501"
    assert "pip install 'rammer-compiler[cc]'" in caught.value.hint


@pytest.mark.parametrize("cc", ["/no/such/compiler", "no-such-compiler -O2", "'", " "])
def test_compiler_that_was_named_is_missing(cc):
    with pytest.raises(CompilerNotFoundError, match="no C compiler"):
        find_toolchain(cc)


def test_ziglang_stands_in(monkeypatch):
    pytest.importorskip("ziglang")
    monkeypatch.setattr("shutil.which", lambda _: None)
    toolchain = find_toolchain(None)
    assert toolchain.command == (sys.executable, "-m", "ziglang", "cc")
    assert "clang" in toolchain.version


@pytest.mark.long
def test_ziglang_compiles(tmp_path):
    pytest.importorskip("ziglang")
    plan = chain(length=3, veus=2)
    model = compiled(plan, tmp_path, cc=f"{sys.executable} -m ziglang cc")
    np.testing.assert_array_equal(run(model, X), expected(plan, X))


def test_compiler_with_arguments(tmp_path):
    path = find_toolchain(None).command[0]
    assert find_toolchain(f"{path} -pipe").command == (path, "-pipe")


def test_failing_compiler_is_quoted_with_the_place(tmp_path):
    cc = script(tmp_path, '[ "$1" = --version ] && exit 0\nfor i in $(seq 100); do echo "error $i" >&2; done; exit 3')
    with pytest.raises(CompilerFailedError, match="code 3") as caught:
        build(source_of(chain(length=5, veus=1)), MACHINE, options(tmp_path / "cache", cc=cc), no_progress)
    error = caught.value
    assert error.code == "R502"
    assert error.log.startswith("error 1\n")
    assert error.log.endswith("\nerror 100")
    assert "\nerror 20\n... and 80 more lines\n" in str(error)
    assert not entries(tmp_path / "cache")


def test_code_that_does_not_compile_names_the_operators(tmp_path):
    source = assemble(chain(length=5, veus=1), lambda _, symbol: f"void {symbol}(", {}, 64)
    with pytest.raises(CompilerFailedError) as caught:
        build(source, MACHINE, options(tmp_path), no_progress)
    assert caught.value.where == "'op0', 'op1', 'op2' and 2 more"
    assert "map_" in caught.value.log


def test_program_that_is_no_compiler(tmp_path):
    with pytest.raises(CompilerFailedError, match="--version"):
        find_toolchain(script(tmp_path, "echo what; exit 1"))


def test_hung_compiler_is_ended_with_its_children(tmp_path):
    note = tmp_path / "pid"
    cc = script(tmp_path, f'[ "$1" = --version ] && exit 0\nsleep 600 & echo $! > {note}\nwait')
    for timeout_s in (0.5, 5.0, 50.0):  # a busy machine may take long to begin with it
        given = options(tmp_path / "cache", cc=cc, compile_timeout_s=timeout_s)
        with pytest.raises(CompilerFailedError, match=rf"did not end within {timeout_s:g} s"):
            build(source_of(chain(length=1, veus=1)), MACHINE, given, no_progress)
        if note.exists() and note.read_text():
            break
    status = Path(f"/proc/{int(note.read_text())}/stat")
    deadline_s = time.monotonic() + 120
    while status.exists() and status.read_text().split()[2] != "Z":
        assert time.monotonic() < deadline_s, "the compiler's child still runs"
        time.sleep(0.01)


# --- The cache --------------------------------------------------------------------------------------------------------


def test_keys_tell_parts_apart():
    assert content_key("ab", "c") != content_key("a", "bc")
    assert content_key("a", b"b") == content_key("a", "b")


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:-1] + b"?", lambda _: b""])
def test_damaged_entries_are_made_again(tmp_path, damage):
    plan = two_kernels()
    compiled(plan, tmp_path)
    whole = {path: path.read_bytes() for path in entries(tmp_path)}
    for path, data in whole.items():
        path.write_bytes(damage(data))
    model = compiled(plan, tmp_path)
    assert {path: path.read_bytes() for path in entries(tmp_path)} == whole
    assert run(model, X).shape == X.shape


def test_two_processes_compile_at_once(tmp_path):
    program = (
        "import sys, numpy as np; from tests.support.cpu import chain, compiled, expected, run\n"
        "plan, x = chain(length=4, veus=2), np.ones(64, np.float32)\n"
        "assert np.array_equal(run(compiled(plan, __import__('pathlib').Path(sys.argv[1])), x), expected(plan, x))"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=Path(__file__).parents[3],
            stderr=subprocess.PIPE,
        )
        for _ in range(4)
    ]
    for process in started:
        _, log = process.communicate()
        assert process.returncode == 0, log.decode()
    assert all(
        Cache(tmp_path / "rammer-objects").get("".join(path.parts[-2:])) is not None for path in entries(tmp_path)
    )
    assert [path.name for path in tmp_path.iterdir()] == ["rammer-objects"]


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    plan = chain(length=1, veus=1)
    with pytest.warns(CacheWarning, match="RAMMER_CACHE_DIR") as warned:
        model = compiled(plan, tmp_path / "file" / "cache")
    assert len(warned) == 1
    np.testing.assert_array_equal(run(model, X), expected(plan, X))


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_folder_that_is_read_only(tmp_path):
    plan = chain(length=1, veus=1)
    tmp_path.chmod(0o500)
    with pytest.warns(CacheWarning):
        model = compiled(plan, tmp_path)
    np.testing.assert_array_equal(run(model, X), expected(plan, X))


def test_full_disk_under_the_cache(tmp_path, monkeypatch):
    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(cache_module, "write_atomically", full)
    plan = two_kernels()
    with pytest.warns(CacheWarning, match="No space left on device") as warned:
        compiled(plan, tmp_path)
    assert len(warned) == 1
    assert not entries(tmp_path)


def test_nothing_half_written_stays(tmp_path, monkeypatch):
    def full(self, target):
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.warns(CacheWarning):
        Cache(tmp_path).put("abcd", b"data")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_full_disk_everywhere(tmp_path, monkeypatch):
    def full(self, data):
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(CacheError, match="No space left on device") as caught:
        build(source_of(chain(length=1, veus=1)), MACHINE, options(tmp_path), no_progress)
    assert caught.value.code == "R503"


def test_disk_that_fills_up_while_compiling(tmp_path, monkeypatch):
    write = Path.write_bytes

    def full(self, data):
        if self.name != "probe":
            raise OSError(errno.ENOSPC, "No space left on device", str(self))
        return write(self, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(CacheError, match=r"nowhere to compile: .*No space left on device.*No space left on device"):
        build(source_of(chain(length=1, veus=1)), MACHINE, options(tmp_path), no_progress)


def test_disk_under_the_cache_that_fills_up_while_compiling(tmp_path, monkeypatch):
    """Sources do not fit there; compilation goes on where the system keeps temporary files."""
    cache_dir, write = tmp_path / "cache", Path.write_bytes

    def full(self, data):
        if self.is_relative_to(cache_dir):
            raise OSError(errno.ENOSPC, "No space left on device", str(self))
        return write(self, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    plan = chain(length=1, veus=1)
    np.testing.assert_array_equal(run(compiled(plan, cache_dir), X), expected(plan, X))


@pytest.mark.parametrize("complaint", ["fatal error: k.s: No space left on device", "ld: Disk quota exceeded"])
def test_compiler_that_finds_the_disk_under_the_cache_full(tmp_path, complaint):
    real = find_toolchain(None).command[0]
    cache_dir = tmp_path / "cache"
    text = f'case "$PWD" in {cache_dir}/*) echo "{complaint}"; exit 1;; esac\nexec {real} "$@"'
    plan = chain(length=1, veus=1)
    np.testing.assert_array_equal(run(compiled(plan, cache_dir, cc=script(tmp_path, text)), X), expected(plan, X))


def test_compilers_keep_their_own_files_in_the_folder_they_work_in(tmp_path):
    real = find_toolchain(None).command[0]
    text = f'[ "$1" = --version ] || [ "$TMPDIR" = "$PWD" ] || exit 1\nexec {real} "$@"'
    compiled(chain(length=1, veus=1), tmp_path / "cache", cc=script(tmp_path, text))


def test_no_folder_to_work_in(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "file" / "tmp"))
    with pytest.warns(CacheWarning), pytest.raises(CacheError, match="nowhere to compile"):
        build(source_of(chain(length=1, veus=1)), MACHINE, options(tmp_path / "file" / "cache"), no_progress)
