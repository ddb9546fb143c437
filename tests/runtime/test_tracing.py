"""Traces of runs: totals by operator, pictures, and what Python's logging is told."""

import json
import logging
import subprocess
import sys

import numpy as np
import pytest

import rammer
from tests.support.small_models import layer_model, mlp_model

X = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)


@pytest.fixture(scope="module", params=["cpu", "reference"])
def net(request):
    return rammer.compile(mlp_model(), request.param, veus=2)


def test_totals_by_operator(net):
    traced = net.trace(X)
    tasks = [step for program in net.report["programs"] for queue in program for step in queue if step[0] == "execute"]
    assert sum(operator.tasks for operator in traced.operators) == len(tasks)
    assert sum(operator.share for operator in traced.operators) == pytest.approx(1)
    assert [o.busy_us for o in traced.operators] == sorted((o.busy_us for o in traced.operators), reverse=True)
    assert {operator.name for operator in traced.operators} == {one["name"] for one in net.report["operators"]}
    assert 0 < max(operator.busy_us for operator in traced.operators) <= 2 * traced.total_us
    assert str(traced).startswith(f"{net.name} on {net.device}: ")
    assert all(operator.name in str(traced) for operator in traced.operators)


def test_inputs_are_given_as_in_a_call(net):
    (name,) = (port.name for port in net.signature.inputs)
    for traced in (net.trace(X), net.trace({name: X}), net.trace(**{name: X})):
        assert traced.total_us > 0
    with pytest.raises(rammer.errors.InputShapeError):
        net.trace(X[:1])


def test_pictures(net):
    traced = net.trace(X)
    assert "<title>" in traced.to_html("My run")
    assert "My run" in traced.to_html("My run")
    assert f"{net.name} on {net.device}" in traced.to_html()
    events = json.loads(traced.to_perfetto())["traceEvents"]
    assert len([event for event in events if event["ph"] == "X"]) >= sum(o.tasks for o in traced.operators)


def test_progress():
    told = []
    rammer.compile(mlp_model(), "cpu", progress=lambda *step: told.append(step))
    stages = list(dict.fromkeys(stage for stage, _, _ in told))
    assert stages == ["read", "passes", "lower", "schedule", "build"]
    assert all(0 <= done <= total for _, done, total in told)
    counted = [(done, total) for stage, done, total in told if stage == "passes"]
    assert len(counted) > 2
    assert counted == [(done, len(counted) - 1) for done in range(len(counted))]


def test_logging_says_what_is_decided_compiled_and_cached(caplog, tmp_path, monkeypatch):
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(tmp_path))
    with caplog.at_level(logging.DEBUG, logger="rammer"):
        rammer.compile(layer_model(), "cpu")
        first = caplog.text
        caplog.clear()
        rammer.compile(layer_model(), "cpu")
    assert "by the policy wavefront" in first
    assert "compiling kernels.so" in first
    assert "kernels.so is in the cache" in caplog.text
    assert "compiling" not in caplog.text


def test_importing_rammer_imports_neither_numpy_nor_the_compiler():
    code = "import rammer, sys; print([m for m in ('numpy', 'onnx', 'rammer.pipelines', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_command_line_imports_no_compiler_for_its_help():
    code = "import rammer.cli, sys; print([m for m in ('numpy', 'onnx', 'rammer.pipelines') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_all_public_names_are_there():
    assert set(rammer.__all__) <= set(dir(rammer))
    for name in rammer.__all__:
        assert getattr(rammer, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        getattr(rammer, "nonsense")  # noqa: B009 - a name that is not there
