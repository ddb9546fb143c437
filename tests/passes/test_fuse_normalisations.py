"""Products by warpgroups scale their sums instead of reading rows that an operator of its own has normalised."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from rammer.devices.registry import find_device
from rammer.ir.evaluate import evaluate_graph
from rammer.ir.types import DType, TensorType
from rammer.options import CompileOptions
from rammer.passes import (
    eliminate_dead,
    fuse,
    fuse_normalisations,
    layout,
    narrow_values,
    round_products,
    write_rounded,
)
from rammer.verify.graph import verify
from tests.support.passes import Net, kinds, only, random_inputs, rewritten, unchanged

OPTIONS = CompileOptions(precision="fp16")
H200, A100 = (find_device(f"cuda:{name}").describe(OPTIONS) for name in ("sm_90", "sm_80"))
ROWS, SIZE, FEATURES = 128, 768, 3072


def on(device=H200):
    return partial(fuse_normalisations.run, device=device)


def laid_out(graph):
    return layout.run(graph, H200)


def half(net, *shape, scale=1.0):
    return net.constant((scale * np.random.default_rng(sum(shape)).standard_normal(shape)).astype(np.float16))


def before(*, dtype=DType.FLOAT16, size=SIZE, with_shift=True, scale=1.0):
    """What makes rows, and what is normalised of them."""
    net = Net()
    x = net.add(
        "MatMul",
        net.input(ROWS, size, dtype=dtype),
        half(net, size, size) if dtype is DType.FLOAT16 else net.weight(size, size),
    )
    parameters = [half(net, size, scale=scale)] + ([half(net, size)] if with_shift else [])
    if dtype is not DType.FLOAT16:
        parameters = [net.weight(size) for _ in parameters]
    return net, x, net.add("LayerNormalization", x, *parameters, axis=1, epsilon=1e-5)


@pytest.mark.parametrize("with_shift", [True, False])
def test_a_product_reads_rows_before_they_are_normalised(with_shift):
    net, _, z = before(with_shift=with_shift)
    y = net.add("Relu", net.add("MatMul", z, half(net, SIZE, FEATURES, scale=0.1)))
    after = rewritten(net.build(y), fuse.run, laid_out, on(), eliminate_dead.run, tolerance=2e-3)
    assert kinds(after) == ["MatMul", "RowStatistics", "MatMul+Relu"]
    rows, product = only(after, "RowStatistics"), only(after, "MatMul+Relu")
    assert [after.values[value].type for value in rows.outputs] == [TensorType(DType.FLOAT32, (ROWS,))] * 2
    assert {*rows.inputs, *rows.outputs} <= {*product.inputs}
    (weights,) = (value for value in product.inputs if after.values[value].type.shape == (SIZE, FEATURES))
    assert after.values[weights].storage.strides == (1, SIZE)  # as the weights lay


def test_residuals_are_computed_from_rows():
    net, _, z = before()
    h = net.add("Relu", net.add("MatMul", z, half(net, SIZE, FEATURES, scale=0.1)))
    y = net.add("Add", net.add("MatMul", h, half(net, FEATURES, SIZE, scale=0.1)), z)
    after = rewritten(net.build(y), fuse.run, laid_out, on(), eliminate_dead.run, tolerance=2e-3)
    assert kinds(after) == ["MatMul", "RowStatistics", "MatMul+Relu", "MatMul+Add"]
    assert {*only(after, "RowStatistics").outputs} <= {*only(after, "MatMul+Add").inputs}


def test_several_products_share_what_rows_have():
    net, _, z = before()
    ys = [net.add("MatMul", z, half(net, SIZE, size, scale=0.1)) for size in (2304, 3072)]
    after = rewritten(net.build(*ys), fuse.run, laid_out, on(), eliminate_dead.run, tolerance=2e-3)
    assert kinds(after) == ["MatMul", "RowStatistics", "MatMul", "MatMul"]


def test_none_where_somebody_reads_normalised_rows_otherwise():
    """As a result of the model, or to sum what is normalised."""
    for use in (lambda net, z: z, lambda net, z: net.add("Softmax", z, axis=1)):
        net, _, z = before()
        y = net.add("MatMul", z, half(net, SIZE, FEATURES, scale=0.1))
        graph = laid_out(fuse.run(net.build(y, use(net, z))))
        assert on()(graph) is graph


def test_none_without_products():
    net, _, z = before()
    graph = laid_out(fuse.run(net.build(net.add("Relu", z))))
    assert on()(graph) is graph


def test_none_for_rows_of_float32():
    """They would be rounded before their mean is taken off, which nobody has asked for."""
    net, _, z = before(dtype=DType.FLOAT32)
    assert unchanged(net.build(net.add("MatMul", z, net.weight(SIZE, FEATURES))), on())


def in_precision(graph, precision):
    """After the passes that round products, fused and not."""
    device = replace(H200, precision=precision)
    for one in (round_products, write_rounded, narrow_values, layout):
        graph = one.run(graph if one is not round_products else fuse.run(graph), device)
    after = eliminate_dead.run(fuse_normalisations.run(graph, device))
    verify(after)
    return graph, after


def layer(*, with_residual, precision):
    """Normalised rows of float32 that a product reads, and the sum behind it, too; rounded as the precision says."""
    net, x, z = before(dtype=DType.FLOAT32)
    h = net.add("Relu", net.add("MatMul", z, net.weight(SIZE, FEATURES)))
    return in_precision(
        net.build(net.add("Add", net.add("MatMul", h, net.weight(FEATURES, SIZE)), z if with_residual else x)),
        precision,
    )


@pytest.mark.parametrize("with_residual", [False, True])
@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp16", DType.FLOAT16), ("bf16", DType.BFLOAT16), ("tf32", DType.TF32)]
)
def test_rows_of_float32_are_rounded_where_products_are(precision, dtype, with_residual):
    """By who makes them; the sum behind a product has all of their bits."""
    graph, after = layer(with_residual=with_residual, precision=precision)
    assert kinds(after) == ["MatMul", "RowStatistics", "MatMul+Relu", "MatMul+Add"]
    first, rows, product, last = after.operators
    whole, rounded = first.outputs
    assert [after.values[value].type.dtype for value in first.outputs] == [DType.FLOAT32, dtype]
    assert (whole in rows.inputs, rounded in rows.inputs) == (True, False)
    assert (whole in product.inputs, rounded in product.inputs) == (False, True)
    assert (whole in last.inputs, rounded in last.inputs) == (True, False)
    inputs = random_inputs(graph)
    (expected,), (found,) = (evaluate_graph(one, inputs) for one in (graph, after))
    step = 2.0**-8 if precision == "bf16" else 2.0**-11
    apart = np.abs(np.subtract(found, expected, dtype=np.float64))
    assert apart.max() < 4 * step * np.abs(expected).max()


def test_none_for_very_many_rows_of_float32():
    """Their factors would be found later than the rows were normalised."""
    net = Net()
    x = net.add("MatMul", net.input(1024, SIZE), net.weight(SIZE, SIZE))
    z = net.add("LayerNormalization", x, net.weight(SIZE), axis=1, epsilon=1e-5)
    graph, after = in_precision(net.build(net.add("MatMul", z, net.weight(SIZE, FEATURES))), "fp16")
    assert kinds(after) == kinds(graph)


def test_none_for_rows_of_float32_that_nobody_makes():
    net = Net()
    z = net.add("LayerNormalization", net.input(ROWS, SIZE), net.weight(SIZE), axis=1, epsilon=1e-5)
    graph, after = in_precision(net.build(net.add("MatMul", z, net.weight(SIZE, FEATURES))), "fp16")
    assert kinds(after) == kinds(graph)


def test_none_without_warpgroups():
    net, _, z = before()
    assert unchanged(net.build(net.add("MatMul", z, half(net, SIZE, FEATURES))), on(A100))


def test_none_where_rows_are_no_matrix():
    """That a tensor map could step over."""
    net, _, z = before(size=68)
    graph = laid_out(fuse.run(net.build(net.add("MatMul", z, half(net, 68, FEATURES)))))
    assert on()(graph) is graph


def test_none_where_scaled_weights_are_beyond_16_bits():
    net, _, z = before(scale=1000.0)
    weights = net.constant(np.full((SIZE, FEATURES), 60000.0, np.float16))
    graph = laid_out(fuse.run(net.build(net.add("MatMul", z, weights))))
    assert on()(graph) is graph


def test_none_where_weights_are_shared():
    """They would be there twice."""
    net, x, z = before()
    weights = half(net, SIZE, FEATURES, scale=0.1)
    graph = laid_out(fuse.run(net.build(net.add("MatMul", z, weights), net.add("MatMul", x, weights))))
    assert unchanged(graph, on())


def test_means_that_are_far_away_cancel():
    """What is multiplied before its mean is taken off loses nothing that 16 bits had."""
    net = Net()
    x = net.add("Abs", net.input(ROWS, SIZE, dtype=DType.FLOAT16))
    x = net.add("MatMul", x, net.constant(np.eye(SIZE, dtype=np.float16)))
    x = net.add("Add", x, net.constant(np.full((SIZE,), 500.0, np.float16)))
    z = net.add("LayerNormalization", x, half(net, SIZE), half(net, SIZE), axis=1, epsilon=1e-5)
    y = net.add("MatMul", z, half(net, SIZE, FEATURES, scale=0.1))
    after = rewritten(net.build(y), fuse.run, laid_out, on(), tolerance=2e-3)
    assert "RowStatistics" in kinds(after)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-5])
def test_rows_of_equal_elements(epsilon):
    """Nothing of their mean is left. Where one element is next to the others, their mean is 40,000 deviations away."""
    net = Net()
    x = net.add("MatMul", net.input(ROWS, SIZE, dtype=DType.FLOAT16), net.constant(np.eye(SIZE, dtype=np.float16)))
    z = net.add("LayerNormalization", x, half(net, SIZE), half(net, SIZE), axis=1, epsilon=epsilon)
    y = net.add("MatMul", z, half(net, SIZE, FEATURES, scale=0.1))
    graph = laid_out(fuse.run(net.build(y)))
    after = on()(graph)
    assert "RowStatistics" in kinds(after)
    rows = np.full((ROWS, SIZE), 7.3, np.float16)
    rows[1:, 5] = np.nextafter(rows[0, 5], np.float16(8))
    rows[2] = 0.0
    (expected,), (found,) = (evaluate_graph(one, [rows]) for one in (graph, after))
    apart = np.abs(found.astype(np.float64) - expected.astype(np.float64)).max(axis=1)
    assert apart[[0, 2]].max() < 0.02
    assert apart[1] < 0.03 * np.abs(expected[1].astype(np.float64)).max()


@pytest.mark.parametrize("times", [40, 600])
def test_rows_that_are_added_to_themselves_have_too_many_parts(times):
    """2 to the power of so many parts, or that many after each other: as long as they are not counted."""
    net, _, z = before()
    for _ in range(times):
        z = net.add("Add", z, z)
    y = net.add("MatMul", z, half(net, SIZE, FEATURES, scale=0.1))
    graph = laid_out(fuse.run(net.build(y)))
    assert fuse_normalisations.run(graph, H200) is graph
