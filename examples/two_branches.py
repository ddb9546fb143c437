"""A model small enough to follow through every level of the compiler, as docs/architecture.md does.

python examples/two_branches.py      # the model goes to out/two_branches.onnx, its levels to out/two_branches/
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import rammer

OUT = Path(__file__).resolve().parents[1] / "out"
VEUS = 2


def main() -> None:
    """Write the model, then compile it for two vEUs of the reference device, which are the same on any machine."""
    OUT.mkdir(exist_ok=True)
    model, levels = OUT / "two_branches.onnx", OUT / "two_branches"
    for old in levels.glob("*.txt"):
        old.unlink()
    onnx.save(build_model(), model)
    net = rammer.compile(model, device="reference", veus=VEUS, dump_dir=levels)
    print(f"wrote {model}")
    print(f"wrote {len(list(levels.iterdir()))} levels into {levels}")
    print(f"y = {net(np.ones((1, 8, 8, 8), dtype=np.float32))}")


def build_model() -> onnx.ModelProto:
    """x -> (Conv, BatchNormalization, Relu) and (MaxPool, Conv) -> Concat -> GlobalAveragePool, Flatten, Gemm -> y."""
    rng = np.random.default_rng(0)

    def weights(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(rng.standard_normal(shape, dtype=np.float32) / 4, name)

    def positive(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(rng.uniform(0.5, 2.0, shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w3"], ["a0"], name="conv3", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a0", "scale", "shift", "mean", "variance"], ["a1"], name="norm"),
        helper.make_node("Relu", ["a1"], ["a"], name="relu"),
        helper.make_node("MaxPool", ["x"], ["b0"], name="pool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["b0", "w1"], ["b"], name="conv1"),
        helper.make_node("Concat", ["a", "b"], ["joined"], name="join", axis=1),
        helper.make_node("GlobalAveragePool", ["joined"], ["averages"], name="average"),
        helper.make_node("Flatten", ["averages"], ["flat"], name="flat"),
        helper.make_node("Gemm", ["flat", "w", "bias"], ["y"], name="classify", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "two_branches",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        [
            weights("w3", 16, 8, 3, 3),
            positive("scale", 16),
            weights("shift", 16),
            weights("mean", 16),
            positive("variance", 16),
            weights("w1", 16, 8, 1, 1),
            weights("w", 10, 32),
            weights("bias", 10),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    main()
