"""Convolutions and their transposes over one to three spatial dimensions, with or without a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rammer.frontends.builder import Operand
from rammer.frontends.moves import reshaped
from rammer.frontends.torch.node import Converter, Node, Result

_SPATIAL: Mapping[str, int] = {
    **{f"conv{rank}d": rank for rank in (1, 2, 3)},
    **{f"conv_transpose{rank}d": rank for rank in (1, 2, 3)},
}


def _conv(node: Node) -> Result:
    """conv1d and the like; padding may be "same" or "valid"."""
    count = _SPATIAL[node.operator]
    x, batched = _batched(node, count)
    weight = node.operand("weight")
    dilations = per_dimension(node, "dilation", count)
    y = node.add(
        "Conv",
        *_operands(node, x, weight),
        strides=per_dimension(node, "stride", count),
        dilations=dilations,
        pads=_pads(node, weight.shape[2:], dilations),
        group=node.integer("groups"),
    )
    return y if batched else reshaped(node, y, y.shape[1:])


def _pads(node: Node, kernel: Sequence[int], dilations: Sequence[int]) -> tuple[int, ...]:
    """Pads at the beginnings, then at the ends."""
    match node.arguments["padding"]:
        case "valid":
            return (0,) * (2 * len(kernel))
        case "same":
            totals = [dilation * (taps - 1) for taps, dilation in zip(kernel, dilations, strict=True)]
            return (*(total // 2 for total in totals), *(total - total // 2 for total in totals))
        case _:
            return per_dimension(node, "padding", len(kernel)) * 2


def _conv_transpose(node: Node) -> Result:
    count = _SPATIAL[node.operator]
    x, batched = _batched(node, count)
    y = _transposed_convolution(node, x, count)
    return y if batched else reshaped(node, y, y.shape[1:])


def _transposed_convolution(node: Node, x: Operand, count: int) -> Operand:
    return node.add(
        "ConvTranspose",
        *_operands(node, x, node.operand("weight")),
        strides=per_dimension(node, "stride", count),
        dilations=per_dimension(node, "dilation", count),
        pads=per_dimension(node, "padding", count) * 2,
        group=node.integer("groups"),
        output_padding=per_dimension(node, "output_padding", count),
    )


def _convolution(node: Node) -> Result:
    """The form of all of them that PyTorch decomposes to."""
    weight = node.operand("weight")
    count = weight.rank - 2
    x, batched = _batched(node, count)
    if node.flag("transposed"):
        y = _transposed_convolution(node, x, count)
    else:
        y = node.add(
            "Conv",
            *_operands(node, x, weight),
            strides=per_dimension(node, "stride", count),
            dilations=per_dimension(node, "dilation", count),
            pads=per_dimension(node, "padding", count) * 2,
            group=node.integer("groups"),
        )
    return y if batched else reshaped(node, y, y.shape[1:])


def _batched(node: Node, count: int) -> tuple[Operand, bool]:
    """The input with a batch, and whether it had one."""
    x = node.operand("input")
    return (x, True) if x.rank == count + 2 else (reshaped(node, x, (1, *x.shape)), False)


def _operands(node: Node, x: Operand, weight: Operand) -> tuple[Operand, ...]:
    bias = node.optional("bias")
    return (x, weight) if bias is None else (x, weight, bias)


def per_dimension(node: Node, name: str, count: int) -> tuple[int, ...]:
    """An argument with a number for each spatial dimension; one number is for all."""
    values = node.integers(name)
    return values * count if len(values) == 1 else values


CONVERTERS: Mapping[str, Converter] = {
    **{name: _conv_transpose if "transpose" in name else _conv for name in _SPATIAL},
    "convolution": _convolution,
}
