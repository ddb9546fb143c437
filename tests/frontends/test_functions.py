"""Functions of the model and operators that ONNX defines by others are taken apart during import."""

import numpy as np
import onnx
import pytest
from onnx import helper

from rammer.errors import InvalidModelError, UnsupportedFeatureError, UnsupportedOperatorsError
from rammer.frontends.onnx import load_graph
from tests.support.onnx_reference import check_model, evaluate_model, model_of

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
DOMAIN = "local"


def function(name, inputs, outputs, nodes, *, opset=21, attributes=(), defaults=()):
    made = helper.make_function(
        DOMAIN,
        name,
        inputs.split(),
        outputs.split(),
        nodes,
        [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)],
        list(attributes),
    )
    made.attribute_proto.extend(defaults)
    return made


def call(name, inputs, outputs, node="", **attributes):
    return helper.make_node(name, inputs.split(), outputs.split(), name=node, domain=DOMAIN, **attributes)


def op(op_type, inputs, outputs, **attributes):
    return helper.make_node(op_type, inputs.split(" "), outputs.split(), **attributes)


def with_reference(node, attribute, parameter, type_):
    reference = node.attribute.add(name=attribute, type=type_)
    reference.ref_attr_name = parameter
    return node


def model(nodes, functions):
    made = model_of([op("Relu", "x", "y")], {"x": X}, ["y"])
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    made.functions.extend(functions)
    made.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return made


def leaky(default=None):
    body = with_reference(op("LeakyRelu", "a", "r"), "alpha", "slope", onnx.AttributeProto.FLOAT)
    defaults = [] if default is None else [helper.make_attribute("slope", default)]
    return function("Leaky", "a", "r", [body], attributes=["slope"] if default is None else [], defaults=defaults)


@pytest.mark.parametrize("default", [None, 0.25])
@pytest.mark.parametrize("given", [{}, {"slope": 0.5}])
def test_attributes_come_from_the_call_the_function_or_the_operator(default, given):
    graph = load_graph(model([call("Leaky", "x", "y", "here", **given)], [leaky(default)]))
    (operator,) = graph.operators
    assert operator.attributes["alpha"] == pytest.approx(given.get("slope", default or 0.01))
    assert operator.name == "here/LeakyRelu_0"


def test_nested_functions_against_onnx_runtime():
    twice = function("Twice", "a", "r", [call("Leaky", "a", "m", slope=0.5), call("Leaky", "m", "r", slope=0.125)])
    check_model(model([call("Twice", "x", "m"), call("Twice", "m", "y")], [leaky(), twice]), {"x": X})


def test_function_with_an_opset_of_its_own():
    # In opset 13 the axes of ReduceMean are an attribute.
    mean = function("Mean", "a", "r", [op("ReduceMean", "a", "r", axes=[1])], opset=13)
    made = model([call("Mean", "x", "m"), op("Add", "x m", "y")], [mean])
    np.testing.assert_allclose(evaluate_model(made, [X])[0], X + X.mean(axis=1, keepdims=True), rtol=1e-6)


def test_optional_operand_left_out():
    clip = function("Bound", "a low high", "r", [op("Clip", "a low high", "r")])
    zero = op("Constant", "", "zero", value_float=0.0)
    del zero.input[:]
    made = model(
        [zero, call("Bound", "x", "m"), helper.make_node("Bound", ["m", "zero", ""], ["y"], domain=DOMAIN)], [clip]
    )
    np.testing.assert_array_equal(evaluate_model(made, [X])[0], np.maximum(X, 0))


def test_required_operand_that_the_caller_left_out():
    made = model([call("Sum2", "x", "y", "outer")], [function("Sum2", "a b", "r", [op("Add", "a b", "r")])])
    with pytest.raises(InvalidModelError, match="'B' is missing") as caught:
        load_graph(made)
    assert "outer/Add_0" in caught.value.where


def test_unused_outputs_need_not_be_made():
    split = function("Parts", "a", "r s", [op("Relu", "a", "r")])
    np.testing.assert_array_equal(evaluate_model(model([call("Parts", "x", "y")], [split]), [X])[0], np.maximum(X, 0))
    with pytest.raises(InvalidModelError, match="no node makes the output 's'"):
        load_graph(model([call("Parts", "x", "m y")], [split]))


def test_unsupported_operators_inside_are_listed_with_their_path():
    inner = function("Inner", "a", "r", [op("Relu", "a", "m"), op("StringNormalizer", "m", "r")])
    outer = function("Outer", "a", "r", [call("Inner", "a", "r", "in")])
    with pytest.raises(UnsupportedOperatorsError) as caught:
        load_graph(model([call("Outer", "x", "y", "out"), call("Missing", "x", "z", "gone")], [inner, outer]))
    assert caught.value.operators == (("StringNormalizer", "out/in/StringNormalizer_1"), ("local.Missing", "gone"))


def test_functions_that_call_themselves():
    one = function("One", "a", "r", [call("Two", "a", "r")])
    two = function("Two", "a", "r", [call("One", "a", "r")])
    with pytest.raises(InvalidModelError, match="calls itself"):
        load_graph(model([call("One", "x", "y")], [one, two]))


def test_too_many_operands_or_outputs():
    with pytest.raises(InvalidModelError, match=r"has 1 input\(s\) and 1 output\(s\), the node 2 and 1"):
        load_graph(model([call("Leaky", "x x", "y")], [leaky()]))


def test_function_defined_twice():
    with pytest.raises(InvalidModelError, match=r"local\.Leaky is defined twice"):
        load_graph(model([call("Leaky", "x", "y")], [leaky(), leaky()]))


def test_function_body_is_checked_like_a_graph():
    broken = function("Broken", "a", "r", [op("Relu", "ghost", "r")])
    with pytest.raises(InvalidModelError, match="'call/Relu_0' reads 'ghost'") as caught:
        load_graph(model([call("Broken", "x", "y", "call")], [broken]))
    assert caught.value.where == "call of test"


def chain(length, calls):
    """Functions F0, F1, ... each of which calls the next one several times."""
    made = [function(f"F{length}", "a", "r", [op("Relu", "a", "r")])]
    for i in range(length):
        names = ["a", *(f"m{k}" for k in range(calls - 1)), "r"]
        made.append(function(f"F{i}", "a", "r", [call(f"F{i + 1}", names[k], names[k + 1]) for k in range(calls)]))
    return made


def test_hostile_expansion_is_refused():
    with pytest.raises(UnsupportedFeatureError, match="expand to more than"):
        load_graph(model([call("F0", "x", "y")], chain(30, 2)))
    with pytest.raises(UnsupportedFeatureError, match="more than 50 deep"):
        load_graph(model([call("F0", "x", "y")], chain(2000, 1)))


def test_attention_is_taken_apart_as_onnx_defines_it():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, n, 8), dtype=np.float32) for n in (3, 5, 5))
    made = model_of(
        [helper.make_node("Attention", ["q", "k", "v"], ["y"], name="attention", is_causal=1)],
        {"q": q, "k": k, "v": v},
        ["y"],
        opset=23,
    )
    check_model(made, {"q": q, "k": k, "v": v})
    assert all(operator.name.startswith("attention/") for operator in load_graph(made).operators)
