"""Forms through which values do not flow whose size depends on the data, and mistakes of models beside them."""

import numpy as np
import onnx
import pytest

from rammer.errors import InvalidModelError, UnsupportedFeatureError
from rammer.frontends.onnx import load_graph
from tests.support.flow import CHOICES, CONSTANTS, PLACES, ROWS, SIZE, X, model

REFUSED = {
    "other inputs": (
        [
            *PLACES,
            "q = NonZero (x)",
            "r = Transpose (q)",
            "a = Gather <axis = 0> (x, p)",
            "y = Concat <axis = 1> (a, x)",
        ],
        "not all",
    ),
    "another size": (["y = Add (w, x)"], "5 elements along that dimension"),
    "another count": (["b = Relu (w)", "d = Not (c)", "v = Compress <axis = 0> (x, d)", "y = Add (b, v)"], "not known"),
    "another dimension": (
        ["a = Transpose (w)", "b = Unsqueeze (a, i0)", "d = Unsqueeze (w, i2)", "y = Add (b, d)"],
        "another dimension",
    ),
    "no rule": (["y = Det (w)"], "size that depends on the data"),
    "which dimensions go": (["y = Squeeze (w)"], "name the dimensions"),
    "the dimension goes": (["y = Squeeze (w, i0)"], "may not go"),
    "parts": (["y, z = Split <axis = 0, num_outputs = 2> (w)"], "split along"),
    "repeated": (["y = Tile (w, twotimes)"], "repeated along"),
    "padded": (["y = Pad (w, padded)"], "padded along"),
    "mixed with columns": (["a = Transpose (w)", "y = Reshape (a, minus)"], "one of its own"),
    "a shape that is known": (["y = Reshape (w, shape54)"], "does not say"),
    "as far as another": (["y = Expand (w, shape54)"], "expanded along"),
    "counted twice": ([*PLACES, "y = Gather <axis = 1> (w, p)"], "two dimensions"),
    "tuples": ([*PLACES, "y = GatherND (x, p)"], "tuples"),
    "normalised": (["y = LayerNormalization <axis = 0> (w, square, square)"], "normalised along"),
    "summed with others": (["a = Transpose (w)", "y = MatMul (a, table)"], "summed"),
    "updates of another size": ([*PLACES, "y = ScatterND (table, m1, x)", "m1 = Transpose (m)"], "not counted along"),
    "resized": (["a = Unsqueeze (w, i1)", "y = Resize (a, nothing, grown)"], "resized along"),
    "steps": (["y = Slice (w, minus, back, i0, minus2)"], "steps of -2"),
    "several open extents": (
        [*SIZE, "t = Concat <axis = 0> (n1, minus)", "y = Reshape (x, t)"],
        "several extents open",
    ),
    "several computed extents": (
        [*SIZE, "t = Concat <axis = 0> (n1, n1)", "y = ConstantOfShape (t)"],
        "several extents",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    lines, reason = REFUSED[name]
    with pytest.raises(UnsupportedFeatureError, match=reason):
        load_graph(model([ROWS, *lines], {"x": X, "c": CHOICES["somewhere"]}, "y"))


INVALID = {
    "a step of 0": "y = Slice (w, i0, far, i0, i0)",
    "repeats for fewer dimensions": "y = Tile (w, i1)",
    "a condition that is no vector": "y = Compress <axis = 0> (w, yes)",
    "tuples for more dimensions": "y = GatherND (w, i123)",
    "operands of several ranks": "y = Concat <axis = 0> (w, row)",
    "a dimension that is not there": "y = Flatten <axis = 3> (w)",
    "a permutation of others": "y = Transpose <perm = [1, 1]> (w)",
    "pads for fewer dimensions": "y = Pad (w, i1)",
    "starts without ends": "y = Slice (w, i123, i0)",
}


@pytest.mark.parametrize("name", INVALID)
def test_mistakes_of_the_model(name):
    proto = model([ROWS], {"x": X, "c": CHOICES["somewhere"]}, "w")
    node = onnx.parser.parse_node(INVALID[name])
    proto.graph.node.append(node)
    given = CONSTANTS | {"yes": np.array(True), "i123": np.array([1, 2, 3], np.int64)}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(given[one], one) for one in node.input if one != "w")
    proto.graph.output[0].CopyFrom(onnx.ValueInfoProto(name="y"))
    with pytest.raises(InvalidModelError):
        load_graph(proto)
