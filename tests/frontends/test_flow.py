"""Values whose size depends on the data, through operators: against ONNX Runtime."""

import numpy as np
import onnx.parser
import pytest

import rammer
from rammer.errors import UnsupportedFeatureError
from rammer.frontends.onnx import load_graph
from tests.support.flow import CHOICES, CONSTANTS, PLACES, RNG, ROWS, SIZE, X, check, model
from tests.support.onnx_reference import model_of

NUMBER = ["f = Cast <to = 1> (c)", "r = ReduceSum (f)", "k = Cast <to = 7> (r)"]
"""An integer of which no bound is known."""

FLOWS = {
    "elementwise": ["a = Exp (w)", "b = Add (a, row)", "y = Mul (b, w)"],
    "clip": ["y = Clip (w, half)"],
    "where": ["b = Greater (w, half)", "y = Where (b, w, half)"],
    "like": ["s = Shape (x)", "y = CastLike (w, s)"],
    "a column and a row": ["a = Slice (w, i1, i2, i1)", "y = Sub (w, a)"],
    "masks that are computed twice": ["k = Not (c)", "d = Not (k)", "v = Compress <axis = 0> (x, c)", "y = Add (w, v)"],
    "moves": ["a = Transpose (w)", "b = Unsqueeze (a, i1)", "d = Squeeze (b, i1)", "y = Transpose (d)"],
    "halves": ["a, b = Split <axis = 1, num_outputs = 2> (w)", "y = Concat <axis = 1> (b, a)"],
    "tiles": ["y = Tile (w, twice)"],
    "padding": ["y = Pad (w, pads)"],
    "flat": ["a = Unsqueeze (w, i1)", "y = Flatten <axis = 2> (a)"],
    "rows": ["y = Flatten (w)"],
    "all in a row": ["y = Reshape (w, minus)"],
    "finer rows": ["y = Reshape (w, shape2)"],
    "coarser rows": ["a = Reshape (w, minus)", "b = Reshape (a, shape22)", "y = ReduceSum (b, i1)"],
    "an extent that is kept": ["y = Reshape (w, shape022)"],
    "an extent that is computed": [*SIZE, "t = Concat <axis = 0> (n1, i2, i2)", "y = Reshape (w, t)"],
    "repeated": ["a = Unsqueeze (w, i1)", "y = Expand (a, shape34)"],
    "repeated as far as it is": [
        *SIZE,
        "t = Concat <axis = 0> (n1, i3, i4)",
        "ones = ConstantOfShape <value = int64[1] {1}> (i3)",
        "b = Mul (ones, minus)",
        "e = Equal (t, b)",
        "f = Where (e, ones, t)",
        "a = Unsqueeze (w, i1)",
        "y = Expand (a, f)",
    ],
    "a row, as often as another": [*SIZE, "t = Concat <axis = 0> (n1, i4)", "a = Expand (row, t)", "y = Add (a, w)"],
    "extents that are known": [
        "s = Shape (w)",
        "d = Gather <axis = 0> (s, i1)",
        "t = Concat <axis = 0> (i1, d)",
        "a = Expand (half, t)",
        "y = Add (w, a)",
    ],
    "as many ones": ["s = Shape (w)", "a = ConstantOfShape <value = float[1] {1}> (s)", "y = Add (a, w)"],
    "as many numbers": [*SIZE, "y = Range (zero, n, one)"],
    "size": ["y = Size (w)"],
    "elements": ["s = Shape (w)", "y = ReduceProd (s)"],
    "the first": ["y = Slice (w, i0, i2, i0)"],
    "but the first": ["y = Slice (w, i1, far, i0)"],
    "but the last": ["y = Slice (w, i0, minus, i0)"],
    "the last": ["y = Slice (w, minus2, far, i0)"],
    "each second": ["y = Slice (w, i0, far, i0, i2)"],
    "turned around": ["y = Slice (w, minus, back, i0, minus)"],
    "columns": ["y = Slice (w, i1, i3, i1)"],
    "as many of others": [*SIZE, "y = Slice (x, i0, n1, i0)"],
    "as many as there may be": [
        "s = Shape <end = 1> (w)",
        "n = Cast <to = 6> (s)",
        "k = Clip (n, none, two32)",
        "l = Cast <to = 7> (k)",
        "y = Expand (half, l)",
    ],
    "as many of others as a number says": [*NUMBER, "y = Slice (x, i0, k, i0)"],
    "all others from a number on": [*NUMBER, "y = Slice (x, k, far, i0)"],
    "the best, as many as a number says": [*NUMBER, "v, y = TopK <axis = 0> (x, k)"],
    "the best of rows, as many as a number says": [*NUMBER, "y, v = TopK <axis = 0, largest = 0> (w, k)"],
    "all from another on": [*SIZE, "y = Slice (x, n1, far, i0)"],
    "gathered": [*PLACES, "y = Gather <axis = 0> (table, p)"],
    "gathered elements": [*PLACES, "a = Unsqueeze (p, i1)", "y = GatherElements <axis = 0> (table, a)"],
    "gathered columns": ["y = Gather <axis = 1> (w, last)"],
    "gathered points": [
        "d = Abs (x)",
        "b = Greater (d, half)",
        "m = NonZero (b)",
        "t = Transpose (m)",
        "y = GatherND (x, t)",
    ],
    "gathered twice": [*PLACES, "q = NonZero (p)", "r = Squeeze (q, i0)", "y = Gather <axis = 0> (w, r)"],
    "codes": [*PLACES, "y = OneHot <axis = 0> (p, depth, values)"],
    "sums of rows": ["a = ReduceSum <keepdims = 0> (w, i1)", "y = Softplus (a)"],
    "softmax of rows": ["y = Softmax (w)"],
    "normalised rows": ["y = LayerNormalization (w, row, row)"],
    "the best of a row": ["y = ArgMax <axis = 1, keepdims = 0> (w)"],
    "the best two of a row": ["v, y = TopK <axis = 1> (w, i2)"],
    "running totals of a row": ["y = CumSum (w, i1)"],
    "products": ["y = MatMul (w, square)"],
    "products with columns": ["a = Transpose (w)", "y = MatMul (square, a)"],
    "gemm": ["y = Gemm <transB = 1> (w, square, row)"],
    "sums": ["y = ReduceSum <keepdims = 0> (w, i0)"],
    "all sums": ["y = ReduceSum (w)"],
    "absolute sums": ["y = ReduceL1 (w, i0)"],
    "lengths": ["y = ReduceL2 (w, i0)"],
    "squares": ["y = ReduceSumSquare (w, i0)"],
    "products of all": ["y = ReduceProd (w, i0)"],
    "running totals": ["y = CumSum (w, zero)"],
    "running totals from the end": ["y = CumSum <reverse = 1> (w, zero)"],
    "softmax along": ["a = Softmax <axis = 0> (w)", "y = ReduceSum (a, i0)"],
    "the greatest of columns": ["y = Hardmax <axis = 0> (w)"],
    "columns of one length": ["y = LpNormalization <axis = 0> (w)"],
    "the best, at most as many": [
        *SIZE,
        "k = Concat <axis = 0> (n1, i2)",
        "l = ReduceMin <keepdims = 1> (k)",
        "v, i = TopK <axis = 0> (w, l)",
        "y = Concat <axis = 1> (v, v)",
    ],
    "the places of the least": [
        *SIZE,
        "k = Min (n1, i3)",
        "v, y = TopK <axis = 0, largest = 0> (w, k)",
    ],
    "written at once": [*PLACES, "y = ScatterND (table, m1, w)", "m1 = Transpose (m)"],
    "added": [*PLACES, "m1 = Transpose (m)", 'y = ScatterND <reduction = "add"> (table, m1, w)'],
    "counted as exporters do": [
        "f = Cast <to = 7> (c)",
        "k = ReduceSum (f)",
        "a = Expand (half, k)",
        "m = NonZero (c)",
        "t = Transpose (m)",
        "y = ScatterND (column, t, a)",
    ],
    "written by elements": [
        *PLACES,
        "a = Unsqueeze (p, i1)",
        "s = Shape (w)",
        "b = Expand (a, s)",
        "y = ScatterElements (table, b, w)",
    ],
    "nonzero": ["a = Relu (w)", "y = NonZero (a)"],
    "compressed": [*PLACES, "a = Greater (p, i0)", "y = Compress <axis = 0> (w, a)"],
    "unique": ["a = Cast <to = 7> (w)", "b = Reshape (a, minus)", "y = Unique (b)"],
    "one after the other": ["y = Concat <axis = 0> (w, table, w)"],
    "at the end": ["y = Concat <axis = 0> (table, w)"],
    "odd numbers": [*SIZE, "y = Range (one, n, two)"],
    "sums over what counts": ["a = Transpose (w)", "y = MatMul (a, w)"],
    "rows of a batch": ["a = Unsqueeze (w, i0)", "b = Unsqueeze (square, i0)", "y = MatMul (a, b)"],
    "batches": ["a = Unsqueeze (w, i1)", "b = Unsqueeze (a, i1)", "y = MaxPool <kernel_shape = [1, 2]> (b)"],
    "images by scales": [
        "a = Unsqueeze (w, i1)",
        "b = Unsqueeze (a, i0)",
        'y = Resize <mode = "linear"> (b, nothing, scales)',
    ],
    "images to a size": [
        *SIZE,
        "a = Unsqueeze (w, i1)",
        "b = Unsqueeze (a, i0)",
        "t = Concat <axis = 0> (i1, n1, i2, i3)",
        'y = Resize <mode = "nearest"> (b, nothing, nothing, t)',
    ],
    "unique rows": ["a = Floor (w)", "y, i, j, k = Unique <axis = 0> (a)"],
    "how many are alike": ["a = Floor (w)", "b = Reshape (a, minus)", "v, i, j, y = Unique <sorted = 0> (b)"],
    "which are alike": ["a = Floor (w)", "b = Reshape (a, minus)", "v, i, y = Unique (b)"],
    "the greatest written": [*PLACES, "m1 = Transpose (m)", 'y = ScatterND <reduction = "max"> (table, m1, w)'],
    "multiplied": [
        *PLACES,
        "a = Unsqueeze (p, i1)",
        "b = Slice (w, i0, i1, i1)",
        'y = ScatterElements <reduction = "mul"> (table, a, b)',
    ],
    "boxes": [
        "a = Abs (w)",
        "b = Unsqueeze (a, i0)",
        "d = ReduceSum <keepdims = 0> (w, i1)",
        "e = Unsqueeze (d, shape01)",
        "y = NonMaxSuppression (b, e, i3, limit)",
    ],
    "boxes of infinite scores": [
        "a = Abs (w)",
        "b = Unsqueeze (a, i0)",
        "d = ReduceSum <keepdims = 0> (w, i1)",
        "f = Sub (d, d)",
        "g = Log (f)",
        "e = Unsqueeze (g, shape01)",
        "y = NonMaxSuppression (b, e, i3, limit)",
    ],
    "regions": [
        *PLACES,
        "image = Reshape (table, imageshape)",
        "a = Abs (w)",
        "b = Mul (p, zero)",
        "y = RoiAlign <output_height = 2, output_width = 2, sampling_ratio = 2> (image, a, b)",
    ],
    "in a sequence": ["a = SequenceConstruct (w, w)", "y = ConcatFromSequence <axis = 0> (a)"],
}

OF_SOME = {
    "one computed and one open": [*SIZE, "t = Concat <axis = 0> (n1, minus, i2)", "y = Reshape (w, t)"],
    "means": ["y = ReduceMean (w, i0)"],
    "the greatest": ["y = ReduceMax (w, i0)"],
    "the least": ["y = ReduceMin (w, i0)"],
    "logarithms": ["y = ReduceLogSumExp (w, i0)"],
    "the place of the greatest": ["y = ArgMax <axis = 0> (w)"],
    "the last place of the least": ["a = Floor (w)", "y = ArgMin <axis = 0, select_last_index = 1> (a)"],
    "picked": ["y = Gather <axis = 0> (w, minus)"],
    "picked elements": ["y = GatherElements <axis = 0> (w, a)", "a = Unsqueeze (minus, i0)"],
    "picked points": ["y = GatherND (w, last)"],
    "written to": ["a = Unsqueeze (minus, i0)", "y = ScatterND (w, a, b)", "b = Unsqueeze (row, i0)"],
    "the best": ["v, y = TopK <axis = 0> (w, i1)"],
}
"""What there is nothing of where nothing counts."""


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("name", [*FLOWS, *OF_SOME])
def test_flows(name, choice):
    lines = FLOWS.get(name) or OF_SOME[name]
    if name in OF_SOME and choice == "nowhere":
        pytest.skip("there is nothing")
    inputs = {"x": X, "c": CHOICES[choice]}
    check(model([ROWS, *lines], inputs, "y"), inputs)


MIDDLE = "w = Compress <axis = 1> (z, c)"
"""`[2, n, 3]`: there are dimensions before and behind the one that is counted."""

IN_THE_MIDDLE = {
    "sums before": ["y = ReduceSum <keepdims = 0> (w, i0)"],
    "sums behind": ["y = ReduceSum <keepdims = 0> (w, i2)"],
    "sums along": ["y = ReduceSum <keepdims = 0> (w, i1)"],
    "lengths along two": ["y = ReduceL2 <keepdims = 0> (w, i12)"],
    "means of both": ["y = ReduceMean (w, i12)"],
    "best before": ["y = ArgMax <axis = 0, keepdims = 0> (w)"],
    "best behind": ["y = ArgMin <axis = 2, keepdims = 0> (w)"],
    "gathered before": ["y = Gather <axis = 0> (w, pairs)"],
    "gathered behind": ["y = Gather <axis = 2> (w, pairs)"],
    "gathered elements": [
        "y = GatherElements <axis = 1> (z, q)",
        "p = NonZero (c)",
        "o = Unsqueeze (p, i2)",
        "q = Expand (o, shape113)",
    ],
    "gathered points": ["y = GatherND (w, i1)"],
    "gathered points of each": [
        "y = GatherND <batch_dims = 1> (z, t)",
        "p = NonZero (c)",
        "o = Unsqueeze (p, i2)",
        "t = Expand (o, shape211)",
    ],
    "codes": ["a = Cast <to = 7> (w)", "y = OneHot <axis = 1> (a, depth, values)"],
    "codes behind": ["a = Cast <to = 7> (w)", "y = OneHot (a, depth, values)"],
    "unsqueezed": ["y = Unsqueeze (w, i13)"],
    "squeezed": ["a = Slice (w, i0, i1, i0)", "y = Squeeze (a, i0)"],
    "flat from the middle": ["a = Slice (w, i0, i1, i0)", "y = Flatten <axis = 1> (a)"],
    "flat to the middle": ["a = Slice (w, i0, i1, i0)", "y = Flatten <axis = 2> (a)"],
    "flat behind": ["y = Reshape (w, t)", "t = Constant <value = int64[2] {2, -1}> ()"],
    "flat in the middle": ["t = Constant <value = int64[4] {2, -1, 3, 1}> ()", "y = Reshape (w, t)"],
    "kept": ["t = Constant <value = int64[4] {1, 2, -1, 3}> ()", "y = Reshape (w, t)"],
    "softmax before": ["y = Softmax <axis = 0> (w)"],
    "softmax along": ["y = Softmax <axis = 1> (w)"],
    "running totals": ["y = CumSum <reverse = 1> (w, one)"],
    "joined along": ["a = Neg (w)", "y = Concat <axis = 1> (w, z, a)"],
    "joined behind": ["a = Neg (w)", "y = Concat <axis = 2> (w, a)"],
    "halves": ["a, y = Split <axis = 2> (w, i12)"],
    "sliced": [
        "y = Slice (w, starts, ends)",
        "starts = Constant <value = int64[3] {0, 1, -2}> ()",
        "ends = Constant <value = int64[3] {1, -1, 9}> ()",
    ],
    "products": ["a = Slice (square, i0, i3)", "y = MatMul (w, a)"],
    "products with a vector": ["a = Slice (row, i0, i3)", "y = MatMul (w, a)"],
    "products with columns": [
        "a = Transpose <perm = [0, 2, 1]> (w)",
        "b = Slice (square, i0, i3, i1)",
        "y = MatMul (b, a)",
    ],
    "a vector by columns": ["a = Transpose <perm = [0, 2, 1]> (w)", "b = Slice (row, i0, i3)", "y = MatMul (b, a)"],
    "products of a batch": ["a = Unsqueeze (w, i2)", "b = Slice (square, i0, i3)", "y = MatMul (a, b)"],
    "products over what counts": ["a = Transpose <perm = [0, 2, 1]> (w)", "y = MatMul (a, w)"],
    "best two before": ["v, y = TopK <axis = 0> (w, i1)"],
    "written along": [
        "p = NonZero (c)",
        "o = Unsqueeze (p, i2)",
        "s = Shape (w)",
        "q = Expand (o, s)",
        'y = ScatterElements <axis = 1, reduction = "add"> (z, q, w)',
    ],
    "added to all": ["a = Slice (z, i0, i1, i1)", "y = Add (w, a)"],
    "broadcast before": ["a = ReduceSum <keepdims = 0> (w, i0)", "y = Mul (a, w)"],
    "resized": ['y = Resize <mode = "linear"> (w, nothing, scales3)'],
    "nonzero": ["m = Greater (w, half)", "y = NonZero (m)"],
}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("name", IN_THE_MIDDLE)
def test_flows_in_the_middle(name, choice):
    lines = IN_THE_MIDDLE[name]
    if choice == "nowhere" and name in ("means of both", "gathered points"):
        pytest.skip("there is nothing")
    inputs = {"z": RNG.normal(size=(2, 5, 3)).astype(np.float32), "c": CHOICES[choice]}
    check(model([MIDDLE, *lines], inputs, "y"), inputs)


@pytest.mark.parametrize("choice", CHOICES)
def test_a_branch_where_nothing_counts(choice):
    """As exporters write it for what takes no empty operands."""
    nothing = onnx.parser.parse_graph("none () => (int64[a] t) { t = Constant <value = int64[0] {}> () }")
    some = onnx.parser.parse_graph("some () => (int64[a] f) { f = Mul (p, two) }")
    nodes = [onnx.parser.parse_node(line) for line in [ROWS, *PLACES, "s = Size (w)", "e = Equal (s, zero)"]]
    choose = onnx.helper.make_node("If", ["e"], ["k"], then_branch=nothing, else_branch=some)
    last = onnx.parser.parse_node("y = Gather <axis = 0> (ten, k)")
    inputs = {"x": X, "c": CHOICES[choice]}
    constants = {name: CONSTANTS[name] for name in ("zero", "two", "i0")}
    constants["ten"] = np.arange(10, dtype=np.float32)
    check(model_of([*nodes, choose, last], inputs, ["y"], constants=constants), inputs)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("taken", [False, True])
def test_branches_of_one_size(choice, taken):
    """What is chosen between has that size still."""
    a = onnx.parser.parse_graph("a () => (float[n, 4] u) { u = Exp (w) }")
    b = onnx.parser.parse_graph("b () => (float[n, 4] v) { v = Neg (w) }")
    choose = onnx.helper.make_node("If", ["go"], ["k"], then_branch=a, else_branch=b)
    inputs = {"x": X, "c": CHOICES[choice], "go": np.array(taken)}
    nodes = [onnx.parser.parse_node(ROWS), choose, onnx.parser.parse_node("y = Add (k, w)")]
    check(model_of(nodes, inputs, ["y"]), inputs)


DETECTIONS = [
    "chosen = NonMaxSuppression (boxes, scores, ten, iou, level)",
    "picture = Slice (chosen, i0, i1, i1)",
    "class = Slice (chosen, i1, i2, i1)",
    "box = Slice (chosen, i2, i3, i1)",
    "place = Concat <axis = 1> (picture, box)",
    "found = GatherND (boxes, place)",
    "score = GatherND (scores, chosen)",
    "size = Shape (score)",
    "k = Min (size, ten)",
    "best, order = TopK <axis = 0> (score, k)",
    "column = Unsqueeze (score, i1)",
    "a = Cast <to = 1> (picture)",
    "b = Cast <to = 1> (class)",
    "all = Concat <axis = 1> (a, found, column, b)",
    "y = Gather <axis = 0> (all, order)",
]
"""As detection networks end: the picture, corners, score and class of the best boxes."""


def test_detections():
    constants = {name: CONSTANTS[name] for name in ("i0", "i1", "i2", "i3")}
    constants |= {"ten": np.array([10]), "iou": np.array([0.4], np.float32), "level": np.array([0.7], np.float32)}
    low = RNG.uniform(0, 10, (2, 20, 2)).astype(np.float32)
    boxes = np.concatenate([low, low + RNG.uniform(0.5, 5, low.shape).astype(np.float32)], axis=2)
    scores = RNG.random((2, 3, 20)).astype(np.float32)
    nodes = [onnx.parser.parse_node(line) for line in DETECTIONS]
    proto = model_of(nodes, {"boxes": boxes, "scores": scores}, ["y"], constants=constants)
    net = rammer.compile(proto, "cpu", veus=2)
    for share in (1.0, 0.0, 0.8, 2.0):
        inputs = {"boxes": boxes, "scores": np.minimum(scores * np.float32(share), 1)}
        check(proto, inputs, run=lambda _, given: net.run(given))


def test_no_more_boxes_are_selected_than_are_read():
    """Of a single class these are the first ones; so few steps are possible for any number of boxes."""
    given = {"b": np.zeros((1, 3000, 4), np.float32), "s": np.zeros((1, 1, 3000), np.float32)}
    lines = ["a = NonMaxSuppression (b, s, far)", "d = Gather <axis = 1> (a, two)", "e = Cast <to = 6> (d)"]
    low = RNG.uniform(0, 100, (1, 3000, 2)).astype(np.float32)
    given["b"] = np.concatenate([low, low + RNG.uniform(1, 9, low.shape).astype(np.float32)], axis=2)
    given["s"] = RNG.random((1, 1, 3000)).astype(np.float32)
    check(model([*lines, "y = Slice (e, i1, i4)"], given, "y"), given)
    others = (
        ["y = Slice (e, minus2, far)"],
        ["y = Slice (e, i4, i0, i0, minus)"],
        ["f = Slice (e, i1, i4)", "y = Slice (d, i0, far)"],
    )
    for more in others:
        with pytest.raises(UnsupportedFeatureError, match="3000 boxes"):
            load_graph(model([*lines, *more], given, "y"))


def test_what_a_branch_gives_twice_is_read_by_both():
    given = {"b": np.zeros((1, 3000, 4), np.float32), "s": np.zeros((1, 1, 3000), np.float32), "go": np.array(True)}
    twice = onnx.parser.parse_graph("t () => (int64[n, 3] u, int64[n, 3] u) { u = NonMaxSuppression (b, s, far) }")
    none = onnx.parser.parse_graph("e () => (int64[0, 3] v, int64[0, 3] v) { v = ConstantOfShape (shape03) }")
    choose = onnx.helper.make_node("If", ["go"], ["p", "q"], then_branch=twice, else_branch=none)
    lines = ["y = Slice (p, i0, far, i0)", "z = Slice (q, i0, i3, i0)"]
    constants = {name: CONSTANTS[name] for name in ("i0", "i3", "far")} | {"shape03": np.array([0, 3], np.int64)}
    proto = model_of([choose, *map(onnx.parser.parse_node, lines)], given, ["y", "z"], constants=constants)
    with pytest.raises(UnsupportedFeatureError, match="3000 boxes"):
        load_graph(proto)


def test_long_chains_of_readers_are_followed():
    boxes, scores = np.zeros((1, 3000, 4), np.float32), np.zeros((1, 1, 3000), np.float32)
    lines = ["v0 = NonMaxSuppression (b, s, far)", *(f"v{i + 1} = Identity (v{i})" for i in range(3000))]
    graph = load_graph(model([*lines, "y = Slice (v3000, i0, i3)"], {"b": boxes, "s": scores}, "y"))
    assert graph.values[graph.outputs[0]].type.shape == (3, 3)
