"""Linear layers whose weights are integers of few bits, in blocks with a scale each (ONNX Runtime's `MatMulNBits`)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks.networks.builder import Array, Float32, GraphBuilder, Value

BLOCK = 32
"""Weights of a row that share a scale."""

SCALES = ".scales"
"""What the name of a weight's scales ends with, behind the weight's."""


def linear(graph: GraphBuilder, name: str, x: Value, weight: Float32, bits: int) -> Value:
    """x @ weight.T for `x` (..., in) and `weight` (out, in), rounded to integers of 4 or 8 bits."""
    packed, scales = quantised(weight, bits)
    outputs, depth = weight.shape
    operands = [x, graph.parameter(f"{name}.weight", packed), graph.parameter(f"{name}.weight{SCALES}", scales)]
    sizes = {"K": depth, "N": outputs, "bits": bits, "block_size": BLOCK}
    return graph.node("com.microsoft.MatMulNBits", name, operands, (*x.shape[:-1], outputs), **sizes)


def quantised(weight: Float32, bits: int) -> tuple[npt.NDArray[np.uint8], Float32]:
    """Symmetric integers (out, blocks, bytes), the first in the lowest bits of a byte, and scales (out, blocks).

    They stand for `(integer - 2 ** (bits - 1)) * scale`. Scales are numbers that float16 has.
    """
    zero = 1 << (bits - 1)
    blocks = weight.reshape(weight.shape[0], -1, BLOCK)
    largest = np.abs(blocks).max(axis=-1)
    scales = (largest / (zero - 1)).astype(np.float16).astype(np.float32)
    steps = np.divide(1, scales, out=np.zeros_like(scales), where=scales > 0)
    integers = np.rint(blocks * steps[..., None]) + zero
    numbers = np.clip(integers, 0, 2 * zero - 1).astype(np.uint8)
    return (numbers if bits == 8 else numbers[..., 0::2] | numbers[..., 1::2] << 4), scales


def floats(packed: npt.NDArray[np.uint8], scales: Array) -> Float32:
    """The weights (out, in) that integers and scales stand for."""
    outputs, blocks, width = packed.shape
    bits = 8 * width // BLOCK
    numbers = packed if bits == 8 else np.stack([packed & 15, packed >> 4], axis=-1).reshape(outputs, blocks, BLOCK)
    weights: Float32 = (numbers.astype(np.float32) - (1 << (bits - 1))) * scales.astype(np.float32)[..., None]
    return weights.reshape(outputs, blocks * BLOCK)
