"""`rammer inspect --survey`: a model before it is compiled."""

import json
import sys
from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import helper

from rammer.cli import main
from rammer.options import CompileOptions
from rammer.pipelines.survey import survey
from tests.support.small_models import FLOAT, small_model

WEIGHTS = np.ones((8, 4), np.float32)


def saved(tmp_path, nodes):
    ports = {"x": (FLOAT, ("N", 8))}, {"y": (FLOAT, ("N", 4))}
    model = small_model(nodes, *ports, constants={"w": WEIGHTS})
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture
def product(tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    return saved(tmp_path, nodes)


def test_contents_and_demands(product):
    found = survey(product, CompileOptions(device="reference", input_shapes={"x": (16, 8)}))
    assert found.refused == ""
    contents = found.contents
    assert contents.symbols == ("N",)
    assert contents.inputs == (("x", "float32[N,8]"),)
    assert (contents.parameters, contents.parameter_bytes) == (32, 128)
    assert Counter(dict(contents.operators)) == Counter({"MatMul": 1, "Relu": 1})
    demands = {demand.kind: demand for demand in found.demands}
    assert demands["MatMul"].operations == 2 * 16 * 8 * 4
    assert demands["MatMul"].moved_bytes == 4 * (16 * 8 + 8 * 4 + 16 * 4)
    assert all(demand.bound in ("compute", "memory") for demand in found.demands)


def test_open_dimensions_are_said(product):
    found = survey(product, CompileOptions(device="reference"))
    assert found.demands == ()
    assert "N" in found.refused
    assert "--shape N=1" in found.refused


def test_what_is_lacking_is_said(tmp_path):
    path = saved(tmp_path, [helper.make_node("StringNormalizer", ["x"], ["y"], name="draw")])
    found = survey(path, CompileOptions(device="reference", input_shapes={"x": (4, 8)}))
    assert found.contents.missing == (("StringNormalizer", "draw"),)
    assert "R203" in found.refused


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_the_command(product, capsys, monkeypatch, options):
    monkeypatch.setenv("COLUMNS", "150")
    arguments = ["inspect", str(product), "--survey", "--device", "reference", "--shape", "x=2,8", *options]
    monkeypatch.setattr(sys, "argv", ["rammer", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    text = capsys.readouterr().out
    if options:
        assert json.loads(text)["contents"]["parameters"] == 32
    else:
        assert all(word in text for word in ("symbols", "N", "MatMul", "bound by", "as far as can be seen"))
