"""Models with the shapes of ResNet-50, MobileNetV2 and BERT-base: a block of each kind, with random weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx

from benchmarks.networks import operators, weights
from benchmarks.networks.builder import GraphBuilder, Value


def resnet50() -> onnx.ModelProto:
    """The stem, the first two blocks of each stage and the classifier (He et al. 2016)."""
    rng, graph = np.random.default_rng(0), GraphBuilder("resnet50")

    def conv(name: str, x: Value, channels: int, kernel: int, stride: int = 1) -> Value:
        weight = weights.scaled_normal(rng, (channels, x.shape[1], kernel, kernel))
        bias = weights.bias(rng, channels)
        pad = (kernel // 2, kernel // 2)
        return operators.conv(graph, name, x, weight, bias=bias, stride=(stride, stride), pad=pad)

    x = operators.relu(graph, "stem.relu", conv("stem", graph.input("image", (1, 3, 224, 224)), 64, 7, 2))
    x = operators.pool(graph, "MaxPool", "stem.pool", x, kernel=3, stride=2, pad=1)
    for stage, width in enumerate((64, 128, 256, 512)):
        for block in range(2):
            name, stride = f"stage{stage}.{block}", 2 if stage and not block else 1
            y = operators.relu(graph, f"{name}.relu1", conv(f"{name}.conv1", x, width, 1))
            y = operators.relu(graph, f"{name}.relu2", conv(f"{name}.conv2", y, width, 3, stride))
            y = conv(f"{name}.conv3", y, 4 * width, 1)
            shortcut = x if block else conv(f"{name}.shortcut", x, 4 * width, 1, stride)
            x = operators.relu(graph, f"{name}.relu3", operators.add(graph, f"{name}.add", y, shortcut))
    x = operators.global_average(graph, "pool", x)
    return graph.build(operators.linear(graph, "fc", x, weights.scaled_normal(rng, (1000, 2048))))


def mobilenet_v2() -> onnx.ModelProto:
    """The stem, an inverted residual of each shape and the head (Sandler et al. 2018)."""
    rng, graph = np.random.default_rng(0), GraphBuilder("mobilenet_v2")

    def conv(name: str, x: Value, channels: int, kernel: int, stride: int = 1, *, depthwise: bool = False) -> Value:
        groups = x.shape[1] if depthwise else 1
        weight = weights.scaled_normal(rng, (channels, x.shape[1] // groups, kernel, kernel))
        bias = weights.bias(rng, channels)
        pad = (kernel // 2, kernel // 2)
        return operators.conv(graph, name, x, weight, bias=bias, stride=(stride, stride), pad=pad, groups=groups)

    def relu6(name: str, x: Value) -> Value:
        return operators.clip(graph, f"{name}.relu6", x, low=0.0, high=6.0)

    x = relu6("stem", conv("stem", graph.input("image", (1, 3, 224, 224)), 32, 3, 2))
    settings = ((1, 16, 1), (6, 24, 2), (6, 32, 2), (6, 64, 2), (6, 96, 1), (6, 160, 2), (6, 320, 1))
    for block, (expansion, channels, stride) in enumerate(settings):
        y = x
        if expansion > 1:
            y = relu6(f"{block}.expand", conv(f"{block}.expand", x, expansion * x.shape[1], 1))
        y = relu6(f"{block}.depthwise", conv(f"{block}.depthwise", y, y.shape[1], 3, stride, depthwise=True))
        x = conv(f"{block}.project", y, channels, 1)
    x = relu6("head", conv("head", x, 1280, 1))
    x = operators.global_average(graph, "pool", x)
    return graph.build(operators.linear(graph, "fc", x, weights.scaled_normal(rng, (1000, 1280))))


def bert_base() -> onnx.ModelProto:
    """One encoder layer over 128 tokens (Devlin et al. 2019)."""
    tokens, width, heads = 128, 768, 12
    rng, graph = np.random.default_rng(0), GraphBuilder("bert_base")

    def dense(name: str, x: Value, size: int) -> Value:
        weight = graph.parameter(f"{name}.weight", weights.scaled_normal(rng, (size, x.shape[-1])).T.copy())
        product = graph.node("MatMul", name, [x, weight], (1, tokens, size))
        return graph.node(
            "Add", f"{name}.add", [product, graph.parameter(f"{name}.bias", weights.bias(rng, size))], product.shape
        )

    def normalise(name: str, x: Value) -> Value:
        scale, bias = (graph.parameter(f"{name}.{key}", weights.bias(rng, width)) for key in ("scale", "bias"))
        return graph.node("LayerNormalization", name, [x, scale, bias], x.shape, axis=-1, epsilon=1e-12)

    x = graph.input("hidden", (1, tokens, width))
    shape = (1, tokens, heads, width // heads)
    q, k, v = (operators.reshape(graph, f"{name}.heads", dense(name, x, width), shape) for name in ("q", "k", "v"))
    q, v = (operators.transpose(graph, f"{value.name}.t", value, (0, 2, 1, 3)) for value in (q, v))
    scores = graph.node(
        "MatMul", "scores", [q, operators.transpose(graph, "k.t", k, (0, 2, 3, 1))], (1, heads, tokens, tokens)
    )
    scale = graph.constant(np.array(1 / np.sqrt(width // heads), np.float32))
    scores = graph.node("Mul", "scale", [scores, scale], scores.shape)
    attention = graph.node("Softmax", "softmax", [scores], scores.shape, axis=-1)
    mixed = graph.node("MatMul", "mix", [attention, v], (1, heads, tokens, width // heads))
    joined = operators.reshape(graph, "joined", operators.transpose(graph, "mix.t", mixed, (0, 2, 1, 3)), x.shape)
    x = normalise("norm1", operators.add(graph, "residual1", dense("output", joined, width), x))
    inner = dense("inner", x, 4 * width)
    half, one = (graph.constant(np.array(number, np.float32)) for number in (0.5, 1.0))
    root = graph.constant(np.array(np.sqrt(2.0), np.float32))
    erf = graph.node("Erf", "gelu.erf", [graph.node("Div", "gelu.div", [inner, root], inner.shape)], inner.shape)
    gate = graph.node("Add", "gelu.add", [erf, one], inner.shape)
    gelu = graph.node(
        "Mul", "gelu.mul", [inner, graph.node("Mul", "gelu.half", [gate, half], inner.shape)], inner.shape
    )
    return graph.build(normalise("norm2", operators.add(graph, "residual2", dense("outer", gelu, width), x)))


SHAPES: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": resnet50,
    "mobilenet_v2": mobilenet_v2,
    "bert_base": bert_base,
}
