"""Operators that move elements, against NumPy and ONNX Runtime."""

import math
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest

from rammer.errors import InvalidModelError
from rammer.ir.expr import Axis, Load, nodes
from rammer.ir.graph import Attributes
from rammer.ir.region import Affine, affine
from rammer.ir.types import DType, TensorType
from tests.support.onnx_node import run_node
from tests.support.operators import expression, run_operator

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint64, np.bool_]


def counted(*shape, dtype=np.float32):
    """Distinct elements, as far as the type allows."""
    return np.arange(1, 1 + math.prod(shape)).reshape(shape).astype(dtype)


def indices_of(expr):
    """The index expressions of the one load."""
    (load,) = (node for node in nodes(*expr.roots) if isinstance(node, Load))
    return load.indices


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ((2, 3, 4), (6, 4)),
        ((6, 4), (2, 3, 4)),
        ((2, 3, 4), (24,)),
        ((2, 6), (4, 3)),
        ((4, 6, 5), (2, 12, 5)),
        ((2, 3), (1, 2, 1, 3, 1)),
        ((1, 2, 1, 3), (2, 3)),
        ((1,), ()),
        ((), (1, 1)),
        ((2, 1, 3, 4), (2, 12, 1)),
        ((0, 3), (3, 0)),
        ((2, 0), (0,)),
        ((0,), (5, 0, 2)),
        ((2, 2, 2, 2, 3), (4, 4, 3)),
    ],
)
def test_reshape(source, target, dtype):
    x = counted(*source, dtype=dtype)
    np.testing.assert_array_equal(run_operator("Reshape", [x], shape=target), x.reshape(target))


def test_reshape_keeps_axes_that_stay_and_splits_affinely():
    expr = expression("Reshape", [TensorType(DType.FLOAT32, (5, 12, 1, 7))], shape=(5, 3, 4, 7, 1))
    first, split, one, last = indices_of(expr)
    assert first is expr.axes[0]
    assert last is expr.axes[3]
    assert affine(one) == Affine((), 0)
    assert affine(split) == Affine(((expr.axes[1], 4), (expr.axes[2], 1)), 0)
    merged = indices_of(expression("Reshape", [TensorType(DType.FLOAT32, (3, 4, 5))], shape=(12, 5)))
    assert [str(index) for index in merged] == ["(i0 // 4)", "(i0 % 4)", "i1"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("perm", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_transpose(perm, dtype):
    x = counted(2, 3, 4, dtype=dtype)
    np.testing.assert_array_equal(run_operator("Transpose", [x], perm=perm), x.transpose(perm))


@pytest.mark.parametrize("window", [np.s_[1:3, ::2], np.s_[::-1, 4:0:-2], np.s_[2:2, :], np.s_[3:, -1:]])
def test_slice(window):
    x = counted(4, 5)
    spans = [part.indices(extent) for part, extent in zip(window, x.shape, strict=True)]
    result = run_operator(
        "Slice",
        [x],
        starts=tuple(start for start, _, _ in spans),
        steps=tuple(step for _, _, step in spans),
        sizes=tuple(len(range(*span)) for span in spans),
    )
    np.testing.assert_array_equal(result, x[window])


@pytest.mark.parametrize(
    ("source", "shape"), [((3, 1), (2, 3, 4)), ((3, 4), (1,)), ((), (2,)), ((1, 3), (0, 3)), ((2, 1), (2, 1))]
)
def test_expand_broadcasts_both_ways(source, shape):
    x = counted(*source)
    target = np.broadcast_shapes(source, shape)
    np.testing.assert_array_equal(run_operator("Expand", [x], shape=shape), np.broadcast_to(x, target))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shapes", "axis"),
    [
        ([(2, 3), (2, 1), (2, 4)], 1),
        ([(2, 3), (1, 3)], 0),
        ([(2, 3)], 1),
        ([(0, 3), (2, 3), (0, 3)], 0),
        ([(2, 0), (2, 0)], 1),
        ([(0, 1), (0, 2)], 1),
    ],
)
def test_concat(shapes, axis, dtype):
    arrays = [counted(*shape, dtype=dtype) for shape in shapes]
    np.testing.assert_array_equal(run_operator("Concat", arrays, axis=axis), np.concatenate(arrays, axis))


def test_concat_has_one_slot_per_operand_and_no_load_out_of_bounds():
    types = [TensorType(DType.FLOAT32, (n, 3)) for n in (2, 0, 5)]
    expr = expression("Concat", types, axis=0)
    assert expr.inputs == tuple(types)
    assert [node.slot for node in expr.loads] == [0, 2]
    assert all(node.fill is not None for node in expr.loads)


PADS = [
    ("constant", (1, 0, 2, 3)),
    ("constant", (-1, 2, 3, -4)),
    ("constant", (-2, -1, -1, 0)),
    ("constant", (0, 0, 0, 0)),
    ("edge", (1, 0, 2, 3)),
    ("edge", (-1, 2, 3, -2)),
    ("reflect", (2, 0, 1, 4)),
    ("reflect", (-1, 2, 2, -2)),
    ("wrap", (2, 0, 1, 3)),
    ("wrap", (7, 0, 0, 11)),
]


@pytest.mark.parametrize(("mode", "pads"), PADS)
def test_pad(mode, pads):
    x = counted(4, 5)
    value = np.array(7.5 if mode == "constant" else 0, np.float32)
    (expected,) = run_node("Pad", [x, np.array(pads), value], 1, {"mode": mode})
    np.testing.assert_array_equal(run_operator("Pad", [x], mode=mode, pads=pads, value=7.5), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pad_fills_in_the_element_type(dtype):
    x = counted(2, 3, dtype=dtype)
    expected = np.pad(x, ((1, 1), (0, 2)), constant_values=dtype(1))
    np.testing.assert_array_equal(run_operator("Pad", [x], mode="constant", pads=(1, 0, 1, 2), value=1.0), expected)


def test_pad_of_nothing_is_all_value():
    x = counted(0, 2)
    result = run_operator("Pad", [x], mode="constant", pads=(1, 0, 1, 0), value=3.0)
    np.testing.assert_array_equal(result, np.full((2, 2), 3.0))


@pytest.mark.parametrize("repeats", [(1, 1), (2, 3), (1, 4), (0, 2)])
@pytest.mark.parametrize("shape", [(2, 3), (1, 3), (0, 2)])
def test_tile(shape, repeats):
    x = counted(*shape)
    np.testing.assert_array_equal(run_operator("Tile", [x], repeats=repeats), np.tile(x, repeats))


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("block", [1, 2, 3])
def test_depth_to_space_and_back(mode, block):
    x = counted(2, 2 * block * block, 3, 4)
    (expected,) = run_node("DepthToSpace", [x], 1, {"blocksize": block, "mode": mode})
    result = run_operator("DepthToSpace", [x], blocksize=block, mode=mode)
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(run_operator("SpaceToDepth", [result], blocksize=block, mode=mode), x)


def test_space_to_depth_matches_onnx_runtime():
    x = counted(2, 3, 4, 6)
    (expected,) = run_node("SpaceToDepth", [x], 1, {"blocksize": 2})
    np.testing.assert_array_equal(run_operator("SpaceToDepth", [x], blocksize=2, mode="DCR"), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("k", [-5, -1, 0, 2, 5])
def test_trilu(upper, k, dtype):
    x = counted(2, 3, 4, dtype=dtype)
    expected = (np.triu if upper else np.tril)(x, k)
    np.testing.assert_array_equal(run_operator("Trilu", [x], upper=upper, k=k), expected)


def test_trilu_hides_nan():
    x = np.full((2, 2), np.nan, np.float32)
    np.testing.assert_array_equal(run_operator("Trilu", [x], upper=True, k=1), [[0, np.nan], [0, 0]])


@pytest.mark.parametrize("kind", ["Reshape", "Transpose", "Slice", "Expand", "Tile"])
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
def test_halves_are_moved_as_they_are(kind, dtype):
    attributes: Mapping[str, Attributes] = {
        "Reshape": {"shape": (6,)},
        "Transpose": {"perm": (1, 0)},
        "Slice": {"starts": (0, 0), "steps": (1, 1), "sizes": (2, 3)},
        "Expand": {"shape": (2, 2, 3)},
        "Tile": {"repeats": (1, 2)},
    }
    expr = expression(kind, [TensorType(dtype, (2, 3))], **attributes[kind])
    assert isinstance(expr.roots[0], Load)
    assert all(isinstance(index, Axis) for index in expr.outputs[0].indices)


F32, I32 = DType.FLOAT32, DType.INT32


@pytest.mark.parametrize(
    ("kind", "types", "attributes", "message"),
    [
        ("Reshape", [(F32, (2, 3))], {"shape": (4,)}, "numbers of elements differ"),
        ("Transpose", [(F32, (2, 3))], {"perm": (0, 0)}, "permute"),
        ("Slice", [(F32, (4,))], {"starts": (2,), "steps": (1,), "sizes": (3,)}, "outside"),
        ("Slice", [(F32, (4,))], {"starts": (2,), "steps": (-1,), "sizes": (4,)}, "outside"),
        ("Slice", [(F32, (4,))], {"starts": (), "steps": (), "sizes": ()}, "another number of dimensions"),
        ("Expand", [(F32, (2, 3))], {"shape": (4,)}, "broadcast"),
        ("Concat", [(F32, (2, 3)), (F32, (3, 3))], {"axis": 1}, "does not fit"),
        ("Concat", [(F32, (2, 3)), (I32, (2, 3))], {"axis": 1}, "several element types"),
        ("Concat", [(F32, (2, 3))], {"axis": 2}, "rank 2"),
        ("Concat", [], {"axis": 0}, "0 operands"),
        ("Pad", [(F32, (2,))], {"mode": "edge", "pads": (1,), "value": 0.0}, "two per dimension"),
        ("Pad", [(F32, (2,))], {"mode": "mirror", "pads": (1, 0), "value": 0.0}, "mode"),
        ("Pad", [(F32, (2,))], {"mode": "reflect", "pads": (2, 0), "value": 0.0}, "reflects more"),
        ("Pad", [(F32, (0,))], {"mode": "edge", "pads": (1, 0), "value": 0.0}, "nothing is left"),
        ("Pad", [(F32, (2,))], {"mode": "constant", "pads": (-1, -2), "value": 0.0}, "cut off more"),
        ("Tile", [(F32, (2,))], {"repeats": (1, 2)}, "Tile"),
        ("DepthToSpace", [(F32, (1, 3, 2, 2))], {"blocksize": 2, "mode": "DCR"}, "divide"),
        ("SpaceToDepth", [(F32, (1, 3, 2, 3))], {"blocksize": 2, "mode": "DCR"}, "divide"),
        ("SpaceToDepth", [(F32, (3, 2, 3))], {"blocksize": 2, "mode": "DCR"}, "blocks"),
        ("Trilu", [(F32, (3,))], {"upper": True, "k": 0}, "not a matrix"),
    ],
)
def test_operands_that_do_not_fit(kind, types, attributes, message):
    with pytest.raises(InvalidModelError, match=message):
        expression(kind, [TensorType(*type_) for type_ in types], **attributes)
