"""Results whose size depends on the data: as large as they can be, with how many elements count beside them."""

import numpy as np
import pytest
from onnx import helper

import rammer
from rammer.errors import InvalidModelError, UnsupportedFeatureError
from rammer.frontends.onnx import load_graph
from tests.support.onnx_node import run_node
from tests.support.onnx_reference import compare, evaluate_model, model_of, without_counts

RNG = np.random.default_rng(5)


def named(model, inputs, run=evaluate_model):
    graph = load_graph(model)
    names = [graph.values[output].name for output in graph.outputs]
    return dict(zip(names, run(model, inputs), strict=True))


def check(op_type, inputs, outputs=1, opset=22, known=None, **attributes):
    """A node against ONNX Runtime; the inputs in `known` are initialisers."""
    expected = run_node(op_type, inputs, outputs, attributes, opset)
    names, results = [f"x{i}" for i in range(len(inputs))], [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, results, **attributes)
    constants = {names[i]: inputs[i] for i in known or ()}
    given = {name: x for name, x in zip(names, inputs, strict=True) if name not in constants}
    found = named(model_of([node], given, results, constants=constants, opset=opset), list(given.values()))
    compare(without_counts(found, expected), expected, rtol=0, atol=0)
    return found


@pytest.mark.parametrize("shape", [(7,), (3, 4, 5), (2, 1), (40, 30)])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_nonzero(shape, share):
    x = (RNG.random(shape) < share).astype(np.float32) * RNG.normal(size=shape).astype(np.float32)
    found = check("NonZero", [x])
    assert found["y0"].shape == (len(shape), x.size)
    assert found["y0.count"] == np.count_nonzero(x)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("length", [1, 4])
def test_compress(axis, length):
    x, condition = RNG.normal(size=(4, 5, 6)).astype(np.float32), RNG.random(length) < 0.6
    check("Compress", [x, condition], **({} if axis is None else {"axis": axis}))


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_unique(dtype, axis, kind):
    x = RNG.integers(0, 3, (6, 9)).astype(dtype)
    check("Unique", [x], outputs=4, sorted=kind, **({} if axis is None else {"axis": axis}))


def test_unique_slices_are_in_order_of_their_first_elements():
    x = np.array([[2, 1], [1, 2], [2, 1], [1, 1]], np.float32)
    found = check("Unique", [x], outputs=4, axis=0)
    np.testing.assert_array_equal(found["y0"], [[1, 1], [1, 2], [2, 1], [0, 0]])


@pytest.mark.parametrize(("batches", "classes", "center"), [(1, 1, 0), (2, 3, 0), (1, 2, 1)])
def test_boxes(batches, classes, center):
    """Corners in any order; as many boxes as there may be are more than there are."""
    low = RNG.uniform(0, 10, (batches, 25, 2)).astype(np.float32)
    boxes = np.concatenate([low, low + RNG.uniform(0.5, 5, low.shape).astype(np.float32)], axis=2)
    boxes[:, ::3] = boxes[:, ::3][..., [2, 3, 0, 1]]
    scores = RNG.random((batches, classes, 25)).astype(np.float32)
    limits = [np.array([6], np.int64), np.array([0.3], np.float32), np.array([0.4], np.float32)]
    if center:
        boxes = np.abs(boxes)
    check("NonMaxSuppression", [boxes, scores, *limits], known={2}, center_point_box=center)


def test_boxes_of_infinite_scores():
    """Without a threshold for scores there is none that is too small."""
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 2, 1], [5, 5, 6, 6], [7, 7, 8, 8]]], np.float32)
    scores = np.array([[[-np.inf, 0.5, -np.inf, np.inf]]], np.float32)
    limits = [np.array([4], np.int64), np.array([0.4], np.float32)]
    check("NonMaxSuppression", [boxes, scores, *limits], known={2})
    check("NonMaxSuppression", [boxes, scores, *limits, np.array([-np.inf], np.float32)], known={2})


def test_what_is_known_has_its_size():
    """Exporters write shapes so: nothing is left to count."""
    nodes = [
        helper.make_node("NonZero", ["c"], ["n"]),
        helper.make_node("Squeeze", ["n"], ["p"]),
        helper.make_node("Gather", ["x", "p"], ["y"]),
    ]
    x = RNG.normal(size=(4, 2)).astype(np.float32)
    condition = np.array([1, 0, 1, 1], np.int64)
    found = named(model_of(nodes, {"x": x}, ["y"], constants={"c": condition}), [x])
    assert list(found) == ["y"]
    np.testing.assert_array_equal(found["y"], x[[0, 2, 3]])


def test_what_moves_and_casts_keeps_its_size_on_the_processor():
    nodes = [
        helper.make_node("NonZero", ["x"], ["n"]),
        helper.make_node("Transpose", ["n"], ["t"], perm=[1, 0]),
        helper.make_node("Cast", ["t"], ["y"], to=1),
    ]
    x = RNG.integers(0, 2, (3, 7)).astype(np.float32)
    net = rammer.compile(model_of(nodes, {"x": x}, ["y"]), "cpu", veus=2)
    assert [port.name for port in net.signature.outputs] == ["y", "y.count"]
    outputs = net.run({"x": x})
    y, count = outputs["y"], int(outputs["y.count"])
    np.testing.assert_array_equal(y[:count], np.argwhere(x))
    assert not y[count:].any()


def test_a_shape_in_the_middle_may_not_depend_on_data():
    x = RNG.normal(size=(3, 4)).astype(np.float32)
    nodes = [helper.make_node("NonZero", ["x"], ["n"]), helper.make_node("Einsum", ["n"], ["y"], equation="ij->ji")]
    with pytest.raises(UnsupportedFeatureError, match="size that depends on the data") as caught:
        load_graph(model_of(nodes, {"x": x}, ["y"]))
    assert "Einsum" in caught.value.where
    body = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["b"])],
        "body",
        [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("go", 9, [])],
        [helper.make_tensor_value_info("go", 9, []), helper.make_tensor_value_info("b", 7, [2, None])],
    )
    node = helper.make_node("Loop", ["m", ""], ["y"], body=body)
    with pytest.raises(UnsupportedFeatureError, match="size that depends on the data"):
        load_graph(model_of([node], {"x": x}, ["y"], constants={"m": np.array(2)}))


def test_an_output_that_is_called_as_a_size_is():
    x = RNG.normal(size=(3, 4)).astype(np.float32)
    nodes = [helper.make_node("NonZero", ["x"], ["n"]), helper.make_node("Abs", ["x"], ["n.count"])]
    with pytest.raises(InvalidModelError, match=r"n\.count"):
        load_graph(model_of(nodes, {"x": x}, ["n", "n.count"]))


def test_too_many_keys_and_boxes():
    with pytest.raises(UnsupportedFeatureError, match="65 elements"):
        load_graph(
            model_of([helper.make_node("Unique", ["x"], ["y"], axis=0)], {"x": np.ones((2, 65), np.float32)}, ["y"])
        )
    given = {"b": np.ones((1, 2000, 4), np.float32), "s": np.ones((1, 1, 2000), np.float32)}
    node = helper.make_node("NonMaxSuppression", ["b", "s", "m"], ["y"])
    with pytest.raises(UnsupportedFeatureError, match="1500 boxes"):
        load_graph(model_of([node], given, ["y"], constants={"m": np.array(1500, np.int64)}))
