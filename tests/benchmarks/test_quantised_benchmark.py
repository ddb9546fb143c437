"""The benchmark of networks in int8: what it compares computes the same, in a process each."""

import numpy as np
import pytest

from benchmarks.harness.kept import Kept
from benchmarks.harness.onnx_runtime import OnnxRuntime
from benchmarks.quantised import Int8, case_of, main
from benchmarks.quantised_gpu import main as on_gpu

FORMS = {
    "resnet": {"QuantizeLinear"},
    "resnet-qoperator": {"QLinearConv"},
    "lstm_tc-dynamic": {"DynamicQuantizeLSTM"},
}


@pytest.mark.parametrize("name", FORMS)
def test_contestants_agree(name, tmp_path):
    case = case_of(name, Kept(tmp_path), small=True)
    assert FORMS[name] <= {node.op_type for node in case.model.graph.node}
    again = case_of(name, Kept(tmp_path), small=True)
    assert again.model == case.model
    contestants = (
        Int8(threads=1),
        Int8(threads=1, tiles=False),
        Int8(threads=1, in_floats=True),
        OnnxRuntime(threads=1),
    )
    ours, vectors, floats, theirs = (one.prepare(case).outputs()[0].astype(np.float32) for one in contestants)
    np.testing.assert_array_equal(ours, vectors)
    most = float(np.abs(theirs).max())
    np.testing.assert_allclose(ours, theirs, atol=0.05 * most)
    np.testing.assert_allclose(floats, theirs, atol=0.2 * most)


def test_the_command(capsys, tmp_path):
    main(["--networks", "lstm_tc-dynamic", "--small", "--rounds", "1", "--threads", "1", "--keep", str(tmp_path)])
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("lstm_tc-dynamic: rammer ")
    assert "our float32 over ours" in first
    assert last.startswith("geometric mean")


@pytest.mark.gpu
def test_the_command_of_gpus(capsys):
    on_gpu(["--networks", "mobilenet", "--rounds", "1", "--trace"])
    first, *traced = capsys.readouterr().out.splitlines()
    assert first.startswith("mobilenet: int8 ")
    assert " rOperators multiply bytes" in first
    assert any("mma.m16n8k32.i8" in one and " us, predicted " in one for one in traced)
