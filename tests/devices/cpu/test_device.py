"""The processor through the protocol that all devices share, with the real emitter."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from rammer.devices.cpu.machine import read_machine
from rammer.devices.registry import DEVICES, find_device
from rammer.errors import OptionError
from rammer.options import CompileOptions
from tests.support.cpu import chain, expected, run

X = np.linspace(-3, 5, 64, dtype=np.float32)
CPU = find_device("cpu")


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    return CompileOptions(cache_dir=tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("device", [find_device(name) for name in DEVICES], ids=DEVICES)
@pytest.mark.parametrize(
    "shape", [{"length": 1, "veus": 1, "tiles": 5}, {"length": 6, "veus": 3, "tiles": 4, "programs": 2}], ids=str
)
def test_devices_agree(options, device, shape):
    plan = chain(**shape)
    source = device.emit(plan, device.describe(options))
    binary = device.build(source, options)
    assert (source.device, binary.device) == (device.name, device.name)
    assert device.mismatch(binary) is None
    model = device.load(source, binary, options)
    np.testing.assert_array_equal(run(model, X), expected(plan, X))
    y = np.zeros_like(X)
    spans_ns = model.trace([X], [y]).spans_ns
    assert [[len(s) for s in program] for program in spans_ns] == [
        [len(queue) for queue in program.steps] for program in plan.schedule.programs
    ]
    np.testing.assert_array_equal(y, expected(plan, X))


def test_vdevice_has_the_veus_asked_for(options):
    for device in map(find_device, DEVICES):
        assert device.describe(replace(options, veus=3)).veu_count == 3


@pytest.mark.parametrize("more", [0, 1])
def test_more_units_than_cores_are_a_warning(options, caplog, more):
    veus = read_machine().computing_cores + more
    source = CPU.emit(chain(length=2, veus=veus, tiles=2), CPU.describe(options))
    CPU.load(source, CPU.build(source, options), options)
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert (
        warned
        == [f"a model for {veus} execution units runs on {veus - 1} cores: compile or load it with veus={veus - 1}"]
        * more
    )


def test_unknown_device():
    with pytest.raises(OptionError, match="device 'gpu'") as caught:
        find_device("gpu")
    assert "cpu" in caught.value.hint


def test_source_is_bytes_that_equal_plans_share(options):
    vdevice = CPU.describe(options)
    first, second = (CPU.emit(chain(length=4, veus=2, tiles=2), vdevice) for _ in range(2))
    assert {name: bytes(data) for name, data in first.files.items()} == {
        name: bytes(data) for name, data in second.files.items()
    }
    assert list(first.files) == list(second.files)
    assert all(isinstance(value, str) for value in CPU.build(first, options).machine.values())


@pytest.mark.parametrize("offset", [0, 1, 32])
def test_model_comes_back_from_stored_bytes(options, offset):
    """As an artifact brings it: read-only views, aligned or not."""
    plan = chain(length=5, veus=2, tiles=2)
    source = CPU.emit(plan, CPU.describe(options))
    binary = CPU.build(source, options)

    def stored(files):
        views = {}
        for name, data in files.items():
            whole = np.zeros(len(data) + 64 + offset, np.uint8)
            start = -whole.ctypes.data % 64 + offset
            whole[start : start + len(data)] = np.frombuffer(data, np.uint8)
            views[name] = whole[start : start + len(data)].data.toreadonly()
        return views

    model = CPU.load(replace(source, files=stored(source.files)), replace(binary, files=stored(binary.files)), options)
    np.testing.assert_array_equal(run(model, X), expected(plan, X))


def test_aligned_constants_are_used_where_they_lie(options):
    plan = chain(length=1, veus=1)
    source = CPU.emit(plan, CPU.describe(options))
    constants = np.frombuffer(source.files["constants.bin"], np.float32)
    assert constants.ctypes.data % 64 == 0
    model = CPU.load(source, CPU.build(source, options), options)
    before = run(model, X)
    ctypes.memset(constants.ctypes.data, 0, constants.nbytes)
    np.testing.assert_array_equal(run(model, X), X * np.float32(2))
    assert not np.array_equal(before, X * np.float32(2))
