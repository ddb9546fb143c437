"""Devices whose code follows from a schedule alone compile it while the rest of the plan is made."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from examples.two_branches import build_model
from rammer.devices.base import Binary, Early, Source, no_progress
from rammer.devices.reference.device import ReferenceDevice
from rammer.devices.registry import DEVICES, GPUS, find_device
from rammer.errors import CompilerFailedError, OutOfMemoryError
from rammer.options import CompileOptions
from rammer.pipelines import compiler
from rammer.pipelines.kinds import compile_with
from rammer.schedule import memory

OPTIONS = CompileOptions(device="reference", veus=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Code(Source):
    """The number of rOperators, which stands for their code."""

    operators: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyDevice(ReferenceDevice):
    """The reference device with code, which `built` compiles; nothing but that is built."""

    built: Callable[[], Binary]

    def code(self, graph, schedule, vdevice):
        return Code(device=self.name, files={}, operators=len(graph.operators))

    def complete(self, plan, vdevice, code):
        assert code.operators == len(plan.graph.operators)
        return self.emit(plan, vdevice)

    def build(self, source, options, progress=no_progress):
        assert isinstance(source, Code)
        return self.built()


def binary():
    return Binary(device="reference", machine={}, files={})


@pytest.fixture
def compiled(monkeypatch):
    """Compiles the model for a device that is built so."""

    def with_built(built):
        monkeypatch.setattr(compiler, "find_device", lambda name: EarlyDevice(built=built))
        return compile_with(build_model(), OPTIONS)

    return with_built


def test_which_devices_are_early():
    assert [isinstance(find_device(name), Early) for name in DEVICES] == [False] * len(DEVICES)
    assert all(isinstance(find_device(name), Early) for name in GPUS)


def test_code_is_compiled_while_memory_is_planned(compiled, monkeypatch):
    building, planned = threading.Event(), threading.Event()
    plan = memory.plan

    def built():
        building.set()
        assert planned.wait(60)
        return binary()

    def plan_meanwhile(*arguments):
        assert building.wait(60)
        planned.set()
        return plan(*arguments)

    x = np.linspace(-1, 1, 512, dtype=np.float32).reshape(1, 8, 8, 8)
    expected = compile_with(build_model(), OPTIONS)
    monkeypatch.setattr(memory, "plan", plan_meanwhile)
    np.testing.assert_array_equal(compiled(built)(x), expected(x))


def test_a_fault_of_the_compiler_is_reported(compiled):
    def built():
        raise CompilerFailedError("no", log="")

    with pytest.raises(CompilerFailedError, match="no"):
        compiled(built)


def test_a_plan_that_does_not_fit_waits_for_the_compiler(compiled, monkeypatch):
    refused, ended = threading.Event(), threading.Event()

    def built():
        assert refused.wait(60)
        ended.set()
        return binary()

    def refuse(*arguments):
        refused.set()
        raise OutOfMemoryError("too large")

    monkeypatch.setattr(memory, "plan", refuse)
    with pytest.raises(OutOfMemoryError, match="too large"):
        compiled(built)
    assert ended.is_set()
