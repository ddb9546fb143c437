"""Blocks of programs with warpgroups claim the vEUs of their multiprocessors: each one is walked once in every run."""

import ctypes

import numpy as np
import pytest

from rammer.devices.codegen.tables import CONSTANT
from rammer.devices.cuda.source import source_of
from rammer.devices.cuda.tables import VEU
from rammer.errors import RunTimeoutError
from tests.devices.cuda.host.test_warpgroup_gemm import TOLERANCES, chain, plan_of
from tests.support.agreement import relative_difference, run_onnx_runtime
from tests.support.host_cuda import ORDERS, Numbering

VEUS = 5


class Runs:
    """A program of two products by warpgroups, and what its runs should give."""

    def __init__(self, gpu):
        model = chain((20,), 128, 64)
        self.plan, vdevice = plan_of(gpu, model, lambda form: form.instruction_m == 64, veus=VEUS)
        self.gpu, self.loaded = gpu, gpu.load(source_of(self.plan, vdevice))
        self.x = np.random.default_rng(0).standard_normal((20, 128)).astype(np.float32)
        (self.wanted,) = run_onnx_runtime(model, {model.graph.input[0].name: self.x})

    def check(self, order, loaded=None):
        """One run."""
        (found,) = self.gpu.run(loaded or self.loaded, [self.x], [self.wanted], order)
        assert relative_difference(found, self.wanted) < TOLERANCES["fp16"], order

    def veus(self, loaded=None):
        """What vEUs keep from run to run."""
        size = VEUS * VEU.itemsize
        memory = (ctypes.c_uint8 * size).from_address((loaded or self.loaded)._program.veus)
        return np.frombuffer(memoryview(memory), VEU)

    def counts(self, loaded=None):
        """Runs, claims and launches of each vEU."""
        return [self.veus(loaded)[name].tolist() for name in ("runs", "claims", "launches")]


@pytest.fixture
def runs(gpu):
    """The program."""
    return Runs(gpu)


@pytest.mark.parametrize("numbering", Numbering)
def test_each_run_walks_all(numbering, runs):
    runs.gpu.api.numbering = numbering
    claimed = numbering is not Numbering.MORE
    for number, order in enumerate((*ORDERS, *ORDERS), start=1):
        runs.check(order)
        assert runs.counts() == [[number] * VEUS, *[[number * claimed] * VEUS] * 2]


def test_numbers_may_be_others_in_each_run(runs):
    for number, order in enumerate((*ORDERS, *ORDERS)):
        runs.gpu.api.numbering = (Numbering.TURNED, Numbering.DOUBLED)[number % 2]
        runs.check(order)


def test_counts_begin_anew_behind_the_greatest(runs):
    for name in ("claims", "launches"):
        runs.veus()[name] = 0xFFFFFFFE
    for order in ORDERS[:4]:
        runs.check(order)
    assert runs.counts() == [[4] * VEUS, [2] * VEUS, [2] * VEUS]


@pytest.mark.parametrize("numbering", Numbering)
def test_runs_behind_one_that_was_given_up(numbering, runs):
    """It says which vEU waits in vain, whichever block walks that, and has claimed as every run does."""
    runs.gpu.api.numbering = numbering
    loaded, api = runs.loaded, runs.gpu.api
    records, starts = loaded._records.copy(), loaded._launch["starts"]
    tried, waiting = set(), np.flatnonzero(records["wait_count"]).tolist()
    for number in waiting:
        veu = int(np.searchsorted(starts, number, side="right")) - 1
        broken = records.copy()
        broken["waits"]["threshold"][number, 0] += 1
        api._copy(loaded._program.records, broken.ctypes.data, broken.nbytes)
        with pytest.raises(RunTimeoutError, match=f"vEU {veu} is at step"):
            runs.check(ORDERS[number % len(ORDERS)])
        api._copy(loaded._program.records, records.ctypes.data, records.nbytes)
        for order in ORDERS[:2]:
            runs.check(order)
        tried.add(veu)
    assert len(tried) > 2
    many, claims, launches = runs.counts()
    assert many == [3 * len(waiting)] * VEUS
    assert claims == launches == ([0] * VEUS if numbering is Numbering.MORE else many)


def test_traced_runs_claim_as_others_do(runs):
    runs.gpu.api.numbering = Numbering.TURNED
    for runs.gpu.api.order in ORDERS[:3]:
        y = np.zeros_like(runs.wanted)
        trace = runs.loaded.trace([runs.x], [y])
        assert relative_difference(y, runs.wanted) < TOLERANCES["fp16"]
        for program, spans in zip(runs.plan.schedule.programs, trace.spans_ns, strict=True):
            assert [len(span) for span in spans] == [len(queue) for queue in program.steps]
        runs.check(ORDERS[3])
    assert runs.counts() == [[6] * VEUS] * 3


def test_clones_claim_for_themselves(runs):
    twin = runs.loaded.clone()
    assert twin._segments[CONSTANT] == runs.loaded._segments[CONSTANT]
    for order in ORDERS:
        runs.check(order)
        runs.check(order, twin)
        runs.check(order)
    assert runs.counts() == [[2 * len(ORDERS)] * VEUS] * 3
    assert runs.counts(twin) == [[len(ORDERS)] * VEUS] * 3
