"""The evaluation of the paper: what its programs are, that it goes on where it ended, and the page it writes."""

import json
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest

from benchmarks.evaluation import __main__ as command
from benchmarks.evaluation import cells, measured, page
from benchmarks.evaluation.programs import PROGRAMS, schedules, with_barriers
from benchmarks.harness.ranking import kendall
from benchmarks.networks import LARGER, NETWORKS, SMALL
from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.ir.evaluate import evaluate_graph
from rammer.ir.program import Wait
from rammer.options import CompileOptions
from rammer.pipelines.planning import lower_graph, plan_memory
from rammer.roller.model import ModelCosts
from rammer.schedule.policies import sequential, wavefront
from tests.support.agreement import relative_difference, run_onnx_runtime
from tests.support.kernels import AVX2

OPTIONS = CompileOptions(device="cpu")


@pytest.fixture(scope="module")
def tasks():
    return lower_graph(load_graph(NETWORKS["nasnet"](seed=0, **SMALL["nasnet"])), AVX2, OPTIONS, Dump(None))


def test_programs_have_the_rkernels_that_their_names_say(tasks):
    costs = ModelCosts(AVX2)
    found = schedules(tasks, AVX2, costs)
    assert list(found) == list(PROGRAMS)
    fast, select = sequential.schedule(tasks, AVX2, costs).choice, wavefront.schedule(tasks, AVX2, costs).choice
    assert [found[name].choice for name in PROGRAMS] == [fast, select, fast, select]


def test_barriers_stand_for_waits(tasks):
    fine = wavefront.schedule(tasks, AVX2, ModelCosts(AVX2))
    coarse = with_barriers(tasks, fine)
    plan_memory(tasks, coarse, AVX2, Dump(None))  # proves it
    ran = [
        sorted((veu, task) for program in one.programs for veu, _, task in program.tasks()) for one in (fine, coarse)
    ]
    assert ran[0] == ran[1]
    assert not any(isinstance(step, Wait) for program in coarse.programs for queue in program.steps for step in queue)


SMALLER: dict[str, dict[str, Any]] = {
    "resnext101": {"image": 32, "blocks": (1, 1), "width": 16, "groups": 4, "classes": 10},
    "nasnet_mobile": {"image": 32, "cells": 1, "reductions": 1, "filters": 12, "stem_channels": 8, "classes": 10},
}


@pytest.mark.parametrize("name", LARGER)
def test_networks_of_larger_inputs_are_models(name):
    model = LARGER[name](seed=0, **SMALLER[name])
    x = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
    (expected,) = run_onnx_runtime(model, {"image": x})
    (found,) = evaluate_graph(load_graph(model), [x])
    assert relative_difference(found, expected) < 1e-4


def test_networks_of_larger_inputs_have_the_published_sizes():
    sizes = {
        name: sum(np.prod(tensor.dims) for tensor in build(seed=0).graph.initializer) for name, build in LARGER.items()
    }
    assert sizes["resnext101"] == pytest.approx(83.5e6, rel=0.01)
    assert sizes["nasnet_mobile"] == pytest.approx(5.3e6, rel=0.03)


@pytest.mark.parametrize("seed", range(4))
def test_cells_are_models(seed):
    model = cells.cell_model(seed)
    x = np.random.default_rng(0).standard_normal((1, 64, 16, 16)).astype(np.float32)
    (expected,) = run_onnx_runtime(model, {"image": x})
    (found,) = evaluate_graph(load_graph(model), [x])
    assert relative_difference(found, expected) < 1e-4
    figures = cells.cell(seed, AVX2, OPTIONS)
    assert 0 < figures["waits_us"] <= figures["barriers_us"]


def figures(*run_us):
    return {
        name: {"run_us": us, "simulated_us": 0.9 * us, "busy_share": 0.5, "outside_us": us / 2}
        for name, us in zip(PROGRAMS, run_us, strict=True)
    }


def test_page_says_what_was_measured():
    data = {
        "settings": {
            "device": "a machine",
            "veus": 2,
            "commit": "abc",
            "time": "2026-01-01",
            "kind": "cpu",
            "known": "measured",
        },
        "networks": {"lstm_tc-1": figures(400, 300, 200, 100), "alexnet-16": figures(100, 120, 90, 99)},
        "commits": {"lstm_tc-1": "abc", "alexnet-16": "012"},
        "cells": {str(seed): {"base_us": 2.0, "barriers_us": 1.2, "waits_us": 1.0} for seed in range(5)},
    }
    text, pictures = page.write_page(data)
    assert "| LSTM-TC, 1 | 400 | 300 | 200 | 100 | 4.00 | 50 to 50 | 200 to 50 |" in text
    assert "| LSTM-TC | 6.28 | 4.00 | 23 to 54 |" in text
    assert "less than 5 % over operator after operator here:\nAlexNet, 16 (1.01)." in text
    assert "The simulator is off by 10 %" in text
    larger = "ResNeXt-101 64x4d (224 x 224), NASNet-mobile (224 x 224)"
    assert f"Not measured at batch 1: ResNeXt-29, NASNet-CIFAR, AlexNet, DeepSpeech2, Seq2Seq, {larger}." in text
    assert "Measured at commit 012: AlexNet, 16." in text
    assert "figures of the\nmachine as measured" in text
    assert "5 random cells" in text
    assert "are 1.20 times as fast" in text
    assert all("<title" in picture and "<desc" in picture for picture in pictures.values())


def test_orders_are_compared():
    assert kendall([(1, 10), (2, 20), (3, 30)]) == 1
    assert kendall([(1, 30), (2, 20), (3, 10)]) == -1


def test_orders_within_noise_do_not_count():
    pairs = [(2.0, 100.0), (1.0, 100.5), (3.0, 200.0)]
    assert kendall(pairs) == pytest.approx(1 / 3)
    assert kendall(pairs, noise=0.01) == 1
    assert kendall([(1.0, 100.0), (1.0, 200.0), (2.0, 300.0)], noise=0.01) == pytest.approx(2 / 3)


def test_it_goes_on_where_it_was_ended(monkeypatch, tmp_path):
    (tmp_path / "images").mkdir()
    asked = []

    def network(name, batch, *_):
        asked.append((name, batch))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return figures(400, 300, 200, 100)

    monkeypatch.setattr(measured, "network", network)
    monkeypatch.setattr(command, "each_beside", lambda function, calls: [{} for _ in calls])
    arguments = ["x", "--networks", "alexnet,lstm_tc", "--batches", "1", "--larger", "nasnet_mobile", "--cells", "0"]
    paths = ["--to", str(tmp_path / "page.md"), "--json", str(tmp_path / "kept.json")]
    monkeypatch.setattr(sys, "argv", arguments + paths)
    with pytest.raises(KeyboardInterrupt):
        command.main()
    assert list(json.loads((tmp_path / "kept.json").read_text())["networks"]) == ["alexnet-1"]
    assert command.main() == 0
    assert asked == [("alexnet", 1), ("lstm_tc", 1), ("lstm_tc", 1), ("nasnet_mobile", 1)]
    text = (tmp_path / "page.md").read_text()
    assert "LSTM-TC, 1" in text
    assert "NASNet-mobile (224 x 224), 1" in text
    monkeypatch.setattr(sys, "argv", [*arguments, *paths, "--again", "--budget-s", "-1"])
    assert command.main() == 1


def test_a_small_network_is_measured(monkeypatch):
    monkeypatch.setitem(NETWORKS, "seq2seq", partial(NETWORKS["seq2seq"], **SMALL["seq2seq"]))
    device = find_device("cpu")
    options = CompileOptions(device="cpu", veus=2)
    arguments = "seq2seq", 2, device, device.describe(options), options
    found = measured.network(*arguments, measured.built(*arguments))
    assert list(found) == list(PROGRAMS)
    assert all(0 < one["busy_share"] <= 1 and one["run_us"] > 0 for one in found.values())
