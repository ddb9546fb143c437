"""What it costs to hand over on a GPU: the plan that measures is sound, its trace is read right, figures are kept."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rammer.devices.base import Trace
from rammer.devices.cache import CacheWarning
from rammer.devices.cuda import peaks as measurement
from rammer.devices.cuda.architecture import named
from rammer.devices.cuda.build import TRACE_MACRO
from rammer.devices.cuda.describe import describe
from rammer.devices.cuda.device import CudaDevice
from rammer.devices.cuda.handover import HandOvers, handover_plan, read
from rammer.devices.cuda.source import source_of
from rammer.devices.cuda.source_files import CODE
from rammer.devices.cuda.toolchain import find_toolchain
from rammer.devices.reference.pickers import Behind, Highest, Lowest, Random
from rammer.errors import RunTimeoutError
from rammer.ir.program import Execute
from rammer.options import CompileOptions
from rammer.verify import program, tasks
from tests.support.plans import run_reference

H200 = named("sm_90")
SMALL = describe(H200, 5)
OWN_NS, COUNTER_NS, TAGGED_NS, BETWEEN_NS = 100, 900, 500, 150


@pytest.fixture(scope="module")
def plan():
    return handover_plan(SMALL)


def test_the_plan_is_sound(plan):
    tasks.verify(plan.graph)
    program.verify(plan, SMALL)


@pytest.mark.parametrize("picker", [Lowest(), Highest(), Behind(), Random(1)])
def test_the_plan_computes_what_it_says(plan, picker):
    x = np.arange(256, dtype=np.float32)
    alone, *chains = run_reference(plan, [x], picker)
    turns = plan.schedule.programs[1].counter_count
    np.testing.assert_array_equal(alone, np.broadcast_to(x + 1, alone.shape))
    assert len(chains) == 2
    for result in chains:
        np.testing.assert_array_equal(result, x + turns)


def test_neighbours_take_turns(plan):
    for chain in plan.schedule.programs[1:]:
        order = sorted((task, veu) for veu, _, task in chain.tasks())
        veus = [veu for _, veu in order]
        assert set(veus) == {0, 1, 2, 3}  # the fifth has no partner
        handed_over = sum(a != b for a, b in itertools.pairwise(veus))
        assert handed_over == len(veus) - 1


def played(plan, offsets_ns):
    """A trace in which everything takes what the constants say, and each vEU's clock is so much ahead."""
    clock_ns, spans_ns = 0, []
    for number, part in enumerate(plan.schedule.programs):
        handover_ns = (BETWEEN_NS, COUNTER_NS, TAGGED_NS)[number]
        found = [np.zeros((len(queue), 2), np.int64) for queue in part.steps]
        for _, veu, position in sorted((task, veu, position) for veu, position, task in part.tasks()):
            start_ns = clock_ns + handover_ns
            clock_ns = start_ns + OWN_NS
            # Tagged elements are waited for inside an rTask, which begins as soon as its vEU is free.
            begin_ns = start_ns if number < 2 else start_ns - TAGGED_NS // 2
            found[veu][position] = begin_ns + offsets_ns[veu], clock_ns + offsets_ns[veu]
        spans_ns.append(tuple(found))
    return Trace(spans_ns=tuple(spans_ns))


def test_a_trace_is_read_whatever_the_clocks_are_apart(plan):
    found = read(plan, [played(plan, offsets_ns) for offsets_ns in ([0, 300, -250, 40, 0], [0, -70, 500, 0, 9])])
    np.testing.assert_allclose(found.counter_us, COUNTER_NS / 1e3)
    np.testing.assert_allclose(found.tagged_us, TAGGED_NS / 1e3)
    np.testing.assert_allclose(found.task_us, (OWN_NS + BETWEEN_NS) / 1e3)
    np.testing.assert_allclose(found.own_us, OWN_NS / 1e3)
    np.testing.assert_allclose(found.counter_step_us, (COUNTER_NS + OWN_NS) / 1e3)
    assert min(map(len, (found.counter_us, found.tagged_us, found.task_us))) > 8


def test_chains_may_be_longer():
    plan = handover_plan(SMALL, counted=16)
    program.verify(plan, SMALL)
    assert [sum(1 for _ in part.tasks()) for part in plan.schedule.programs[1:]] == [2 * 16, 2 * 8]
    assert source_of(plan, SMALL).files[CODE] == source_of(handover_plan(SMALL), SMALL).files[CODE]


def test_all_pairs_of_a_gpu_take_part():
    chain = handover_plan(describe(H200, None)).schedule.programs[1]
    assert all(any(isinstance(step, Execute) for step in queue) for queue in chain.steps)


@pytest.mark.parametrize("macros", [[], [TRACE_MACRO]], ids=["plain", "trace"])
def test_it_compiles(plan, macros):
    pytest.importorskip("cuda.core", reason="needs the cuda extra")
    code = bytes(source_of(plan, SMALL).files[CODE]).decode()
    assert "rammer_load_flagged" in code
    assert find_toolchain().cubin(code, "sm_90", macros)[:4] == b"\x7fELF"


# --- Figures that are kept --------------------------------------------------------------------------------------------


@pytest.fixture
def here(monkeypatch):
    """A GPU is here; returns what is measured on it, and how often that was."""
    measurement._find_peaks.cache_clear()
    calls = []
    found = HandOvers(
        own_us=np.array([0.25, 0.2, 0.125]),
        task_us=np.array([0.2, 0.25, 9.0]),
        counter_us=np.array([0.7, 0.8, 0.9]),
        counter_step_us=np.array([1.0]),
        tagged_step_us=np.array([0.625, 0.5, 0.75]),
    )

    def measure(gpu, options):
        calls.append(gpu)
        return found

    monkeypatch.setattr(measurement, "measure_handovers", measure)
    monkeypatch.setattr(measurement, "find_toolchain", lambda: SimpleNamespace(version="13.5"))
    monkeypatch.setattr("rammer.devices.cuda.device.find_driver", lambda: None)
    monkeypatch.setattr("rammer.devices.cuda.device.read_gpu", lambda _: H200)
    yield calls
    measurement._find_peaks.cache_clear()


def figures(vdevice):
    return [vdevice.handover_us, vdevice.tagged_handover_us, vdevice.task_overhead_us]


def test_a_gpu_that_is_here_is_described_by_what_was_measured(here, tmp_path):
    found = figures(CudaDevice().describe(CompileOptions(cache_dir=tmp_path)))
    assert [figure.value for figure in found] == [0.8, pytest.approx(0.625), pytest.approx(0.05)]
    assert all(figure.provenance.startswith("measured 2") for figure in found)
    assert all(figure.provenance.endswith("with NVRTC 13.5") for figure in found)


def test_figures_are_measured_once(here, tmp_path):
    options = CompileOptions(cache_dir=tmp_path)
    first = CudaDevice().describe(options)
    measurement._find_peaks.cache_clear()
    assert CudaDevice().describe(replace(options, veus=3)).handover_us == first.handover_us
    assert len(here) == 1


def test_another_gpu_has_figures_of_its_own(here, tmp_path, monkeypatch):
    CudaDevice().describe(CompileOptions(cache_dir=tmp_path))
    other = replace(H200, name="another GPU")
    monkeypatch.setattr("rammer.devices.cuda.device.read_gpu", lambda _: other)
    CudaDevice().describe(CompileOptions(cache_dir=tmp_path))
    assert here == [H200, other]


def test_a_cache_that_cannot_be_written_is_no_error(here, tmp_path):
    (tmp_path / "file").touch()
    with pytest.warns(CacheWarning):
        vdevice = CudaDevice().describe(CompileOptions(cache_dir=tmp_path / "file"))
    assert vdevice.handover_us.value == 0.8


def test_what_cannot_be_measured_is_nominal_and_says_why(here, tmp_path, monkeypatch):
    def measure(gpu, options):
        raise RunTimeoutError("nothing moved")

    monkeypatch.setattr(measurement, "measure_handovers", measure)
    found = figures(CudaDevice().describe(CompileOptions(cache_dir=tmp_path)))
    assert [figure.value for figure in found] == [figure.value for figure in figures(describe(H200, None))]
    assert all(figure.provenance.endswith("; not measured: nothing moved") for figure in found)


def test_a_named_architecture_is_not_measured(here, tmp_path):
    found = figures(CudaDevice(architecture="sm_90").describe(CompileOptions(cache_dir=tmp_path)))
    assert not here
    assert all(figure.provenance.endswith("; not measured here") for figure in found)
