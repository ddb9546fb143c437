"""Converters against ONNX Runtime, above all where opsets differ, operands are optional or attributes are implied."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from rammer.errors import InvalidModelError, UnsupportedFeatureError
from rammer.frontends.onnx import load_graph
from rammer.frontends.onnx.converters import CONVERTERS
from tests.support.converters import IMAGE, RNG, check, floats, integers, model, refusal
from tests.support.onnx_reference import check_model, evaluate_model, model_of
from tests.support.operators import run_operator

X = RNG.standard_normal((2, 6, 5), dtype=np.float32)

# --- Opsets


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("op_type", ["ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare"])
def test_axes_as_attribute_and_as_operand(op_type, keepdims):
    check(op_type, [X], opset=13, axes=[-1, 0], keepdims=keepdims)
    check(op_type, [X, integers(-1, 0)], opset=18, keepdims=keepdims)
    check(op_type, [X], opset=13, keepdims=keepdims)
    check(op_type, [X], opset=18, keepdims=keepdims)


def test_reduce_sum_has_axes_as_operand_since_opset_13():
    check("ReduceSum", [X, integers(1)], opset=13)
    check("ReduceSum", [X, integers()], opset=13, noop_with_empty_axes=1)
    check("ReduceSum", [X, integers()], opset=13)
    check("ReduceSum", [X], opset=13, noop_with_empty_axes=1)


def test_split():
    check("Split", [X, integers(1, 2, 3)], 3, opset=13, axis=1)
    check("Split", [X], 2, opset=13, axis=-2)
    check("Split", [X], 2, opset=18, axis=1, num_outputs=2)
    check("Split", [X], 3, opset=18, axis=2, num_outputs=3)


def test_pad():
    check("Pad", [X, integers(0, 1, 2, 0, 3, 1)], opset=13)
    check("Pad", [X, integers(1, 2, 3, 1), np.float32(7), integers(2, 0)], opset=18)
    check("Pad", [X, integers(2, 1), None, integers(-1)], opset=18, mode="reflect")
    check("Pad", [X, integers(2, -1), None, integers(-1)], opset=18, mode="edge")
    check("Pad", [X, integers(2, 3), None, integers(1)], opset=19, mode="wrap")


@pytest.mark.parametrize("opset", [13, 14, 15])
def test_batch_normalization(opset):
    parameters = [floats(4), floats(4), floats(4), np.abs(floats(4)) + 0.5]
    check("BatchNormalization", [IMAGE, *parameters], opset=opset, epsilon=1e-3)


def test_group_normalization():
    scale, bias = floats(4), floats(4)
    made = model("GroupNormalization", [IMAGE, scale, bias], num_groups=2)
    groups = IMAGE.reshape(2, 2, -1)
    normal = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)
    expected = normal.reshape(IMAGE.shape) * scale.reshape(4, 1, 1) + bias.reshape(4, 1, 1)
    np.testing.assert_allclose(evaluate_model(made, [IMAGE])[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [13, 22])
def test_dropout_is_for_training(opset):
    check("Dropout", [X, np.float32(0.5), np.array(False)], opset=min(opset, 21))
    (y, mask) = evaluate_model(model("Dropout", [X], 2, opset=opset), [X])
    np.testing.assert_array_equal(y, X)
    assert mask.all()


@pytest.mark.parametrize("lengths", [(4, 1), (0, 3)])
def test_reverse_sequence(lengths):
    check("ReverseSequence", [floats(2, 4, 3), integers(*lengths)], batch_axis=0, time_axis=1)


@pytest.mark.parametrize(("lengths", "message"), [((5, 1), "length 5 along"), ((1, -1), "length -1 along")])
def test_reverse_sequence_of_known_lengths_outside(lengths, message):
    operands = [floats(2, 4, 3), integers(*lengths)]
    assert message in refusal(InvalidModelError, "ReverseSequence", operands, batch_axis=0, time_axis=1)


def test_shape_of_a_part():
    nodes = [helper.make_node("Shape", ["x"], ["y"], start=-2, end=9)]
    check_model(model_of(nodes, {"x": X}, ["y"], opset=15), {"x": X})
    nodes = [helper.make_node("Shape", ["x"], ["y"], start=2, end=1)]
    check_model(model_of(nodes, {"x": X}, ["y"], opset=15), {"x": X})
    check_model(model_of([helper.make_node("Shape", ["x"], ["y"])], {"x": X}, ["y"], opset=13), {"x": X})


# --- Elementwise


def test_clip():
    for bounds in ([], [np.float32(-0.5)], [None, np.float32(0.5)], [np.float32(-0.5), np.float32(0.5)]):
        check("Clip", [X, *bounds])
    whole = np.array([-(2**62), -3, 0, 2**62], np.int64)
    check("Clip", [whole, np.array(-(2**53) - 1), np.array(2**53 + 1)])
    nodes = [helper.make_node("Clip", ["x", "low", "high"], ["y"])]
    inputs = {"x": X, "low": np.array(-0.5, np.float32), "high": np.array(0.5, np.float32)}
    check_model(model_of(nodes, inputs, ["y"]), inputs)
    nodes = [helper.make_node("Clip", ["x", "", "high"], ["y"])]
    check_model(model_of(nodes, {"x": X, "high": inputs["high"]}, ["y"]), {"x": X, "high": inputs["high"]})


@pytest.mark.parametrize(
    ("base", "exponent"), [("float32", "int64"), ("int32", "float32"), ("int64", "int32"), ("float32", "float32")]
)
def test_powers_of_mixed_types(base, exponent):
    check("Pow", [np.array([1, 2, 3], base), np.array([2, 3, 1], exponent)])


@pytest.mark.parametrize("op_type", ["Max", "Min", "Sum", "Mean"])
def test_variadic(op_type):
    check(op_type, [X])
    check(op_type, [X, floats(5), floats(6, 1)])


def test_casts():
    check("Cast", [X], to=7)
    check("Cast", [X], to=1)
    check("CastLike", [X, np.array(1, np.float16)])


def test_defaults_come_from_the_schema():
    for op_type in ("LeakyRelu", "Elu", "Selu", "HardSigmoid", "ThresholdedRelu", "Shrink", "Celu"):
        check(op_type, [X])
    check("Gelu", [X])
    check("Gelu", [X], approximate="tanh")
    check("IsInf", [np.array([np.inf, -np.inf, 1], np.float32)], detect_negative=0)


def test_remainders_and_shifts():
    check("Mod", [X, floats(5)], fmod=1)
    check("Mod", [np.array([-7, 7, 5]), np.array([3, -3, 2])])
    check("BitShift", [np.array([1, 2], np.uint32), np.array([3, 1], np.uint32)], direction="LEFT")


@pytest.mark.parametrize("dtype", [np.int8, np.int64])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts_of_signed_integers(direction, dtype):
    x, shift = (grid.reshape(-1) for grid in np.meshgrid([-100, -1, 0, 1, 77], [-5, -1, 0, 1, 7, 8, 63, 64, 100]))
    x, shift = x.astype(dtype), shift.astype(dtype)
    width = 8 * x.itemsize
    distances = [int(b) if 0 <= b < width else width for b in shift]
    left = direction == "LEFT"
    shifted = [int(a) << far if left else int(a) >> far for a, far in zip(x, distances, strict=True)]
    expected = np.array([value % (1 << width) for value in shifted], np.uint64).astype(dtype)
    result = run_operator("BitShift", [x, shift], direction=direction)
    np.testing.assert_array_equal(result, expected)


def test_bits_of_integers():
    newest = onnx.defs.onnx_opset_version()
    made = model("BitCast", [np.array([-1, 0, 200], np.int32)], opset=newest, to=onnx.TensorProto.UINT32)
    (result,) = evaluate_model(made, [np.array([-1, 0, 200], np.int32)])
    np.testing.assert_array_equal(result, np.array([2**32 - 1, 0, 200], np.uint32))
    with pytest.raises(UnsupportedFeatureError, match="bits of float32 as int32"):
        load_graph(model("BitCast", [X], opset=newest, to=onnx.TensorProto.INT32))


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize(("least", "most", "skips"), [(1, 1, 2), (1, 2, 0), (2, 2, 3), (1, 3, 1), (3, 3, 0)])
def test_n_grams(mode, least, most, skips):
    pool = [2, 3, 5, 2, 3, 3, 2, 5, 5, 2, 3, 5, 3, 3, 3]
    attributes = {"ngram_counts": [0, 3, 9], "ngram_indexes": [4, 1, 0, 2, 3, 6, 5, 7], "pool_int64s": pool}
    attributes |= {"min_gram_length": least, "max_gram_length": most, "max_skip_count": skips, "mode": mode}
    weights = [float(number) for number in range(1, 9)] if mode != "TF" else None
    for x in (RNG.integers(2, 6, (3, 9)), np.array([2, 3], np.int32)):
        given = attributes | ({"weights": weights} if weights else {})
        check("TfIdfVectorizer", [x], **given)


# --- Constants


@pytest.mark.parametrize(
    "attributes",
    [{"value_float": 1.5}, {"value_floats": [1.5, 2]}, {"value_int": -3}, {"value_ints": [1, 2]}],
)
def test_forms_of_constants(attributes):
    nodes = [
        helper.make_node("Constant", [], ["c"], **attributes),
        helper.make_node("Cast", ["c"], ["f"], to=1),
        helper.make_node("ReduceSum", ["f"], ["s"]),
        helper.make_node("Mul", ["x", "s"], ["y"]),
    ]
    check_model(model_of(nodes, {"x": X}, ["y"]), {"x": X})


def test_constants_that_are_none():
    made = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": X}, ["y"])
    made.graph.node.append(helper.make_node("Constant", [], ["c"], name="both", value_int=1, value_float=1.0))
    with pytest.raises(InvalidModelError):
        load_graph(made)
    value = helper.make_tensor("v", 1, [2], [5, 5])
    cases: Any = (([2], {"value": value}, "2 elements, not 1"), ([-2], {}, "negative extent"))
    for shape, attributes, message in cases:
        made.graph.node[1].CopyFrom(helper.make_node("ConstantOfShape", ["s"], ["c"], name="fill", **attributes))
        del made.graph.initializer[:]
        made.graph.initializer.append(numpy_helper.from_array(integers(*shape), "s"))
        with pytest.raises(InvalidModelError, match=message):
            load_graph(made)


def test_constants_that_are_too_large():
    made = model_of([helper.make_node("EyeLike", ["x"], ["y"], name="eye")], {"x": X[0]}, ["y"])
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2**40
    made.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UnsupportedFeatureError, match="elements"):
        load_graph(made)
    nodes = [helper.make_node("OneHot", ["x", "d", "v"], ["y"], name="hot")]
    for depth in (np.array(2**40), np.array(np.nan, np.float32)):
        made = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": X}, ["y"])
        made.graph.node[0].CopyFrom(nodes[0])
        made.graph.initializer.append(numpy_helper.from_array(depth, "d"))
        made.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "v"))
        with pytest.raises(UnsupportedFeatureError, match="a depth of"):
            load_graph(made)


def test_text_that_is_none():
    message = refusal(InvalidModelError, "Gelu", [X], approximate=b"\xff")
    assert "not UTF-8" in message
    assert "not UTF-8" in refusal(
        InvalidModelError, "RNN", [X, floats(1, 4, 5), floats(1, 4, 4)], hidden_size=4, activations=[b"\xff"]
    )


@pytest.mark.parametrize("attributes", [{"value_string": "a"}, {"value_strings": ["a", "b"]}])
def test_constants_of_strings(attributes):
    made = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": X}, ["y"])
    made.graph.node.append(helper.make_node("Constant", [], ["c"], name="text", **attributes))
    with pytest.raises(UnsupportedFeatureError, match="value_string"):
        load_graph(made)


@pytest.mark.parametrize(
    ("start", "limit", "delta"), [(0, 10, 3), (10, 4, -2), (1.0, 2.0, 0.25), (3, 3, 1), (0.0, 1.0, 0.3), (5, 0, 2)]
)
def test_range(start, limit, delta):
    dtype = np.float32 if isinstance(start, float) else np.int64
    nodes = [helper.make_node("Range", ["a", "b", "c"], ["r"]), helper.make_node("Identity", ["r"], ["y"])]
    constants = {"a": dtype(start), "b": dtype(limit), "c": dtype(delta)}
    made = model_of(nodes, {"x": X}, ["y"], constants={k: np.array(v) for k, v in constants.items()})
    check_model(made, {"x": X})


def test_ranges_without_end():
    nodes = [helper.make_node("Range", ["a", "b", "c"], ["y"])]
    made = model_of(nodes, {"x": X}, ["y"], constants={"a": np.array(0), "b": np.array(9), "c": np.array(1)})
    made.graph.initializer[2].CopyFrom(numpy_helper.from_array(np.array(0), "c"))
    with pytest.raises(InvalidModelError, match="has no end"):
        load_graph(made)


def test_ranges_that_are_too_long():
    nodes = [helper.make_node("Range", ["a", "b", "c"], ["y"], name="r")]
    constants = {"a": np.array(0), "b": np.array(2**40), "c": np.array(1)}
    with pytest.raises(UnsupportedFeatureError, match="1099511627776 elements"):
        load_graph(model_of(nodes, {"x": X}, ["y"], constants=constants))


def test_eye_like_and_constant_of_shape():
    for k in (-9, -1, 0, 2, 9):
        check("EyeLike", [floats(3, 4)], k=k)
    check("EyeLike", [floats(3, 4)], dtype=7)
    value = helper.make_tensor("v", 7, [1], [5])
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("ConstantOfShape", ["s"], ["y"], value=value)]
    check_model(model_of(nodes, {"x": X}, ["y"]), {"x": X})
    check_model(model_of(nodes, {"x": floats(70, 70)}, ["y"]), {"x": floats(70, 70)})


# --- Movement


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ([1], [3], None, None),
        ([1, 0], [5, -1], [1, 2], [2, 1]),
        ([-1], [-9], [1], [-1]),
        ([9], [0], [1], [-2]),
        ([4], [-2], [-2], [-1]),
        ([0], [2**63 - 1], [2], [3]),
        ([2**31], [-(2**63)], [2], [-1]),
        ([3], [1], [1], [1]),
        ([-100], [100], [1], [1]),
    ],
)
def test_slice(starts, ends, axes, steps):
    operands = [integers(*starts), integers(*ends)]
    operands += [None if axes is None else integers(*axes), None if steps is None else integers(*steps)]
    while operands[-1] is None:
        operands.pop()
    check("Slice", [X, *operands])


def test_shapes():
    check("Reshape", [X, integers(0, -1)])
    check("Reshape", [X, integers(3, -1, 0)])
    check("Reshape", [floats(0, 3), integers(3, 0)], allowzero=1)
    for axis in (0, 1, -1, 3):
        check("Flatten", [X], axis=axis)
    check("Squeeze", [floats(1, 3, 1)])
    check("Squeeze", [floats(1, 3, 1), integers(-1)])
    check("Unsqueeze", [X, integers(-1, 0, 2)])
    check("Transpose", [X])
    check("Transpose", [X], perm=[1, 2, 0])
    check("Expand", [floats(3, 1), integers(2, 1, 4)])
    check("Expand", [floats(3, 4), integers(1)])
    check("Tile", [X, integers(1, 2, 3)])
    check("DepthToSpace", [floats(1, 8, 2, 3)], blocksize=2)
    check("DepthToSpace", [floats(1, 8, 2, 3)], blocksize=2, mode="CRD")
    check("SpaceToDepth", [floats(1, 2, 4, 6)], blocksize=2)
    check("Trilu", [floats(4, 5)])
    check("Trilu", [floats(2, 4, 5), np.array(-1)], upper=0)


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes", "message"),
    [
        ("Reshape", [integers(7, -1)], {}, "cannot have shape"),
        ("Reshape", [integers(-1, -1)], {}, "cannot have shape"),
        ("Reshape", [integers(2, 3, 4, 0)], {}, "keeps dimension 3"),
        ("Reshape", [integers(-2, 30)], {}, "cannot have shape"),
        ("Slice", [integers(0), integers(1), integers(3)], {}, "axis 3 of a tensor of rank 3"),
        ("Slice", [integers(0), integers(1), integers(0), integers(0)], {}, "a step is 0"),
        ("Slice", [integers(0, 0), integers(1)], {}, "differ in length"),
        ("Slice", [integers(0, 0), integers(1, 1), integers(0, -3)], {}, "twice"),
        ("Squeeze", [integers(1)], {}, "not all of extent 1"),
        ("Unsqueeze", [integers(0, 0)], {}, "twice"),
        ("Expand", [integers(2, 6, 4)], {}, "do not broadcast"),
        ("Transpose", [], {"perm": [0, 0, 1]}, "does not permute"),
        ("Concat", [floats(2, 6, 4)], {"axis": 0}, "does not fit"),
        ("Flatten", [], {"axis": 4}, "axis 4"),
        ("Split", [integers(1, 2)], {"axis": 1}, "1 output"),
        ("Tile", [integers(1, 2)], {}, "Tile of"),
        ("Pad", [integers(1, 2)], {}, "2 pads for 3"),
        ("Gather", [integers(0)], {"axis": 5}, "axis 5"),
        ("GatherND", [integers(0, 0, 0, 0)], {}, "do not fit"),
        ("Softmax", [], {"axis": 3}, "axis 3"),
        ("ReduceMean", [integers(3)], {}, "axis 3"),
        ("MatMul", [floats(4, 3)], {}, "inner extents"),
        ("Einsum", [], {"equation": "ij->i"}, "does not label"),
        ("Einsum", [], {"equation": "i1j->i"}, "no Einstein sum"),
        ("Einsum", [], {"equation": "ijk,kl->il"}, "2 operand"),
        ("Einsum", [], {"equation": "ijk->iz"}, "no operand has"),
        ("Einsum", [], {"equation": "iij->j"}, "stands for extents 2 and 6"),
        ("Einsum", [floats(5, 4)], {"equation": "ijk,jl->il"}, "stands for extents 6 and 5"),
        ("Pad", [integers(0, 0, 0, 1, 1, 1), floats(2)], {}, "constant value has 2 elements"),
        ("Reshape", [np.ones((1, 1), np.int64)], {}, "has rank 2, not 1"),
        ("CumSum", [integers(0, 1)], {}, "has 2 elements, not 1"),
        ("EyeLike", [], {}, "is not a matrix"),
        ("GatherND", [np.zeros((3, 1), np.int64)], {"batch_dims": 1}, "batch dimensions"),
    ],
)
def test_operands_that_do_not_fit(op_type, operands, attributes, message):
    assert message in refusal(InvalidModelError, op_type, [X, *operands], **attributes)


# --- Indexing


def test_gathers():
    check("Gather", [X, integers(-1, 0)], axis=1)
    check("Gather", [X, np.array([[0, 1]], np.int32)], axis=-1)
    check("GatherElements", [floats(3, 3), np.array([[1, -1, 0], [2, 0, 0]])], axis=0)
    check("GatherND", [X, np.array([[0, -1], [1, 2]])])
    check("GatherND", [X, np.array([[[0]], [[-2]]])], batch_dims=1)
    check("GatherND", [X, np.array([[0, 5, 4], [-1, -6, 0]])])


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(axis):
    indices = np.array([[1, -1, 9], [0, 2, -9]])
    check("OneHot", [indices, np.array(4), np.array([2, 5], np.float32)], axis=axis)
    nodes = [helper.make_node("OneHot", ["i", "d", "v"], ["y"], axis=axis)]
    inputs = {"i": indices, "v": np.array([2, 5], np.float32)}
    check_model(model_of(nodes, inputs, ["y"], constants={"d": np.array([4])}), inputs)


# --- Products


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("bnij,bnjd->bind", [(2, 3, 4, 5), (2, 3, 5, 6)]),
        ("i,j->ij", [(3,), (4,)]),
        ("i,i->", [(3,), (3,)]),
        ("ij,kj->k", [(2, 3), (4, 3)]),
        ("ij->ji", [(2, 3)]),
        ("ij->", [(2, 3)]),
        ("ji", [(2, 3)]),
        ("ijk->ki", [(2, 3, 4)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("...ij,...jk->...ik", [(2, 5, 3, 4), (2, 5, 4, 6)]),
        ("...ij->...ji", [(2, 5, 3, 4)]),
        (" i j , j -> i ", [(2, 3), (3,)]),
        ("Aa,aB->AB", [(2, 3), (3, 4)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
        ("i,i,i->i", [(3,), (3,), (3,)]),
        ("bi,bj,bk,ijk->b", [(2, 3), (2, 4), (2, 5), (3, 4, 5)]),
        ("...a,...b,ab->...", [(2, 3), (2, 4), (3, 4)]),
    ],
)
def test_einsum(equation, shapes):
    check("Einsum", [floats(*shape) for shape in shapes], equation=equation)


def test_gemm():
    check("Gemm", [floats(3, 4), floats(4, 5)])
    check("Gemm", [floats(4, 3), floats(5, 4), floats(5)], transA=1, transB=1, alpha=0.5, beta=2.0)


# --- The table


def test_converters_are_operators_of_onnx():
    assert all(onnx.defs.has(op_type) for op_type in CONVERTERS if "." not in op_type)
