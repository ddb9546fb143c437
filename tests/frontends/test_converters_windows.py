"""Converters of windows, normalisations, reductions and recurrent layers against ONNX Runtime."""

import numpy as np
import pytest
from onnx import helper

from rammer.errors import InvalidModelError, UnsupportedFeatureError
from tests.support.converters import IMAGE, RNG, check, floats, integers, model, refusal
from tests.support.onnx_reference import check_model, compare, evaluate_model, model_of

X = RNG.standard_normal((2, 6, 5), dtype=np.float32)

# --- Windows


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
@pytest.mark.parametrize("strides", [[1, 1], [2, 2]])
def test_automatic_padding(auto_pad, strides):
    check("Conv", [IMAGE, floats(3, 4, 3, 2)], auto_pad=auto_pad, strides=strides)
    for op_type in ("MaxPool", "AveragePool", "LpPool"):
        check(op_type, [IMAGE], auto_pad=auto_pad, strides=strides, kernel_shape=[3, 2])
    if auto_pad != "NOTSET":
        made = model("ConvTranspose", [IMAGE, floats(4, 3, 3, 3)], auto_pad=auto_pad, strides=strides)
        check_model(made, {"i0": IMAGE})


def test_convolutions():
    check("Conv", [X, floats(3, 6, 2), floats(3)], dilations=[2], pads=[1, 0])
    check("Conv", [IMAGE, floats(4, 2, 1, 1)], group=2, kernel_shape=[1, 1])
    check("Conv", [floats(1, 2, 4, 4, 4), floats(3, 2, 2, 2, 2)])
    weights = floats(4, 3, 3, 3)
    check("ConvTranspose", [IMAGE, weights], strides=[2, 2], output_padding=[1, 0], pads=[1, 0, 1, 1])
    check("ConvTranspose", [IMAGE, weights], strides=[3, 2], output_shape=[21, 13])


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]])
def test_rounding_up(op_type, pads):
    check(op_type, [IMAGE], kernel_shape=[3, 3], strides=[2, 2], pads=pads, ceil_mode=1, opset=19)


def test_pooling():
    check("MaxPool", [IMAGE], kernel_shape=[2, 2], dilations=[2, 3])
    check("AveragePool", [IMAGE], kernel_shape=[2, 3], pads=[1, 1, 0, 1], count_include_pad=1)
    check("AveragePool", [IMAGE], kernel_shape=[2, 2], dilations=[2, 2], opset=19)
    check("LpPool", [IMAGE], kernel_shape=[2, 2], p=3)
    for op_type in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        check(op_type, [IMAGE])


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes", "message"),
    [
        ("Conv", [floats(3, 4, 3, 2)], {"kernel_shape": [2, 2]}, "not that of the weights"),
        ("Conv", [floats(3, 4, 3)], {}, "kernel"),
        ("Conv", [floats(3, 4, 3, 2)], {"strides": [1]}, "strides"),
        ("Conv", [floats(3, 4, 3, 2)], {"pads": [1, 1]}, "pads"),
        ("Conv", [floats(3, 4, 3, 2)], {"auto_pad": "HALF"}, "HALF"),
        ("Conv", [floats(3, 4, 9, 2)], {}, "exceeds"),
        ("Conv", [floats(3, 3, 3, 2)], {}, "channels"),
        ("MaxPool", [], {"kernel_shape": [0, 1]}, "kernel"),
        ("MaxPool", [], {"kernel_shape": [9, 9]}, "exceeds"),
        ("ConvTranspose", [floats(4, 3, 3, 3)], {"output_shape": [9]}, "output_shape"),
        ("Resize", [None, np.array([1, 1, 0, 1], np.float32)], {}, "not all positive"),
        ("Resize", [None, np.array([1, 1, np.nan, 1], np.float32)], {}, "not all positive"),
        ("Resize", [None, np.array([1, 1, 2], np.float32)], {}, "for 4 dimension(s)"),
        ("Resize", [None, np.ones(4, np.float32), integers(1, 1, 1, 1)], {}, "not both"),
        ("Resize", [None, None, integers(2, 4, 2**40, 6)], {}, "not possible"),
        ("Resize", [None, np.array([1, 1, 1e30, 1], np.float32)], {}, "not possible"),
        ("Resize", [None, np.array([1, 1, 2, 2], np.float32)], {"nearest_mode": "up"}, "nearest_mode 'up'"),
        ("Resize", [None, np.array([1, 1, 2, 2], np.float32)], {"mode": "sinc"}, "mode 'sinc'"),
    ],
)
def test_windows_that_do_not_fit(op_type, operands, attributes, message):
    assert message in refusal(InvalidModelError, op_type, [IMAGE, *operands], **attributes)


def test_window_without_spatial_dimension():
    assert "no spatial dimension" in refusal(InvalidModelError, "MaxPool", [floats(2, 3)], kernel_shape=[1])


@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": [2, 1]},
        {"pads": [1, 0, 1, 1], "dilations": [1, 2]},
        {"pads": [1, 1, 1, 1], "storage_order": 1},
        {"ceil_mode": 1, "strides": [2, 2]},
    ],
)
def test_positions_of_maxima(attributes):
    check("MaxPool", [IMAGE], 2, kernel_shape=[2, 2], **attributes)
    check("MaxPool", [-np.ones_like(IMAGE)], 2, kernel_shape=[2, 2], **attributes)


def test_maxima_go_back_to_where_they_were():
    node = helper.make_node("MaxPool", ["x"], ["v", "i"], kernel_shape=[2, 2], strides=[2, 2])
    back = helper.make_node("MaxUnpool", ["v", "i"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    made = model_of([node, back], {"x": IMAGE[:, :, :6]}, ["y"], opset=11)
    check_model(made, {"x": IMAGE[:, :, :6]})


@pytest.mark.parametrize("attributes", [{}, {"pads": [1, 0, 0, 1]}, {"strides": [2, 1], "dilations": [1, 2]}])
def test_windows_are_added_up(attributes):
    begins, ends = attributes.get("pads", [0] * 4)[:2], attributes.get("pads", [0] * 4)[2:]
    strides, dilations = attributes.get("strides", [1, 1]), attributes.get("dilations", [1, 1])
    blocks = [
        (extent + begin + end - dilation - 1) // stride + 1
        for extent, begin, end, stride, dilation in zip((6, 7), begins, ends, strides, dilations, strict=True)
    ]
    check("Col2Im", [floats(2, 12, blocks[0] * blocks[1]), integers(6, 7), integers(2, 2)], **attributes)


# --- Normalisation


def test_normalizations():
    check("LayerNormalization", [X, floats(5), floats(5)], 1)
    check("LayerNormalization", [X, floats(6, 5)], 3, axis=1, epsilon=1e-3)
    check("InstanceNormalization", [IMAGE, floats(4), floats(4)])
    check("LRN", [IMAGE], size=3)
    check("MeanVarianceNormalization", [IMAGE])
    check("LpNormalization", [X], axis=1, p=1)
    for op_type in ("Softmax", "LogSoftmax", "Hardmax"):
        check(op_type, [X])
        check(op_type, [X], axis=1)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-12), (np.float16, 2e-3)])
@pytest.mark.parametrize("shape", [(5, 4), (2, 4, 7, 6)])
def test_batch_normalization_in_training(shape, dtype, tolerance):
    """The statistics may have another type than the image."""
    x, parameters = (10 + floats(*shape)).astype(dtype), [floats(4), floats(4), floats(4), np.abs(floats(4))]
    made = model("BatchNormalization", [x, *parameters], 3, 15, training_mode=1, momentum=0.7, epsilon=1e-3)
    scale, bias, *running = parameters
    axes = (0, *range(2, x.ndim))
    each = (4, *(1 for _ in shape[2:]))
    wide = x.astype(np.float64)
    mean, var = wide.mean(axes), wide.var(axes)
    y = (wide - mean.reshape(each)) / np.sqrt(var.reshape(each) + 1e-3) * scale.reshape(each) + bias.reshape(each)
    moved = [(old * 0.7 + new * 0.3).astype(np.float32) for old, new in zip(running, (mean, var), strict=True)]
    compare(evaluate_model(made, [x]), [y.astype(dtype), *moved], rtol=max(tolerance, 1e-6), atol=tolerance)


def test_batch_normalization_of_one_dimension_is_refused_in_training_too():
    refusal(InvalidModelError, "BatchNormalization", [floats(4)] * 5, 3, 15, training_mode=1)


@pytest.mark.parametrize(("opset", "outputs"), [(13, 5), (15, 3)])
def test_statistics_of_inference_are_no_results(opset, outputs):
    parameters = [floats(4) for _ in range(4)]
    message = refusal(UnsupportedFeatureError, "BatchNormalization", [IMAGE, *parameters], outputs, opset)
    assert "training mode" in message


def test_precision_of_statistics():
    for op_type, parameters in (("LayerNormalization", 2), ("GroupNormalization", 2)):
        operands = [IMAGE, *(floats(4 if op_type[0] == "G" else 6) for _ in range(parameters))]
        groups = {"num_groups": 2} if op_type[0] == "G" else {}
        message = refusal(UnsupportedFeatureError, op_type, operands, stash_type=11, **groups)
        assert "element type 11" in message


# --- Reductions


def test_extremes_and_running_sums():
    for op_type in ("ArgMax", "ArgMin"):
        check(op_type, [X], axis=-1, keepdims=0)
        check(op_type, [np.ones((2, 3), np.float32)], axis=1, select_last_index=1)
    check("CumSum", [X, np.array(-2)])
    check("CumSum", [X, np.array([1])], exclusive=1, reverse=1)


# --- Recurrent layers


@pytest.mark.parametrize(("op_type", "gates", "states"), [("LSTM", 4, 2), ("GRU", 3, 1), ("RNN", 1, 1)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("full", [False, True])
def test_recurrent(op_type, gates, states, direction, full):
    directions = 2 if direction == "bidirectional" else 1
    x, hidden = floats(4, 2, 3), 5
    operands = [x, floats(directions, gates * hidden, 3), floats(directions, gates * hidden, hidden)]
    if full:
        operands += [floats(directions, 2 * gates * hidden), np.full(2, 4, np.int32)]
        operands += [floats(directions, 2, hidden) for _ in range(states)]
        if op_type == "LSTM":
            operands.append(floats(directions, 3 * hidden))
    check(op_type, operands, 1 + states, hidden_size=hidden, direction=direction)


@pytest.mark.parametrize("lengths", [(4, 3), (0, 1), (4, 4)])
def test_recurrent_sequences_that_differ_in_length(lengths):
    lengths = np.array(lengths, np.int32)
    operands = [floats(4, 2, 3), floats(2, 20, 3), floats(2, 20, 5), None, lengths]
    check("LSTM", operands, 3, hidden_size=5, direction="bidirectional", clip=0.5)
    node = helper.make_node("LSTM", ["x", "w", "r", "", "n"], ["y"], hidden_size=5, direction="bidirectional")
    inputs = dict(zip("xwr", operands, strict=False))
    check_model(model_of([node], {**inputs, "n": lengths}, ["y"]), {**inputs, "n": lengths})  # as the model runs


def test_recurrent_operands_that_do_not_fit():
    operands = [floats(4, 2, 3), floats(1, 20, 3), floats(1, 20, 5)]
    for lengths in ([4, 5], [-1, 4], [4]):
        given = [*operands, None, np.array(lengths, np.int32)]
        assert "sequence_lens" in refusal(InvalidModelError, "LSTM", given, hidden_size=5)
    assert "not above 0" in refusal(InvalidModelError, "LSTM", operands, clip=0.0, hidden_size=5)
    assert "hidden_size 6" in refusal(InvalidModelError, "LSTM", operands, hidden_size=6)
    assert "rank 3" in refusal(InvalidModelError, "LSTM", [floats(4, 3), *operands[1:]], hidden_size=5)
