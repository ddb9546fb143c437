"""The benchmark networks are valid, of the published size, well conditioned and a function of their seed."""

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks.networks import NETWORKS, PAPER, SMALL
from benchmarks.networks.builder import INTEGERS, IR_VERSION, OPSET, Array, random_inputs

# Parameters in all, running statistics included, and the shape of the output.
PUBLISHED = {
    "resnext": (7_947_968, (1, 10)),
    "nasnet": (3_365_290, (1, 10)),  # Zoph et al. 2018, table 1: 3.3 million
    "alexnet": (61_100_840, (1, 1000)),  # torchvision's count
    "deepspeech2": (6_499_965, (75, 1, 29)),
    "lstm_tc": (10 * 4 * 256 * (256 + 256 + 2), (1, 256)),
    "seq2seq": ((8 + 4) * 4 * 128 * (128 + 128 + 2), (1, 128)),
    "whisper": (8_208_384, (1, 1500, 384)),
    "vit": (86_567_656, (1, 1000)),  # torchvision's count
    "bert": (108_891_648, (1, 128, 768)),  # 109.5 million with the pooler
    "convnext": (28_589_128, (1, 1000)),  # torchvision's count
    "resnet": (25_557_032 + 53_120, (1, 1000)),  # torchvision's count, and the running statistics
    "efficientnet": (5_288_548 + 42_016, (1, 1000)),
    "mobilenet": (3_504_872 + 34_112, (1, 1000)),
}

RECURRENT = ("deepspeech2", "lstm_tc", "seq2seq")

by_name = pytest.mark.parametrize("name", NETWORKS)


def run(model: onnx.ModelProto, feeds: dict[str, Array]) -> Array:
    """The first output."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    output: Array = session.run(None, feeds)[0]
    return output


def noisy(feeds: dict[str, Array]) -> dict[str, Array]:
    """Inputs with a little noise on all that is floating-point."""
    rng = np.random.default_rng(2)
    return {
        key: x + 1e-4 * rng.standard_normal(x.shape, dtype=np.float32) if x.dtype == np.float32 else x
        for key, x in feeds.items()
    }


def relative_difference(a: Array, b: Array) -> float:
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


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in ("bert", "vit") else ()) for name in PUBLISHED]
)
def test_published_size(name):
    parameters, output_shape = PUBLISHED[name]
    model = NETWORKS[name]()
    onnx.checker.check_model(model, full_check=True)
    assert sum(int(np.prod(initializer.dims)) for initializer in model.graph.initializer) == parameters

    feeds = random_inputs(model, seed=0)
    output = run(model, feeds)
    assert output.shape == output_shape
    assert output.dtype == np.float32
    assert 0.1 < np.sqrt(np.mean(output**2)) < 20.0  # false for NaN, too

    # Noise images hardly differ in their averages, which is all that a classifier's head sees of them.
    least = 0.1 if name in RECURRENT else 0.01
    assert relative_difference(run(model, random_inputs(model, seed=1)), output) > least


@by_name
def test_small_differences_stay_small(name):
    model = NETWORKS[name](**SMALL[name])
    feeds = random_inputs(model, seed=1)
    assert relative_difference(run(model, noisy(feeds)), run(model, feeds)) < 1e-3


@pytest.mark.parametrize("name", ["lstm_tc", "seq2seq"])
def test_recurrence_remembers_and_is_stable(name):
    model = NETWORKS[name]()
    feeds = random_inputs(model, seed=0)
    ((key, x),) = feeds.items()
    expected = run(model, feeds)
    assert relative_difference(run(model, noisy(feeds)), expected) < 1e-3

    other_start = x.copy()
    other_start[:10] *= -1.0
    assert relative_difference(run(model, {key: other_start}), expected) > 1e-2


@by_name
def test_batch_items_are_independent(name):
    batch_axis = {"lstm_tc": 1, "seq2seq": 1}.get(name, 0)
    output_axis = 1 if name == "deepspeech2" else 0
    both = NETWORKS[name](batch=2, **SMALL[name])
    one = NETWORKS[name](batch=1, **SMALL[name])
    feeds = random_inputs(both, seed=3)
    halves = {key: np.split(x, 2, axis=batch_axis) for key, x in feeds.items()}
    separate = [run(one, {key: items[i] for key, items in halves.items()}) for i in range(2)]
    np.testing.assert_allclose(run(both, feeds), np.concatenate(separate, axis=output_axis), rtol=1e-4, atol=1e-5)


@by_name
def test_inputs_follow_the_seed(name):
    model = NETWORKS[name](batch=2, **SMALL[name])
    first, again, other = (random_inputs(model, seed=seed) for seed in (0, 0, 1))
    for key, array in first.items():
        np.testing.assert_array_equal(array, again[key])
        assert not np.array_equal(array, other[key])
        assert array.dtype != np.int64 or (array.min() >= 0 and array.max() < INTEGERS)


def test_the_paper_has_six_networks():
    assert len(PAPER) == 6
    assert set(PAPER) < set(NETWORKS)


def test_llama_has_the_published_shape():
    """At full size there are 1.2 billion parameters: those of one layer and of the embeddings are counted instead."""
    sizes = {"layers": 1, "words": 64}
    model = NETWORKS["llama"](**sizes)
    dims = {initializer.name: tuple(initializer.dims) for initializer in model.graph.initializer}
    layer = sum(int(np.prod(shape)) for name, shape in dims.items() if name.startswith("layers"))
    assert 16 * layer + 128_256 * 2048 + 2048 == 1_235_814_400  # as published
    products = [node for node in model.graph.node if node.name == "words.transpose"]
    assert [list(node.input) for node in products] == [["embeddings.weight"]]  # tied
    shapes = {value.name: [d.dim_value for d in value.type.tensor_type.shape.dim] for value in model.graph.output}
    assert shapes == {
        "words": [1, 1, 64],
        **{f"layers.0.attention.{part}.cache": [1, 8, 513, 64] for part in ("keys", "values")},
    }


@pytest.mark.parametrize("bits", [4, 8])
def test_llama_with_weights_of_few_bits_is_nearly_the_same(bits):
    model, of_floats = (NETWORKS["llama"](bits=one, **SMALL["llama"]) for one in (bits, 0))
    feeds = random_inputs(model, seed=0)
    assert relative_difference(run(model, feeds), run(of_floats, feeds)) < 4 * 2.0**-bits
    types = {initializer.name: initializer.data_type for initializer in model.graph.initializer}
    assert types["layers.0.gate.weight"] == types["words.weight"] == onnx.TensorProto.UINT8


def test_resnext_branches_and_groups_agree():
    branches, grouped = (NETWORKS["resnext"](grouped=grouped) for grouped in (False, True))
    feeds = random_inputs(grouped, seed=0)
    assert relative_difference(run(grouped, feeds), run(branches, feeds)) < 1e-5

    convolutions = [Counter(node.op_type for node in model.graph.node)["Conv"] for model in (branches, grouped)]
    assert convolutions == [1 + 9 * (16 * 2 + 1), 1 + 9 * (2 + 1)]


def test_seq2seq_by_operators_and_by_cells_agree():
    operators, cells = (NETWORKS["seq2seq"](cells=cells, **SMALL["seq2seq"]) for cells in (False, True))
    feeds = random_inputs(cells, seed=0)
    assert relative_difference(run(cells, feeds), run(operators, feeds)) < 1e-5
    assert Counter(node.op_type for node in cells.graph.node)["LSTM"] == SMALL["seq2seq"]["layers"]


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
