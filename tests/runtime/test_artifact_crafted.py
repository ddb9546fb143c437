"""Saved models whose checksums are right, but whose content is not: each is refused with a word, none is run."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rammer
from rammer.devices.base import Binary
from rammer.devices.codegen.constants import CONSTANTS
from rammer.devices.codegen.source import MANIFEST, RECORDS, SIGNALS, SLOTS
from rammer.devices.codegen.tables import RECORD, SLOT
from rammer.devices.cuda.build import CUBIN
from rammer.devices.cuda.source_files import CODE, DEVICE_RECORDS, LAUNCH
from rammer.devices.registry import find_device
from rammer.errors import (
    ArtifactCorruptError,
    ArtifactError,
    DeviceUnavailableError,
    OptionError,
    OutOfMemoryError,
    RammerError,
)
from rammer.frontends.onnx import load_graph
from rammer.pipelines.compiler import signature_of
from rammer.pipelines.planning import plan_graph
from rammer.runtime.artifact import RebuiltWarning
from rammer.runtime.container import open_container
from rammer.runtime.executable import Executable
from tests.support.artifacts import header_of, rewrite, with_header, with_sections
from tests.support.small_models import mlp_model, pair_model

ANOTHER: list[Any] = [None, True, -1, 1.5, 10**30, 1 << 62, float("nan"), "text", "", [], [1], {}, {"a": 1}]
X = np.arange(8 * 64, dtype=np.float32).reshape(8, 64) / 100


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model saved for each device; that for a GPU has no machine code that would run."""
    folder = tmp_path_factory.mktemp("saved")
    rammer.compile(mlp_model(), "cpu", veus=2).save(folder / "cpu")
    device, options = find_device("cuda:sm_90"), rammer.CompileOptions(device="cuda:sm_90")
    vdevice, graph = device.describe(options), load_graph(pair_model())
    Executable(
        name="pair",
        signature=signature_of(graph),
        device=device,
        source=device.emit(plan_graph(graph, vdevice, options), vdevice),
        binary=Binary(device="cuda", machine={"architecture": "sm_90"}, files={CUBIN: b"code"}),
        report=b"{}",
        options=options,
    ).save(folder / "cuda")
    return {name: folder / name for name in ("cpu", "cuda")}


@pytest.fixture(params=["cpu", "cuda"])
def crafted(request: pytest.FixtureRequest, saved: dict[str, Path], tmp_path: Path) -> Path:
    """A copy to change, for each device."""
    path = tmp_path / "m.rammer"
    path.write_bytes(saved[request.param].read_bytes())
    return path


@pytest.fixture
def on_cpu(saved: dict[str, Path], tmp_path: Path) -> Path:
    path = tmp_path / "m.rammer"
    path.write_bytes(saved["cpu"].read_bytes())
    return path


@pytest.fixture
def on_cuda(saved: dict[str, Path], tmp_path: Path) -> Path:
    path = tmp_path / "m.rammer"
    path.write_bytes(saved["cuda"].read_bytes())
    return path


def refused(path: Path, reason: str) -> None:
    with pytest.raises(ArtifactCorruptError, match=reason) as caught:
        rammer.load(path)
    assert str(path) in caught.value.message
    assert (caught.value.code, caught.value.hint) == ("R401", "compile the model again and save it with this version")


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value of JSON data, of long lists the first two."""
    yield path
    for key in tree if isinstance(tree, dict) else range(min(2, len(tree))) if isinstance(tree, list) else ():
        yield from places(tree[key], (*path, key))


def changes(tree: Any) -> Iterator[tuple[str, Any]]:
    """JSON data with each value left out, doubled, or another."""
    for path in places(tree):
        changed = [("is left out", None), ("is doubled", None), *((f"is {value}", value) for value in ANOTHER)]
        for what, value in changed:
            root = {"": copy.deepcopy(tree)}
            at: Any = root
            *outer, last = ("", *path)
            for key in outer:
                at = at[key]
            if what == "is left out":
                del at[last]
            elif what != "is doubled":
                if type(value) is type(at[last]) and value == at[last]:
                    continue
                at[last] = value
            elif isinstance(last, int):
                at.insert(last, at[last])
            if "" in root:
                yield f"{path} {what}", root[""]


def loaded(path: Path) -> Executable | RammerError:
    """The model, or why there is none; nothing is built again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RebuiltWarning)
        try:
            net: Executable = rammer.load(path, rammer.CompileOptions(cc="/no/such/compiler"))
        except RammerError as error:
            return error
    return net


Change = Callable[[dict[str, bytes]], object]


def write_json(name: str, tree: Any) -> Change:
    return lambda sections: sections.update({name: json.dumps(tree).encode()})


def leave_out(name: str) -> Change:
    return lambda sections: sections.pop(name)


# --- All values, one after another -----------------------------------------------------------------------------------


def test_a_changed_header_is_refused_or_says_the_same(crafted: Path) -> None:
    header, whole, seen = header_of(crafted), crafted.read_bytes(), 0
    expected = rammer.load(crafted).signature
    for what, changed in changes(header):
        crafted.write_bytes(whole)
        with_header(crafted, json.dumps(changed).encode())
        found = loaded(crafted)
        if isinstance(found, ArtifactError):
            assert found.hint, what
            seen += 1
        else:
            assert isinstance(found, Executable), what
            assert [port.type for port in found.signature.inputs] == [port.type for port in expected.inputs], what
            assert [port.type for port in found.signature.outputs] == [port.type for port in expected.outputs], what
    assert seen > 300


@pytest.mark.parametrize("name", [MANIFEST, LAUNCH])
def test_changed_tables_of_names_and_sizes_are_refused_or_do_no_harm(crafted: Path, name: str) -> None:
    whole, seen = crafted.read_bytes(), 0
    sections = open_container(crafted).sections()
    if f"source/{name}" not in sections:
        pytest.skip("this device has no such table")
    device = header_of(crafted)["meta"]["device"]
    expected = rammer.load(crafted)(X) if device == "cpu" else None
    for what, changed in changes(json.loads(bytes(sections[f"source/{name}"]))):
        crafted.write_bytes(whole)
        with_sections(crafted, write_json(f"source/{name}", changed))
        found = loaded(crafted)
        if isinstance(found, ArtifactError):
            assert found.hint, what
            seen += 1
        elif isinstance(found, DeviceUnavailableError | OutOfMemoryError):
            assert "compiled code has no function" in found.message or "between operators" in found.message, what
        else:
            assert isinstance(found, Executable), what
            if expected is not None:
                np.testing.assert_array_equal(found(X), expected, err_msg=what)
    assert seen > 100


# --- One by one, with what is said -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"", "its header is not JSON"),
        (b'{"meta": "\xff"}', "its header is not JSON"),
        (b"[" * 100_000, "its header is not JSON"),
        (b'{"meta": ' + b"9" * 10_000 + b"}", "its header is not JSON"),
        (b"[]", "its header is not an object"),
        (b'{"meta": {}}', "its header has no 'sections'"),
        (b'{"meta": {}, "sections": [["report", -1, []]]}', r"its header.sections\[0\]\[1\] is not a number from 0 on"),
        (b'{"meta": {}, "sections": [["report", 1]]}', r"its header.sections\[0\] is not a list of 3"),
        (b'{"meta": {}, "sections": [["a", 0, []], ["a", 0, []]]}', "its header names a section twice"),
    ],
)
def test_headers(on_cpu: Path, header: bytes, reason: str) -> None:
    refused(with_header(on_cpu, header), reason)


def test_a_header_without_a_device(on_cpu: Path) -> None:
    header = header_of(on_cpu)
    del header["meta"]["device"]
    refused(with_header(on_cpu, json.dumps(header).encode()), "its header.meta has no 'device'")


@pytest.mark.parametrize(
    ("ports", "reason"),
    [
        ([["x", "float32", [8, 64]]] * 2, "names an input or output twice"),
        ([["x", "float33", [8, 64]]], "'x' in its signature has the dtype 'float33', which there is not"),
        ([["x", "tf32", [8, 64]]], "has the dtype 'tf32', which there is not"),
        ([["x", "float32", [8, -64]]], r"inputs\[0\]\[2\]\[1\] is not a number from 0 on"),
        ([["x", "float32", [0, 1 << 62, 1 << 62]]], "has a shape that no array has"),
        ([["x", "float32", [1] * 100]], "has a shape that no array has"),
        ([["x", "float32", [8, 63]]], r"takes arrays of \(2048, 2048\) bytes, its signature \(2016, 2048\)"),
        ([], r"takes arrays of \(2048, 2048\) bytes, its signature \(2048,\)"),
    ],
)
def test_signatures(on_cpu: Path, ports: list[Any], reason: str) -> None:
    signature = header_of(on_cpu)["meta"]["signature"]
    refused(rewrite(on_cpu, signature={**signature, "inputs": ports}), reason)


def test_machines(on_cpu: Path, on_cuda: Path) -> None:
    refused(rewrite(on_cuda, machine={"architecture": "sm_x"}), "its machine is 'sm_x'")
    refused(rewrite(on_cuda, machine={}), "its machine has no 'architecture'")
    refused(rewrite(on_cpu, machine={"system": "Linux"}), "its machine has no 'architecture'")


@pytest.mark.parametrize(
    "name", ["report", *(f"source/{name}" for name in (MANIFEST, RECORDS, SLOTS, SIGNALS, CONSTANTS))]
)
def test_sections_that_every_device_needs(crafted: Path, name: str) -> None:
    refused(with_sections(crafted, leave_out(name)), f"it has no section '{name}'")


@pytest.mark.parametrize("name", [f"source/{LAUNCH}", f"source/{DEVICE_RECORDS}", f"source/{CODE}", f"binary/{CUBIN}"])
def test_sections_of_gpus(on_cuda: Path, name: str) -> None:
    whole = on_cuda.read_bytes()
    refused(with_sections(on_cuda, leave_out(name)), f"it has no section '{name}'")
    on_cuda.write_bytes(whole)
    refused(with_sections(on_cuda, lambda sections: sections.update({name: b""})), "its launch|is empty")


def test_sections_of_processors(on_cpu: Path) -> None:
    whole = on_cpu.read_bytes()
    names = [name for name in open_container(on_cpu).sections() if name.endswith((".so", ".c"))]
    assert len(names) == 3
    for name in names:
        on_cpu.write_bytes(whole)
        refused(with_sections(on_cpu, leave_out(name)), f"it has no section '{name}'")


@pytest.mark.parametrize("name", [RECORDS, SLOTS, SIGNALS, CONSTANTS])
@pytest.mark.parametrize("size", [-16, -1, 1, 16])
def test_tables_of_another_size(crafted: Path, name: str, size: int) -> None:
    def resize(sections: dict[str, bytes]) -> None:
        table = sections[f"source/{name}"]
        sections[f"source/{name}"] = table[:size] if size < 0 else table + bytes(size)

    before = len(open_container(crafted).sections()[f"source/{name}"])
    after = max(0, before + size)
    if after == before:
        pytest.skip("it is empty")
    refused(with_sections(crafted, resize), f"its table {name} has {after} bytes instead of {before}")


@pytest.mark.parametrize(
    ("table", "dtype", "field"),
    [
        (RECORDS, RECORD, "opcode"),
        (RECORDS, RECORD, "a"),
        (RECORDS, RECORD, "c"),
        (SLOTS, SLOT, "segment"),
        (SLOTS, SLOT, "offset_bytes"),
    ],
)
def test_tables_that_name_what_there_is_not(crafted: Path, table: str, dtype: np.dtype[Any], field: str) -> None:
    def enlarge(sections: dict[str, bytes]) -> None:
        rows = np.frombuffer(sections[f"source/{table}"], dtype).copy()
        rows[field] = 1 << 20
        sections[f"source/{table}"] = rows.tobytes()

    refused(with_sections(crafted, enlarge), "its steps are for other rKernels, counters or operands than there are")


def test_a_model_that_takes_more_memory_than_there_is(on_cpu: Path) -> None:
    sections = open_container(on_cpu).sections()
    manifest = json.loads(bytes(sections[f"source/{MANIFEST}"]))
    for arena_bytes in (1 << 60, 1 << 62):
        with_sections(on_cpu, write_json(f"source/{MANIFEST}", {**manifest, "arena_bytes": arena_bytes}))
        with pytest.raises(OutOfMemoryError, match=r"no [14] EiB for the values between operators"):
            rammer.load(on_cpu)


@pytest.mark.parametrize("report", [b"", b"{", b"[]", b"\xff"])
def test_reports_are_refused_when_they_are_read(on_cpu: Path, report: bytes) -> None:
    net = rammer.load(with_sections(on_cpu, lambda sections: sections.update({"report": report})))
    assert net(X).shape == X.shape
    with pytest.raises(ArtifactCorruptError, match="its report is not"):
        _ = net.report


def test_programs_of_the_reference_device_are_never_saved(on_cpu: Path) -> None:
    refused(rewrite(on_cpu, device="reference"), "programs of the reference device are never saved")


def test_a_model_for_a_gpu_keeps_its_number(on_cuda: Path) -> None:
    with pytest.raises(
        OptionError, match="veus=4 for a model that was compiled for cuda:sm_90, which keeps its"
    ) as caught:
        rammer.load(on_cuda, veus=4)
    assert caught.value.hint.startswith("compile the model again with veus=4")


def test_a_model_of_one_device_is_none_of_another(crafted: Path) -> None:
    other = "cuda:sm_90" if header_of(crafted)["meta"]["device"] == "cpu" else "cpu"
    with pytest.raises(ArtifactError, match="its tables are of version"):
        rammer.load(rewrite(crafted, device=other))


def test_loading_imports_nothing_that_compiles(crafted: Path) -> None:
    """It takes longer than all else that the host does for a small model on a GPU."""
    rooms = ("compiler", "frontends.onnx", "lowering", "passes", "roller", "schedule", "tiling", "verify")
    inside = [
        *(f"rammer.devices.{device}.{part}" for device in ("cpu", "cuda") for part in ("emit", "describe", "peaks"))
    ]
    code = f"""
import rammer, sys
rammer.load({str(crafted)!r})
print([name for name in {[*(f"rammer.{room}" for room in rooms), *inside]!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_a_file_is_opened_before_numpy_is_imported() -> None:
    """Both take long: the file is checked while NumPy and what reads models are imported."""
    code = "import rammer, sys; rammer.load; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
