"""Models of one operator, with the floor that arithmetic and memory set for it.

Images come in two forms: channels last, as a network has them between its layers, and as planes, as libraries take
them. A table takes for everybody the form that suits it best. Inputs begin with a cache line, as tensors within a
network do; NumPy's own arrays mostly do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx

from benchmarks.harness.cases import Case, Form
from benchmarks.networks.builder import Attribute, Float32, GraphBuilder, Shape, Value, random_inputs
from rammer.runtime.arrays import aligned_empty

SEED = 0
_TO_PLANES = (0, 3, 1, 2)
_TO_CHANNELS_LAST = (0, 2, 3, 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Single:
    """One operator on inputs of its own.

    Attributes:
        flops: floating-point operations that the operator's definition takes.
        traffic_bytes: inputs, weights and outputs, each once.
    """

    name: str
    forms: Mapping[str, onnx.ModelProto]
    flops: int
    traffic_bytes: int

    @property
    def cases(self) -> tuple[Case, ...]:
        """A row of the table for each form."""
        return tuple(
            Case(
                name=f"{self.name}, {form}" if form else self.name,
                form=Form(network=self.name),
                model=model,
                inputs=_inputs(model),
            )
            for form, model in self.forms.items()
        )


def _inputs(model: onnx.ModelProto) -> dict[str, Float32]:
    placed: dict[str, Float32] = {}
    for name, array in random_inputs(model, SEED).items():
        placed[name] = aligned_empty(array.shape, array.dtype).view(np.float32)
        placed[name][...] = array
    return placed


def _weight(*shape: int) -> Float32:
    weight = np.random.default_rng(SEED).standard_normal(shape, dtype=np.float32)
    return weight / np.float32(np.sqrt(prod(shape[1:])))


def _product(rows: int, inner: int, columns: int, *, count: int = 1, constant: bool = True) -> Single:
    """`count` matrix products; the second factor is a weight, or as in attention another activation."""
    name = f"product {rows} x {inner} x {columns}{'' if constant else ' of activations'}"
    graph = GraphBuilder("product")
    batch = (count,) if count > 1 else ()
    left = graph.input("x", (*batch, rows, inner))
    shape = (*batch, inner, columns)
    right = graph.parameter("w", _weight(*shape)) if constant else graph.input("w", shape)
    model = graph.build(graph.node("MatMul", "y", [left, right], (*batch, rows, columns)))
    return Single(
        name=name if count == 1 else f"{count} times {name}",
        forms={"": model},
        flops=2 * count * rows * inner * columns,
        traffic_bytes=4 * count * (rows * inner + inner * columns + rows * columns),
    )


def _image(
    name: str, image: Shape, out: Shape, flops: int, weight: Float32 | None, op_type: str, **attributes: Attribute
) -> Single:
    """An operator on an image (channels, height, width)."""
    weight_bytes = 0 if weight is None else weight.nbytes

    def node(graph: GraphBuilder, x: Value) -> Value:
        operands = [x] if weight is None else [x, graph.parameter("w", weight)]
        return graph.node(op_type, "operator", operands, (1, *out), **attributes)

    planes = GraphBuilder("planes")
    last = GraphBuilder("channels_last")
    x = last.input("x", (1, *image[1:], image[0]))
    y = node(last, last.node("Transpose", "to_planes", [x], (1, *image), perm=_TO_PLANES))
    y = last.node("Transpose", "to_channels_last", [y], (1, *out[1:], out[0]), perm=_TO_CHANNELS_LAST)
    return Single(
        name=name,
        forms={"planes": planes.build(node(planes, planes.input("x", (1, *image)))), "channels last": last.build(y)},
        flops=flops,
        traffic_bytes=4 * (prod(image) + prod(out)) + weight_bytes,
    )


def _conv(channels: int, extent: int, out_channels: int, kernel: int, *, stride: int = 1, group: int = 1) -> Single:
    """A convolution with padding that keeps the extents at stride 1."""
    sort = "depthwise" if group == channels else "conv"
    name = f"{sort} {kernel}x{kernel} {channels} to {out_channels} at {extent}x{extent}"
    out = -(-extent // stride)
    weight = _weight(out_channels, channels // group, kernel, kernel)
    return _image(
        name if stride == 1 else f"{name}, stride {stride}",
        (channels, extent, extent),
        (out_channels, out, out),
        2 * weight.size * out * out,
        weight,
        "Conv",
        kernel_shape=(kernel, kernel),
        strides=(stride, stride),
        pads=_pads(kernel, extent, stride),
        group=group,
    )


def _pads(kernel: int, extent: int, stride: int) -> tuple[int, ...]:
    """Padding with which ceil(extent / stride) windows fit, more of it behind."""
    whole = max(0, (-(-extent // stride) - 1) * stride + kernel - extent)
    return (whole // 2,) * 2 + (whole - whole // 2,) * 2


def _transposed(channels: int, extent: int, out_channels: int, kernel: int, stride: int) -> Single:
    """A transposed convolution that multiplies the extents by its stride."""
    weight = _weight(channels, out_channels, kernel, kernel)
    return _image(
        f"transposed conv {kernel}x{kernel} {channels} to {out_channels} at {extent}x{extent}, stride {stride}",
        (channels, extent, extent),
        (out_channels, extent * stride, extent * stride),
        2 * weight.size * extent * extent,
        weight,
        "ConvTranspose",
        kernel_shape=(kernel, kernel),
        strides=(stride, stride),
        pads=((kernel - stride) // 2,) * 4,
    )


def _pool(op_type: str, channels: int, extent: int, kernel: int, stride: int) -> Single:
    """A pooling whose windows do not leave the image."""
    out = (extent - kernel) // stride + 1
    return _image(
        f"{op_type} {kernel}x{kernel} of {channels} at {extent}x{extent}, stride {stride}",
        (channels, extent, extent),
        (channels, out, out),
        channels * out * out * kernel * kernel,
        None,
        op_type,
        kernel_shape=(kernel, kernel),
        strides=(stride, stride),
    )


def _rows(op_type: str, rows: int, columns: int, flops_per_element: int) -> Single:
    """An operator over the rows of a matrix."""
    graph = GraphBuilder("rows")
    x = graph.input("x", (rows, columns))
    operands = [x]
    if op_type == "LayerNormalization":
        operands += [graph.parameter(name, _weight(columns)) for name in ("scale", "bias")]
    model = graph.build(graph.node(op_type, "y", operands, (rows, columns), axis=-1))
    elements = rows * columns
    name = f"{op_type} of {rows} x {columns}"
    return Single(name=name, forms={"": model}, flops=flops_per_element * elements, traffic_bytes=8 * elements)


SINGLES: Mapping[str, Callable[[], Single]] = {
    "product": lambda: _product(1024, 1024, 1024),
    "product-activations": lambda: _product(1024, 1024, 1024, constant=False),
    "product-few-rows": lambda: _product(100, 256, 1024),
    "products-64-rows": lambda: _product(64, 64, 64, count=36),
    "products-49-rows": lambda: _product(49, 64, 192, count=64),
    "products-16-rows": lambda: _product(16, 384, 256, count=36),
    "products-4-rows": lambda: _product(4, 64, 64, count=36),
    "conv3x3-64": lambda: _conv(64, 56, 64, 3),
    "conv3x3-256": lambda: _conv(256, 14, 256, 3),
    "conv1x1": lambda: _conv(256, 14, 1024, 1),
    "conv11x11": lambda: _conv(3, 224, 64, 11, stride=4),
    "depthwise3x3": lambda: _conv(144, 56, 144, 3, group=144),
    "depthwise5x5": lambda: _conv(240, 28, 240, 5, group=240),
    "depthwise3x3-stride2": lambda: _conv(144, 56, 144, 3, stride=2, group=144),
    "depthwise7x7": lambda: _conv(96, 32, 96, 7, group=96),
    "matrix-vector": lambda: _product(1, 4096, 4096),
    "four-vectors": lambda: _product(4, 4096, 4096),
    "transposed": lambda: _transposed(128, 28, 64, 4, 2),
    "max-pool": lambda: _pool("MaxPool", 64, 112, 3, 2),
    "average-pool": lambda: _pool("AveragePool", 64, 112, 3, 1),
    "softmax": lambda: _rows("Softmax", 512, 512, 20),
    "layer-norm": lambda: _rows("LayerNormalization", 512, 768, 8),
}
"""Operators by the name that the command line knows."""
