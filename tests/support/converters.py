"""One node at a time, given to the converters of ONNX operators."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

from rammer.frontends.onnx import load_graph
from tests.support.onnx_reference import check_model, model_of

RNG = np.random.default_rng(0)
IMAGE = RNG.standard_normal((2, 4, 7, 6), dtype=np.float32)


def integers(*values):
    return np.array(values, dtype=np.int64)


def floats(*shape):
    return RNG.standard_normal(shape, dtype=np.float32)


def model(op_type, inputs, outputs=1, opset=21, **attributes):
    """A node whose first operand is an input and whose others are constants (None: left out)."""
    names = ["" if array is None else f"i{position}" for position, array in enumerate(inputs)]
    results = [f"o{i}" for i in range(outputs)]
    arrays = {name: array for name, array in zip(names, inputs, strict=True) if name}
    constants = {name: array for name, array in arrays.items() if name != "i0"}
    node = helper.make_node(op_type, names, results, name="node", **attributes)
    return model_of([node], {"i0": inputs[0]}, results, constants=constants, opset=opset)


def check(op_type, inputs, outputs=1, opset=21, **attributes):
    check_model(model(op_type, inputs, outputs, opset, **attributes), {"i0": inputs[0]})


def refusal(error, op_type, inputs, outputs=1, opset=21, **attributes):
    made = model("Relu", inputs[:1], 1, opset)
    del made.graph.initializer[:]
    wanted = model_parts(op_type, inputs, outputs, **attributes)
    made.graph.node[0].CopyFrom(wanted[0])
    made.graph.initializer.extend(wanted[1])
    with pytest.raises(error) as caught:
        load_graph(made)
    assert f"{op_type} node 'node'" in caught.value.where
    return caught.value.message


def model_parts(op_type, inputs, outputs, **attributes):
    names = ["" if array is None else f"i{position}" for position, array in enumerate(inputs)]
    node = helper.make_node(op_type, names, [f"o{i}" for i in range(outputs)], name="node", **attributes)
    tensors = [
        numpy_helper.from_array(array, name)
        for name, array in list(zip(names, inputs, strict=True))[1:]
        if array is not None
    ]
    return node, tensors
