"""Figures measured on this machine, and what stands in for them."""

from dataclasses import replace

import pytest

from rammer.devices.cache import Cache
from rammer.devices.cpu import peaks as measurement
from rammer.devices.cpu.describe import Peaks, describe
from rammer.devices.cpu.device import CpuDevice
from rammer.devices.cpu.machine import read_machine
from rammer.devices.cpu.peaks import find_peaks
from rammer.ir.types import DType
from rammer.options import CompileOptions
from tests.support.kernels import CLANG

MACHINE = read_machine()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The figures that the first test has measured are there for all."""
    return tmp_path_factory.mktemp("peaks")


@pytest.fixture
def options(folder):
    measurement._find_peaks.cache_clear()
    yield CompileOptions(cache_dir=folder, figures="measured")
    measurement._find_peaks.cache_clear()


def figures(vdevice):
    levels = [level.bandwidth_bytes_per_us for level in vdevice.levels]
    return [vdevice.flops_per_us[DType.FLOAT32], vdevice.handover_us, vdevice.task_overhead_us, *levels]


def test_every_figure_of_this_machine_is_measured(options):
    vdevice = CpuDevice().describe(options)
    for figure in figures(vdevice):
        assert figure.value > 0
        if figure is not vdevice.handover_us or vdevice.veu_count > 1:
            assert figure.provenance.startswith("measured 2")
    # Nothing was left out by the compiler: no core does more, none less than a hundredth of it.
    assert 1e3 < vdevice.flops_per_us[DType.FLOAT32].value < 1e6
    for level in vdevice.levels:
        assert 100 < level.bandwidth_bytes_per_us.value < 1e6


def test_nothing_is_measured_unless_asked_for(options, monkeypatch):
    """So that noise in a measurement never changes a program."""
    monkeypatch.setattr("rammer.devices.cpu.peaks.find_peaks", lambda *_: pytest.fail("measured"))
    vdevice = CpuDevice().describe(CompileOptions(cache_dir=options.cache_dir))
    assert vdevice == describe(MACHINE, None)
    assert {figure.provenance.partition(":")[0] for figure in figures(vdevice)[:3]} == {"nominal"}


def test_measured_kernels_come_with_measured_figures(options):
    assert CpuDevice().describe(replace(options, figures=None, tune="measured")) == CpuDevice().describe(options)


def test_figures_are_measured_once(options):
    first = find_peaks(MACHINE, options)
    measurement._find_peaks.cache_clear()
    assert find_peaks(MACHINE, options) == first


def test_another_compiler_has_figures_of_its_own(options):
    clang = find_peaks(MACHINE, replace(options, cc=" ".join(CLANG)))
    assert "clang" in clang.provenance
    assert clang != find_peaks(MACHINE, options)


def test_without_a_compiler_figures_are_nominal_and_say_why(options):
    vdevice = CpuDevice().describe(replace(options, cc="no-such-compiler"))
    for figure in figures(vdevice):
        assert figure.provenance.startswith("nominal: ")
        assert "not measured: no C compiler 'no-such-compiler'" in figure.provenance
    assert [figure.value for figure in figures(vdevice)] == [f.value for f in figures(describe(MACHINE, None))]


def test_units_share_what_all_get_together():
    peaks = Peaks(provenance="measured", flops_per_us={"float32": 1e5}, bytes_per_us={"memory": (20e3, 30e3)})
    for veus, total in ((1, 20e3), (2, 30e3)):
        memory = describe(MACHINE, veus, peaks).levels[-1]
        assert memory.bandwidth_bytes_per_us.value == 20e3
        assert memory.total_bandwidth_bytes_per_us is not None
        assert memory.total_bandwidth_bytes_per_us.value == total


def test_what_was_not_measured_stays_nominal():
    vdevice = describe(MACHINE, 2, Peaks(provenance="measured", flops_per_us={"float32": 1e5}))
    assert vdevice.flops_per_us[DType.FLOAT16].value == 1e5  # computed in float32
    assert vdevice.flops_per_us[DType.FLOAT64].provenance.startswith("nominal: two multiply-adds")
    assert vdevice.levels[0].total_bandwidth_bytes_per_us is None


def test_the_cache_keeps_what_came_first(tmp_path):
    cache = Cache(tmp_path)
    assert cache.keep("00key", b"first") == b"first"
    assert cache.keep("00key", b"second") == b"first"
