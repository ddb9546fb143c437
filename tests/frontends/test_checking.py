"""A model's structure is checked before its nodes are read, and each error says where and what to do."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from rammer.errors import InvalidModelError, UnsupportedFeatureError, UnsupportedOperatorsError
from rammer.frontends.onnx import load_graph
from tests.support.onnx_reference import check_model, model_of

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def node(op_type, inputs, outputs, name="", **attributes):
    return helper.make_node(op_type, inputs.split(), outputs.split(), name=name, **attributes)


def relu_model(opset=21):
    return model_of([node("Relu", "x", "y")], {"x": X}, ["y"], opset=opset)


# --- Versions


@pytest.mark.parametrize("opset", [13, 14, 17, 18, 21, onnx.defs.onnx_opset_version()])
def test_opsets_that_are_read(opset):
    assert [operator.kind for operator in load_graph(relu_model(opset)).operators] == ["Relu"]


def test_default_domain_by_its_long_name():
    model = relu_model()
    model.opset_import[0].domain = "ai.onnx"
    model.graph.node[0].domain = "ai.onnx"
    assert [operator.kind for operator in load_graph(model).operators] == ["Relu"]


@pytest.mark.parametrize("opset", [0, -1, -(2**40), 2**40])
def test_opsets_that_there_are_not(opset):
    model = relu_model()
    model.opset_import[0].version = opset
    with pytest.raises(UnsupportedFeatureError, match=f"opset {opset}"):
        load_graph(model)


def test_old_opsets_are_brought_up():
    model = model_of([node("Softmax", "x", "y", axis=1)], {"x": X}, ["y"], opset=12)
    check_model(model, {"x": X})
    assert model.opset_import[0].version == 12  # the given model is not touched


def test_an_opset_that_cannot_be_brought_up_names_the_version_and_the_remedy():
    model = model_of([node("GRU", "x w r", "y", hidden_size=1)], dict.fromkeys("xwr", X.reshape(1, 2, 3)), ["y"])
    model.opset_import[0].version = 3
    with pytest.raises(UnsupportedFeatureError, match=r"opset 3, .*GRU") as caught:
        load_graph(model)
    assert "opset 13" in caught.value.hint


def test_opset_and_format_of_the_future():
    model = relu_model()
    model.opset_import[0].version = onnx.defs.onnx_opset_version() + 1
    with pytest.raises(UnsupportedFeatureError, match="knows opsets up to") as caught:
        load_graph(model)
    assert "newer onnx" in caught.value.hint
    model = relu_model()
    model.ir_version = onnx.IR_VERSION + 1
    with pytest.raises(UnsupportedFeatureError, match="IR version"):
        load_graph(model)


def test_opsets_missing_or_ambiguous():
    model = relu_model()
    model.opset_import.append(helper.make_opsetid("ai.onnx", 17))
    with pytest.raises(InvalidModelError, match="found 17 and 21"):
        load_graph(model)
    del model.opset_import[:]
    with pytest.raises(InvalidModelError, match="found none"):
        load_graph(model)
    model.ClearField("ir_version")
    with pytest.raises(InvalidModelError, match="IR version"):
        load_graph(model)


# --- Operators


def test_all_unsupported_operators_are_listed_with_their_nodes():
    nodes = [
        node("StringNormalizer", "x", "a", "find"),
        node("Tokenizer", "x a", "b", domain="com.microsoft"),
        node("Relu", "x", "c"),
        node("StringNormalizer", "c", "d"),
        node("Conv", "c", "y", "too_few_inputs"),
    ]
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", 1, [2])],
            [helper.make_tensor_value_info("y", 1, None)],
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
    )
    with pytest.raises(UnsupportedOperatorsError) as caught:
        load_graph(model)
    assert caught.value.operators == (
        ("StringNormalizer", "find"),
        ("com.microsoft.Tokenizer", "Tokenizer_1"),
        ("StringNormalizer", "StringNormalizer_3"),
    )
    assert "StringNormalizer (find, StringNormalizer_3)" in str(caught.value)


def test_operators_in_subgraphs_are_listed_with_their_path():
    branch = helper.make_graph(
        [helper.make_node("StringNormalizer", ["p"], ["c"], name="draw")],
        "branch",
        [],
        [helper.make_tensor_value_info("c", TensorProto.FLOAT, [])],
    )
    model = model_of(
        [node("If", "p", "y", "choice", then_branch=branch, else_branch=branch)], {"p": np.array(True)}, ["y"]
    )
    with pytest.raises(UnsupportedOperatorsError) as caught:
        load_graph(model)
    assert caught.value.operators == (("StringNormalizer", "choice/draw"), ("StringNormalizer", "choice/draw"))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (node("Relu", "x", "y", "bad", alpha=1.0), "alpha"),
        (node("Conv", "x", "y", "bad"), "input size 1"),
        (node("Cast", "x", "y", "bad"), "to"),
        (node("LeakyRelu", "x", "y", "bad", alpha=1), "alpha"),
        (node("Gelu", "x", "y", "bad"), "Gelu"),
    ],
)
def test_node_against_its_schema(bad, message):
    model = model_of([node("Relu", "x", "y")], {"x": X}, ["y"], opset=17)
    model.graph.node[0].CopyFrom(bad)
    with pytest.raises(InvalidModelError, match=message) as caught:
        load_graph(model)
    assert "'bad'" in caught.value.where


def test_element_types_against_the_schema():
    model = model_of([node("Add", "x i", "y", "sum")], {"x": X, "i": X}, ["y"])
    model.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    with pytest.raises(InvalidModelError, match=r"'B' is int64\[2,3\], another input of the same type is float32"):
        load_graph(model)
    model.graph.node[0].op_type = "And"
    with pytest.raises(InvalidModelError, match=r"'A' cannot be float32\[2,3\]"):
        load_graph(model)


def test_required_operand_left_out():
    model = model_of([node("Add", "x x", "y", "sum")], {"x": X}, ["y"])
    model.graph.node[0].input[1] = ""
    with pytest.raises(InvalidModelError, match="input 1 is marked single"):
        load_graph(model)


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        (helper.make_tensor_type_proto(TensorProto.STRING, [1]), "STRING"),
        (helper.make_tensor_type_proto(TensorProto.COMPLEX64, [1]), "COMPLEX64"),
        (helper.make_tensor_type_proto(TensorProto.FLOAT6E2M3, [1]), "FLOAT6E2M3"),
        (helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [1])), "how many tensors it holds"),
        (helper.make_optional_type_proto(helper.make_tensor_type_proto(1, [1])), "whether it is there"),
    ],
)
def test_types_that_rammer_lacks(type_, message):
    model = model_of([node("Identity", "x", "y")], {"x": X}, ["y"])
    model.graph.input[0].type.CopyFrom(type_)
    with pytest.raises(UnsupportedFeatureError, match=message) as caught:
        load_graph(model)
    assert "'x'" in str(caught.value)


def test_number_that_is_no_element_type():
    model = model_of([node("Identity", "x", "y")], {"x": X}, ["y"])
    model.graph.input[0].type.tensor_type.elem_type = 77
    with pytest.raises(UnsupportedFeatureError, match="77"):
        load_graph(model)


def test_input_without_type():
    model = relu_model()
    model.graph.input[0].ClearField("type")
    with pytest.raises(InvalidModelError, match="without a type"):
        load_graph(model)


# --- Names and order


def test_names_of_nodes_are_made_unique():
    nodes = [node("Relu", "x", "a", "n"), node("Relu", "a", "b", "n"), node("Relu", "b", "c"), node("Relu", "c", "y")]
    graph = load_graph(model_of(nodes, {"x": X}, ["y"]))
    assert [operator.name for operator in graph.operators] == ["n", "n_1", "Relu_2", "Relu_3"]


def test_values_carry_the_names_of_the_model():
    graph = load_graph(model_of([node("Relu", "x", "mid"), node("Neg", "mid", "y")], {"x": X}, ["y"]))
    assert [value.name for value in graph.values.values()] == ["x", "mid", "y"]


def test_unsorted_nodes_are_sorted_and_keep_their_order_otherwise():
    nodes = [
        node("Add", "a b", "y", "last"),
        node("Neg", "x", "b", "neg"),
        node("Relu", "x", "a", "relu"),
    ]
    model = model_of(list(reversed(nodes)), {"x": X}, ["y"])
    model.graph.ClearField("node")
    model.graph.node.extend(nodes)
    graph = load_graph(model)
    assert [operator.name for operator in graph.operators] == ["neg", "relu", "last"]


def test_sorted_nodes_keep_the_order_of_the_file():
    nodes = [node("Relu", "x", "a", "n2"), node("Neg", "x", "b", "n0"), node("Add", "b a", "y", "n1")]
    assert [operator.name for operator in load_graph(model_of(nodes, {"x": X}, ["y"])).operators] == ["n2", "n0", "n1"]


def test_cycle_names_its_nodes_in_the_direction_of_the_data():
    nodes = [
        node("Relu", "x", "a", "before"),
        node("Add", "a d", "b", "enter"),
        node("Neg", "b", "c", "middle"),
        node("Abs", "c", "d", "back"),
        node("Exp", "d", "y", "after"),
    ]
    model = relu_model()
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    with pytest.raises(InvalidModelError, match="cycle") as caught:
        load_graph(model)
    assert "'enter' -> 'middle' -> 'back' -> 'enter'" in caught.value.message
    assert "before" not in caught.value.message
    assert "after" not in caught.value.message


def test_node_that_reads_its_own_output():
    model = relu_model()
    model.graph.node[0].input[0] = "y"
    with pytest.raises(InvalidModelError, match="'Relu_0' -> 'Relu_0'"):
        load_graph(model)


def test_dangling_names():
    model = relu_model()
    model.graph.node[0].input[0] = "ghost"
    with pytest.raises(InvalidModelError, match="node 'Relu_0' reads 'ghost', which nothing makes"):
        load_graph(model)
    model = relu_model()
    model.graph.output[0].name = "ghost"
    with pytest.raises(InvalidModelError, match="no node makes the output 'ghost'"):
        load_graph(model)


@pytest.mark.parametrize("taken", ["x", "w", "a"])
def test_value_made_twice(taken):
    nodes = [node("Add", "x w", "a"), node("Relu", "a", taken, "second"), node("Neg", "a", "y")]
    model = relu_model()
    model.graph.initializer.append(onnx.numpy_helper.from_array(X, "w"))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    with pytest.raises(InvalidModelError, match=f"value '{taken}' is made by"):
        load_graph(model)


@pytest.mark.parametrize("group", ["input", "initializer", "output"])
def test_names_of_the_graph_are_unique(group):
    model = relu_model()
    model.graph.initializer.append(onnx.numpy_helper.from_array(X, "w"))
    values = getattr(model.graph, group)
    values.append(values[0])
    with pytest.raises(InvalidModelError, match=r"2 (in|out)"):
        load_graph(model)
    values[0].name = ""
    values[1].name = "other"
    with pytest.raises(InvalidModelError, match="has no name"):
        load_graph(model)


def test_graph_without_outputs():
    model = relu_model()
    del model.graph.output[:]
    with pytest.raises(InvalidModelError, match="no outputs"):
        load_graph(model)


def test_sparse_initialisers():
    model = relu_model()
    model.graph.sparse_initializer.add()
    with pytest.raises(UnsupportedFeatureError, match="sparse"):
        load_graph(model)


# --- Inputs and outputs


def test_initialiser_that_is_also_an_input_is_a_constant():
    model = model_of([node("Add", "x w", "y")], {"x": X, "w": X}, ["y"], constants={"w": X + 1})
    graph = load_graph(model)
    assert [graph.values[i].name for i in graph.inputs] == ["x"]
    check_model(model, {"x": X})


def test_outputs_are_distinct_results_of_operators():
    model = model_of(
        [
            node("Identity", "x", "same"),
            node("Relu", "x", "y"),
            node("Identity", "y", "y2"),
            node("Identity", "w", "c"),
        ],
        {"x": X},
        ["same", "y", "y2", "c"],
        constants={"w": X},
    )
    graph = load_graph(model)
    assert [graph.values[o].name for o in graph.outputs] == ["same", "y", "y2", "c"]
    producers = graph.producers()
    assert [producers[o].kind for o in graph.outputs] == ["Identity", "Relu", "Identity", "Identity"]
    check_model(model, {"x": X})
