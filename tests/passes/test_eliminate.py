"""Equal work is done once, useless work never."""

from typing import Any

import numpy as np

from benchmarks.networks import NETWORKS
from rammer.frontends.onnx import load_graph
from rammer.ir.types import DType
from rammer.passes import eliminate_common, eliminate_dead, fold_constants, unroll
from tests.support.passes import Net, expression_of, kinds, only, rewritten


def test_equal_operators_become_one():
    net = Net()
    x = net.input(2, 3)
    left, right = net.add("Relu", x), net.add("Relu", x)
    graph = rewritten(net.build(net.add("Add", net.add("Neg", left), net.add("Neg", right))), eliminate_common.run)
    assert kinds(graph) == ["Relu", "Neg", "Add"]


def test_equal_constants_become_one_and_so_do_their_readers():
    net = Net()
    x = net.input(2, 3)
    array = np.arange(3, dtype=np.float32)
    left, right = (net.add("Mul", x, net.constant(array.copy())) for _ in range(2))
    graph = rewritten(net.build(net.add("Add", left, right)), eliminate_common.run)
    assert kinds(graph) == ["Mul", "Add"]
    assert len(graph.constants) == 1


def test_constants_differ_by_content_sign_of_zero_and_type():
    net = Net()
    x, k = net.input(2), net.input(2, dtype=DType.INT32)
    zeros = [np.zeros(2, np.float32), -np.zeros(2, np.float32), np.ones(2, np.float32)]
    sums = [net.add("Add", x, net.constant(array)) for array in zeros]
    sums.append(net.add("Add", k, net.constant(np.zeros(2, np.int32))))
    assert len(rewritten(net.build(*sums), eliminate_common.run).constants) == 4


def test_other_attributes_make_another_operator():
    net = Net()
    x = net.input(2, 3)
    low = net.add("Clip", x, lower=0.0, upper=1.0)
    high = net.add("Clip", x, lower=0.0, upper=2.0)
    before = net.build(net.add("Add", low, high))
    assert kinds(rewritten(before, eliminate_common.run)) == ["Clip", "Clip", "Add"]


def test_equal_outputs_stay_two():
    net = Net()
    x = net.input(2)
    graph = rewritten(net.build(net.add("Relu", x, name="a"), net.add("Relu", x, name="b")), eliminate_common.run)
    assert kinds(graph) == ["Relu", "Identity"]


def test_dead_operators_are_gone():
    net = Net()
    x = net.input(2, 3)
    net.add("Exp", net.add("Neg", x))
    graph = rewritten(net.build(net.add("Relu", x)), eliminate_dead.run)
    assert kinds(graph) == ["Relu"]


def test_an_unread_input_stays():
    net = Net()
    net.input(5)
    graph = rewritten(net.build(net.add("Relu", net.input(2))), eliminate_dead.run)
    assert len(graph.inputs) == 2


def test_unread_results_go_with_the_operands_that_they_alone_need():
    net = Net()
    x, h, c = net.input(1, 3), net.input(1, 2), net.input(1, 2)
    attributes: dict[str, Any] = {
        "activations": ("Sigmoid", "Tanh"),
        "activation_alpha": (0.0, 0.0),
        "activation_beta": (0.0, 0.0),
        "linear_before_reset": True,
        "batched_inputs": False,
    }
    kept = net.add("GRUCell", x, h, net.weight(6, 3), net.weight(6, 2), net.weight(12), **attributes)
    lstm = {**attributes, "activations": ("Sigmoid", "Tanh", "Tanh")}
    lstm |= {"activation_alpha": (0.0,) * 3, "activation_beta": (0.0,) * 3, "input_forget": False}
    _, cell = net.add_all("LSTMCell", x, kept, c, net.weight(8, 3), net.weight(8, 2), net.weight(16), **lstm)
    graph = rewritten(net.build(cell), eliminate_dead.run)
    cell_operator = only(graph, "LSTMCell")
    assert len(cell_operator.outputs) == len(expression_of(cell_operator).outputs) == 1
    assert not cell_operator.attributes


def test_the_last_step_of_a_layer_stays_as_the_others():
    """Nobody reads its cell state; as all steps are alike, they are the same code with the same constants."""
    graph = fold_constants.run(unroll.run(load_graph(NETWORKS["lstm_tc"](layers=1, steps=4, hidden=8))))
    steps = [operator for operator in eliminate_dead.run(graph).operators if operator.kind == "LSTMCell"]
    assert [len(step.outputs) for step in steps] == [2, 2, 2, 2]
    assert steps[-1].expr == steps[-2].expr
