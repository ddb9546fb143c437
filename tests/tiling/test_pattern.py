"""What the analysis of expressions finds: skeletons, contractions, borders and layouts."""

import numpy as np
import pytest

from rammer.ir.expr import Axis, Load, Output, Reduce, ReduceFn, ScalarFn, TensorExpr, call, load
from rammer.ir.kernel_form import Skeleton
from rammer.ir.types import DType, Layout, TensorType
from rammer.tiling.borders import borders, is_blockable
from rammer.tiling.packing import packed_operands, preferred_layouts, scattered_operands
from rammer.tiling.pattern import contraction, free_axes, lies_in_lanes, plain_load, product_skeleton, sliding_axes
from tests.support.kernels import AVX2, AVX512, conv, lstm_cell, types
from tests.support.operators import expression

F32 = DType.FLOAT32


def matmul(m, k, n, dtype=F32):
    return expression("MatMul", types((m, k), (k, n), dtype=dtype))


def named(expr, name):
    axes = (*expr.axes, *expr.reduce_axes)
    return next(axis for axis in axes if axis.name == name)


def preferred(expr, constants, vdevice):
    """The layouts a contraction prefers where everything else is row-major."""
    return preferred_layouts(expr, constants, [Layout.row_major(type_.shape) for type_ in expr.inputs], vdevice)


@pytest.mark.parametrize(
    ("expr", "skeleton"),
    [
        (expression("Relu", types((3, 4))), None),
        (expression("Softmax", types((3, 4)), axis=1), None),
        (expression("GlobalAveragePool", types((1, 3, 4, 4))), None),
        (matmul(3, 4, 5), Skeleton.GEMM),
        (matmul(3, 4, 5, DType.FLOAT16), Skeleton.GEMM),
        (matmul(3, 4, 5, DType.INT32), None),
        (matmul(3, 0, 5), None),
        (matmul(1, 4, 5), Skeleton.GEMV),
        (expression("MatMul", types((4,), (4,))), None),
        (expression("MatMul", types((2, 3, 4), (2, 4, 5))), Skeleton.GEMM),
        (conv((1, 3, 8, 8), (4, 3, 3, 3)), Skeleton.IMPLICIT_GEMM),
        (conv((1, 3, 8, 8), (4, 3, 1, 1)), Skeleton.GEMM),
        (conv((1, 3, 8, 8), (4, 3, 2, 2), strides=(2, 2), pads=(0, 0, 0, 0)), Skeleton.GEMM),
        (lstm_cell(1, 6, 5), Skeleton.GEMV),
        (lstm_cell(3, 6, 5), Skeleton.GEMM),
    ],
)
def test_what_products_are_called(expr, skeleton):
    """By the axis that is the last of the result, which is along a matrix's columns."""
    found = contraction(expr)
    assert (None if found is None else product_skeleton(found, found.lanes[0])) is skeleton


def test_channels_of_a_depthwise_convolution_are_in_both_operands():
    found = contraction(conv((1, 8, 9, 9), (8, 1, 3, 3), group=8))
    assert found is not None
    (channels,) = found.shared
    assert product_skeleton(found, channels) is Skeleton.DEPTHWISE


def test_a_reduction_within_a_reduction_is_no_contraction():
    i, j, k = Axis("i", 4), Axis("j", 5), Axis("k", 6)
    a, b = types((4, 6), (6, 5))
    product = Reduce(ReduceFn.SUM, (k,), load(0, a, (i, k)) * load(1, b, (k, j)))
    greatest = Reduce(ReduceFn.MAX, (j,), product)
    output = Output(type=TensorType(F32, (4,)), indices=(i,), body=greatest)
    assert contraction(TensorExpr(axes=(i,), inputs=(a, b), outputs=(output,))) is None


def test_all_gates_of_a_cell_are_two_groups():
    found = contraction(lstm_cell(1, 6, 5))
    assert found is not None
    assert [(tuple(a.name for a in group.axes), len(group.terms)) for group in found.groups] == [
        (("k",), 4),
        (("j",), 4),
    ]
    assert [axis.name for axis in found.lanes] == ["u", "b"]


def test_lanes_and_rows_of_a_grouped_convolution():
    expr = conv((1, 8, 10, 12), (12, 4, 3, 3), group=2)
    found = contraction(expr)
    assert found is not None
    assert [axis.name for axis in found.lanes] == ["o1", "o0", "m", "n"]
    assert [axis.name for axis in found.shared] == ["g"]
    m = named(expr, "m")
    assert [axis.name for axis in found.rows(expr.axes, m)] == ["n", "o0", "o1"]
    (term,) = found.terms
    weight, image = map(plain_load, found.split(term, m))
    assert weight is not None
    assert image is not None
    assert (weight.slot, image.slot) == (1, 0)


def test_channels_of_a_depthwise_convolution_are_shared():
    expr = conv((1, 8, 10, 12), (8, 1, 3, 3), group=8)
    found = contraction(expr)
    assert found is not None
    (channels,) = found.shared
    (term,) = found.terms
    weight, image = map(plain_load, found.split(term, channels))
    assert weight is not None
    assert image is not None
    assert (weight.slot, image.slot) == (1, 0)
    assert [axis.name for axis in found.rows(expr.axes, channels)] == ["n", "o0", "o1"]


def test_windows_slide_where_both_operands_have_lanes():
    expr = conv((1, 8, 10, 12), (8, 1, 3, 5), group=8, pads=(1, 2, 1, 2))
    found = contraction(expr)
    assert found is not None
    (group,) = found.groups
    lane, o0, o1 = (named(expr, name) for name in ("g", "o0", "o1"))
    assert [axis.name for axis in sliding_axes(found, group, (o1,), lane)] == ["k1"]
    assert [axis.name for axis in sliding_axes(found, group, (o0, o1), lane)] == ["k0", "k1"]
    assert sliding_axes(found, group, (), lane) == ()


def test_windows_do_not_slide_where_pixels_are_broadcast_or_too_many():
    for expr, lane in ((conv((1, 8, 10, 12), (4, 8, 3, 3)), "m"), (conv((1, 8, 10, 30), (8, 1, 1, 17), group=8), "g")):
        found = contraction(expr)
        assert found is not None
        assert sliding_axes(found, found.groups[0], (named(expr, "o1"),), named(expr, lane)) == ()


def test_free_axes_stop_at_the_reduction_that_binds_them():
    expr = expression("Softmax", types((3, 4)), axis=1)
    free = free_axes(*expr.roots)
    for reduction in expr.reductions:
        assert {axis.name for axis in free[reduction]} == {"i0"}


def test_borders_of_a_convolution_are_its_padded_dimensions():
    expr = conv((1, 3, 8, 9), (4, 3, 3, 3), pads=(1, 0, 1, 0))
    (border,) = borders(expr.reductions, expr.inputs)
    assert (border.dim, border.extent) == (2, 8)
    assert {axis.name for axis in border.axes} == {"o0", "k0"}
    o0, k0 = named(expr, "o0"), named(expr, "k0")
    assert not border.inside({o0: 0, k0: 0})
    assert border.inside({o0: 0, k0: 1})
    assert not border.inside({o0: 7, k0: 2})


def pooled(fn, fill, body=lambda x: x):
    x = TensorType(F32, (8,))
    o, k = Axis("o", 8), Axis("k", 3)
    reduction = Reduce(fn, (k,), body(load(0, x, (o + k - 1,), fill=fill)))
    return (reduction,), (x,)


@pytest.mark.parametrize(
    ("fn", "fill", "body", "skips"),
    [
        (ReduceFn.MAX, -np.inf, lambda x: x, True),
        (ReduceFn.MAX, 0.0, lambda x: x, False),
        (ReduceFn.MIN, np.inf, lambda x: x, True),
        (ReduceFn.SUM, 0.0, lambda x: x, True),
        (ReduceFn.SUM, 0.0, lambda x: x * x, True),
        (ReduceFn.SUM, 0.0, lambda x: call(ScalarFn.MAX, x, 0.0), True),
        (ReduceFn.SUM, 0.0, lambda x: call(ScalarFn.EXP, x), False),
        (ReduceFn.SUM, 1.0, lambda x: x, False),
        (ReduceFn.PROD, 1.0, lambda x: x, True),
        (ReduceFn.PROD, 0.0, lambda x: x, False),
    ],
)
def test_padding_is_skipped_only_where_it_changes_nothing(fn, fill, body, skips):
    assert bool(borders(*pooled(fn, fill, body))) is skips


def test_a_border_of_one_of_two_sums_is_none_of_both():
    padded, inputs = pooled(ReduceFn.SUM, 0.0)
    plain = Reduce(ReduceFn.SUM, padded[0].axes, load(1, TensorType(F32, (3,)), padded[0].axes))
    assert borders((*padded, plain), (*inputs, TensorType(F32, (3,)))) == ()


def test_rows_are_blockable_where_the_kernel_is_short():
    for taps, expected in ((3, True), (17, False)):
        expr = conv((1, 2, 8, 40), (4, 2, 3, taps), pads=(1, taps // 2, 1, taps // 2))
        found = contraction(expr)
        assert found is not None
        assert is_blockable(found, named(expr, "o1"), expr.inputs) is expected


def test_operands_that_do_not_lie_in_lanes_are_packed_if_rows_share_the_copy():
    expr = expression("Gemm", types((32, 64), (48, 64)), alpha=1.0, beta=1.0, trans_a=False, trans_b=True)
    found = contraction(expr)
    assert found is not None
    n = named(expr, "n")
    layouts = [Layout.row_major((32, 64)), Layout.row_major((48, 64))]
    scattered = scattered_operands(expr, found, n, layouts)
    assert [load_.slot for _, operand in scattered if (load_ := plain_load(operand))] == [1]
    assert packed_operands(found, scattered, 16, 8) == scattered
    assert packed_operands(found, scattered, 16, 1) == ()
    assert packed_operands(found, scattered, 48 * 100, 8) == ()
    layouts[1] = Layout.ordered((48, 64), (1, 0))
    assert scattered_operands(expr, found, n, layouts) == ()


def test_padding_along_the_lanes_does_not_lie_in_lanes():
    expr = conv((1, 3, 8, 9), (4, 3, 3, 3))
    image = next(node for node in expr.loads if node.slot == 0)
    layouts = [Layout.row_major(type_.shape) for type_ in expr.inputs]
    assert isinstance(image, Load)
    assert not lies_in_lanes(image, named(expr, "o1"), expr, layouts)
    unpadded = conv((1, 3, 8, 9), (4, 3, 3, 3), pads=(0, 0, 0, 0))
    image = next(node for node in unpadded.loads if node.slot == 0)
    assert lies_in_lanes(image, named(unpadded, "o1"), unpadded, layouts)


# --- Preferred layouts -------------------------------------------------------------------------------------


def test_weights_of_a_matrix_product_are_panels_of_columns():
    layouts = preferred(matmul(8, 20, 40), {1}, AVX512)
    assert layouts == {1: Layout.panelled((20, 40), (0,), 1, 16)}


def test_panels_are_a_cache_line_where_vectors_are_shorter():
    panel = preferred(matmul(8, 20, 40), {1}, AVX2)[1].panel
    assert panel is not None
    assert panel.width == 16


def test_a_transposed_operand_is_packed_along_its_columns():
    expr = expression("Gemm", types((8, 20), (40, 20)), alpha=1.0, beta=1.0, trans_a=False, trans_b=True)
    assert preferred(expr, {1}, AVX512) == {1: Layout.panelled((40, 20), (1,), 0, 16)}


def test_weights_of_a_convolution_follow_the_order_of_its_loops():
    # Row-major images step least along the kernel's columns, so these run innermost.
    layouts = preferred(conv((1, 3, 8, 8), (32, 3, 3, 3)), {1}, AVX512)
    assert layouts == {1: Layout.panelled((32, 3, 3, 3), (1, 2, 3), 0, 16)}


@pytest.mark.parametrize(("hidden", "width"), [(64, 32), (48, 16), (40, None)])
def test_gates_lie_in_panels_of_a_stream_or_a_line_if_each_starts_at_one(hidden, width):
    layouts = preferred(lstm_cell(1, 6, hidden), {3, 4, 5}, AVX512)
    assert set(layouts) == {3, 4}
    for layout in layouts.values():
        assert (layout.panel and layout.panel.width) == width
        assert layout.strides[0] == 1


def test_weights_that_one_row_reads_are_panels_as_wide_as_a_stream():
    widths = [preferred(matmul(rows, 20, 64), {1}, AVX512)[1].panel for rows in (1, 2)]
    assert [panel and panel.width for panel in widths] == [32, 16]


@pytest.mark.parametrize("dtype", [F32, DType.FLOAT16, DType.BFLOAT16])
def test_depthwise_weights_are_packed_where_the_image_lies_channels_last(dtype):
    expr = conv((1, 32, 10, 12), (32, 1, 3, 3), group=32, dtype=dtype)
    plain = [Layout.row_major(type_.shape) for type_ in expr.inputs]
    assert preferred_layouts(expr, {1}, plain, AVX512) == {}
    image = Layout.ordered((1, 32, 10, 12), (0, 2, 3, 1))
    packed = preferred_layouts(expr, {1}, [image, plain[1]], AVX512)
    assert packed == {1: Layout.panelled((32, 1, 3, 3), (1, 2, 3), 0, 16)}


def test_activations_keep_their_layout():
    assert preferred(matmul(8, 20, 40), (), AVX512) == {}
    assert preferred(expression("Relu", types((3, 4))), {0}, AVX512) == {}


def test_too_few_lanes_are_not_worth_a_layout():
    assert preferred(conv((1, 3, 8, 8), (2, 3, 3, 3)), {1}, AVX512) == {}
