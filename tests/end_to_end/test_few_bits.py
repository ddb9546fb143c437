"""Models with weights of few bits, compiled, beside ONNX Runtime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import rammer

DEPTH, POINTS = 96, 40
RNG = np.random.default_rng(0)


def model(rows, bits, block, *, zeros, known):
    """Two products by random integers with an activation between; their weights are constants, or `known` is false."""
    nodes, weights = [], {}
    for number, (depth, points) in enumerate([(DEPTH, POINTS), (POINTS, DEPTH)]):
        blocks = -(-depth // block)
        names = [f"{part}{number}" for part in ("w", "scales", *(["zeros"] if zeros else []))]
        weights[names[0]] = RNG.integers(256, size=(points, blocks, block * bits // 8)).astype(np.uint8)
        weights[names[1]] = RNG.uniform(0.01, 0.1, (points, blocks)).astype(np.float32)
        if zeros:
            weights[names[2]] = RNG.integers(256, size=(points, -(-blocks * bits // 8))).astype(np.uint8)
        source, result = [("x", "p"), ("a", "y")][number]
        sizes = {"K": depth, "N": points, "bits": bits, "block_size": block}
        nodes.append(helper.make_node("MatMulNBits", [source, *names], [result], domain="com.microsoft", **sizes))
    nodes.insert(1, helper.make_node("Tanh", ["p"], ["a"]))
    given = {"x": RNG.normal(size=(rows, DEPTH)).astype(np.float32)} | ({} if known else weights)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in given.items()
    ]
    kept = [numpy_helper.from_array(array, name) for name, array in weights.items() if known]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, (rows, DEPTH))
    graph = helper.make_graph(nodes, "few bits", inputs, [output], kept)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10), given


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize(("rows", "bits", "block", "zeros"), [(1, 4, 32, False), (5, 4, 16, True), (1, 8, 32, True)])
@pytest.mark.parametrize("known", [True, False], ids=["constants", "inputs"])
def test_products(device, rows, bits, block, zeros, known):
    made, given = model(rows, bits, block, zeros=zeros, known=known)
    (wanted,) = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, given
    )
    net = rammer.compile(made, device, veus=2)
    found = net.run(given)["y"]
    assert np.linalg.norm(found - wanted) < 1e-5 * np.linalg.norm(wanted)
