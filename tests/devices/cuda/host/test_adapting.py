"""Adaptive models on a GPU that is this machine: right in every call, judged by its clock, constants once."""

import gc
import time
from typing import Any

import numpy as np
import pytest

from examples.two_branches import build_model
from rammer.devices.codegen.tables import CONSTANT
from rammer.devices.cuda.source import source_of
from rammer.errors import OptionError
from rammer.frontends.dispatch import Example
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.pipelines.adapting import adapt_with
from rammer.pipelines.kinds import compile_with
from rammer.pipelines.planning import lay_out, lower_graph
from rammer.profiler.costs import MeasuredCosts
from rammer.roller.model import ModelCosts
from rammer.runtime.recorded import Recorded
from rammer.schedule.epochs import compose, find_epochs
from rammer.schedule.estimates import Estimates
from rammer.schedule.exploration import Exploration
from rammer.schedule.policies import POLICIES
from tests.runtime.test_state import STATE, running_sum
from tests.support.cuda_driver import Status

DEADLINE_S = 300.0
X = np.random.default_rng(0).standard_normal((1, 8, 8, 8)).astype(np.float32)


@pytest.fixture
def clocked(gpu):
    """The GPU, whose time goes on with the scheduling points of launches."""
    times = {}

    def record(event, stream):
        times[event] = gpu.api.steps
        return (Status.CUDA_SUCCESS,)

    numbers = iter(range(1, 1 << 20))
    gpu.api._answers |= {
        "cuEventCreate": lambda flags: (Status.CUDA_SUCCESS, next(numbers)),
        "cuEventRecord": record,
        "cuEventElapsedTime": lambda one, other: (Status.CUDA_SUCCESS, 1e-3 * (times[other] - times[one])),
    }
    return gpu


def adapted(gpu, bits="same", **settings):
    chosen = {"budget_runs": 200, "max_slowdown": 50.0, "budget_bytes": 1 << 30, **settings}
    return adapt_with(build_model(), gpu.options(), Example(), bits=bits, **chosen)


def settle(model):
    deadline_s = time.monotonic() + DEADLINE_S
    while not model.is_settled:
        assert time.monotonic() < deadline_s, "it goes on trying"
        yield model(X)
        time.sleep(1e-3)


@pytest.mark.parametrize("bits", ["same", "any"])
def test_every_call_is_right(bits, clocked):
    expected = compile_with(build_model(), clocked.options())(X)
    model = adapted(clocked, bits)
    for found in settle(model):
        if bits == "same":
            np.testing.assert_array_equal(found, expected)
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert any(outcome.pairs for outcome in model.history)
    assert all(outcome.verdict != "failed" for outcome in model.history)
    np.testing.assert_allclose(model.freeze()(X), expected, rtol=1e-5, atol=1e-5)


def test_what_was_tried_is_given_back(clocked):
    gc.collect()
    before = len(clocked.api._memory)
    model = adapted(clocked)
    for _ in settle(model):
        pass
    del model
    deadline_s = time.monotonic() + DEADLINE_S
    while len(clocked.api._memory) > before:  # the background lets go of the last ones
        assert time.monotonic() < deadline_s, "some memory is still taken"
        gc.collect()
        time.sleep(1e-3)


def test_what_does_not_fit_the_budget_is_not_tried(clocked, caplog):
    model = adapted(clocked, budget_bytes=100)
    for _ in settle(model):
        pass
    assert {outcome.verdict for outcome in model.history} == {"failed"}
    assert "of budget_bytes=100 are 100 bytes left" in caplog.text


def test_models_with_state_are_refused(gpu):
    chosen: Any = {"budget_runs": 1, "max_slowdown": 2.0, "budget_bytes": 0}
    options = gpu.options(states=STATE)
    with pytest.raises(OptionError, match="a model with state"):
        adapt_with(running_sum(), options, Example(), bits="same", **chosen)


class Pair:
    """A model's program, and one beside it with other tables; with barriers, an rProgram for each epoch."""

    def __init__(self, gpu, *, barriers=False):
        options = gpu.options()
        vdevice = gpu.vdevice(options)
        tasks = lower_graph(load_graph(build_model()), vdevice, options, Dump(None))
        costs = MeasuredCosts({}, ModelCosts(vdevice))
        first = POLICIES["wavefront"](tasks, vdevice, costs)
        others = Exploration(tasks, first, vdevice, costs, [POLICIES["sequential"]], any_bits=False)
        other = others.whole((0, 1))
        if barriers:
            epochs = find_epochs(tasks, Estimates(tasks, vdevice, costs), vdevice.veu_count, 0.0)
            other = compose(tasks, epochs, [first] * len(epochs), vdevice.veu_count, barriers=True)
        sources = [source_of(lay_out(tasks, schedule, vdevice), vdevice) for schedule in (first, other)]
        self.programs = len(other.programs)
        self.first = gpu.load(sources[0])
        shared = {name: sources[0].files[name] for name in sources[0].files if name.startswith("constants")}
        self.source = type(sources[1])(device="cuda", files={**sources[1].files, **shared})
        self.outputs: Any = [np.empty((1, 10), np.float32) for _ in range(2)]


def run(loaded, output):
    loaded.run([X], [output])


def test_constants_and_code_are_in_memory_once(gpu):
    pair = Pair(gpu)
    binary = pair.first._binary
    loads = gpu.api.log.count("cuModuleUnload")
    beside = pair.first.beside(pair.source, binary)
    assert beside._program.segments[CONSTANT] == pair.first._program.segments[CONSTANT]
    assert beside._kernel is pair.first._kernel
    run(pair.first, pair.outputs[0])
    del pair.first  # its constants and code stay
    gc.collect()
    run(beside, pair.outputs[1])
    np.testing.assert_array_equal(*pair.outputs)
    assert gpu.api.log.count("cuModuleUnload") == loads
    del beside
    gc.collect()
    assert gpu.api.log.count("cuModuleUnload") == loads + 1


def test_each_rprogram_is_timed_apart(gpu):
    pair = Pair(gpu, barriers=True)
    assert pair.programs > 1
    beside = pair.first.beside(pair.source, pair.first._binary, by_program=True)
    laps = []
    for _ in range(3):  # each has room of its own until it is read
        with beside.timed_by_program() as lap:
            run(beside, pair.outputs[1])
        laps.append(lap)
    run(pair.first, pair.outputs[0])
    np.testing.assert_array_equal(*pair.outputs)
    for lap in laps:
        times_us = lap.times_us()
        assert len(times_us) == pair.programs
        assert all(time_us > 0 for time_us in times_us)
    traced = Recorded(beside, [], [])
    traced.run([X], [pair.outputs[1]])
    np.testing.assert_allclose(laps[0].times_us(), traced.programs_us(), atol=2e-3)  # which are whole nanoseconds
