"""Whatever the bytes, a model loads or is refused with an error of Rammer."""

import contextlib
import random

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.defs import OpSchema

from rammer.errors import RammerError
from rammer.frontends.onnx import load_graph, microsoft

EXTREMES = (0, 1, -1, 2, -2, 7, -100, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63))


def sample():
    """A small model with the parts that a reader stumbles over: attributes, axes, shapes, a function, symbols."""

    def node(op_type, inputs, outputs, **attributes):
        return helper.make_node(op_type, inputs.split(), outputs.split(), **attributes)

    nodes = [
        node("Conv", "x w", "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1], dilations=[1, 1], group=1),
        node("BatchNormalization", "c s s s s", "n", epsilon=1e-5),
        node("MaxPool", "n", "m", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        node("Shape", "m", "shape", start=0, end=2),
        node("Concat", "shape minus", "target", axis=0),
        node("Reshape", "m target", "r"),
        node("Slice", "r starts ends axes steps", "t"),
        node("Split", "t", "t0 t1", axis=1, num_outputs=2),
        node("Pad", "t0 pads", "p", mode="reflect"),
        node("ReduceMean", "p axes", "q", keepdims=0),
        node("Gather", "q index", "g", axis=0),
        node("Einsum", "g g", "e", equation="ij,kj->ik"),
        node("Resize", "c  scales", "z", mode="linear"),
        node("Own", "e", "y", domain="own", factor=2.0),
    ]
    nodes[-2].input[:] = ["c", "", "scales"]
    body = node("LeakyRelu", "a", "b")
    body.attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT).ref_attr_name = "factor"
    own = helper.make_function("own", "Own", ["a"], ["b"], [body], [helper.make_opsetid("", 18)], ["factor"])
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.standard_normal((4, 3, 3, 3), dtype=np.float32),
        "s": np.ones(4, np.float32),
        "minus": np.array([-1]),
        "starts": np.array([9]),
        "ends": np.array([0]),
        "axes": np.array([2]),
        "steps": np.array([-2]),
        "pads": np.array([0, 0, 1, 0, 0, 1]),
        "index": np.array([0, -1, 1]),
        "scales": np.array([1, 1, 2, 1.5], np.float32),
    }
    graph = helper.make_graph(
        nodes,
        "sample",
        [helper.make_tensor_value_info("x", 1, [2, 3, 8, "size"])],
        [helper.make_tensor_value_info("y", 1, [3, 3]), helper.make_tensor_value_info("z", 1, [2, 4, 16, 12])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
        value_info=[helper.make_tensor_value_info("m", 1, [2, 4, 4, "half"])],
    )
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("own", 1)],
        ir_version=8,
        functions=[own],
    )


MODEL = sample()
DATA = MODEL.SerializeToString()
SHAPES = {"x": (2, 3, 8, 8)}


def load(source):
    with contextlib.suppress(RammerError):
        load_graph(source, input_shapes=SHAPES)


def test_the_sample_itself_loads():
    graph = load_graph(MODEL, input_shapes=SHAPES)
    assert [graph.values[o].type.shape for o in graph.outputs] == [(3, 3), (2, 4, 16, 12)]


@settings(max_examples=300)
@given(st.integers(0, len(DATA) - 1))
def test_truncated_bytes(length):
    load(DATA[:length])


@settings(max_examples=1500)
@given(st.lists(st.tuples(st.integers(0, len(DATA) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes(changes):
    data = bytearray(DATA)
    for position, value in changes:
        data[position] = value
    load(bytes(data))


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_random_bytes(data):
    load(data)


@settings(max_examples=800)
@given(st.data())
def test_extreme_numbers(data):
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    graph = model.graph
    places = [
        *((attribute, field) for node in graph.node for attribute in node.attribute for field in ("i", "ints")),
        *((tensor, "elements") for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.INT64),
        *((tensor, "dims") for tensor in graph.initializer),
        *((dim, "dim_value") for value in (*graph.input, *graph.output) for dim in value.type.tensor_type.shape.dim),
    ]
    message, field = data.draw(st.sampled_from(places))
    value = data.draw(st.sampled_from(EXTREMES))
    match field:
        case "i" | "dim_value":
            setattr(message, field, value)
        case "elements":
            array = numpy_helper.to_array(message).copy()
            array[data.draw(st.integers(0, array.size - 1))] = value
            message.raw_data = array.tobytes()
        case _:
            values = getattr(message, field)
            if len(values):
                values[data.draw(st.integers(0, len(values) - 1))] = value
    load(model)


def any_node(generator, op_type):
    """A node of `com.microsoft` whose operands and attributes seldom fit together."""
    schema = microsoft.schema(op_type)
    dims, rank, dtype = [0, 1, 2, 3, *[generator.choice([1, 2, 4, 8])] * 3], generator.randrange(5), 1
    names, values = [], []
    for i, formal in enumerate(schema.inputs):
        names.append(
            "" if formal.option == OpSchema.FormalParameterOption.Optional and generator.random() < 0.6 else f"x{i}"
        )
        shape = [generator.choice(dims) for _ in range(rank if generator.random() < 0.7 else generator.randrange(5))]
        dtype = 1 if generator.random() < 0.7 else generator.choice([2, 3, 6, 7, 9, 10])
        values += [helper.make_tensor_value_info(names[-1], dtype, shape)] if names[-1] else []
    numbers = {OpSchema.AttrType.INT: lambda: generator.choice(EXTREMES), OpSchema.AttrType.FLOAT: generator.random}
    numbers[OpSchema.AttrType.INTS] = lambda: [generator.choice(EXTREMES) for _ in range(generator.randrange(1, 5))]
    known = {name: numbers[one.type]() for name, one in schema.attributes.items() if one.type in numbers}
    chosen = {name: value for name, value in known.items() if generator.random() < 0.6}
    node = helper.make_node(op_type, names, ["y", "z"], domain=microsoft.DOMAIN, **chosen)
    graph = helper.make_graph([node], "any", values, [onnx.ValueInfoProto(name=name) for name in node.output])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(microsoft.DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def test_any_nodes_of_microsoft():
    """Their signatures say nothing of shapes, so that converters have to look."""
    generator = random.Random(3)
    for op_type in sorted(microsoft._SIGNATURES) * 15:
        with contextlib.suppress(RammerError):
            load_graph(any_node(generator, op_type))
