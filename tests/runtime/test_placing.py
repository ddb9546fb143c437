"""Saved models on another number of vEUs: the same bits by the same code, proved again, or refused with a word."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import rammer
from rammer.devices.base import Placing
from rammer.devices.codegen.source import MANIFEST
from rammer.devices.codegen.tables import Manifest
from rammer.devices.cpu.device import CpuDevice
from rammer.devices.registry import find_device
from rammer.errors import ArtifactCorruptError, OptionError, OutOfMemoryError
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.ir.program import Execute, Plan
from rammer.ir.saved_tasks import read_tasks, saved_tasks
from rammer.ir.schema import SchemaError
from rammer.ir.task import TaskGraph
from rammer.options import CompileOptions
from rammer.pipelines import placing
from rammer.pipelines.planning import plan_graph, plan_memory
from rammer.roller.model import ModelCosts
from rammer.runtime.container import open_container
from rammer.schedule.policies import POLICIES
from tests.runtime.test_artifact_crafted import changes
from tests.runtime.test_state import running_sum
from tests.support.artifacts import with_sections
from tests.support.random_graphs import random_model
from tests.support.small_models import layer_model, mlp_model, pair_model, windows_model

X = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
CPU = find_device("cpu")
Rows = list[list[Any]]


@pytest.fixture(scope="module")
def mlp() -> rammer.Executable:
    net: rammer.Executable = rammer.compile(mlp_model(), "cpu", veus=2)
    return net


@pytest.fixture(scope="module")
def saved(mlp: rammer.Executable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model of two vEUs; nobody writes to it."""
    path = tmp_path_factory.mktemp("saved") / "mlp.rammer"
    mlp.save(path)
    return path


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    path = tmp_path / "copy.rammer"
    path.write_bytes(saved.read_bytes())
    return path


def plan_of(model: onnx.ModelProto, veus: int) -> Plan:
    options = CompileOptions(device="cpu", veus=veus)
    return plan_graph(load_graph(model), CPU.describe(options), options)


def scheduled(graph: TaskGraph, policy: str, veus: int) -> Plan:
    vdevice = CPU.describe(CompileOptions(veus=veus))
    return plan_memory(graph, POLICIES[policy](graph, vdevice, ModelCosts(vdevice)), vdevice, Dump(None))


def chosen(plan: Plan) -> TaskGraph:
    """The task graph of a plan with the chosen rKernels alone."""
    operators = zip(plan.graph.operators, plan.kernels, strict=True)
    return replace(plan.graph, operators=tuple(replace(op, kernels=(kernel,)) for op, kernel in operators))


# --- Tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_tables_are_those_that_are_emitted_with_the_code(seed: int) -> None:
    model, _ = random_model(seed, mixed=seed % 3 == 2)
    plan = plan_of(model, 2)
    source = CPU.emit(plan, CPU.describe(CompileOptions(veus=2)))
    saved = read_tasks(saved_tasks(plan, {}))
    assert saved.operators == chosen(plan).operators
    policy, veus = list(POLICIES)[seed % len(POLICIES)], (1, 3, 5)[seed % 3]
    expected = CPU.emit(scheduled(chosen(plan), policy, veus), CPU.describe(CompileOptions(veus=veus)))
    assert isinstance(CPU, Placing)
    CPU.check_tasks(source, saved.graph)
    found = CPU.placed(source, scheduled(saved.graph, policy, veus))
    assert {name: bytes(data) for name, data in found.files.items()} == {
        name: bytes(data) for name, data in expected.files.items()
    }


def test_a_source_of_another_task_graph_is_refused() -> None:
    assert isinstance(CPU, Placing)
    source = CPU.emit(plan_of(mlp_model(), 2), CPU.describe(CompileOptions(veus=2)))
    for other in (plan_of(mlp_model(), 8), plan_of(windows_model(), 2), plan_of(layer_model(), 2)):
        with pytest.raises(SchemaError, match="its tables are not those of its task graph"):
            CPU.check_tasks(source, chosen(other))


# --- Loads ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("veus", [1, 2, 3, 7])
def test_results_are_the_same_bits_on_any_number(mlp: rammer.Executable, saved: Path, veus: int) -> None:
    net = rammer.load(saved, veus=veus)
    assert net(X).tobytes() == mlp(X).tobytes()
    report = net.report
    assert report["device"]["veus"] == veus
    assert [len(program) for program in report["programs"]] == [veus]
    assert [operator["name"] for operator in report["operators"]] == [one["name"] for one in mlp.report["operators"]]
    assert len(net.trace(X).spans_ns[0]) == veus


def test_the_number_may_be_an_option_or_in_the_environment(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rammer.load(saved, CompileOptions(veus=3)).report["device"]["veus"] == 3
    assert rammer.load(saved, CompileOptions(veus=3), veus=1).report["device"]["veus"] == 1
    monkeypatch.setenv("RAMMER_VEUS", "3")
    assert rammer.load(saved).report["device"]["veus"] == 3
    assert rammer.load(saved, veus=2).report["device"]["veus"] == 2
    with pytest.raises(OptionError, match=r"veus=0"):
        rammer.load(saved, veus=0)
    with pytest.raises(OptionError, match=r"veus=100000"):
        rammer.load(saved, veus=100_000)


def test_what_was_placed_is_saved_and_placed_again(mlp: rammer.Executable, saved: Path, tmp_path: Path) -> None:
    rammer.load(saved, veus=5).save(tmp_path / "five")
    five = rammer.load(tmp_path / "five")
    assert (five.report["device"]["veus"], five(X).tobytes()) == (5, mlp(X).tobytes())
    rammer.load(tmp_path / "five", veus=1).save(tmp_path / "one")
    rammer.load(saved, veus=1).save(tmp_path / "straight")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "straight").read_bytes()


def test_convolutions_and_normalisations(tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((1, 3, 12, 12)).astype(np.float32)
    net = rammer.compile(windows_model(), "cpu", veus=4)
    net.save(tmp_path / "windows.rammer")
    for veus in (1, 2):
        assert rammer.load(tmp_path / "windows.rammer", veus=veus)(x).tobytes() == net(x).tobytes()


def test_several_models_and_states(tmp_path: Path) -> None:
    both = rammer.compile([layer_model(), pair_model()], "cpu", veus=2)
    both.save(tmp_path / "both")
    arguments = np.ones((2, 3), np.float32), {"a": np.arange(4, dtype=np.float32), "b": np.ones(4, np.float32)}
    expected, found = (net(*arguments) for net in (both, rammer.load(tmp_path / "both", veus=3)))
    assert str(found) == str(expected)
    sums = rammer.compile(running_sum(), "cpu", veus=2, state={"past": "present"})
    sums.save(tmp_path / "sums")
    placed = rammer.load(tmp_path / "sums", veus=1)
    assert [placed(np.ones(3, np.float32))[0] for _ in range(3)] == [2, 4, 6]


def test_every_program_of_a_set(tmp_path: Path) -> None:
    programs = rammer.ProgramSet(lambda shapes, entry: rammer.compile(mlp_model(), "cpu", veus=int(entry)))
    expected = [programs.select(((8, 64),), entry)(X) for entry in ("1", "2")]
    programs.save(tmp_path / "set")
    loaded = rammer.load(tmp_path / "set", veus=3).programs
    assert [program.report["device"]["veus"] for program in loaded.values()] == [3, 3]
    for right, program in zip(expected, loaded.values(), strict=True):
        assert program(X).tobytes() == right.tobytes()


def test_no_compiler_is_looked_for(saved: Path, tmp_path: Path) -> None:
    code = f"import rammer; print(rammer.load({str(saved)!r}, veus=3).report['device']['veus'])"
    nothing = {"PATH": "", "CC": "/no/such/compiler", "RAMMER_FIGURES": "measured"}
    environment = {**os.environ, **nothing, "RAMMER_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_the_plan_is_proved(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_waits(*arguments: Any) -> Any:
        """A schedule that forgets to wait."""
        found = POLICIES["wavefront"](*arguments)
        (program,) = found.programs
        steps = tuple(tuple(step for step in queue if isinstance(step, Execute)) for queue in program.steps)
        return replace(found, programs=(replace(program, steps=steps),))

    monkeypatch.setattr(
        placing, "choose_schedule", lambda tasks, vdevice, costs, _: without_waits(tasks, vdevice, costs)
    )
    with pytest.raises(ArtifactCorruptError, match=r"its rTasks cannot be placed here: P11, .* may start before"):
        rammer.load(saved, veus=3)


# --- What is told -----------------------------------------------------------------------------------------------------


def said(caplog: pytest.LogCaptureFixture, logger: str) -> list[str]:
    """The messages of a logger."""
    return [record.getMessage() for record in caplog.records if record.name == logger]


@pytest.mark.parametrize(("cores", "told"), [(1, 0), (2, 0), (5, 1)])
def test_fewer_units_than_cores_are_a_warning(
    saved: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, cores: int, told: int
) -> None:
    monkeypatch.setattr(CpuDevice, "usual_veus", lambda self: cores)
    with caplog.at_level(logging.WARNING, "rammer.runtime"):
        rammer.load(saved)
    expected = f"{saved} is for 2 vEUs, this machine has 5 cores: name a number, veus=5 or veus=2"
    assert said(caplog, "rammer.runtime.artifact") == [expected] * told
    caplog.clear()
    with caplog.at_level(logging.WARNING, "rammer.runtime"):
        rammer.load(saved, veus=2)
    assert not said(caplog, "rammer.runtime.artifact")


def test_models_of_one_unit_are_no_warning(saved: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rammer.load(saved, veus=1).save(tmp_path / "one")
    with caplog.at_level(logging.WARNING, "rammer.runtime"):
        rammer.load(tmp_path / "one")
    assert not said(caplog, "rammer.runtime.artifact")


def test_more_units_than_tiles_were_chosen_for_are_a_warning(
    saved: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "rammer.pipelines.placing"):
        rammer.load(saved, veus=1).save(tmp_path / "one")
        assert not said(caplog, "rammer.pipelines.placing")
        rammer.load(tmp_path / "one", veus=3)
    assert said(caplog, "rammer.pipelines.placing") == [
        "mlp: its tiles were chosen for 2 vEUs, and 3 may find too little work: compile it with veus=3"
    ]


def test_a_file_without_its_task_graph_keeps_its_number(copy: Path) -> None:
    with_sections(copy, lambda sections: sections.pop("tasks"))
    assert rammer.load(copy, veus=2)(X).shape == X.shape
    with pytest.raises(OptionError, match="veus=3 for a model that was saved without its task graph"):
        rammer.load(copy, veus=3)


# --- Crafted files ----------------------------------------------------------------------------------------------------


def refused(path: Path, reason: str) -> None:
    with pytest.raises(ArtifactCorruptError, match=reason) as caught:
        rammer.load(path, veus=3)
    assert str(path) in caught.value.message


def rows_of(path: Path) -> Rows:
    rows: Rows = json.loads(bytes(open_container(path).sections()["tasks"]))
    return rows


def with_rows(path: Path, rows: Any) -> Path:
    return with_sections(path, lambda sections: sections.update(tasks=json.dumps(rows).encode()))


def changed_rows(rows: Rows, places: Iterable[int]) -> Iterator[tuple[str, Any]]:
    """Task graphs with each value of some rows left out, doubled, or another."""
    for place in places:
        for what, changed in changes(rows[place]):
            yield f"row {place}: {what}", [*rows[:place], changed, *rows[place + 1 :]]


@pytest.mark.parametrize(
    ("model", "every"),
    [(mlp_model(), True), (windows_model(), False), pytest.param(windows_model(), True, marks=pytest.mark.long)],
    ids=["products", "windows, of each kind one", "windows"],
)
def test_a_changed_task_graph_is_refused_or_places_the_same_rtasks(model: onnx.ModelProto, *, every: bool) -> None:
    """It is placed, not called: as with tables, that it is what the compiler wrote is for checksums to say."""
    plan = plan_of(model, 2)
    source, rows = CPU.emit(plan, CPU.describe(CompileOptions(veus=2))), json.loads(saved_tasks(plan, {}))
    first_of_kind = {row[0]: place for place, row in reversed(list(enumerate(rows)))}
    seen = 0
    for what, changed in changed_rows(rows, range(len(rows)) if every else first_of_kind.values()):
        content = json.dumps(changed).encode()
        try:
            found, _ = placing.place(CPU, source, content, CompileOptions(veus=3))
        except (SchemaError, OutOfMemoryError):
            seen += 1
        else:
            assert Manifest.from_bytes(found.files[MANIFEST]).veus == 3, what
    assert seen > (2000 if every else 800)


def last(rows: Rows) -> list[Any]:
    """The row of the task graph itself, whose fields are those of `SavedTasks` behind its kind."""
    return rows[-1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda rows: rows.clear(), "its task graph does not end with a SavedTasks"),
        (lambda rows: rows.pop(), "its task graph does not end with a SavedTasks"),
        (lambda rows: last(rows).__setitem__(1, "fastest"), "its policy is 'fastest', which there is not"),
        (lambda rows: last(rows)[6].pop(), "its tables are not those of its task graph"),
        (lambda rows: last(rows).__setitem__(7, []), "its tables are not those of its task graph: other arrays"),
        (lambda rows: last(rows).__setitem__(7, [99]), "its task graph does not hold|its tables are not"),
        (lambda rows: last(rows)[6].reverse(), "its tables are not those of its task graph"),
    ],
)
def test_task_graphs_of_another_model(copy: Path, change: Callable[[Rows], object], reason: str) -> None:
    rows = rows_of(copy)
    change(rows)
    refused(with_rows(copy, rows), reason)


@pytest.mark.parametrize("content", [b"", b"[", b"{}", b"\xff"])
def test_task_graphs_that_are_none(copy: Path, content: bytes) -> None:
    with_sections(copy, lambda sections: sections.update(tasks=content))
    assert rammer.load(copy)(X).shape == X.shape
    if content:
        refused(copy, "its task graph is not")
