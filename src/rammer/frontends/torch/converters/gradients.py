"""Gradients that PyTorch has operators of their own for: those of convolutions, pooling and losses of classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import converted, expanded, part, reshaped, transposed
from rammer.frontends.resampling import times_along
from rammer.frontends.torch.converters.convolution import per_dimension
from rammer.frontends.torch.converters.pooling import shares_of_adaptive
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.ir.types import DType

_MEAN = 1  # of `torch._C`'s kinds of reduction: none, mean, sum


def _convolution_backward(node: Node) -> Result:
    """By the input, the weight and the bias, those that `output_mask` asks for."""
    by_input, by_weight, by_bias = (bool(wanted) for wanted in node.arguments["output_mask"])  # type: ignore[attr-defined]
    g, x, w = (node.operand(name) for name in ("grad_output", "input", "weight"))
    window = _Window(node, w.rank - 2)
    batched = x.rank == w.rank
    if not batched:
        g, x = (reshaped(node, each, (1, *each.shape)) for each in (g, x))
    back = [
        window.back_to(x.shape, g, w) if by_input else None,
        window.weight_of(x, g, w) if by_weight else None,
        node.add("ReduceSum", g, axes=(0, *range(2, g.rank)), keepdims=False) if by_bias else None,
    ]
    if back[0] is not None and not batched:
        back[0] = reshaped(node, back[0], x.shape[1:])
    return back


class _Window:
    """How the kernel of a convolution, or of a transposed one, moves."""

    def __init__(self, node: Node, count: int) -> None:
        self._node = node
        self._strides, self._dilations, self._padding = (
            per_dimension(node, name, count) for name in ("stride", "dilation", "padding")
        )
        self._groups = node.integer("groups")
        self._transposed = node.flag("transposed")

    def back_to(self, shape: Sequence[int], g: Operand, w: Operand) -> Operand:
        """The gradient by an input of a shape: the transposed convolution of the result's, or the other way round."""
        node = self._node
        if self._transposed:
            return self._conv(g, w, self._strides, self._dilations, self._groups)
        reached = [
            (extent - 1) * stride - 2 * pad + dilation * (taps - 1) + 1
            for extent, stride, pad, dilation, taps in zip(
                g.shape[2:], self._strides, self._padding, self._dilations, w.shape[2:], strict=True
            )
        ]
        return node.add(
            "ConvTranspose",
            g,
            w,
            strides=self._strides,
            dilations=self._dilations,
            pads=self._padding * 2,
            group=self._groups,
            output_padding=tuple(full - end for full, end in zip(shape[2:], reached, strict=True)),
            finite_weights=True,  # a gradient by infinite weights may be NaN where it would be infinite
        )

    def weight_of(self, x: Operand, g: Operand, w: Operand) -> Operand:
        """The gradient by the kernels: what moves is the gradient, over the channels of the input one by one.

        The batch is what is summed over; where there are groups, it is side by side for each.
        """
        fixed, moved = (g, x) if self._transposed else (x, g)
        images, kernels = self._batch_as_channels(fixed), transposed(self._node, moved, _swapped(moved.rank))
        y = self._conv(images, kernels, self._dilations, self._strides, self._groups)
        for dim in range(2, w.rank):  # where a stride does not divide, the image reaches further than the kernel
            y = part(self._node, y, dim, 0, w.shape[dim])
        return transposed(self._node, y, _swapped(y.rank))

    def _batch_as_channels(self, x: Operand) -> Operand:
        """`[n, groups * c, *spatial]` as `[c, groups * n, *spatial]`."""
        node, (n, channels, *spatial) = self._node, x.shape
        split = reshaped(node, x, (n, self._groups, channels // self._groups, *spatial))
        turned = transposed(node, split, (2, 1, 0, *range(3, split.rank)))
        return reshaped(node, turned, (channels // self._groups, self._groups * n, *spatial))

    def _conv(
        self, x: Operand, w: Operand, strides: tuple[int, ...], dilations: tuple[int, ...], group: int
    ) -> Operand:
        return self._node.add("Conv", x, w, strides=strides, dilations=dilations, pads=self._padding * 2, group=group)


def _swapped(rank: int) -> tuple[int, ...]:
    return (1, 0, *range(2, rank))


def _max_pool_backward(node: Node) -> Result:
    """Each gradient goes to the element that its window chose."""
    g, x, positions = (node.operand(name) for name in ("grad_output", "self", "indices"))
    count = len(node.integers("kernel_size"))
    kernel = per_dimension(node, "kernel_size", count)
    g, positions = (_with_batch(node, each, count) for each in (g, positions))
    y = node.add(
        "MaxPoolGradient",
        g,
        positions,
        kernel=kernel,
        strides=per_dimension(node, "stride", count) or kernel,
        dilations=per_dimension(node, "dilation", count),
        pads=per_dimension(node, "padding", count) * 2,
        shape=x.shape[-count:],
    )
    return reshaped(node, y, x.shape)


def _adaptive_max_pool_backward(node: Node) -> Result:
    g, x, positions = (node.operand(name) for name in ("grad_output", "self", "indices"))
    count = 2 if "2d" in node.operator else 3
    if any(extent % size for extent, size in zip(x.shape[-count:], g.shape[-count:], strict=True)):
        return _pool_of_own_windows_backward(node)
    kernel = tuple(extent // size for extent, size in zip(x.shape[-count:], g.shape[-count:], strict=True))
    g, positions = (_with_batch(node, each, count) for each in (g, positions))
    own = {"kernel": kernel, "strides": kernel, "dilations": (1,) * count, "pads": (0,) * (2 * count)}
    return reshaped(node, node.add("MaxPoolGradient", g, positions, shape=x.shape[-count:], **own), x.shape)


def _pool_of_own_windows_backward(node: Node) -> Result:
    """As `_max_pool_backward`, of windows that may lie anywhere: gradients are added at the positions."""
    g, x, positions = (node.operand(name) for name in ("grad_output", "self", "indices"))
    count = 2 if "2d" in node.operator else 3
    places, windows = math.prod(x.shape[-count:]), math.prod(g.shape[-count:])
    lines = math.prod(x.shape[:-count])
    zeros = expanded(node, node.scalar(0, x.dtype), (lines, places, 1))
    won = reshaped(node, positions, (lines, windows))
    y = node.add("Scatter", zeros, won, reshaped(node, g, (lines, windows, 1)), reduction="add")
    return reshaped(node, y, x.shape)


def _with_batch(node: Node, x: Operand, count: int) -> Operand:
    return reshaped(node, x, (1, *x.shape)) if x.rank == count + 1 else x


def _average_pool_backward(node: Node) -> Result:
    """Along each dimension, the windows' gradients times the share that an element has in each."""
    g, x = node.operand("grad_output"), node.operand("self")
    count = len(node.integers("kernel_size"))
    kernel = per_dimension(node, "kernel_size", count)
    strides = per_dimension(node, "stride", count) or kernel
    padding = per_dimension(node, "padding", count)
    divisor = node.arguments["divisor_override"]
    for i in reversed(range(count)):  # rows while there are few, then all of them as they are
        dim = x.rank - count + i
        extent, pad = x.shape[dim], padding[i]
        shares = np.zeros((g.shape[dim], extent))
        for window in range(g.shape[dim]):
            start = window * strides[i] - pad
            end = min(start + kernel[i], extent + pad)
            inside = slice(max(start, 0), min(end, extent))
            taps = end - start if node.flag("count_include_pad") else inside.stop - inside.start
            shares[window, inside] = 1 / taps if divisor is None else 1
        g = times_along(node, g, dim, shares)
    return g if divisor is None else node.add("Div", g, node.typed("divisor_override"))


def _adaptive_average_pool_backward(node: Node) -> Result:
    g, x = node.operand("grad_output"), node.operand("self")
    count = 2 if "2d" in node.operator else 3
    for dim in reversed(range(x.rank - count, x.rank)):
        g = times_along(node, g, dim, shares_of_adaptive(x.shape[dim], g.shape[dim]).T)
    return g


def _classes_backward(node: Node) -> Result:
    """Minus the gradient of the loss, shared out among the elements that count, where the class is the target's."""
    x, target, g = (node.operand(name) for name in ("self", "target", "grad_output"))
    axis = 1 if x.rank > 1 else 0
    single = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    classes = np.arange(x.shape[axis], dtype=np.int64).reshape([-1 if dim == axis else 1 for dim in range(x.rank)])
    target = reshaped(node, target, single)
    if node.integer("reduction") == _MEAN:
        g = node.add("Div", g, node.operand("total_weight"))
    if g.rank:
        g = reshaped(node, g, single)
    counts = node.add("Not", node.add("Equal", target, node.scalar(node.integer("ignore_index"), target.dtype)))
    zero = node.scalar(0, node.dtype)
    down = node.add("Where", counts, node.add("Neg", g), zero)
    hit = node.add("Equal", target, node.constant(classes))
    if (weight := node.optional("weight")) is not None:
        return node.add("Where", hit, node.add("Mul", down, reshaped(node, weight, classes.shape)), zero)
    y = node.add("Where", hit, down, zero)
    node.sums[y, axis] = down
    return y


def _log_softmax_backward(node: Node) -> Result:
    """Less the probability's share of the sum of a line."""
    g, y = node.operand("grad_output"), node.operand("output")
    axis = node.dimension("dim", y.rank)
    total = node.sums.get((g, axis))
    dtype = DType.FLOAT32 if g.dtype.is_half else g.dtype
    g, y = (converted(node, each, dtype) for each in (g, y))
    if y.rank == 0:
        return converted(node, node.add("Sub", g, node.add("Mul", node.add("Exp", y), g)), node.dtype)
    if total is None:
        total = node.add("ReduceSum", g, axes=(axis,), keepdims=True)
    share = node.add("Mul", node.add("Exp", y), converted(node, total, dtype))
    return converted(node, node.add("Sub", g, share), node.dtype)


CONVERTERS: Mapping[str, Converter] = {
    "_log_softmax_backward_data": _log_softmax_backward,
    "nll_loss2d_backward": _classes_backward,
    "nll_loss_backward": _classes_backward,
    "_adaptive_avg_pool2d_backward": _adaptive_average_pool_backward,
    "_adaptive_avg_pool3d_backward": _adaptive_average_pool_backward,
    "adaptive_max_pool2d_backward": _adaptive_max_pool_backward,
    "adaptive_max_pool3d_backward": _adaptive_max_pool_backward,
    "avg_pool2d_backward": _average_pool_backward,
    "avg_pool3d_backward": _average_pool_backward,
    "convolution_backward": _convolution_backward,
    "fractional_max_pool2d_backward": _pool_of_own_windows_backward,
    "fractional_max_pool3d_backward": _pool_of_own_windows_backward,
    "max_pool2d_with_indices_backward": _max_pool_backward,
    "max_pool3d_with_indices_backward": _max_pool_backward,
}
