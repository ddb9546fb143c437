"""Long reductions to few results are cut into parts where the vDevice's figures promise that it pays."""

from dataclasses import replace
from functools import partial

import numpy as np
import onnx.parser
import pytest

import rammer
from rammer.devices.reference.device import describe
from rammer.ir.types import Layout
from rammer.ir.vdevice import Figure
from rammer.ir.workload import Workload
from rammer.passes import channels_last, fuse, layout, split_reduction
from rammer.roller.construct import construct
from rammer.roller.model import predict
from tests.support.passes import Net, expression_of, only, rewritten, unchanged

MANY = describe(32)
TWO = describe(2)


def on(device):
    return partial(split_reduction.run, device=device)


def product(rows=4, columns=8, elements=4096):
    net = Net()
    x = net.input(rows, elements)
    return net.build(net.add("MatMul", x, net.weight(elements, columns), name="y"))


def convolution(channels=512, features=16, size=4):
    """With a bias, a residual and an activation."""
    net = Net()
    x, residual = net.input(1, channels, size, size), net.input(1, features, size, size)
    y = net.conv(net.add("Abs", x), net.weight(features, channels, 3, 3), net.weight(features), pad=1, name="y")
    return net.build(net.add("Neg", net.add("Relu", net.add("Add", y, residual))))


def test_a_product_of_few_results_is_cut():
    after = rewritten(product(), on(MANY))
    parts, whole = after.operators
    assert (parts.kind, whole.kind, whole.name) == ("PartialSum", "MatMul", "y")
    (count, *shape) = after.values[parts.outputs[0]].type.shape
    assert (shape, whole.inputs) == ([4, 8], parts.outputs)
    (of_part,) = expression_of(parts).reduce_axes
    assert count > 1
    assert count * of_part.extent == 4096
    assert parts.sources == whole.sources != ()


def test_bias_residual_and_activation_stay_behind_the_sum():
    after = rewritten(convolution(), fuse.run, on(MANY))
    parts, whole = only(after, "PartialSum"), after.operators[-1]
    assert len(parts.inputs) == 2
    assert len(whole.inputs) == 3
    assert whole.outputs == after.outputs


def test_an_update_that_is_the_epilogue_of_a_gradient_does_not_keep_it_whole():
    net = Net()
    gradient = net.add("MatMul", net.input(4, 4096), net.input(4096, 8))
    moment = net.add("Add", gradient, net.input(4, 8))
    weight = net.add("Sub", net.input(4, 8), moment)
    after = rewritten(net.build(moment, weight), fuse.run, on(MANY))
    parts, whole = after.operators
    assert parts.kind == "PartialSum"
    assert whole.outputs == after.outputs
    assert len(whole.inputs) == 3


def test_no_rtask_takes_longer_than_the_device_allows():
    """One result of very many elements becomes as many parts as that takes, on one unit too; nothing else changes."""
    one = replace(describe(1), longest_task_us=1000.0)
    net = Net()
    graph = net.build(net.add("ReduceSum", net.input(10_000, 10_000), axes=(0, 1), keepdims=False))
    assert split_reduction.run(graph, describe(1)).operators == graph.operators
    parts, whole = split_reduction.run(graph, one).operators
    assert (parts.kind, whole.kind) == ("PartialSum", "ReduceSum")
    layouts = tuple(Layout.row_major(type_.shape) for type_ in (*expression_of(parts).inputs, parts_type(parts)))
    for kernel in construct(Workload(expression_of(parts), layouts), one):
        assert predict(kernel, one).task_us <= 2000  # parts are whole, so that some rTasks have one more


def parts_type(operator):
    (output,) = expression_of(operator).outputs
    return output.type


@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceMean"])
def test_every_reduction_can_be_cut(kind):
    net = Net()
    x = net.input(4096, 4)
    graph = net.build(net.add(kind, x, axes=(0,), keepdims=False))
    (parts, _) = rewritten(graph, on(MANY), tolerance=1e-4).operators
    assert parts.kind.startswith("Partial")


def test_what_fills_the_units_stays_whole():
    assert unchanged(product(rows=256, columns=256, elements=512), on(MANY))
    assert unchanged(product(rows=64, columns=64), on(TWO))


def test_one_unit_has_nothing_to_share():
    assert unchanged(product(), on(describe(1)))


def test_a_dear_hand_over_is_not_worth_it():
    assert unchanged(product(), on(replace(MANY, handover_us=Figure(1e4, "assumed"))))


def test_a_short_sum_stays_whole():
    assert unchanged(product(elements=48), on(replace(MANY, handover_us=Figure(0, "assumed"))))


def test_operators_side_by_side_share_the_units():
    """One product leaves units idle; as many products as units do not."""
    net = Net()
    x = net.input(4, 4096)
    graph = net.build(*[net.add("MatMul", x, net.weight(4096, 8)) for _ in range(32)])
    assert unchanged(graph, on(MANY))


def test_several_reductions_stay_whole():
    net = Net()
    assert unchanged(net.build(net.add("Softmax", net.input(4, 4096), axis=1)), on(MANY))


def test_a_reduction_for_many_results_stays_whole():
    """A mean that is subtracted from each of its elements would be computed for each of them."""
    net = Net()
    x = net.input(4, 4096)
    mean = net.add("ReduceMean", x, axes=(1,), keepdims=True)
    assert unchanged(net.build(net.add("Sub", x, mean)), fuse.run, on(MANY))


def test_parts_lie_as_the_result_does():
    after = rewritten(convolution(), fuse.run, channels_last.run, on(MANY))
    between = after.values[only(after, "PartialSum").outputs[0]]
    shape = between.type.shape
    result = after.values[after.outputs[0]]
    assert result.layout is None
    assert between.layout == Layout.row_major(shape)
    net = Net()
    y = net.conv(net.add("Abs", net.input(1, 512, 4, 4)), net.weight(16, 512, 1, 1))
    after = rewritten(net.build(net.conv(y, net.weight(300, 16, 3, 3))), channels_last.run, on(MANY))
    between = after.values[only(after, "PartialSum").outputs[0]]
    assert between.layout == Layout.ordered(between.type.shape, (0, 1, 3, 4, 2))


def test_weights_are_packed_for_the_parts():
    after = rewritten(product(), on(MANY), partial(layout.run, device=MANY))
    weight = after.values[only(after, "PartialSum").inputs[1]]
    assert weight.layout is not None


def test_equal_operators_have_equal_halves():
    net = Net()
    x = net.input(4, 4096)
    graph = net.build(*[net.add("MatMul", v, net.weight(4096, 8)) for v in (x, net.add("Neg", x))])
    halves = [operator for operator in rewritten(graph, on(MANY)).operators if operator.kind != "Neg"]
    assert [operator.kind for operator in halves] == ["PartialSum", "MatMul"] * 2
    assert [halves[0].expr, halves[1].expr] == [halves[2].expr, halves[3].expr]


def test_a_model_with_parts_runs_under_hostile_interleavings():
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 17]>
        long (float[2, 2048] x, float[2048, 8] w) => (float[2, 8] y) { a = MatMul(x, w)  y = Relu(a) }
    """)
    executable = rammer.compile(model, "reference", veus=16)
    assert "PartialSum" in [operator["kind"] for operator in executable.report["operators"]]
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(shape).astype(np.float32) for shape in ((2, 2048), (2048, 8)))
    np.testing.assert_allclose(executable(x, w), np.maximum(x.astype(np.float64) @ w, 0), rtol=1e-4, atol=1e-4)


def test_several_results_of_one_reduction_share_its_parts():
    """What the range of a value gives: its scale, and the scale times another."""
    net = Net()
    most = net.add("ReduceMax", net.input(256, 256), axes=(0, 1), keepdims=False)
    scale = net.add("Div", most, net.constant(np.array(255, np.float32)))
    graph = net.build(scale, net.add("Mul", scale, net.input()))
    parts, whole = rewritten(graph, fuse.run, on(MANY)).operators
    assert (parts.kind, len(whole.outputs)) == ("PartialMax", 2)


@pytest.mark.parametrize(("shape", "place"), [((64, 128, 256), 0), ((2, 64, 512), 0), ((1, 64, 512), 1)])
def test_parts_of_one_value_are_consecutive(shape, place):
    """However short the axis: what one unit has made in its rows is what it reduces."""
    net = Net()
    x = net.input(*shape)
    after = rewritten(net.build(net.add("ReduceMax", x, axes=(0, 1, 2), keepdims=False)), on(TWO))
    axes = expression_of(only(after, "PartialMax")).reduce_axes
    assert [dim for dim, axis in enumerate(axes) if axis.extent != shape[dim]] == [place]
