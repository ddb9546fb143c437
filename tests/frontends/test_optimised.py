"""What ONNX Runtime's optimiser and quantiser write into saved models, against ONNX Runtime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from benchmarks.networks import NETWORKS, SMALL
from benchmarks.networks.builder import random_inputs
from rammer.errors import InvalidModelError, UnsupportedFeatureError, UnsupportedOperatorsError
from rammer.frontends.onnx import load_graph
from tests.support.microsoft_node import RNG, check, floats, integers, model, scales
from tests.support.onnx_reference import evaluate_model, model_of
from tests.support.quantised_models import quantised_statically

LEVELS = onnxruntime.GraphOptimizationLevel
WINDOW = {"pads": [1, 0, 0, 1], "strides": [2, 1]}
IMAGE = floats(2, 4, 7, 6)


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [("Relu", []), ("Tanh", []), ("Sigmoid", []), ("LeakyRelu", [0.2]), ("HardSigmoid", [0.3, 0.4]), ("Clip", [-1, 2])],
)
def test_convolutions_with_activations(kind, numbers):
    attributes = {**WINDOW, "activation": kind} | (
        {"activation_params": [float(x) for x in numbers]} if numbers else {}
    )
    check("FusedConv", [IMAGE, floats(6, 2, 3, 3), floats(6)], group=2, **attributes)
    check("FusedConv", [IMAGE, floats(6, 4, 1, 1), None, floats(2, 6, 7, 6)], activation=kind, **numbers_of(numbers))


def numbers_of(numbers):
    return {"activation_params": [float(x) for x in numbers]} if numbers else {}


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        ("Relu", {}),
        ("Softsign", {}),
        ("Softplus", {}),
        ("Elu", {"alpha": 0.7}),
        ("Selu", {"alpha": 1.5, "gamma": 1.1}),
        ("ThresholdedRelu", {"alpha": 0.5}),
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
    ],
)
def test_products_with_activations(kind, numbers):
    attributes = {"activation": kind, **{f"activation_{name}": value for name, value in numbers.items()}}
    check("FusedGemm", [floats(3, 4), floats(4, 5)], **attributes)
    check("FusedGemm", [floats(4, 3), floats(5, 4), floats(5)], transA=1, transB=1, alpha=0.5, beta=2.0, **attributes)


def between_transposes(inputs, **attributes):
    """A convolution of an image with channels last, by ONNX Runtime."""
    names = [f"x{i}" for i in range(len(inputs))]
    nodes = [
        helper.make_node("Transpose", ["x0"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["t", *names[1:]], ["c"], **attributes),
        helper.make_node("Transpose", ["c"], ["y"], perm=[0, 2, 3, 1]),
    ]
    plain = model_of(nodes, dict(zip(names, inputs, strict=True)), ["y"])
    session = onnxruntime.InferenceSession(plain.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip(names, inputs, strict=True)))[0]


def test_convolutions_with_channels_last():
    """ONNX Runtime has no NhwcConv of float32 for processors: the plain convolution between transposes is the judge."""
    inputs = [np.ascontiguousarray(IMAGE.transpose(0, 2, 3, 1)), floats(6, 2, 3, 3), floats(6)]
    expected = between_transposes(inputs, group=2, **WINDOW)
    for op_type in ("NhwcConv", "NhwcFusedConv"):
        made, given = model(op_type, inputs, (True,), {"group": 2, **WINDOW})
        (found,) = evaluate_model(made, list(given.values()))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    skipped = floats(*expected.shape)
    made, given = model("NhwcFusedConv", [*inputs, skipped], (True,), {"group": 2, "activation": "Relu", **WINDOW})
    (found,) = evaluate_model(made, list(given.values()))
    np.testing.assert_allclose(found, np.maximum(expected + skipped, 0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantised_windows_with_channels_last(dtype):
    image = integers(dtype, 2, 7, 6, 4)
    window = {"kernel_shape": [3, 2], **WINDOW}
    check("NhwcMaxPool", [image], **window)
    quantised = [image, scales(), integers(dtype), scales(), integers(dtype)]
    for last in (0, 1):
        for counted in (0, 1):
            check("QLinearAveragePool", quantised, quantum=1, channels_last=last, count_include_pad=counted, **window)


@pytest.mark.parametrize("last", [0, 1])
def test_quantised_convolutions(last):
    x = integers(np.uint8, 2, 7, 6, 4) if last else integers(np.uint8, 2, 4, 7, 6)
    inputs = [x, scales(), integers(np.uint8), integers(np.int8, 6, 2, 3, 3), scales(6), np.zeros(6, np.int8)]
    inputs += [np.array(0.5, np.float32), integers(np.uint8), RNG.integers(-5000, 5000, 6).astype(np.int32)]
    check("QLinearConv", inputs, quantum=1, known=(1, 2, 3, 4, 5, 6, 7), channels_last=last, group=2, **WINDOW)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_choices_of_integers(dtype):
    pair = [integers(dtype, 2, 3, 4), scales(), integers(dtype), integers(dtype, 3, 1), scales(), integers(dtype)]
    check("QLinearWhere", [RNG.integers(0, 2, (3, 4)).astype(bool), *pair, scales(), integers(dtype)], quantum=1)


@pytest.mark.parametrize("weight", [np.uint8, np.int8])
@pytest.mark.parametrize("mask", [None, np.array([3, 5], np.int32)])
def test_attention_of_integers(weight, mask):
    zero = integers(weight)
    inputs = [integers(np.uint8, 2, 5, 8), integers(weight, 8, 24), floats(24), scales(), scales(), mask]
    inputs += [integers(np.uint8), zero]
    check("QAttention", inputs, num_heads=2, tolerance=1e-3)
    check("QAttention", inputs, (True, True), num_heads=2, unidirectional=1, tolerance=1e-3)


def test_embeddings_of_integers():
    ids, segments = RNG.integers(0, 9, (2, 5)).astype(np.int32), RNG.integers(0, 2, (2, 5)).astype(np.int32)
    tables = [integers(np.uint8, *shape) for shape in ((9, 8), (6, 8), (2, 8), (8,), (8,))]
    numbers = [*(scales() for _ in range(5)), *(integers(np.uint8) for _ in range(5))]
    mask = RNG.integers(0, 2, (2, 5)).astype(np.int32)
    check("QEmbedLayerNormalization", [ids, segments, *tables, mask, *numbers], (True, True), tolerance=1e-3)


def test_what_is_written_into_the_domain_of_onnx():
    x, scale = floats(2, 5, 8), floats(8)
    node = helper.make_node("SimplifiedLayerNormalization", ["x", "s"], ["y"], axis=-1, epsilon=1e-5)
    made = model_of([node], {"x": x, "s": scale}, ["y"], opset=17)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = evaluate_model(made, [x, scale])
    np.testing.assert_allclose(found, session.run(None, {"x": x, "s": scale})[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("zero", [6, 7])
@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [("QLinearAdd", {}), ("QLinearMul", {}), ("QLinearAveragePool", {"kernel_shape": [2, 2]})],
)
def test_what_lies_between_two_integers_is_rounded_as_by_onnx_runtime(op_type, attributes, zero):
    """Scales are powers of two, so that many results do."""
    a, b = integers(np.uint8, 2, 4, 8, 8), integers(np.uint8, 4, 8, 8)
    half, point = np.array(0.5, np.float32), np.array(zero, np.uint8)
    first, second, result = [a, half, point], [b, half, point], [np.array(1.0, np.float32), point]
    inputs = [*first, *result] if op_type == "QLinearAveragePool" else [*first, *second, *result]
    check(op_type, inputs, tolerance=0, **attributes)


def test_products_as_they_were_called_before():
    check("TransposeMatMul", [floats(2, 4, 5), floats(2, 3, 4)], alpha=0.5, transA=1, transB=1)


def test_activations_that_do_not_fit():
    for attributes, error, message in (
        ({"activation": "LeakyRelu"}, InvalidModelError, "takes 1 number"),
        ({"activation": "Gelu"}, UnsupportedFeatureError, "the activation 'Gelu'"),
    ):
        made, _ = model("FusedConv", [IMAGE, floats(6, 4, 1, 1)], (True,), attributes)
        with pytest.raises(error, match=message):
            load_graph(made)
    made, _ = model("FusedGemm", [floats(3, 4), floats(4, 5)], (True,), {"activation": "Elu"})
    with pytest.raises(InvalidModelError, match="activation_alpha"):
        load_graph(made)


# --- Whole networks, saved by the optimiser


def optimised(made: onnx.ModelProto, level, folder):
    """The model as ONNX Runtime saves it after its optimisation."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(folder / "optimised.onnx")


def by_onnx_runtime(made, inputs):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = LEVELS.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("mobilenet", "FusedConv"),
        ("alexnet", "FusedGemm"),
        ("efficientnet", "QuickGelu"),
        ("bert", "SkipLayerNormalization"),
        ("llama", "FusedMatMul"),
    ],
)
def test_optimised_networks(name, written, tmp_path):
    plain = NETWORKS[name](**SMALL[name])
    inputs = random_inputs(plain, seed=0)
    made = optimised(plain, LEVELS.ORT_ENABLE_EXTENDED, tmp_path)
    assert written in {node.op_type for node in made.graph.node}
    for found, expected in zip(
        evaluate_model(made, list(inputs.values())), by_onnx_runtime(plain, inputs), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("name", "written"), [("resnet", {"QLinearConv", "NhwcMaxPool"}), ("nasnet", {"QLinearConv", "QLinearAveragePool"})]
)
def test_quantised_networks_optimised_for_a_processor(name, written, tmp_path):
    plain = NETWORKS[name](**SMALL[name])
    inputs = random_inputs(plain, seed=0)
    made = optimised(quantised_statically(plain, inputs, tmp_path), LEVELS.ORT_ENABLE_ALL, tmp_path)
    assert written <= {node.op_type for node in made.graph.node if node.domain == "com.microsoft"}
    (found,), (expected,) = evaluate_model(made, list(inputs.values())), by_onnx_runtime(made, inputs)
    spread = np.unique(expected)
    quantum = np.diff(spread).min() if spread.size > 1 else 1.0
    assert np.abs(found - expected).max() <= 2.5 * quantum


def test_blocked_layouts_are_refused_with_what_to_do(tmp_path):
    made = optimised(NETWORKS["mobilenet"](**SMALL["mobilenet"]), LEVELS.ORT_ENABLE_ALL, tmp_path)
    if not any(node.domain == "com.microsoft.nchwc" for node in made.graph.node):
        pytest.skip("ONNX Runtime blocks no channels on this processor")
    with pytest.raises(UnsupportedOperatorsError, match="ORT_ENABLE_EXTENDED"):
        load_graph(made)
