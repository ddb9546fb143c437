"""`--timings`: steps time themselves where somebody records, and come as a table of 80 columns."""

import threading
from io import StringIO
from unittest import mock

import pytest
from rich.console import Console

from examples.two_branches import build_model
from rammer.devices.reference.device import ReferenceDevice
from rammer.errors import VerificationError
from rammer.inspection.timings import timings_shown, timings_table
from rammer.options import CompileOptions
from rammer.passes.pipeline import PASSES
from rammer.pipelines import compiler
from rammer.pipelines.kinds import compile_with
from rammer.timings import recording, timed


@pytest.fixture
def clock():
    """A clock that goes on by a second whenever it is read."""
    with mock.patch("rammer.timings.perf_counter", side_effect=iter(range(100))) as read:
        yield read


def text_of(steps):
    console = Console(width=200, record=True, file=StringIO())
    console.print(timings_table(steps))
    return console.export_text()


def test_steps_are_counted_only_where_somebody_records(clock):
    with timed("before"):
        pass
    with recording() as steps:
        with timed("fuse", "passes") as step:
            step.made = "3 operators"
        with timed("lower"):
            pass
        with timed("fuse", "passes") as step:
            step.made = "2 operators"
    with timed("after"):
        pass
    assert [(step.group, step.name, step.runs, step.seconds, step.made) for step in steps] == [
        ("passes", "fuse", 2, 2.0, "2 operators"),
        ("", "lower", 1, 1.0, ""),
    ]


def test_a_step_that_fails_is_timed(clock):
    with recording() as steps, pytest.raises(ValueError, match="no"), timed("lower"):
        raise ValueError("no")
    assert [step.runs for step in steps] == [1]


def test_recordings_inside_each_other_are_apart(clock):
    with recording() as outer:
        with recording() as inner, timed("lower"):
            pass
        with timed("emit"):
            pass
    assert [step.name for step in inner] == ["lower"]
    assert [step.name for step in outer] == ["emit"]


def test_the_table_has_sums_of_groups_and_fits_80_columns(clock):
    with recording() as steps:
        for name in ("fuse", "layout"):
            with timed(name, "passes") as step:
                step.made = f"{name}: " + "much " * 40
        with timed("lower"):
            pass
    lines = text_of(steps).rstrip().split("\n")
    assert max(map(len, lines)) <= 80
    assert [line.split()[:5] for line in lines[1:]] == [
        ["passes", "2", "2,000.0", "66.7", "%"],
        ["fuse", "1", "1,000.0", "33.3", "%"],
        ["layout", "1", "1,000.0", "33.3", "%"],
        ["lower", "1", "1,000.0", "33.3", "%"],
        ["all", "3", "3,000.0", "100.0", "%"],
    ]


def test_every_step_of_a_compilation_times_itself():
    with recording() as steps:
        compile_with(build_model(), CompileOptions(device="reference", veus=2))
    passes = [step.name for step in steps if step.group == "passes"]
    assert passes == list(dict.fromkeys(name for name, _ in PASSES))
    assert {step.name for step in steps if step.group == "verify"} == {"graph", "tasks", "program"}
    named = {step.name: step for step in steps if not step.group}
    assert list(named) == ["read", "lower", "schedule", "memory", "emit", "build", "report"]
    assert named["lower"].made.startswith("5 rOperators, ")


def test_a_plan_is_proved_while_it_is_built(monkeypatch):
    proving, built = threading.Event(), threading.Event()

    class Device(ReferenceDevice):
        def build(self, *arguments):
            assert proving.wait(60)
            built.set()
            return super().build(*arguments)

    def verify(plan, vdevice):
        proving.set()
        assert built.wait(60)
        raise VerificationError("P100", "a fault")

    monkeypatch.setattr(compiler, "find_device", lambda name: Device())
    monkeypatch.setattr("rammer.verify.program.verify", verify)
    with pytest.raises(VerificationError, match="a fault"):
        compile_with(build_model(), CompileOptions(device="reference", veus=2))


@pytest.mark.parametrize("wanted", [True, False])
def test_they_are_shown_where_that_is_wanted(wanted, capsys):
    with timings_shown(wanted=wanted), timed("lower"):
        pass
    shown = capsys.readouterr()
    assert shown.out == ""
    assert ("lower" in shown.err) is wanted
