"""Measured costs: keys, the database, and the measurement of rKernels alone."""

import sqlite3
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import rammer
from rammer.devices.cpu.device import CpuDevice
from rammer.errors import VerificationError
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.ir.evaluate import evaluate
from rammer.ir.kernel_form import ReduceForm
from rammer.ir.task import RTile
from rammer.ir.types import DType
from rammer.ir.vdevice import Figure
from rammer.options import CompileOptions
from rammer.pipelines.compiler import find_target
from rammer.pipelines.planning import lower_graph, measure_kernels
from rammer.profiler import database as profile_database
from rammer.profiler.costs import MeasuredCosts
from rammer.profiler.database import Database, DatabaseWarning
from rammer.profiler.keys import describe_expr, kernel_key
from rammer.profiler.measure import difference, full_tasks, measure, operands_for, profile
from rammer.roller.model import ModelCosts
from tests.support.kernels import AVX512, Bound, conv, lstm_cell, types
from tests.support.operators import expression
from tests.support.small_models import layer_model, layer_result, mlp_model

CPU = CpuDevice()
FIGURE = Figure(1.5, "measured in a test")


def product(n=24):
    return expression("MatMul", types((n, 16), (16, 40)))


def here(expr, constants=()):
    """The candidates for this processor."""
    vdevice = CPU.describe(CompileOptions())
    return Bound(expr, constants, vdevice).kernels, vdevice


def test_equal_work_has_equal_keys():
    first, second = (Bound(product(), {1}, AVX512).kernels for _ in range(2))
    assert [kernel_key(kernel, AVX512, "") for kernel in first] == [kernel_key(kernel, AVX512, "") for kernel in second]


def test_whatever_changes_the_time_changes_the_key():
    kernel = Bound(product(), {1}, AVX512).kernels[0]
    other_tile = replace(kernel, tile=replace(kernel.tile, task=(8, 40)))
    other_layout = replace(kernel, layouts=Bound(product(), (), AVX512).kernels[0].layouts)
    keys = {
        kernel_key(kernel, AVX512, ""),
        kernel_key(other_tile, AVX512, ""),
        kernel_key(other_layout, AVX512, ""),
        kernel_key(replace(kernel, form=ReduceForm()), AVX512, ""),
        kernel_key(Bound(product(25), {1}, AVX512).kernels[0], AVX512, ""),
        kernel_key(kernel, replace(AVX512, name="another machine"), ""),
        kernel_key(kernel, replace(AVX512, compiler="another compiler"), ""),
        kernel_key(kernel, AVX512, "another version of the device"),
    }
    assert len(keys) == 8


def test_an_expression_as_text_tells_constants_and_functions_apart():
    exprs = [
        expression("Relu", types((8,))),
        expression("Sigmoid", types((8,))),
        expression("LeakyRelu", types((8,)), alpha=0.1),
        expression("LeakyRelu", types((8,)), alpha=0.2),
        expression("Relu", types((8,), dtype=DType.FLOAT64)),
    ]
    assert len({describe_expr(expr) for expr in exprs}) == len(exprs)
    assert len(describe_expr(lstm_cell(1, 64, 64))) < 20_000  # shared nodes are written once


def test_what_was_stored_first_stays(tmp_path):
    database = Database(tmp_path / "profile.sqlite")
    assert database.find(["a"]) == {}
    database.keep({"a": FIGURE})
    database.keep({"a": Figure(9.0, "later"), "b": FIGURE})
    assert Database(tmp_path / "profile.sqlite").find(["a", "b", "c"]) == {"a": FIGURE, "b": FIGURE}


def test_the_database_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(profile_database, "MAX_FIGURES", 10)
    database = Database(tmp_path / "profile.sqlite")
    keys = [f"key {i}" for i in range(25)]
    for key in keys:
        database.keep({key: FIGURE})
    assert list(database.find(keys)) == keys[-10:]


def test_a_damaged_database_is_put_aside(tmp_path):
    path = tmp_path / "profile.sqlite"
    path.write_bytes(b"this is no database" * 100)
    database = Database(path)
    with pytest.warns(DatabaseWarning, match=r"it is now profile\.damaged"):
        database.keep({"a": FIGURE})
    assert database.find(["a"]) == {"a": FIGURE}
    assert (tmp_path / "profile.damaged").exists()


def test_a_database_that_cannot_be_used_keeps_nothing(tmp_path):
    (tmp_path / "file").touch()
    database = Database(tmp_path / "file" / "profile.sqlite")
    with pytest.warns(DatabaseWarning, match="RAMMER_CACHE_DIR"):
        database.keep({"a": FIGURE})
    assert database.find(["a"]) == {}  # it warns once


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_database_where_others_may_write_is_not_read(tmp_path, mode):
    path = tmp_path / "profile.sqlite"
    Database(path).keep({"a": FIGURE})
    tmp_path.chmod(mode)
    with pytest.warns(DatabaseWarning, match="others may write"):
        assert Database(path).find(["a"]) == {}


def test_processes_store_at_the_same_time(tmp_path):
    path = tmp_path / "profile.sqlite"
    script = (
        "import sys; from pathlib import Path; from rammer.ir.vdevice import Figure\n"
        "from rammer.profiler.database import Database\n"
        "for i in range(20): Database(Path(sys.argv[1])).keep({f'{sys.argv[2]} {i}': Figure(1.0, 'x')})\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", script, str(path), str(number)]) for number in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    with sqlite3.connect(path) as connection:
        assert connection.execute("select count(*) from figures").fetchone() == (80,)


EXPRESSIONS = {
    "matrix product": (product(), {1}),
    "convolution": (conv((1, 8, 9, 9), (16, 8, 3, 3), bias=True), {1, 2}),
    "pooling": (expression("GlobalAveragePool", types((1, 24, 7, 7))), ()),
    "softmax": (expression("Softmax", types((5, 33)), axis=1), ()),
    "cell": (lstm_cell(1, 20, 16), {3, 4, 5}),
    "integers": (expression("Add", types((7, 5), (5,), dtype=DType.INT32)), ()),
    "comparison": (expression("Less", types((7, 5), (7, 5))), ()),
    "half precision": (expression("Relu", types((50,), dtype=DType.FLOAT16)), ()),
}


def test_full_rtasks_are_those_that_no_border_clips():
    kernel = here(product())[0][0]
    for task, full in {(24, 40): [0], (24, 16): [0, 1], (16, 40): [0], (8, 16): [0, 1, 3, 4, 6, 7]}.items():
        assert full_tasks(replace(kernel, tile=replace(kernel.tile, task=task))) == full


def test_units_take_full_rtasks_in_turns():
    kernel = replace(here(product())[0][0], tile=RTile(task=(8, 16), lane=1))
    # rTasks 0, 2, 4, 6, 8 of the first unit, then 1, 3, 5, 7 of the second; 2, 5 and 8 are at the border.
    assert full_tasks(kernel, veus=2) == [0, 2, 3, 5, 6, 8]


def test_candidates_can_be_measured_on_several_units_at_once():
    kernels, vdevice = here(product())
    several = replace(vdevice, veus=(vdevice.veus[0],) * 2)
    assert all(time_us > 0 for time_us in measure(kernels, CPU, several, CompileOptions(), veus=2))


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_every_candidate_is_right_and_has_a_time(name):
    kernels, vdevice = here(*EXPRESSIONS[name])
    times_us = measure(kernels, CPU, vdevice, CompileOptions())
    assert len(times_us) == len(kernels)
    assert all(time_us > 0 for time_us in times_us)


class Wrong(CpuDevice):
    """A processor whose code takes the larger of x and 1, not of x and 0."""

    def emit(self, plan, vdevice):
        source = super().emit(plan, vdevice)
        files = {
            name: bytes(text).replace(b" 0.0f", b" 1.0f") if name.endswith(".c") else text
            for name, text in source.files.items()
        }
        assert files != source.files
        return replace(source, files=files)


def test_a_candidate_that_computes_something_else_is_an_error():
    kernels, vdevice = here(expression("Relu", types((50,))))
    with pytest.raises(VerificationError, match="an rKernel 'map'") as caught:
        measure(kernels, Wrong(), vdevice, CompileOptions())
    assert caught.value.code == "K01"


def test_differences_are_relative_to_the_largest_element():
    right = np.array([1000.0, 0.0, np.inf, np.nan])
    assert difference(right + np.array([1.0, 0.1, 0.0, 0.0]), right) == pytest.approx(1e-3)
    assert difference(np.array([1000.0, np.nan, np.inf, np.nan]), right) == np.inf
    assert difference(np.array([1000.0, 0.0, 1.0, np.nan]), right) == np.inf
    assert difference(np.array([1, 2]), np.array([1, 3])) == np.inf


def test_operands_index_within_bounds():
    expr = expression("Gather", types((4, 3)) + types((2,), dtype=DType.INT64), axis=0)
    data, indices = operands_for(expr)
    assert evaluate(expr, [data, indices])[0].shape == (2, 3)


def test_operands_are_rounded_as_their_type_is():
    """Tensor cores take no more of a TF32 than its 11 bits."""
    expr = product()
    rounded = replace(expr, inputs=tuple(replace(one, dtype=DType.TF32) for one in expr.inputs))
    for operand in operands_for(rounded):
        assert operand.dtype == np.float32
        assert not (operand.view(np.uint32) & 0x1FFF).any()
        assert len(np.unique(operand)) > 10


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
def test_a_gpu_measures_products_of_every_precision(precision, tmp_path):
    options = CompileOptions(device="cuda", precision=precision, tune="measured", cache_dir=tmp_path)
    device, vdevice = find_target(options)
    tasks = lower_graph(load_graph(mlp_model(96, 2)), vdevice, options, Dump(None))
    found = measure_kernels(tasks, device, vdevice, options)
    assert found.keys() == {kernel for operator in tasks.operators for kernel in operator.kernels}
    assert all(0.0 < figure.value < 1e3 for figure in found.values())


class NotAgain(CpuDevice):
    """A processor on which nothing is built, with code of the same package."""

    __module__ = CpuDevice.__module__

    def build(self, *_):
        raise AssertionError


def test_what_is_known_is_not_measured_again(tmp_path):
    kernels, vdevice = here(product(), {1})
    told = []
    options = CompileOptions(cache_dir=tmp_path)
    first = profile(kernels, CPU, vdevice, options, lambda *done: told.append(done))
    assert told == [(0, len(kernels))]
    assert all(figure.provenance.startswith("measured 2") for figure in first.values())
    assert profile(kernels, NotAgain(), vdevice, options, lambda *_: None) == first


def test_measured_costs_come_before_predicted_ones():
    fast, slow = Bound(product(), {1}, AVX512).kernels[:2]
    costs = MeasuredCosts({fast: FIGURE}, ModelCosts(AVX512))
    assert costs.task_us(fast) == FIGURE
    assert costs.task_us(slow) == ModelCosts(AVX512).task_us(slow)


def test_a_tuned_model_says_what_was_measured_and_is_the_same_again():
    x = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
    nets = [rammer.compile(layer_model(), "cpu", tune="measured") for _ in range(2)]
    np.testing.assert_allclose(nets[0](x), layer_result(x), rtol=1e-6)
    assert nets[0].report == nets[1].report
    for operator in nets[0].report["operators"]:
        for candidate in operator["candidates"]:
            assert candidate["measured_us"] == candidate["task_us"]["value"] > 0
            assert candidate["task_us"]["provenance"].startswith("measured 2")
            assert candidate["bound"] in {"compute", "memory"}
        assert operator["reason"]
