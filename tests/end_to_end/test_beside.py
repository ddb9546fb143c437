"""Work in other processes: the same results in the same order, errors as they are, an end that is told."""

import os
import signal
from dataclasses import replace

import pytest

from benchmarks.networks import NETWORKS, SMALL
from rammer.devices.registry import find_device
from rammer.errors import DeviceError, OptionError
from rammer.frontends.onnx import load_graph
from rammer.ir.extern import ExternKernel
from rammer.ir.vdevice import Figure
from rammer.options import CompileOptions
from rammer.pipelines import measured, scheduling
from rammer.pipelines.beside import each_beside


def halved(number):
    if number % 2:
        raise OptionError(f"{number} is odd", hint="choose an even one")
    return number // 2


def ended(_number):
    os.kill(os.getpid(), signal.SIGKILL)


def test_results_come_in_the_order_of_calls(capfd):
    assert each_beside(halved, [(number,) for number in (8, 2, 6)]) == [4, 1, 3]
    assert capfd.readouterr().out == ""


def test_an_error_is_raised_as_it_was():
    with pytest.raises(OptionError, match="3 is odd") as caught:
        each_beside(halved, [(2,), (3,)])
    assert caught.value.hint == "choose an even one"


def test_a_process_that_is_ended_is_an_error():
    with pytest.raises(DeviceError, match="a process that schedules ended"):
        each_beside(ended, [(0,)])


def test_schedules_that_are_searched_beside_are_those_of_this_process(monkeypatch):
    """There may be kernels of users that no other process finds."""
    options = CompileOptions(device="cuda:sm_90", veus=8, policy="auto", tune="programs")
    device = find_device(options.device)
    extern = ExternKernel(name="own", kind="Conv", make=lambda *_, **__: None)
    vdevice = replace(device.describe(options), externs=(extern,))
    graph = load_graph(NETWORKS["nasnet"](**SMALL["nasnet"]))
    found = []

    def measure(plans, _device, vdevices, _options):
        assert all(one is vdevice for one in vdevices)
        found.append([plan.schedule for plan in plans])
        return [Figure(1.0, "made up")] * len(plans)

    monkeypatch.setattr(measured, "measure_plans", measure)
    monkeypatch.setattr(measured, "compare_plans", lambda plans, *_: [1.0] * len(plans))
    monkeypatch.setattr(measured, "trace_plans", lambda plans, *_: [[]] * len(plans))
    for large in (1, 1 << 20):
        monkeypatch.setattr(measured, "_LARGE", large)
        scheduling.schedule_graph(graph, device, vdevice, options)
    assert found[0] == found[1]
    assert len(found[0]) > 1
