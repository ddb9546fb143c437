"""The benchmark networks are valid, of the published size, well conditioned and a function of their seed."""

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks.networks import NETWORKS, SMALL, inputs
from benchmarks.networks.builder import IR_VERSION, OPSET, Float32, input_shapes, random_inputs

# Parameters in all, running statistics included, and the shape of the output.
PAPER = {
    "resnext": (7_947_968, (1, 10)),
    "nasnet": (3_365_290, (1, 10)),  # Zoph et al. 2018, table 1: 3.3 million
    "alexnet": (61_100_840, (1, 1000)),  # torchvision's count
    "deepspeech2": (6_499_965, (75, 1, 29)),
    "lstm_tc": (10 * 4 * 256 * (256 + 256 + 2), (1, 256)),
    "seq2seq": ((8 + 4) * 4 * 128 * (128 + 128 + 2), (1, 128)),
}

RECURRENT = ("deepspeech2", "lstm_tc", "seq2seq")

by_name = pytest.mark.parametrize("name", NETWORKS)


def run(model: onnx.ModelProto, feeds: dict[str, Float32]) -> Float32:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    output: Float32 = session.run(None, feeds)[0]
    return output


def relative_difference(a: Float32, b: Float32) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


@by_name
def test_model_is_valid(name):
    model = NETWORKS[name](**SMALL[name])
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == IR_VERSION
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", OPSET)]
    names = [node.name for node in model.graph.node]
    assert all(names)
    assert len(set(names)) == len(names)


@by_name
def test_model_is_a_function_of_its_seed(name):
    first, again, other = (NETWORKS[name](seed=seed, **SMALL[name]) for seed in (1, 1, 2))
    assert first.SerializeToString(deterministic=True) == again.SerializeToString(deterministic=True)
    assert first.SerializeToString(deterministic=True) != other.SerializeToString(deterministic=True)
    assert first.graph.node == other.graph.node


@by_name
def test_paper_size(name):
    parameters, output_shape = PAPER[name]
    model = NETWORKS[name]()
    onnx.checker.check_model(model, full_check=True)
    assert sum(int(np.prod(initializer.dims)) for initializer in model.graph.initializer) == parameters

    feeds = inputs(name, seed=0)
    assert {key: array.shape for key, array in feeds.items()} == input_shapes(model)
    output = run(model, feeds)
    assert output.shape == output_shape
    assert output.dtype == np.float32
    assert 0.1 < np.sqrt(np.mean(output**2)) < 20.0  # false for NaN, too

    # Noise images hardly differ in their averages, which is all that a classifier's head sees of them.
    least = 0.1 if name in RECURRENT else 0.01
    assert relative_difference(run(model, inputs(name, seed=1)), output) > least


@by_name
def test_small_differences_stay_small(name):
    model = NETWORKS[name](**SMALL[name])
    ((key, x),) = random_inputs(input_shapes(model), seed=1).items()
    noise = 1e-4 * np.random.default_rng(2).standard_normal(x.shape, dtype=np.float32)
    assert relative_difference(run(model, {key: x + noise}), run(model, {key: x})) < 1e-3


@pytest.mark.parametrize("name", ["lstm_tc", "seq2seq"])
def test_recurrence_remembers_and_is_stable(name):
    model = NETWORKS[name]()
    ((key, x),) = inputs(name, seed=0).items()
    expected = run(model, {key: x})

    noise = 1e-4 * np.random.default_rng(2).standard_normal(x.shape, dtype=np.float32)
    assert relative_difference(run(model, {key: x + noise}), expected) < 1e-3

    other_start = x.copy()
    other_start[:10] *= -1.0
    assert relative_difference(run(model, {key: other_start}), expected) > 1e-2


@by_name
def test_batch_items_are_independent(name):
    batch_axis = {"lstm_tc": 1, "seq2seq": 1}.get(name, 0)
    output_axis = 1 if name == "deepspeech2" else 0
    both = NETWORKS[name](batch=2, **SMALL[name])
    one = NETWORKS[name](batch=1, **SMALL[name])
    ((key, x),) = random_inputs(input_shapes(both), seed=3).items()
    separate = [run(one, {key: item}) for item in np.split(x, 2, axis=batch_axis)]
    np.testing.assert_allclose(run(both, {key: x}), np.concatenate(separate, axis=output_axis), rtol=1e-4, atol=1e-5)


@by_name
def test_inputs_follow_seed_and_batch(name):
    for key, array in inputs(name, seed=0, batch=2).items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, inputs(name, seed=0, batch=2)[key])
        assert not np.array_equal(array, inputs(name, seed=1, batch=2)[key])
    assert {key: array.shape for key, array in inputs(name, seed=0, batch=2).items()} == input_shapes(
        NETWORKS[name](batch=2)
    )


def test_unknown_network():
    with pytest.raises(KeyError, match="vgg"):
        inputs("vgg", seed=0)


def test_resnext_branches_and_groups_agree():
    branches, grouped = (NETWORKS["resnext"](grouped=grouped) for grouped in (False, True))
    feeds = inputs("resnext", seed=0)
    assert relative_difference(run(grouped, feeds), run(branches, feeds)) < 1e-5

    convolutions = [Counter(node.op_type for node in model.graph.node)["Conv"] for model in (branches, grouped)]
    assert convolutions == [1 + 9 * (16 * 2 + 1), 1 + 9 * (2 + 1)]


def test_nasnet_has_the_published_cells():
    model = NETWORKS["nasnet"]()
    operators = Counter(node.op_type for node in model.graph.node)
    separable = 20 * 5 * 2  # five separable operations in either cell, two halves each
    projections = 20 * 2 + 2  # two for each cell; the two at another resolution are split in halves
    assert operators["Conv"] == 1 + separable * 2 + projections
    assert operators["MaxPool"] == 2 * 2
    assert operators["AveragePool"] == 18 * 3 + 2 * 2
    assert operators["Slice"] == 2
    concatenated = [node for node in model.graph.node if node.op_type == "Concat" and "cells.19" in node.name]
    assert [len(node.input) for node in concatenated] == [6]
    (fc,) = (initializer for initializer in model.graph.initializer if initializer.name == "fc.weight")
    assert fc.dims == [10, 768]


def test_seq2seq_decoder_reads_its_own_output():
    model = NETWORKS["seq2seq"]()
    lstms = {node.name: node for node in model.graph.node if node.op_type == "LSTM"}
    assert len(lstms) == 8 + 30 * 4
    assert len({tuple(lstms[f"decoder.step{step}.l2"].input[1:4]) for step in range(30)}) == 1

    first, second = lstms["decoder.step0.l0"], lstms["decoder.step1.l0"]
    assert list(first.input[:1]) == list(lstms["encoder.l7"].output[2:])
    assert list(first.input[4:]) == []
    assert list(second.input[4:]) == ["", *first.output[1:]]
    squeezed = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "Squeeze"}
    assert squeezed[second.input[0]] == lstms["decoder.step0.l3"].output[0]
