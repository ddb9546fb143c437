"""Sequences and optionals against ONNX Runtime, and what is refused of them."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import rammer
from rammer.errors import InvalidModelError, OptionError, ShapeDisagreementError, UnsupportedFeatureError
from rammer.frontends.onnx import load_graph
from rammer.frontends.onnx.converters import CONVERTERS
from rammer.frontends.onnx.functions import STANDARD
from tests.support.onnx_reference import check_model, evaluate_model, evaluate_verified

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 3), dtype=np.float32)
THREE = "a = Neg(x) b = Concat<axis = 0>(x, x) s = SequenceConstruct(x, a, b)"
ALIKE = "a = Neg(x) b = Exp(x) s = SequenceConstruct(x, a, b)"


def parsed(signature, body, opset=18):
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> test {signature} {{{body}}}')


def from_x(body, outputs="float[N, M] y", opset=18):
    """A model of `x`, with the positions `p0` to `p7`, and `m1` to `m4` before the end."""
    made = parsed(f"(float[4, 3] x) => ({outputs})", body, opset)
    numbers = {f"p{i}": i for i in range(8)} | {f"m{i}": -i for i in range(1, 5)}
    made.graph.initializer.extend(numpy_helper.from_array(np.array(v), k) for k, v in numbers.items())
    return made


def names_of(model, **given):
    graph = load_graph(model, **given)
    return [graph.values[value].name for value in graph.outputs]


def compiled(model, inputs):
    return list(rammer.compile(model, veus=2).run({"x": inputs[0]}).values())


def refusal(error, model, **given):
    with pytest.raises(error) as caught:
        load_graph(model, **given)
    return f"{caught.value.where}: {caught.value.message}"


# --- One operator after the other


@pytest.mark.parametrize(
    "body",
    [
        "y = SequenceAt(s, p1)",
        "y = SequenceAt(s, m1)",
        "t = SequenceInsert(s, a) y = SequenceAt(t, p3)",
        "t = SequenceInsert(s, b, p0) y = SequenceAt(t, p0)",
        "t = SequenceInsert(s, a, p3) y = SequenceAt(t, p3)",
        "t = SequenceInsert(s, b, m1) y = SequenceAt(t, p2)",
        "t = SequenceErase(s) y = SequenceAt(t, m1)",
        "t = SequenceErase(s, p0) y = SequenceAt(t, p0)",
        "t = SequenceErase(s, m2) y = SequenceAt(t, p1)",
        "y = ConcatFromSequence<axis = 0>(s)",
        "t = SequenceErase(s) y = ConcatFromSequence<axis = -1>(t)",
        "e = SequenceEmpty() t = SequenceInsert(e, x) y = SequenceAt(t, p0)",
        "t = Identity(s) y = SequenceAt(t, p2)",
        "y = SequenceAt(s, p1) n = SequenceLength(s) m = Cast<to = 1>(n) z = Mul(y, m)",
    ],
)
def test_what_becomes_of_a_sequence(body):
    check_model(from_x(THREE + body), {"x": X})


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_concatenated_along_a_new_dimension(axis):
    body = ALIKE + f"y = ConcatFromSequence<axis = {axis}, new_axis = 1>(s)"
    check_model(from_x(body, "float[K, L, M] y"), {"x": X})


def test_the_length_is_a_constant():
    graph = load_graph(from_x(THREE + "y = SequenceLength(s)", "int64 y"))
    assert graph.values[graph.outputs[0]].type.shape == ()
    assert graph.operators[-1].kind == "Identity"
    (length,) = evaluate_verified(graph, [X])
    np.testing.assert_array_equal(length, 3)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_split_to_single_elements(axis, keepdims):
    """With a size of 1 beside it, as PyTorch's exporter writes it, ONNX Runtime drops the dimension, too."""
    for operands in ("x", "x, p1"):
        body = f"y = SplitToSequence<axis = {axis}, keepdims = {keepdims}>({operands})"
        check_model(from_x(body, "seq(float[N]) y"), {"x": X})


@pytest.mark.parametrize(("size", "axis"), [(2, 0), (3, 0), (2, 1), (7, 0)])
def test_split_to_parts_of_one_size(size, axis):
    check_model(from_x(f"y = SplitToSequence<axis = {axis}>(x, p{size})", "seq(float[N, M]) y"), {"x": X})


def test_split_to_given_sizes():
    body = "sizes = Constant<value_ints = [1, 3]>() y = SplitToSequence<keepdims = 0>(x, sizes)"
    check_model(from_x(body, "seq(float[N, M]) y"), {"x": X})


@pytest.mark.parametrize("position", [0, 2, -1, -3])
def test_a_position_that_the_model_computes(position):
    model = parsed("(float[4, 3] x, int64 i) => (float[4, 3] y)", ALIKE + "y = SequenceAt(s, i)")
    check_model(model, {"x": X, "i": np.array(position)})
    (y,) = evaluate_model(model, [X, np.array(100)])
    np.testing.assert_allclose(y, np.exp(X), rtol=1e-6)


BODY = "body = step (float[N, M] one, float[4, 3] other) => (float[N, M] sum, int64[2] shape)"


def test_a_graph_for_each_tensor():
    mapped = f"y, z = SequenceMap(s, x) <{BODY} {{sum = Add(one, other) shape = Shape(one)}}>"
    results = evaluate_model(from_x(ALIKE + mapped, "seq(float[N, M]) y, seq(int64[2]) z"), [X])
    sums, shape = [X + X, X - X, X + np.exp(X)], np.array([4, 3])
    for result, wanted in zip(results, [*sums, shape, shape, shape], strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-6)


def test_a_graph_for_the_tensors_of_two_sequences():
    mapped = f"r = SequenceErase(s) t = SequenceInsert(r, x, p0) y, z = SequenceMap(s, t) <{BODY} {{\
        sum = Sub(one, other) shape = Shape(one)}}>"
    results = evaluate_model(from_x(ALIKE + mapped, "seq(float[N, M]) y, seq(int64[2]) z"), [X])
    for result, wanted in zip(results[:3], [X - X, -X - X, np.exp(X) + X], strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-6)


def test_a_graph_for_no_tensor():
    """What the results would be, the body declares."""
    mapped = f"e = SequenceEmpty() t, u = SequenceMap(e, x) <{BODY} {{sum = Add(one, other) shape = Shape(one)}}>"
    body = mapped + "n = Shape(x) v = SequenceInsert(u, n) w = SequenceInsert(t, x) y = SequenceAt(v, p0)"
    assert names_of(from_x(body, "int64[2] y, seq(float[4, 3]) w")) == ["y", "w[0]"]


# --- Control flow


CHOICE = """
    zero = Constant<value_float = 0.0>() sum = ReduceSum<keepdims = 0>(x) c = Greater(sum, zero)
    t = If (c) <
        then_branch = same () => (seq(float[N, M]) u) { u = Identity(s) },
        else_branch = other () => (seq(float[N, M]) v) { l = Tanh(x) q = SequenceErase(s, p1) v = OTHER }
    >
    y = SequenceAt(t, p1) z = SequenceAt(t, p2)
"""


@pytest.mark.parametrize("sign", [1, -1])
def test_a_computed_choice_is_one_for_each_tensor(sign):
    choice = CHOICE.replace("OTHER", "SequenceInsert(q, l, p1)")
    model = from_x(THREE + choice, "float[4, 3] y, float[8, 3] z")
    check_model(model, {"x": sign * np.abs(X)})
    assert [operator.kind for operator in load_graph(model).operators].count("Branch") == 1  # the others are equal


def test_a_known_choice_may_be_between_anything():
    known = CHOICE.replace("Greater(sum, zero)", "Constant<value = bool {1}>()").replace("OTHER", "SequenceEmpty()")
    check_model(from_x(THREE + known, "float[4, 3] y, float[8, 3] z"), {"x": X})


@pytest.mark.parametrize(
    ("other", "types"),
    [
        ("Identity(q)", r"seq(float32[4,3], float32[4,3], float32[8,3]) or seq(float32[4,3], float32[8,3])"),
        ("SequenceInsert(q, l)", "a result that is float32[4,3] or float32[8,3]"),
        ("SequenceEmpty<dtype = 7>()", "or an empty seq(int64)"),
    ],
)
def test_a_computed_choice_between_unlike_sequences(other, types):
    message = refusal(UnsupportedFeatureError, from_x(THREE + CHOICE.replace("OTHER", other)))
    assert "If node" in message
    assert types in message


GROWING = """
    e = SequenceEmpty() n = Constant<value_int = TRIPS>() t = Constant<value = bool {1}>()
    last, s = Loop (n, t, x, e) <
        body = step (int64 i, bool go, float[4, 3] v, seq(float[4, 3]) given)
            => (bool again, float[4, 3] w, seq(float[4, 3]) grown) {
            f = Cast<to = 1>(i) u = Add(v, f) w = Mul(u, x) grown = SequenceInsert(given, w) AGAIN
        }
    >
"""


def test_a_loop_grows_a_sequence():
    body = GROWING.replace("TRIPS", "4").replace("AGAIN", "again = Identity(go)")
    body += "y = ConcatFromSequence<axis = 0, new_axis = 1>(s)"
    check_model(from_x(body, "float[4, 4, 3] y, float[4, 3] last, seq(float[4, 3]) s"), {"x": X})


def test_a_loop_that_the_model_ends_cannot_grow_a_sequence():
    again = "limit = Constant<value_float = 9.0>() most = ReduceMax<keepdims = 0>(w) again = Less(most, limit)"
    body = GROWING.replace("TRIPS", "4").replace("AGAIN", again) + "y = ConcatFromSequence<axis = 0>(s)"
    message = refusal(UnsupportedFeatureError, from_x(body))
    assert "Loop node" in message
    assert "as a condition computed by the model decides" in message


def test_a_long_loop_that_carries_a_sequence_is_refused():
    body = GROWING.replace("TRIPS", "2000").replace("AGAIN", "again = Identity(go)")
    message = refusal(UnsupportedFeatureError, from_x(body + "y = Neg(last)"))
    assert "a loop of more than 1024 trips that carries a sequence or an optional" in message


def test_a_long_loop_reads_a_sequence_around_it():
    body = """
        three = Constant<value_int = 3>() n = Constant<value_int = 1100>() t = Constant<value = bool {1}>()
        y = Loop (n, t, x) <
            body = step (int64 i, bool go, float[4, 3] v) => (bool again, float[4, 3] w) {
                k = Mod(i, three) one = SequenceAt(s, k) u = Tanh(v) w = Add(u, one) again = Identity(go)
            }
        >
    """
    check_model(from_x(ALIKE + body), {"x": X}, run=compiled)


def test_results_of_a_body_that_grow_are_tensors():
    body = """
        n = Constant<value_int = 2>() t = Constant<value = bool {1}>()
        y = Loop (n, t) < body = step (int64 i, bool go) => (bool again, seq(float[4, 3]) row) {
            row = SequenceConstruct(x) again = Identity(go)
        } >
    """
    message = refusal(InvalidModelError, from_x(body))
    assert message == "Loop node 'Loop_2' of test: seq(float32[4,3]) where only a tensor can be"


def test_functions_take_and_give_sequences():
    text = """
        <ir_version: 10, opset_import: ["": 18, "own": 1]>
        test (float[4, 3] x) => (float[N, M] y) { s = SequenceConstruct(x, x) t = own.more(s) y = own.all(t) }
        <domain: "own", opset_import: ["": 18]> more (s) => (t) {
            zero = Constant<value_int = 0>() first = SequenceAt(s, zero) t = SequenceInsert(s, first)
        }
        <domain: "own", opset_import: ["": 18]> all (s) => (y) { y = ConcatFromSequence<axis = 0>(s) }
    """
    check_model(onnx.parser.parse_model(text), {"x": X})


# --- Optionals


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("o = Optional(x) y = OptionalGetElement(o)", X),
        ("o = Optional(x) p = Identity(o) y = OptionalGetElement(p)", X),
        ("y = OptionalGetElement(x)", X),
        ("s = SequenceConstruct(x) o = Optional(s) t = OptionalGetElement(o) y = SequenceAt(t, p0)", X),
        ("o = Optional(x) y = OptionalHasElement(o)", True),
        ("o = Optional<type = float[4, 3]>() y = OptionalHasElement(o)", False),
        ("y = OptionalHasElement(x)", True),
        ("y = OptionalHasElement()", False),
    ],
)
def test_optionals(body, wanted):
    output = "bool y" if isinstance(wanted, bool) else "float[4, 3] y"
    (result,) = evaluate_model(from_x(body, output), [X])
    np.testing.assert_array_equal(result, wanted)


def test_a_loop_begins_with_nothing():
    """As exporters write what is None at first; a trip gives what the optional of the next one holds."""
    body = """
        o = Optional<type = float[4, 3]>() n = Constant<value_int = 3>() t = Constant<value = bool {1}>()
        y = Loop (n, t, o) <
            body = step (int64 i, bool go, optional(float[4, 3]) seen) => (bool again, float[4, 3] next) {
                has = OptionalHasElement(seen) again = Identity(go)
                old = If (has) <
                    then_branch = old () => (float[4, 3] u) { u = OptionalGetElement(seen) },
                    else_branch = new () => (float[4, 3] v) { v = Neg(x) }
                >
                next = Add(old, x)
            }
        >
    """
    (result,) = evaluate_model(from_x(body), [X])
    np.testing.assert_allclose(result, 2 * X, rtol=1e-6)


OPTIONS = """
    zero = Constant<value_float = 0.0>() sum = ReduceSum<keepdims = 0>(x) c = Greater(sum, zero)
    o = If (c) <
        then_branch = a () => (optional(float[4, 3]) u) { u = Optional(x) },
        else_branch = b () => (optional(float[4, 3]) v) { m = Neg(x) v = OTHER }
    >
    y = OptionalGetElement(o)
"""


def test_a_computed_choice_between_optionals():
    model = from_x(OPTIONS.replace("OTHER", "Optional(m)"))
    for x in (np.abs(X), -np.abs(X)):
        np.testing.assert_array_equal(evaluate_model(model, [x])[0], np.abs(x))
    message = refusal(UnsupportedFeatureError, from_x(OPTIONS.replace("OTHER", "Optional<type = float[4, 3]>()")))
    assert "optional(float32[4,3]) or an empty optional(float32)" in message


# --- Outputs and inputs


def test_outputs_that_are_sequences_are_one_for_each_tensor():
    model = from_x(
        THREE + "o = Optional(s) q = Optional(a)", "seq(float[N, M]) s, optional(seq(float[])) o, optional(float[]) q"
    )
    assert names_of(model) == ["s[0]", "s[1]", "s[2]", "o[0]", "o[1]", "o[2]", "q"]


def test_empty_outputs_are_none():
    body = "e = SequenceEmpty() o = Optional<type = float[2]>()"
    assert names_of(from_x(body + "y = Neg(x)", "seq(float) e, float[4, 3] y, optional(float[2]) o")) == ["y"]
    message = refusal(UnsupportedFeatureError, from_x(body, "seq(float) e, optional(float[2]) o"))
    assert "all outputs are empty" in message


def test_an_output_that_is_called_as_a_tensor_of_another():
    body = 's = SequenceConstruct(x) "s[0]" = Neg(x)'
    assert "'s[0]'" in refusal(InvalidModelError, from_x(body, 'seq(float[4, 3]) s, float[4, 3] "s[0]"'))


def test_tensors_of_a_sequence_are_called_by_it():
    graph = load_graph(from_x("s = SplitToSequence(x, p2) a = SequenceAt(s, p0) y = Neg(a)"))
    assert graph.operators[0].kind == "Slice"
    assert [graph.values[operator.outputs[0]].name for operator in graph.operators] == ["s[0]", "s[1]", "y"]


def test_inputs_that_are_sequences_are_as_many_as_shapes_are_given():
    model = parsed(
        "(seq(float[n, 3]) s, float[n, 3] x) => (float[M, K] y)",
        "t = SequenceInsert(s, x) y = ConcatFromSequence<axis = 0>(t)",
    )
    arrays = {"s[0]": X, "s[1]": X[:2], "x": 2 * X[:1]}
    net = rammer.compile(model, "reference", input_shapes={name: array.shape for name, array in arrays.items()})
    np.testing.assert_array_equal(net.run(arrays)["y"], np.concatenate(list(arrays.values())))
    assert "how many tensors it holds has to be known" in refusal(UnsupportedFeatureError, model)
    assert "'s[2]', which is no input" in refusal(OptionError, model, input_shapes={"s[0]": (1, 3), "s[2]": (1, 3)})
    assert "contradicts dimension 1" in refusal(OptionError, model, input_shapes={"s[0]": (4, 4)})


def test_inputs_that_are_optionals_are_there_if_shapes_are_given():
    body = "t = OptionalGetElement(o) r = OptionalGetElement(q) u = SequenceAt(t, zero) y = Add(u, r)"
    model = parsed(
        "(optional(seq(float[])) o, optional(float[n]) q) => (float[M, K] y)", "zero = Constant<value_int = 0>()" + body
    )
    graph = load_graph(model, input_shapes={"o[0]": (4, 3), "q": (3,)})
    assert [graph.values[value].name for value in graph.inputs] == ["o[0]", "q"]
    assert "'q' is optional(float32[n]): whether it is there has to be known" in refusal(
        UnsupportedFeatureError, model, input_shapes={"o[0]": (4, 3)}
    )


def test_an_input_that_is_called_as_a_tensor_of_another():
    model = parsed('(seq(float[3]) s, float[3] "s[0]") => (float[N] y)', "y = ConcatFromSequence<axis = 0>(s)")
    assert "'s[0]'" in refusal(InvalidModelError, model, input_shapes={"s[0]": (3,)})


def test_compiled_for_the_processor():
    body = GROWING.replace("TRIPS", "3").replace("AGAIN", "again = Identity(go)")
    model = from_x(body + "y = ConcatFromSequence<axis = 1>(s)", "float[4, 9] y, seq(float[4, 3]) s")
    check_model(model, {"x": X}, run=compiled)


# --- What is refused


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y = SequenceAt(s, p3)", "SequenceAt node 'bad' of test: position 3 in a sequence of 3 tensors"),
        ("y = SequenceAt(s, m4)", "position -4 in a sequence of 3 tensors"),
        ("t = SequenceErase(s, p3)", "SequenceErase node 'bad' of test: position 3 in a sequence of 3 tensors"),
        ("t = SequenceInsert(s, x, p4)", "SequenceInsert node 'bad' of test: position 4 in a sequence of 3 tensors"),
        ("t = SequenceInsert(s, n)", "a tensor int64[2] for seq(float32[4,3], float32[4,3], float32[8,3])"),
        ("t = SequenceErase(e)", "SequenceErase node 'bad' of test: its sequence is empty"),
        ("y = SequenceAt(e, p0)", "its sequence is empty"),
        ("y = ConcatFromSequence<axis = 0>(e)", "ConcatFromSequence node 'bad' of test: its sequence is empty"),
        ("y = ConcatFromSequence<axis = 1>(s)", "ConcatFromSequence node 'bad' of test: "),
        ("y = ConcatFromSequence<axis = 0, new_axis = 1>(s)", "along a new dimension, whose shapes differ"),
        ("y = ConcatFromSequence<axis = 2>(s)", "axis 2 of a tensor of rank 2"),
        ("t = SequenceConstruct(x, n)", "its input 'inputs' is int64[2], another input of the same type is float32"),
        ("y = Add(s, x)", "Add node 'bad' of test: its input 'A' cannot be seq(float32[4,3], float32[4,3], "),
        ("y = Add(o, x)", "its input 'A' cannot be optional(float32[4,3])"),
        ("y = SequenceAt(x, p0)", "SequenceAt node 'bad' of test: its input 'input_sequence' cannot be float32[4,3]"),
        ("y = SequenceAt(e, s)", "its input 'position' cannot be seq("),
        ("t = SplitToSequence(x, p0)", "SplitToSequence node 'bad' of test: parts of 0 elements"),
        ("t = SplitToSequence(x, n)", "parts of [4, 3] elements of a dimension of 4"),
        ("t = SplitToSequence<axis = 2>(x)", "axis 2 of a tensor of rank 2"),
        ("q = Optional()", "Optional node 'bad' of test: its attribute 'type' is missing"),
        ("q = Optional(o)", "its input 'input' cannot be optional(float32[4,3])"),
        ("y = OptionalGetElement(l)", "node 'bad' of test: the element of an empty optional(float32)"),
        (f"u, w = SequenceMap(s, e) <{BODY} {{sum = Neg(one) shape = Shape(one)}}>", "sequences of different lengths"),
        (f"u, w = SequenceMap(s) <{BODY} {{sum = Neg(one) shape = Shape(one)}}>", "has 2 input(s), not 1"),
    ],
)
def test_mistakes(body, message):
    made = THREE + "e = SequenceEmpty() o = Optional(x) l = Optional<type = float[2]>() n = Shape(x) z = Neg(x) [bad] "
    assert message in refusal(InvalidModelError, from_x(made + body, "float[4, 3] z"))


@pytest.mark.parametrize("operator", ["SequenceInsert(s, x, i)", "SequenceErase(s, i)", "SplitToSequence(x, i)"])
def test_positions_and_sizes_that_have_to_be_known(operator):
    model = parsed("(float[4, 3] x, int64 i) => (seq(float[N, M]) y)", THREE + "y = " + operator)
    assert "is computed as the model runs" in refusal(UnsupportedFeatureError, model)


def test_a_computed_position_among_tensors_of_several_shapes():
    model = parsed("(float[4, 3] x, int64 i) => (float[N, M] y)", THREE + "y = SequenceAt(s, i)")
    assert "at a position that the model computes" in refusal(UnsupportedFeatureError, model)
    model = parsed("(float[4, 3] x, int64[2] i) => (float[N, M] y)", ALIKE + "y = SequenceAt(s, i)")
    assert "its position int64[2] is not one element" in refusal(InvalidModelError, model)


def test_sequences_hold_what_has_a_size_that_depends_on_the_data():
    graph = load_graph(from_x("n = NonZero(x) s = SequenceConstruct(n)", "seq(int64[2, N]) s"))
    assert [graph.values[output].name for output in graph.outputs] == ["s[0]", "s[0].count"]
    message = refusal(
        UnsupportedFeatureError,
        from_x("n = NonZero(x) s = SequenceConstruct(n, n) i = Shape(n) j = ArgMax(i) y = SequenceAt(s, j)"),
    )
    assert "has a size that depends on the data" in message


def test_too_many_parts():
    model = parsed("(float[5000] x) => (seq(float[N]) y)", "y = SplitToSequence(x)")
    assert "a sequence of more than 4096 parts" in refusal(UnsupportedFeatureError, model)


def test_a_body_that_gives_several_element_types():
    body = """
        t = Constant<value = bool {1}>() f = Constant<value = bool {0}>() c = SequenceConstruct(t, f) y = Neg(x)
        s = SequenceMap(c) <body = step (bool one) => (float[N] which) {
            which = If (one) < then_branch = a () => (float[4, 3] u) { u = Neg(x) },
                               else_branch = b () => (int64[2] v) { v = Shape(x) } >
        }>
    """
    assert "a sequence of float32[4,3], int64[2]" in refusal(InvalidModelError, from_x(body))


def test_element_types_that_no_sequence_has():
    assert "STRING" in refusal(UnsupportedFeatureError, from_x("e = SequenceEmpty<dtype = 8>() y = Neg(x)"))
    made = from_x("o = Optional<type = float[2]>() y = Neg(x)")
    inner = helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [2]))
    made.graph.node[0].attribute[0].tp.CopyFrom(helper.make_sequence_type_proto(inner))
    assert "its attribute 'type' is made of other things" in refusal(InvalidModelError, made)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("float[4, 3] s", "declares 's' as float32[4,3], its operators give seq(float32[4,3], float32[4,3],"),
        ("seq(int64[N, M]) s", "(element types differ)"),
        ("optional(seq(float[N, M])) s", "as optional(seq(float32[?,?])), its operators give seq("),
    ],
)
def test_declared_types_of_outputs(declared, message):
    assert message in refusal(ShapeDisagreementError, from_x(THREE, declared))


def test_another_declared_shape_of_an_output(caplog):
    load_graph(from_x(THREE, "seq(float[N, 2]) s"))
    assert "(dimension 1 differs)" in caplog.text


def test_outputs_of_other_things_than_tensors():
    made = from_x(THREE, "seq(float[N, M]) s")
    made.graph.output[0].type.CopyFrom(helper.make_sequence_type_proto(made.graph.output[0].type))
    assert "a sequence, made of other things than tensors" in refusal(UnsupportedFeatureError, made)


DOMAINS = {"ai.onnx.ml": 5, "ai.onnx.preview": 1, "com.microsoft": 1}
TAKING = {
    *("ConcatFromSequence", "Identity", "Loop", "Optional", "OptionalGetElement", "OptionalHasElement"),
    *("SequenceAt", "SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap"),
}
"""Operators that may be given a sequence."""


@pytest.mark.parametrize("name", sorted({*CONVERTERS, *STANDARD} - TAKING))
def test_operators_on_tensors_are_given_a_sequence(name):
    """An error of the model that names the node, whichever operand it is."""
    domain, _, op_type = name.rpartition(".")
    made = from_x("s = SequenceConstruct(x) y = Neg(x)", "float[4, 3] y", onnx.defs.onnx_opset_version())
    made.opset_import.extend(helper.make_opsetid(*each) for each in DOMAINS.items())
    for others in range(4):
        given = [*(["x"] * others), "s"]
        made.graph.node[-1].CopyFrom(helper.make_node(op_type, given, ["y"], name="bad", domain=domain))
        with pytest.raises((InvalidModelError, UnsupportedFeatureError)) as caught:
            load_graph(made)
        assert "'bad'" in caught.value.where
