"""pad_images: convolutions along one dimension read images that have their padding in memory.

    y = Conv(x, w), pads (p, q)  ->  y = Conv(Concat(zeros, x, zeros), w), without padding

With the channels of a position side by side (`channels_last`), what a kernel covers is then one run of memory, and the
next position's begins a stride further on: a matrix, whose rows overlap, which tensor maps describe. Elsewhere padding
is a condition on each element.

Whoever makes x writes it between the zeros; what the caller has is copied, once, instead of being read by twos of bytes
wherever its channels do not lie side by side.

Only where a vDevice has warpgroups that multiply such matrices, of 16-bit elements and as many channels as tensor maps
can step over.

Ordering restriction: after passes that know convolutions by their attributes; before `channels_last`.
"""

from __future__ import annotations

import numpy as np

from rammer.ir.graph import Graph, Operator
from rammer.ir.vdevice import VDevice
from rammer.operators.attributes import integer, integers
from rammer.passes.helpers.rewrite import Rewriter
from rammer.tiling.warpgroup_gemm import INSTRUCTIONS, MAP_BYTES, SLAB_BYTES

_RANK = 3  # images along one dimension: batch, channels, positions


def run(graph: Graph, device: VDevice) -> Graph:
    """Pad images; see the module.

    Args:
        graph: convolutions by kind.
        device: says whether warpgroups multiply.
    """
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        if _is_matrix_if_padded(operator, graph, device):
            _pad(operator, rewriter)
        else:
            rewriter.insert(operator)
    return rewriter.finish()


def _is_matrix_if_padded(operator: Operator, graph: Graph, device: VDevice) -> bool:
    """Whether padding is all that keeps what a convolution reads from being a matrix that warpgroups multiply."""
    if operator.kind != "Conv" or operator.inputs[1] not in graph.constants:
        return False
    image, weight = (graph.values[value].type for value in operator.inputs[:2])
    if image.rank != _RANK or INSTRUCTIONS.get(image.dtype) not in device.instructions:
        return False
    channels_bytes = image.shape[1] * image.dtype.itemsize_bytes
    is_dense = integer(operator.attributes, "group") == 1 and set(integers(operator.attributes, "dilations")) == {1}
    is_long = channels_bytes * weight.shape[2] >= SLAB_BYTES and channels_bytes % MAP_BYTES == 0
    return is_dense and is_long and image.dtype.is_half and any(integers(operator.attributes, "pads"))


def _pad(operator: Operator, rewriter: Rewriter) -> None:
    """Let a convolution without padding stand for one with it."""
    image, *others = operator.inputs
    type_, before_after = rewriter.type(image), integers(operator.attributes, "pads")
    before, after = (np.zeros((*type_.shape[:2], count), type_.dtype.numpy) for count in before_after)
    parts = [image]
    if before.size:
        parts.insert(0, rewriter.constant(before, f"{operator.name}.before", type_.dtype))
    if after.size:
        parts.append(rewriter.constant(after, f"{operator.name}.after", type_.dtype))
    padded = rewriter.add("Concat", parts, {"axis": 2}, name=f"{operator.name}.padded", sources=operator.sources)
    made = rewriter.add(
        "Conv",
        [padded, *others],
        {**operator.attributes, "pads": (0, 0)},
        name=operator.name,
        sources=operator.sources,
    )
    rewriter.replace(operator.outputs[0], made)
