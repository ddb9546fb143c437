"""Random numbers: they have ONNX's distributions, from streams of the program's own or of the seed that a node has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import converted
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.tensors import dtype_of
from rammer.frontends.randomness import Draws
from rammer.ir.types import DType


def _draws(node: Node, seed: int | None) -> Draws:
    if node.random is None:
        raise node.unsupported(
            "random numbers in a loop of more trips than are unrolled", "draw them outside of the loop"
        )
    return Draws(node, node.random, seed)


def _seed(node: Node) -> int | None:
    """The attribute's bits; None where there is none."""
    return int(np.float32(node.number("seed")).view(np.uint32)) if node.has("seed") else None


def _dtype(node: Node, like: Operand | None) -> DType:
    """That of the attribute, else of the operand."""
    if like is not None and not node.has("dtype"):
        return like.dtype
    return dtype_of(node.integer("dtype"), str(node.location))


def _shaped(node: Node) -> tuple[Sequence[int], DType]:
    """What is drawn: as much as the operand has, or as the attribute says."""
    like = node.optional(0)
    shape = (node.integers("shape") or ()) if like is None else like.shape
    dtype = _dtype(node, like)
    if not dtype.is_float:
        raise node.invalid(f"it draws numbers of {dtype.value}, not floating-point ones")
    if any(extent < 0 for extent in shape):
        raise node.invalid(f"it draws numbers of shape {list(shape)}")
    return shape, dtype


def _uniform(node: Node) -> Sequence[Operand]:
    """In [low, high)."""
    shape, dtype = _shaped(node)
    low, high = node.number("low"), node.number("high")
    return [_moved(node, _draws(node, _seed(node)).uniform(shape, dtype), low, high - low)]


def _normal(node: Node) -> Sequence[Operand]:
    shape, dtype = _shaped(node)
    found = _draws(node, _seed(node)).normal(shape, dtype)
    return [_moved(node, found, node.number("mean"), node.number("scale"))]


def _moved(node: Node, x: Operand, start: float, scale: float) -> Operand:
    first, factor = (node.constant(np.array(value, x.dtype.numpy)) for value in (start, scale))
    return node.add("Add", node.add("Mul", x, factor), first)


def _bernoulli(node: Node) -> Sequence[Operand]:
    """1 with the probability that each element is."""
    p = node.operand(0)
    return [converted(node, _draws(node, _seed(node)).below(p, p.shape), _dtype(node, p))]


def _multinomial(node: Node) -> Sequence[Operand]:
    """Classes, each with a probability in proportion to the exponential of its element."""
    x, number = node.of_rank(0, 2), node.integer("sample_size")
    highest = node.add("ReduceMax", x, axes=(1,), keepdims=True)
    weights = node.add("Exp", node.add("Sub", x, highest))
    chosen = _draws(node, _seed(node)).chosen(weights, number, again=True)
    return [converted(node, chosen, dtype_of(node.integer("dtype"), str(node.location)))]


def _dropout(node: Node) -> Sequence[Operand]:
    """In training mode elements are kept with probability `1 - ratio` and divided by it; else nothing is dropped."""
    x = node.operand(0)
    ratio = _ratio(node)
    if ratio == 0:
        return [x, *([node.add("Expand", node.constant(np.array(True)), shape=x.shape)] if node.wants(1) else [])]
    draws = _draws(node, node.integer("seed") % 2**64 if node.has("seed") else None)
    mask = draws.below(node.constant(np.array(1 - ratio, np.float32)), x.shape)
    factor = node.constant(np.array(1 / (1 - ratio), x.dtype.numpy))
    return [node.add("Mul", node.add("Mul", x, converted(node, mask, x.dtype)), factor), mask]


def _ratio(node: Node) -> float:
    """How much is dropped."""
    if node.optional(2) is None or not node.known(2).any():
        return 0
    ratio = 0.5 if node.optional(1) is None else node.known(1)
    if np.size(ratio) != 1 or not 0 <= np.asarray(ratio).item() < 1:
        raise node.invalid(f"its ratio is {np.asarray(ratio).tolist()}, not a number from 0 up to 1")
    return float(np.asarray(ratio).item())


CONVERTERS: Mapping[str, Converter] = {
    "Bernoulli": _bernoulli,
    "Dropout": _dropout,
    "Multinomial": _multinomial,
    **dict.fromkeys(("RandomNormal", "RandomNormalLike"), _normal),
    **dict.fromkeys(("RandomUniform", "RandomUniformLike"), _uniform),
}
