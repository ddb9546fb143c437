"""Random numbers: they have PyTorch's distributions, from streams of the program's own."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import converted
from rammer.frontends.randomness import Draws
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.ir.types import DType


def _draws(node: Node) -> Draws:
    if node.has("generator"):
        raise node.unsupported("a generator", "the program has its own; its seed is seed= of rammer.compile")
    return Draws(node, node.random)


def _dropout(node: Node) -> Result:
    """In training, elements are kept with probability `1 - p` and divided by it; the mask says which are kept."""
    x = node.operand("input")
    training, p = node.flag("train") or node.flag("training"), node.number("p")
    if not training or p == 0:
        mask = node.add("Expand", node.constant(np.array(True)), shape=x.shape)
        return x if len(node.results) == 1 else [x, mask]
    mask = _draws(node).below(node.scalar(1 - p, DType.FLOAT32), x.shape)
    factor = node.scalar(1 / (1 - p) if p < 1 else 0, x.dtype)
    kept = node.add("Mul", node.add("Mul", x, converted(node, mask, x.dtype)), factor)
    return kept if len(node.results) == 1 else [kept, mask]


def _bernoulli(node: Node) -> Result:
    """1 with probability `p`, the argument's (a number, or one for each element), else with that of each element."""
    given = node.arguments.get("p", node.operand("self"))
    p = given if isinstance(given, Operand) else node.scalar(node.number("p"), DType.FLOAT32)
    return converted(node, _draws(node).below(p, node.shape), node.dtype)


def _uniform(node: Node) -> Result:
    """In [0, 1), or in [from, to)."""
    found = _draws(node).uniform(node.shape, node.dtype)
    if not node.has("from"):
        return found
    low, high = node.number("from"), node.number("to")
    return _moved(node, found, node.scalar(low, node.dtype), node.scalar(high - low, node.dtype))


def _normal(node: Node) -> Operand:
    """With mean 0 and variance 1, or with a mean and a standard deviation, each a number or one for each element."""
    found = _draws(node).normal(node.shape, node.dtype)
    if not node.has("std"):
        return found
    return _moved(node, found, _parameter(node, "mean"), _parameter(node, "std"))


def _parameter(node: Node, name: str) -> Operand:
    if isinstance(node.arguments[name], Operand):
        return node.typed(name, node.dtype)
    return node.scalar(node.number(name), node.dtype)


def _moved(node: Node, x: Operand, start: Operand, scale: Operand) -> Operand:
    return node.add("Add", node.add("Mul", x, scale), start)


def _log_normal(node: Node) -> Result:
    return node.add("Exp", _normal(node))


def _exponential(node: Node) -> Result:
    rate = node.scalar(node.number("lambd"), node.dtype)
    return node.add("Div", _draws(node).exponential(node.shape, node.dtype), rate)


def _geometric(node: Node) -> Result:
    """How many trials it takes until one of probability `p` succeeds."""
    waited = _draws(node).exponential(node.shape, DType.FLOAT64)
    trials = node.add("Ceil", node.add("Div", waited, node.scalar(-math.log1p(-node.number("p")), DType.FLOAT64)))
    return converted(node, trials, node.dtype)


def _cauchy(node: Node) -> Result:
    angle = node.add("Sub", _draws(node).uniform(node.shape, DType.FLOAT64), node.scalar(0.5, DType.FLOAT64))
    found = node.add("Tan", node.add("Mul", angle, node.scalar(math.pi, DType.FLOAT64)))
    median, sigma = (node.scalar(node.number(name), DType.FLOAT64) for name in ("median", "sigma"))
    return converted(node, _moved(node, found, median, sigma), node.dtype)


def _integers(node: Node) -> Result:
    """From `low`, or 0, on up to `high`, which is left out; `random_` calls them otherwise."""
    low, high = ("from", "to") if node.operator == "random" else ("low", "high")
    if not node.has(high):
        raise node.unsupported("random_() without a bound", "give it one: x.random_(100)")
    return _draws(node).integers(node.shape, node.integer(low) if node.has(low) else 0, node.integer(high), node.dtype)


def _permutation(node: Node) -> Result:
    """The order of as many numbers; of equal ones, of which 2^-48 are, the first comes first."""
    numbers = _draws(node).uniform(node.shape, DType.FLOAT64)
    places = node.add_all("TopK", numbers, axis=0, k=node.shape[0], largest=False)[1]
    return converted(node, places, node.dtype)


def _multinomial(node: Node) -> Result:
    weights, number = node.operand("self"), node.integer("num_samples")
    return _draws(node).chosen(weights, number, again=node.flag("replacement"))


CONVERTERS: Mapping[str, Converter] = {
    "bernoulli": _bernoulli,
    "cauchy": _cauchy,
    "exponential": _exponential,
    "geometric": _geometric,
    "log_normal": _log_normal,
    "multinomial": _multinomial,
    "randperm": _permutation,
    **dict.fromkeys(("dropout", "native_dropout"), _dropout),
    **dict.fromkeys(("normal", "normal_functional", "randn", "randn_like"), _normal),
    **dict.fromkeys(("rand", "rand_like", "uniform"), _uniform),
    **dict.fromkeys(("randint", "randint_like", "random"), _integers),
}
