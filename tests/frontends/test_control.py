"""If, Loop and Scan against ONNX Runtime."""

import numpy as np
import onnx
import pytest

import rammer
from rammer.errors import InvalidModelError, UnsupportedFeatureError, UnsupportedOperatorsError
from rammer.frontends.onnx import load_graph
from tests.support.agreement import run_onnx_runtime
from tests.support.onnx_reference import check_model

X = np.random.default_rng(0).standard_normal((4, 3), dtype=np.float32)


def parsed(signature, body):
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> test {signature} {{{body}}}')


BRANCHES = """
    y = If (c) <
        then_branch = positive () => (float[4, 3] a) { t = Relu(x) a = Add(t, x) },
        else_branch = negative () => (float[4, 3] b) { b = Neg(x) }
    >
"""


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("scalar", [True, False])
def test_both_branches_of_a_computed_condition(sign, scalar):
    body = f"zero = Constant<value_float = 0.0>() s = ReduceSum<keepdims = {int(not scalar)}>(x) c = Greater(s, zero)"
    if not scalar:
        body += "one = Constant<value_ints = [1]>() c1 = Reshape(c, one)" + BRANCHES.replace("(c)", "(c1)")
    else:
        body += BRANCHES
    check_model(parsed("(float[4, 3] x) => (float[4, 3] y)", body), {"x": sign * np.abs(X)})


@pytest.mark.parametrize("condition", [0, 1])
def test_one_branch_of_a_known_condition(condition):
    body = f"i = Constant<value_int = {condition}>() c = Cast<to = 9>(i)" + BRANCHES
    model = parsed("(float[4, 3] x) => (float[4, 3] y)", body)
    check_model(model, {"x": X})
    assert len(load_graph(model).operators) == (2 if condition else 1)


def test_branches_of_different_shapes():
    body = """
        c = IsNaN(s)
        y = If (c) <
            then_branch = a () => (float[N] a) { one = Constant<value_ints = [-1]>() a = Reshape(x, one) },
            else_branch = b () => (float[M] b) { zero = Constant<value_int = 0>() b = Gather<axis = 1>(x, zero) }
        >
    """
    with pytest.raises(UnsupportedFeatureError, match=r"float32\[12\] or float32\[4\]"):
        load_graph(parsed("(float[4, 3] x, float s) => (float[K] y)", body))


LOOP = """
    n = Constant<value_int = TRIPS>() t = Constant<value = bool {1}>()
    y, z = Loop (n, t, x) <
        body = step (int64 i, bool go, float[4, 3] v) => (bool again, float[4, 3] w, float[3] row) {
            f = Cast<to = 1>(i) s = Add(v, f) w = Mul(s, x) row = ReduceSum<keepdims = 0>(w, axes) ANOTHER
        }
    >
"""
AXES = "axes = Constant<value_ints = [0]>()"


def test_a_loop_of_known_trips_keeps_values_and_stacks_results():
    body = AXES + LOOP.replace("TRIPS", "5").replace("ANOTHER", "again = Identity(go)")
    check_model(parsed("(float[4, 3] x) => (float[4, 3] y, float[5, 3] z)", body), {"x": X})


def test_a_known_condition_ends_a_loop():
    again = "three = Constant<value_int = 3>() again = Less(i, three)"
    body = AXES + LOOP.replace("TRIPS", "100").replace("ANOTHER", again)
    check_model(parsed("(float[4, 3] x) => (float[4, 3] y, float[4, 3] z)", body), {"x": X})


@pytest.mark.parametrize("limit", [-1.0, 3.0, 50.0, 1e9])
def test_a_computed_condition_ends_a_loop(limit):
    body = f"""
        n = Constant<value_int = 6>() limit = Constant<value_float = {limit}>()
        first = ReduceMax<keepdims = 0>(x) t = Less(first, limit)
        y = Loop (n, t, x) <
            body = step (int64 i, bool go, float[4, 3] v) => (bool again, float[4, 3] w) {{
                w = Add(v, v) m = ReduceMax<keepdims = 0>(w) again = Less(m, limit)
            }}
        >
    """
    check_model(parsed("(float[4, 3] x) => (float[4, 3] y)", body), {"x": np.abs(X)})


@pytest.mark.parametrize(
    ("trips", "again", "message"),
    [
        ("5000", "s1 = ReduceSum<keepdims = 0>(w) again = IsNaN(s1)", "number of trips the model computes"),
        ("0", "again = Identity(go)", "without trips"),
    ],
)
def test_loops_that_are_refused(trips, again, message):
    body = AXES + LOOP.replace("TRIPS", trips).replace("ANOTHER", again)
    with pytest.raises(UnsupportedFeatureError, match=message):
        load_graph(parsed("(float[4, 3] x) => (float[4, 3] y, float[N, 3] z)", body))


LONG = """
    n = Constant<value_int = 2000>() t = Constant<value = bool {1}>() two = Constant<value_int = 2>()
    y = Loop (n, t, x) <
        body = step (int64 i, bool go, float[A, B] v) => (bool again, float[C, D] w) { again = Identity(go) BODY }
    >
"""
INNER = """
    w = Loop (n, t, v) <
        body = inner (int64 j, bool on, float[4, 3] a) => (bool more, float[4, 3] b) { more = Identity(on) b = Neg(a) }
    >
"""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("w = Concat<axis = 0>(v, v)", r"whose value 'Loop_.*' is float32\[4,3\], then float32\[8,3\]"),
        ("w = Transpose(v)", r"float32\[4,3\], then float32\[3,4\]"),
        (INNER, "a loop of very many trips in another one"),
    ],
)
def test_long_loops_whose_trips_differ_are_refused(body, message):
    with pytest.raises(UnsupportedFeatureError, match=message) as caught:
        load_graph(parsed("(float[4, 3] x) => (float[K, L] y)", LONG.replace("BODY", body)))
    assert "Loop node" in caught.value.where


def test_a_long_loop_is_one_operator():
    (loop, *_) = load_graph(parsed("(float[4, 3] x) => (float[4, 3] y)", LONG.replace("BODY", "w = Neg(v)"))).operators
    assert loop.repeat is not None
    assert (loop.repeat.trips, loop.repeat.carried, len(loop.repeat.body(7).operators)) == (2000, 1, 7)


def outcomes(model, inputs):
    """What a compiled model makes of inputs, and ONNX Runtime, results that grow with the trips without their zeros."""
    net = rammer.compile(model, "reference", veus=2)
    found = net.run(inputs)
    wanted = run_onnx_runtime(model, inputs)
    for name, array in zip((output.name for output in model.graph.output), wanted, strict=True):
        if f"{name}.count" in found:
            assert found[f"{name}.count"] == len(array)
            assert not found[name][len(array) :].any()
            found[name] = found[name][: len(array)]
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)
    return wanted


COMPUTED = """
    cap = Constant<value_int = 4>() n = Min(m, cap) limit = Constant<value_float = 3.0>()
    first = ReduceMax<keepdims = 0>(x) t = Less(first, limit)
    y, z = Loop (n, t, x) <
        body = step (int64 i, bool go, float[4, 3] v) => (bool again, float[4, 3] w, float[3] row) {
            w = Add(v, x) row = ReduceSum<keepdims = 0>(w, axes)
            most = ReduceMax<keepdims = 0>(w) again = Less(most, limit)
        }
    >
"""


@pytest.mark.parametrize("trips", [-2, 0, 3, 100])
def test_a_computed_number_of_trips_and_results_that_grow(trips):
    model = parsed("(float[4, 3] x, int64 m) => (float[4, 3] y, float[N, 3] z)", AXES + COMPUTED)
    for scale, expected in ((100, 0), (1.1, 2), (0.1, 4)):
        x = np.float32(scale) * np.abs(X) / np.abs(X).max()
        _, rows = outcomes(model, {"x": x, "m": np.array(trips)})
        assert len(rows) == min(expected, max(trips, 0))


def test_a_number_of_trips_without_a_condition():
    body = AXES + COMPUTED.replace("(n, t, x)", "(n, , x)")
    model = parsed("(float[4, 3] x, int64 m) => (float[4, 3] y, float[N, 3] z)", body)
    for trips in (0, 1, 4):
        outcomes(model, {"x": X, "m": np.array(trips)})


@pytest.mark.parametrize("x", [X, -X, X - 10, 10 + X])
def test_branches_in_branches_and_loops_in_them(x):
    body = f"""{AXES}
        zero = Constant<value_float = 0.0>() some = Constant<value_float = 60.0>() three = Constant<value_int = 3>()
        s = ReduceSum<keepdims = 0>(x) c = Greater(s, zero)
        y = If (c) <
            then_branch = one () => (float[4, 3] a) {{
                d = Greater(s, some)
                a = If (d) <
                    then_branch = two () => (float[4, 3] e) {{ e = Exp(x) }},
                    else_branch = three () => (float[4, 3] f) {{ f = Loop (three, d, x) <
                        body = step (int64 i, bool go, float[4, 3] v) => (bool again, float[4, 3] w) {{
                            w = Add(v, x) again = Identity(go)
                        }}
                    > }}
                >
            }},
            else_branch = four () => (float[4, 3] b) {{
                true = Constant<value = bool {{1}}>()
                b = Loop (three, true, x) <
                    body = step (int64 i, bool go, float[4, 3] v) => (bool again, float[4, 3] w) {{
                        w = Mul(v, x) t = ReduceSum<keepdims = 0>(w) again = Greater(t, zero)
                    }}
                >
            }}
        >
    """
    outcomes(parsed("(float[4, 3] x) => (float[4, 3] y)", body), {"x": x})


@pytest.mark.parametrize("trips", ["( , t, x)", "(m, t, x)", "(all, t, x)"])
def test_a_loop_that_only_its_condition_ends_is_refused(trips):
    body = "all = Constant<value_int = 9223372036854775807>()" + COMPUTED.replace("(n, t, x)", trips)
    with pytest.raises(UnsupportedFeatureError, match="more than 1024 trips") as caught:
        load_graph(parsed("(float[4, 3] x, int64 m) => (float[4, 3] y, float[N, 3] z)", AXES + body))
    assert "the Min of one" in caught.value.hint


@pytest.mark.parametrize("most", ["", "n"])
@pytest.mark.parametrize("counted", ["few = Less(i, four)", "few = Less(k, five)"])
def test_a_condition_that_fails_from_some_trip_on_bounds_a_loop(counted, most):
    body = f"""{AXES}
        n = Constant<value_int = 9223372036854775807>() t = Constant<value = bool {{1}}>()
        limit = Constant<value_float = 3.0>()
        four = Constant<value_int = 4>() five = Constant<value_int = 5>() one = Constant<value_int = 1>()
        zero = Constant<value_int = 0>()
        y, last, z = Loop ({most}, t, x, zero) <
            body = step (int64 i, bool go, float[4, 3] v, int64 j)
                    => (bool again, float[4, 3] w, int64 k, float[3] row) {{
                w = Add(v, x) row = ReduceSum<keepdims = 0>(w, axes) most = ReduceMax<keepdims = 0>(w)
                less = Less(most, limit) k = Add(j, one) {counted} again = And(less, few)
            }}
        >
    """
    model = parsed("(float[4, 3] x) => (float[4, 3] y, int64 last, float[N, 3] z)", body)
    for scale, expected in ((100, 1), (1.1, 2), (0.1, 5)):
        _, last, rows = outcomes(model, {"x": np.float32(scale) * np.abs(X) / np.abs(X).max()})
        assert len(rows) == last == expected


def test_conditions_of_more_than_one_element_are_refused():
    body = AXES + LOOP.replace("TRIPS", "5").replace("ANOTHER", "again = Less(row, row)")
    with pytest.raises(InvalidModelError, match="not one element"):
        load_graph(parsed("(float[4, 3] x) => (float[4, 3] y, float[N, 3] z)", body))


BACKWARDS = "scan_input_directions = [1, 0], scan_output_directions = [1], scan_output_axes = [1],"


@pytest.mark.parametrize("attributes", ["", BACKWARDS])
def test_a_scan(attributes):
    body = f"""
        zero = Constant<value_floats = [0.0, 0.0, 0.0]>()
        last, all = Scan <
            num_scan_inputs = 2, {attributes}
            body = step (float[3] s, float[3] a, float[3] b) => (float[3] t, float[3] row) {{
                p = Mul(a, b) t = Add(s, p) row = Sub(t, a)
            }}
        > (zero, x, x)
    """
    shape = "3, 4" if attributes else "4, 3"
    check_model(parsed(f"(float[4, 3] x) => (float[3] last, float[{shape}] all)", body), {"x": X})


def test_loops_in_loops_see_all_around_them():
    body = """
        n = Constant<value_int = 2>() t = Constant<value = bool {1}>()
        y = Loop (n, t, x) <
            body = outer (int64 i, bool go, float[4, 3] v) => (bool again, float[4, 3] w) {
                again = Identity(go) f = Cast<to = 1>(i)
                w = Loop (n, t, v) <
                    body = inner (int64 j, bool on, float[4, 3] a) => (bool more, float[4, 3] b) {
                        more = Identity(on) g = Add(f, x) b = Mul(a, g)
                    }
                >
            }
        >
    """
    check_model(parsed("(float[4, 3] x) => (float[4, 3] y)", body), {"x": X})


def test_unknown_operators_and_values_inside_are_found():
    body = "c = IsNaN(s)" + BRANCHES.replace("Neg(x)", "Frobnicate(x)")
    with pytest.raises(UnsupportedOperatorsError, match="Frobnicate"):
        load_graph(parsed("(float[4, 3] x, float s) => (float[4, 3] y)", body))
    body = "c = IsNaN(s)" + BRANCHES.replace("Neg(x)", "Neg(nothing)")
    with pytest.raises(InvalidModelError, match="'nothing', which nothing makes"):
        load_graph(parsed("(float[4, 3] x, float s) => (float[4, 3] y)", body))


@pytest.mark.parametrize("kind", ["And", "Or"])
@pytest.mark.parametrize("known", [0, 1])
def test_bools_of_which_one_is_known(kind, known):
    body = f"""i = Constant<value_int = {known}>() k = Cast<to = 9>(i)
        y = {kind}(c, k) z = {kind}(k, c) d = {kind}(v, k)"""
    model = parsed("(bool c, bool[2] v) => (bool y, bool z, bool[2] d)", body)
    for c in (False, True):
        check_model(model, {"c": np.array(c), "v": np.array([c, True])})
    assert sum(operator.kind == kind for operator in load_graph(model).operators) == 1
