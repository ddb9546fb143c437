"""What products read rounded, and others whole, has two results; what is computed is the same bits."""

from dataclasses import replace

import numpy as np
import pytest

from rammer.devices.registry import find_device
from rammer.ir.evaluate import evaluate_graph
from rammer.ir.graph import State
from rammer.ir.types import DType
from rammer.options import CompileOptions
from rammer.passes import channels_last, fuse, narrow_values, round_products, write_rounded
from rammer.verify.graph import verify
from tests.support.passes import Net, random_inputs

H200 = find_device("cuda:sm_90").describe(CompileOptions())
F16, F32 = DType.FLOAT16, DType.FLOAT32


def stored(graph, precision="fp16"):
    """Dtypes of the results of each operator; what is computed is compared bit for bit."""
    device = replace(H200, precision=precision)
    before = round_products.run(channels_last.run(fuse.run(graph)), device)
    after = narrow_values.run(write_rounded.run(before, device), device)
    verify(after)
    inputs = random_inputs(before)
    for expected, found in zip(evaluate_graph(before, inputs), evaluate_graph(after, inputs), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    return [[after.values[value].type.dtype for value in operator.outputs] for operator in after.operators]


def residual(*, rows=32, features=64, made="LayerNormalization"):
    """What two products read, which do not read what they add, and a sum behind them does."""
    net = Net()
    x = net.input(rows, features)
    if made == "LayerNormalization":
        y = net.add(made, x, net.weight(features), axis=1, epsilon=1e-5)
    else:
        y = x if made is None else net.add(made, x)
    z = net.add("Relu", net.add("MatMul", y, net.weight(features, 2 * features)))
    return net.build(net.add("Add", net.add("MatMul", z, net.weight(2 * features, features)), y))


@pytest.mark.parametrize(("precision", "dtype"), [("fp16", F16), ("bf16", DType.BFLOAT16), ("tf32", DType.TF32)])
def test_a_product_reads_a_result_of_its_own(precision, dtype):
    assert stored(residual(), precision) == [[F32, dtype], [dtype], [F32]]


def test_float32_changes_nothing():
    graph = residual()
    assert write_rounded.run(graph, H200) is graph


def test_inputs_have_no_operator_that_could_write_more():
    assert stored(residual(made=None)) == [[F16], [F32]]


def test_results_of_the_model_are_written_for_products_too():
    net = Net()
    y = net.add("Relu", net.conv(net.input(1, 8, 12, 12), net.weight(16, 8, 3, 3), pad=1))
    z = net.conv(y, net.weight(16, 16, 3, 3), pad=1)
    assert stored(net.build(y, z)) == [[F32, F16], [F32]]


def test_what_a_run_leaves_in_a_state_is_written_once():
    net = Net()
    x, past = net.input(32, 64), net.input(32, 64)
    new = net.add("Add", past, x)
    graph = net.build(net.add("MatMul", new, net.weight(64, 64)), new)
    state = State(name="past", initial=np.zeros((32, 64), np.float32))
    assert [F32, F16] in stored(graph)
    assert [F32, F16] not in stored(replace(graph, states=(state,)))


def test_products_that_read_the_same_share_it():
    net = Net()
    y = net.add("Relu", net.input(32, 64))
    ends = [net.add("Tanh", net.add("MatMul", y, net.weight(64, 64))) for _ in range(2)]
    assert stored(net.build(net.add("Softmax", y, axis=1), *ends))[0] == [F32, F16]


def test_rows_that_are_no_whole_words_are_written_once():
    assert stored(residual(features=63))[0] == [F32]
    assert stored(residual(features=63), "tf32")[0] == [F32, DType.TF32]


def test_what_reads_itself_whole_too_reads_one_result():
    net = Net()
    y = net.add("Relu", net.input(1, 16, 12, 12))
    assert stored(net.build(net.add("Add", net.conv(y, net.weight(16, 16, 3, 3), pad=1), y))) == [[F32], [F32]]


def test_products_that_stream_their_weights_read_all_bits():
    assert stored(residual(rows=1, made="Relu"))[0] == [F32]
