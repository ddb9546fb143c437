"""Convolutions and poolings: automatic padding and rounding become explicit pads and extents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import reshaped
from rammer.frontends.onnx.converters.elementwise import plain
from rammer.frontends.onnx.node import Converter, Node
from rammer.ir.graph import Attribute


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """A moving window, a number per spatial dimension each; `pads` are all begins, then all ends."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]

    @property
    def span(self) -> tuple[int, ...]:
        """Elements from the first to the last tap."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True))


def _window(node: Node, x: Operand, kernel: Sequence[int]) -> _Window:
    """The window of a node over x `[n, c, *spatial]`.

    Raises:
        InvalidModelError: attributes are for another number of dimensions, or out of range.
    """
    count = x.rank - 2
    if count < 1:
        raise node.invalid(f"{x.type} has no spatial dimension")
    strides = _per_dimension(node, "strides", count)
    dilations = _per_dimension(node, "dilations", count)
    if len(kernel) != count or min(*kernel, *strides, *dilations) < 1:
        raise node.invalid(f"kernel {list(kernel)}, strides {list(strides)}, dilations {list(dilations)} for {x.type}")
    window = _Window(kernel=tuple(kernel), strides=strides, dilations=dilations, pads=(0,) * (2 * count))
    pads = _pads(node, window, x.shape[2:])
    return _Window(kernel=window.kernel, strides=strides, dilations=dilations, pads=pads)


def _per_dimension(node: Node, name: str, count: int) -> tuple[int, ...]:
    values = node.integers(name) or (1,) * count
    if len(values) != count:
        raise node.invalid(f"{name} {list(values)} for {count} spatial dimension(s)")
    return values


def _pads(node: Node, window: _Window, extents: Sequence[int]) -> tuple[int, ...]:
    """Explicit pads; SAME makes the result `ceil(extent / stride)` long, the odd element going where it says."""
    mode = node.text("auto_pad") if node.has("auto_pad") else "NOTSET"
    match mode:
        case "NOTSET":
            pads = node.integers("pads") or (0,) * (2 * len(extents))
            if len(pads) != 2 * len(extents) or min(pads) < 0:
                raise node.invalid(f"pads {list(pads)} for {len(extents)} spatial dimension(s)")
            return pads
        case "VALID":
            return window.pads
        case "SAME_UPPER" | "SAME_LOWER":
            totals = [
                max(0, (-(-extent // stride) - 1) * stride + span - extent)
                for extent, stride, span in zip(extents, window.strides, window.span, strict=True)
            ]
            return _shared_out(totals, upper=mode == "SAME_UPPER")
        case _:
            raise node.invalid(f"auto_pad '{mode}' does not exist")


def _shared_out(totals: Sequence[int], *, upper: bool) -> tuple[int, ...]:
    """Total pads halved; the odd element at the end if `upper`."""
    small, large = [total // 2 for total in totals], [total - total // 2 for total in totals]
    return (*small, *large) if upper else (*large, *small)


def _conv(node: Node) -> Sequence[Operand]:
    return [convolution(node, *node.operands)]


def convolution(node: Node, x: Operand, w: Operand, *bias: Operand) -> Operand:
    """A convolution with the window that the node's attributes describe."""
    window = _window(node, x, _kernel(node, w))
    return node.add(
        "Conv",
        x,
        w,
        *bias,
        strides=window.strides,
        dilations=window.dilations,
        pads=window.pads,
        group=node.integer("group"),
    )


def _kernel(node: Node, w: Operand) -> tuple[int, ...]:
    """The kernel's extents, which the attribute may only repeat."""
    declared = node.integers("kernel_shape")
    if declared is not None and declared != w.shape[2:]:
        raise node.invalid(f"kernel_shape {list(declared)} is not that of the weights {w.type}")
    return w.shape[2:]


def _conv_transpose(node: Node) -> Sequence[Operand]:
    """The pads follow from `output_shape` where it is given, or from SAME."""
    x, w = node.operand(0), node.operand(1)
    window = _window(node, x, _kernel(node, w))
    extents, count = x.shape[2:], x.rank - 2
    extra = node.integers("output_padding") or (0,) * count
    wanted = node.integers("output_shape")
    mode = node.text("auto_pad")
    pads = window.pads
    if wanted is None and mode.startswith("SAME"):
        wanted = tuple(extent * stride for extent, stride in zip(extents, window.strides, strict=True))
    if len(extra) != count or (wanted is not None and len(wanted) != count):
        raise node.invalid(f"output_padding or output_shape are not for {count} spatial dimension(s)")
    if wanted is not None:
        totals = [
            stride * (extent - 1) + padding + span - out
            for stride, extent, padding, span, out in zip(
                window.strides, extents, extra, window.span, wanted, strict=True
            )
        ]
        # What is wanted beyond the reach of the kernel is added at the end, like output padding.
        extra = tuple(padding + max(0, -total) for padding, total in zip(extra, totals, strict=True))
        pads = _shared_out([max(0, total) for total in totals], upper=mode == "SAME_UPPER")
    return [
        node.add(
            "ConvTranspose",
            *node.operands,
            strides=window.strides,
            dilations=window.dilations,
            pads=pads,
            group=node.integer("group"),
            output_padding=extra,
        )
    ]


def _pool(node: Node) -> Sequence[Operand]:
    """MaxPool, AveragePool and LpPool."""
    x = node.operand(0)
    shared = pooling(node, x)
    own: dict[str, bool | int] = {}
    if node.op_type == "AveragePool":
        own["count_include_pad"] = node.flag("count_include_pad")
    if node.op_type == "LpPool":
        own["p"] = node.integer("p")
    result = node.add(node.op_type, x, **shared, **own)
    if node.op_type != "MaxPool" or not node.wants(1):
        return [result]
    return [result, _in_the_whole(node, node.add("MaxPoolPositions", x, **shared), x.shape)]


def pooling(node: Node, x: Operand) -> Mapping[str, Attribute]:
    """The attributes that all kinds of pooling of `[n, c, *spatial]` share.

    Raises:
        InvalidModelError: those of the node do not fit.
    """
    window = _window(node, x, node.integers("kernel_shape") or ())
    count = x.rank - 2
    rounding_up = node.has("ceil_mode") and node.flag("ceil_mode")
    out_shape = tuple(
        _windows(extent, window.pads[dim], window.pads[count + dim], window.strides[dim], window.span[dim], rounding_up)
        for dim, extent in enumerate(x.shape[2:])
    )
    return {
        "kernel": window.kernel,
        "strides": window.strides,
        "dilations": window.dilations,
        "pads": window.pads,
        "out_shape": out_shape,
    }


def _in_the_whole(node: Node, positions: Operand, shape: Sequence[int]) -> Operand:
    """Positions among the elements of a channel, counted as `storage_order` says, as positions in the whole operand."""
    outer, spatial = shape[:2], shape[2:]
    if node.flag("storage_order"):  # down the columns: the first dimension is the fastest
        rows_first = np.arange(math.prod(spatial), dtype=np.int64).reshape(spatial[::-1])
        table = node.constant(np.ascontiguousarray(rows_first.transpose()).reshape(-1))
        positions = node.add("Gather", table, positions, axis=0)
    first = np.arange(math.prod(outer), dtype=np.int64) * math.prod(spatial)
    return node.add("Add", positions, node.constant(first.reshape(*outer, *(1 for _ in spatial))))


def _windows(extent: int, begin: int, end: int, stride: int, span: int, rounding_up: bool) -> int:
    """How many windows there are; the last may hang over if rounding up, but not start beyond the elements.

    A number below 0 stands for a window that does not fit; the operator refuses it.
    """
    room = extent + begin + end - span
    steps = -(-room // stride) if rounding_up else room // stride
    if steps < 0:
        return steps
    return steps if rounding_up and steps * stride >= extent + begin else steps + 1


def _col2im(node: Node) -> Sequence[Operand]:
    x, image, kernel = node.operand(0), node.known_integers(1), node.known_integers(2)
    count = len(image)
    strides, dilations = _per_dimension(node, "strides", count), _per_dimension(node, "dilations", count)
    pads = node.integers("pads") or (0,) * (2 * count)
    if len(kernel) != count or len(pads) != 2 * count or min(*kernel, *strides, *dilations) < 1:
        raise node.invalid(f"kernel {list(kernel)}, strides {list(strides)}, pads {list(pads)} for {list(image)}")
    blocks = tuple(
        (extent + pads[dim] + pads[count + dim] - dilations[dim] * (kernel[dim] - 1) - 1) // strides[dim] + 1
        for dim, extent in enumerate(image)
    )
    if min(blocks) < 1:
        raise node.invalid(f"no window of {list(kernel)} fits into {list(image)}")
    own = {"image": image, "kernel": kernel, "strides": strides, "dilations": dilations}
    return [node.add("Col2Im", x, **own, pads=pads[:count], blocks=blocks)]


def _deform_conv(node: Node) -> Sequence[Operand]:
    """A product of the weights, for each group, with the moved windows."""
    x, w, offsets = (node.operand(position) for position in range(3))
    if x.rank != 4 or w.rank != 4:
        raise node.unsupported(f"a deformable convolution of {x.type}", "two spatial dimensions are possible")
    window, group = _window(node, x, _kernel(node, w)), node.integer("group")
    out = tuple(
        _windows(extent, window.pads[dim], window.pads[2 + dim], window.strides[dim], window.span[dim], False)
        for dim, extent in enumerate(x.shape[2:])
    )
    if offsets.shape[2:] != out or group < 1 or w.shape[0] % group or x.shape[1] != w.shape[1] * group:
        raise node.invalid(f"offsets {offsets.type}, weights {w.type} and {group} group(s) do not fit {x.type}")
    masks = () if node.optional(4) is None else (node.operand(4),)
    columns = node.add(
        "DeformedWindows",
        x,
        offsets,
        *masks,
        kernel=window.kernel,
        strides=window.strides,
        dilations=window.dilations,
        pads=window.pads[:2],
        groups=node.integer("offset_group"),
    )
    taps = w.shape[1] * w.shape[2] * w.shape[3]
    kernels = reshaped(node, w, (group, w.shape[0] // group, taps))
    product = node.add("MatMul", kernels, reshaped(node, columns, (x.shape[0], group, taps, out[0] * out[1])))
    result = reshaped(node, product, (x.shape[0], w.shape[0], *out))
    bias = node.optional(3)
    return [result if bias is None else node.add("Add", result, reshaped(node, bias, (w.shape[0], 1, 1)))]


def _global_lp_pool(node: Node) -> Sequence[Operand]:
    return [node.add("GlobalLpPool", node.operand(0), p=node.integer("p"))]


CONVERTERS: Mapping[str, Converter] = {
    "AveragePool": _pool,
    "Col2Im": _col2im,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DeformConv": _deform_conv,
    "GlobalAveragePool": plain,
    "GlobalLpPool": _global_lp_pool,
    "GlobalMaxPool": plain,
    "LpPool": _pool,
    "MaxPool": _pool,
}
