"""Images between convolutions lie channels last; everything else stays as it is."""

import numpy as np

from rammer.ir.graph import Attributes
from rammer.ir.types import DType, Layout, TensorType
from rammer.operators.builder import GraphBuilder
from rammer.passes import channels_last, fuse, inline_views

CONV: Attributes = {"strides": (1, 1), "dilations": (1, 1), "pads": (1, 1, 1, 1), "group": 1, "finite_weights": True}


def conv(builder, x, name, channels=8):
    w = builder.constant(np.ones((channels, builder.type(x).shape[1], 3, 3), np.float32), f"{name}.w")
    return builder.add("Conv", [x, w], CONV, name=name)[0]


def layouts(graph):
    return {value.name: value.layout for value in graph.values.values() if value.layout is not None}


def start(shape=(1, 4, 6, 6)):
    builder = GraphBuilder("test")
    return builder, builder.input("x", TensorType(DType.FLOAT32, shape))


def test_what_is_joined_to_a_convolution_lies_channels_last():
    builder, x = start()
    a = conv(builder, x, "a")
    (b,) = builder.add("Relu", [a], name="b")
    (c,) = builder.add("Concat", [a, b], {"axis": 1}, name="c")
    graph = channels_last.run(builder.build([conv(builder, c, "d")]))
    eight, sixteen = Layout.ordered((1, 8, 6, 6), (0, 2, 3, 1)), Layout.ordered((1, 16, 6, 6), (0, 2, 3, 1))
    assert layouts(graph) == {"a": eight, "b": eight, "c": sixteen}


def test_inputs_outputs_and_weights_stay():
    builder, x = start()
    graph = channels_last.run(builder.build([conv(builder, x, "a")]))
    assert layouts(graph) == {}


def test_what_a_reshape_regroups_stays_row_major():
    builder, x = start()
    a = conv(builder, x, "a")
    (b,) = builder.add("Relu", [a], name="b")
    (flat,) = builder.add("Reshape", [b], {"shape": (1, 288)}, name="flat")
    graph = channels_last.run(builder.build([flat]))
    assert set(layouts(graph)) == {"a"}


def test_without_a_convolution_nothing_happens():
    builder, x = start()
    (a,) = builder.add("Relu", [x], name="a")
    graph = builder.build([builder.add("Neg", [a], name="b")[0]])
    assert channels_last.run(graph) is graph


def test_channels_stay_innermost_behind_a_transposition():
    builder, x = start()
    a = conv(builder, x, "a")
    (pixels,) = builder.add("Transpose", [a], {"perm": (0, 2, 3, 1)}, name="pixels")
    scale, bias = (builder.constant(np.ones(8, np.float32), name) for name in ("scale", "bias"))
    (normal,) = builder.add("LayerNormalization", [pixels, scale, bias], {"axis": 3, "epsilon": 1e-5}, name="normal")
    (product,) = builder.add("MatMul", [normal, builder.constant(np.ones((8, 5), np.float32), "w")], name="product")
    (image,) = builder.add("Transpose", [product], {"perm": (0, 3, 1, 2)}, name="image")
    graph = channels_last.run(fuse.run(inline_views.run(builder.build([conv(builder, image, "d")]))))
    assert "normal" not in layouts(graph)  # row-major: its channels are innermost as they are
    assert layouts(graph)["a"] == Layout.ordered((1, 8, 6, 6), (0, 2, 3, 1))
    assert set(layouts(graph)) <= {"a", "image"}


def test_a_convolution_that_writes_rows_of_channels_keeps_them():
    builder, x = start((1, 4, 30))
    w = builder.constant(np.ones((8, 4, 3), np.float32), "w")
    attributes: Attributes = {**CONV, "strides": (1,), "dilations": (1,), "pads": (1, 1)}
    (a,) = builder.add("Conv", [x, w], attributes, name="a")
    (rows,) = builder.add("Transpose", [a], {"perm": (0, 2, 1)}, name="rows")
    (twice,) = builder.add("Add", [rows, rows], name="twice")
    (soft,) = builder.add("Softmax", [twice], {"axis": 2}, name="soft")
    graph = channels_last.run(fuse.run(inline_views.run(builder.build([builder.add("Neg", [soft], name="y")[0]]))))
    assert layouts(graph) == {}
