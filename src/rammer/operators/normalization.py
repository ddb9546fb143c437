"""Normalisations: one expression each, the statistics being nested reductions. All take floating-point numbers.

Scales and biases may have another floating-point type than the operand; arithmetic runs in the operand's.
"""

from __future__ import annotations

from collections.abc import Sequence

from rammer.ir.expr import Axis, Expr, Output, ReduceFn, TensorExpr, cast, load
from rammer.ir.graph import Attributes
from rammer.ir.types import TensorType
from rammer.operators.attributes import integer, integers, number
from rammer.operators.lines import (
    Line,
    greatest,
    inverse_deviation,
    line_along,
    mean,
    position_of,
    variance,
)
from rammer.operators.registry import OperatorDef, register, require
from rammer.operators.scalars import absolute, choose, equal, exp, log, power, sqrt, square
from rammer.operators.shapes import (
    FLOATS,
    broadcast_load,
    check_axis,
    check_broadcasts_to,
    check_dtype,
    check_operands,
    padded_load,
    plain_result,
    reduced,
    reduction_axes,
    spatial_axes,
)


def batch_normalization(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """`(x - mean) / sqrt(var + epsilon) * scale + bias`, per channel.

    Slots: x `[n, c, ...]`, scale, bias, mean, var `[c]`.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    x = _leading("BatchNormalization", inputs, (5, 5), least_rank=2)
    axes = spatial_axes(x.shape)
    scale, bias, center, var = (_channel_parameter("BatchNormalization", inputs, slot, axes[1]) for slot in range(1, 5))
    factor = scale / sqrt(var + number(attributes, "epsilon"))
    return plain_result(inputs, x.dtype, axes, (load(0, x, axes) - center) * factor + bias)


def layer_normalization(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """`(x - mean) / sqrt(variance + epsilon) * scale + bias` over all dimensions from `axis` on.

    Slots: x, scale, optionally bias; the latter broadcast to x. The model's further outputs are the operators
    ReduceMean and InverseStdDev.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    x = _leading("LayerNormalization", inputs, (2, 3))
    axes, line = _trailing_lines("LayerNormalization", x, attributes)
    body = (load(0, x, axes) - mean(line)) * inverse_deviation(line, number(attributes, "epsilon"))
    return plain_result(inputs, x.dtype, axes, _affine("LayerNormalization", inputs, axes, body))


def rms_normalization(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """`x / sqrt(mean(x * x) + epsilon) * scale` over all dimensions from `axis` on.

    Slots: x, scale; scale broadcasts to x.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    x = _leading("RMSNormalization", inputs, (2, 2))
    axes, line = _trailing_lines("RMSNormalization", x, attributes)
    inverse = 1.0 / sqrt(line.sum(square) / line.count + number(attributes, "epsilon"))
    return plain_result(inputs, x.dtype, axes, _affine("RMSNormalization", inputs, axes, load(0, x, axes) * inverse))


def instance_normalization(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """Each channel of each sample normalised over its spatial dimensions.

    Slots: x `[n, c, ...]`, scale, bias `[c]`.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    x = _leading("InstanceNormalization", inputs, (3, 3), least_rank=2)
    axes = spatial_axes(x.shape)
    line = line_along(0, x, range(2, x.rank), axes)
    scale, bias = (_channel_parameter("InstanceNormalization", inputs, slot, axes[1]) for slot in (1, 2))
    body = (load(0, x, axes) - mean(line)) * inverse_deviation(line, number(attributes, "epsilon"))
    return plain_result(inputs, x.dtype, axes, body * scale + bias)


def group_normalization(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """Channels in `groups` of equal size, each normalised over its channels and the spatial dimensions.

    Slots: x `[n, c, ...]`, scale, bias `[c]` or `[groups]`. The domain has an axis for the group and one for the
    channel within it, so that indices stay affine and the statistics depend on the group alone.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    kind = "GroupNormalization"
    x = _leading(kind, inputs, (3, 3), least_rank=2)
    groups = integer(attributes, "groups")
    require(groups > 0 and x.shape[1] % groups == 0, f"{kind}: {x} does not divide into {groups} groups of channels")
    size = x.shape[1] // groups
    axes = spatial_axes((x.shape[0], groups, size, *x.shape[2:]))
    n, group, member, *spatial = axes
    channel = group * size + member
    line = Line(extents=(size, *x.shape[2:]), at=lambda at: load(0, x, (n, group * size + at[0], *at[1:])))
    body = (load(0, x, (n, channel, *spatial)) - mean(line)) * inverse_deviation(line, number(attributes, "epsilon"))
    per_channel = inputs[1].shape == (x.shape[1],)
    for type_ in inputs[1:]:
        fits = type_.shape == ((x.shape[1],) if per_channel else (groups,))
        require(fits, f"{kind}: {type_} has neither one element per channel of {x} nor one per group")
    scale, bias = (cast(body.dtype, load(slot, inputs[slot], [channel if per_channel else group])) for slot in (1, 2))
    output = Output(type=x, indices=(n, channel, *spatial), body=cast(x.dtype, body * scale + bias))
    return TensorExpr(axes=axes, inputs=tuple(inputs), outputs=(output,))


def mean_variance_normalization(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """`(x - mean) / (sqrt(variance) + 1e-9)` over the dimensions `axes`.

    Raises:
        InvalidModelError: the operand or the axes do not fit.
    """
    x = _leading("MeanVarianceNormalization", inputs, (1, 1))
    axes, line = _lines("MeanVarianceNormalization", x, integers(attributes, "axes"))
    return plain_result(inputs, x.dtype, axes, (load(0, x, axes) - mean(line)) / (sqrt(variance(line)) + 1e-9))


def lp_normalization(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """`x` divided by the `p`-norm (1 or 2) along `axis`; 0 where the norm is 0.

    Raises:
        InvalidModelError: the operand, the axis or `p` does not fit.
    """
    x = _leading("LpNormalization", inputs, (1, 1))
    p = integer(attributes, "p")
    require(p in (1, 2), f"LpNormalization with p = {p}, which is not 1 or 2")
    axes, line = _lines("LpNormalization", x, [integer(attributes, "axis")])
    norm = line.sum(absolute) if p == 1 else sqrt(line.sum(square))
    return plain_result(inputs, x.dtype, axes, choose(equal(norm, 0.0), 0.0, load(0, x, axes) / norm))


def local_response_normalization(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """`x / (bias + alpha / size * s) ** beta`, s being the sum of squares over `size` channels around each.

    Slot: x `[n, c, ...]`.

    Raises:
        InvalidModelError: the operand or the size does not fit.
    """
    x = _leading("LRN", inputs, (1, 1), least_rank=2)
    size = integer(attributes, "size")
    require(size > 0, f"LRN over {size} channels")
    axes = spatial_axes(x.shape)
    n, channel, *spatial = axes
    (offset,) = reduction_axes([size])
    neighbour = padded_load(0, x, (n, channel + offset - (size - 1) // 2, *spatial), fill=0)
    squares = reduced(ReduceFn.SUM, [offset], square(neighbour))
    base = squares * (number(attributes, "alpha") / size) + number(attributes, "bias")
    return plain_result(inputs, x.dtype, axes, load(0, x, axes) / power(base, number(attributes, "beta")))


def softmax(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """`exp(x) / sum(exp(x))` along `axis`, shifted by the greatest element so that nothing overflows.

    Raises:
        InvalidModelError: the operand or the axis does not fit.
    """
    x = _leading("Softmax", inputs, (1, 1))
    axes, line = _lines("Softmax", x, [integer(attributes, "axis")])
    shift = greatest(line)
    total = line.sum(lambda element: exp(element - shift))
    return plain_result(inputs, x.dtype, axes, exp(load(0, x, axes) - shift) / total)


def log_softmax(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The logarithm of `softmax`, without forming it.

    Raises:
        InvalidModelError: the operand or the axis does not fit.
    """
    x = _leading("LogSoftmax", inputs, (1, 1))
    axes, line = _lines("LogSoftmax", x, [integer(attributes, "axis")])
    shift = greatest(line)
    total = line.sum(lambda element: exp(element - shift))
    return plain_result(inputs, x.dtype, axes, load(0, x, axes) - shift - log(total))


def hardmax(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """1 at the first greatest element along `axis`, 0 elsewhere.

    Raises:
        InvalidModelError: the operand or the axis does not fit.
    """
    x = _leading("Hardmax", inputs, (1, 1))
    dim = integer(attributes, "axis")
    axes, line = _lines("Hardmax", x, [dim])
    here = equal(axes[dim], position_of(line, ReduceFn.MAX, last=False))
    return plain_result(inputs, x.dtype, axes, cast(x.dtype.compute, here))


def _leading(kind: str, inputs: Sequence[TensorType], counts: tuple[int, int], *, least_rank: int = 0) -> TensorType:
    """The first operand, checked; the others may have other floating-point types."""
    check_operands(kind, inputs[:1], (1, 1), FLOATS)
    require(counts[0] <= len(inputs) <= counts[1], f"{kind} of {len(inputs)} operands")
    require(inputs[0].rank >= least_rank, f"{kind} of {inputs[0]}, which has no channels")
    for type_ in inputs[1:]:
        check_dtype(kind, type_, FLOATS)
    return inputs[0]


def _lines(kind: str, x: TensorType, dims: Sequence[int]) -> tuple[tuple[Axis, ...], Line]:
    """The axes of a result like x, and the line along `dims` through each point."""
    check_axis(kind, x, *dims)
    axes = spatial_axes(x.shape)
    return axes, line_along(0, x, dims, axes)


def _trailing_lines(kind: str, x: TensorType, attributes: Attributes) -> tuple[tuple[Axis, ...], Line]:
    return _lines(kind, x, range(integer(attributes, "axis"), x.rank))


def _affine(kind: str, inputs: Sequence[TensorType], axes: Sequence[Axis], body: Expr) -> Expr:
    """`body`, times slot 1, plus slot 2 where there is one; both broadcast to slot 0."""
    for slot, type_ in enumerate(inputs[1:], start=1):
        check_broadcasts_to(kind, type_, inputs[0].shape)
        parameter = cast(body.dtype, broadcast_load(slot, type_, axes))
        body = body * parameter if slot == 1 else body + parameter
    return body


def _channel_parameter(kind: str, inputs: Sequence[TensorType], slot: int, channel: Axis) -> Expr:
    """A slot's element for the channel, in slot 0's compute type."""
    type_ = inputs[slot]
    require(type_.shape == (channel.extent,), f"{kind}: {type_} has not one element per channel of {inputs[0]}")
    return cast(inputs[0].dtype.compute, load(slot, type_, [channel]))


register(OperatorDef(kind="BatchNormalization", build=batch_normalization))
register(OperatorDef(kind="LayerNormalization", build=layer_normalization))
register(OperatorDef(kind="RMSNormalization", build=rms_normalization))
register(OperatorDef(kind="InstanceNormalization", build=instance_normalization))
register(OperatorDef(kind="GroupNormalization", build=group_normalization))
register(OperatorDef(kind="MeanVarianceNormalization", build=mean_variance_normalization))
register(OperatorDef(kind="LpNormalization", build=lp_normalization))
register(OperatorDef(kind="LRN", build=local_response_normalization))
register(OperatorDef(kind="Softmax", build=softmax))
register(OperatorDef(kind="LogSoftmax", build=log_softmax))
register(OperatorDef(kind="Hardmax", build=hardmax))
