"""Arms that another process schedules: the same as in this one, and an end whenever one is wanted."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from examples.two_branches import build_model
from rammer.errors import DeviceError, OutOfMemoryError
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.options import CompileOptions
from rammer.pipelines.apart import ArmsApart
from rammer.pipelines.compiler import find_target
from rammer.pipelines.exploring import Explored
from rammer.pipelines.pipes import receive, send
from rammer.pipelines.planning import choose_schedule, lower_graph
from rammer.profiler.costs import MeasuredCosts
from rammer.roller.model import ModelCosts


def explored_on(name, folder):
    options = CompileOptions(device=name, veus=2, cache_dir=folder)
    device, vdevice = find_target(options)
    tasks = lower_graph(load_graph(build_model()), vdevice, options, Dump(None))
    first = choose_schedule(tasks, vdevice, MeasuredCosts({}, ModelCosts(vdevice)), options)
    return Explored(tasks=tasks, first=first, measured={}, device=device, vdevice=vdevice, any_bits=True)


@pytest.fixture
def explored(tmp_path):
    return explored_on("cpu", tmp_path)


@pytest.mark.parametrize("name", ["cpu", "cuda:sm_90"])
def test_arms_and_programs_are_those_of_this_process(name, tmp_path):
    explored = explored_on(name, tmp_path)
    known = explored.written(explored.first).source.files
    here, there = explored.arms(), ArmsApart(explored).all()
    count = 0
    for one, other in zip(here, there, strict=True):
        assert (one.name, one.digest, one.predicted) == (other.name, other.digest, other.predicted)
        written, received = one.build(), other.build()
        files = {**received.source.files, **{name: known[name] for name in received.as_first}}
        assert {name: bytes(content) for name, content in written.source.files.items()} == {
            name: bytes(content) for name, content in files.items()
        }
        assert (written.report, written.tasks) == (received.report, received.tasks)
        assert any(name.startswith("constants") for name in received.as_first)
        for arm in (one, other):
            arm.learn(dict.fromkeys(arm.names, count % 2 == 0))
        count += 1
    assert count > 1


def test_a_process_that_is_stopped_ends_whoever_waits(explored):
    arms = ArmsApart(explored)
    found = arms.all()
    arm = next(found)
    process = arms._process
    assert process is not None
    threading.Timer(0.1, arms.stop).start()

    def build_on():
        for _ in range(1000):
            arm.build()

    with pytest.raises(DeviceError, match="the process that schedules ended"):
        build_on()
    found.close()
    assert process.wait(timeout=300) is not None


def test_nothing_is_begun_once_it_is_stopped(explored):
    arms = ArmsApart(explored)
    arms.stop()
    with pytest.raises(DeviceError, match="not wanted any more"):
        next(arms.all())
    assert arms._process is None


def test_errors_are_those_of_the_process(explored):
    levels = tuple(replace(level, capacity_bytes=1) for level in explored.vdevice.levels)
    arms = ArmsApart(replace(explored, vdevice=replace(explored.vdevice, levels=levels))).all()
    arm = next(arms)
    for _ in range(2):  # and it answers on
        with pytest.raises(OutOfMemoryError, match="of memory are needed"):
            arm.build()
    arms.close()


def test_arrays_travel_as_they_are(tmp_path):
    things = {"whole": np.arange(1 << 20), "view": np.arange(12).reshape(3, 4)[:, ::2], "text": "x", "none": None}
    with (tmp_path / "pipe").open("wb") as pipe:
        send(pipe, things)
    with (tmp_path / "pipe").open("rb") as pipe:
        found = receive(pipe)
    for name in ("whole", "view"):
        np.testing.assert_array_equal(found[name], things[name])
    assert (found["text"], found["none"]) == ("x", None)
