"""Work in other processes: the same results in the same order, errors as they are, an end that is told."""

import os
import signal

import pytest

from benchmarks.networks import NETWORKS, SMALL
from rammer.devices.registry import find_device
from rammer.errors import DeviceError, OptionError
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.options import CompileOptions
from rammer.pipelines.beside import each_beside
from rammer.pipelines.planning import lower_graph
from rammer.roller.model import ModelCosts
from rammer.schedule.policies import auto


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


def test_schedules_that_are_searched_beside_are_those_of_this_process():
    options = CompileOptions(device="cuda:sm_90", veus=8)
    vdevice = find_device(options.device).describe(options)
    tasks = lower_graph(load_graph(NETWORKS["nasnet"](**SMALL["nasnet"])), vdevice, options, Dump(None))
    calls = [(tasks, vdevice, ModelCosts(vdevice), number) for number in range(auto.SEARCHES)]
    assert each_beside(auto.search, calls) == [auto.search(*call) for call in calls]
