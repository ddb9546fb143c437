"""What the command line says of a model's inputs: shapes, dimensions by name, constants."""

import numpy as np
import onnx.parser

import rammer
from tests.support.small_models import scale_model


def test_shapes_are_bound(call, tmp_path):
    onnx.save(scale_model(2.0, ("batch", 3)), tmp_path / "m.onnx")
    code, _, err = call("compile", "m.onnx", "-o", "m.rammer")
    assert code == 3
    assert "[R205]" in err
    assert "--shape" in err
    code, _, _ = call("compile", "m.onnx", "-o", "m.rammer", "--shape", "x=5,3")
    assert code == 0
    assert rammer.load(tmp_path / "m.rammer").signature.inputs[0].type.shape == (5, 3)


def test_a_dimension_is_bound_by_its_name(call, tmp_path):
    onnx.save(scale_model(2.0, ("batch", 3)), tmp_path / "m.onnx")
    assert call("compile", "m.onnx", "-o", "m.rammer", "--shape", "batch=4")[0] == 0
    net = rammer.load(tmp_path / "m.rammer")
    assert (net.name, net.signature.inputs[0].type.shape) == ("m", (4, 3))
    code, _, err = call("compile", "m.onnx", "-o", "m.rammer", "--shape", "height=4")
    assert (code, "inputs are x; dimensions batch" in err) == (2, True)
    code, _, err = call("compile", "m.onnx", "-o", "m.rammer", "--shape", "batch=4", "--shape", "x=5,3")
    assert (code, "makes batch = 5, but batch = 4 from the value given for 'batch'" in err) == (2, True)


def test_constants_are_no_inputs(call, tmp_path):
    inputs = "float[2] x, int8 n, float k, float[2] w, bool b"
    header = '<ir_version: 8, opset_import: ["" : 17]> main_graph'
    text = f"{header} ({inputs}) => (float[2] y) {{ s = Add(x, k) t = Mul(s, w) y = Where(b, t, x) }}"
    model = onnx.parser.parse_model(text)
    onnx.save(model, tmp_path / "m.onnx")
    np.save(tmp_path / "w.npy", np.array([2, 3], np.float32))
    given = ("--constant", "k=1", "--constant", "w=w.npy", "--constant", "b=true", "--constant", "n=-7")
    assert call("compile", "m.onnx", "-o", "m.rammer", *given)[0] == 0
    net = rammer.load(tmp_path / "m.rammer")
    np.testing.assert_array_equal(net(np.array([1, 2], np.float32)), [4, 9])
    mistakes = (
        ("w=1,2,3", 2, "contradicts"),
        ("k=one", 2, "write it as"),
        ("w=none.npy", 4, "R300"),
        ("k", 2, "write it"),
    )
    for wrong, ends, message in mistakes:
        code, _, err = call("compile", "m.onnx", "-o", "m.rammer", "--constant", wrong)
        assert (code, message in err) == (ends, True), err
    assert call("compile", "m.onnx", "-o", "m.rammer", *given[:2], *given[4:], "--constant", "w=2.5,3,")[0] == 0
    code, _, err = call("bench", "m.rammer", "--constant", "k=1")
    assert (code, "--constant for m.rammer" in err) == (2, True)
