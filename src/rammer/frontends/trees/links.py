"""From what trees add up to what a library predicts: inverse link functions."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.frontends.builder import Operand
from rammer.frontends.moves import converted
from rammer.frontends.node import ModelNode
from rammer.ir.types import DType


class Link(enum.Enum):
    """A function of the outputs of a row."""

    IDENTITY = "identity"
    SIGMOID = "sigmoid"
    SHARED_SIGMOID = "shared_sigmoid"  # sigmoids over their sum
    SOFTMAX = "softmax"
    EXP = "exp"
    LOG1P_EXP = "log1p_exp"
    SIGNED_SQUARE = "signed_square"
    STEP = "step"  # 1 where positive, else 0
    ARGMAX = "argmax"  # the number of the greatest output

    def apply(self, outputs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The link of [rows, outputs] in NumPy: the reference."""
        with np.errstate(over="ignore"):
            return np.asarray(self._applied(outputs))

    def _applied(self, outputs: Any) -> Any:
        match self:
            case Link.SIGMOID:
                return 1 / (1 + np.exp(-outputs))
            case Link.SHARED_SIGMOID:
                shares = 1 / (1 + np.exp(-outputs))
                return shares / shares.sum(axis=1, keepdims=True)
            case Link.SOFTMAX:
                shares = np.exp(outputs - outputs.max(axis=1, keepdims=True))
                return shares / shares.sum(axis=1, keepdims=True)
            case Link.EXP:
                return np.exp(outputs)
            case Link.LOG1P_EXP:
                return np.logaddexp(0, outputs)
            case Link.SIGNED_SQUARE:
                return outputs * np.abs(outputs)
            case Link.STEP:
                return (outputs > 0).astype(outputs.dtype)
            case Link.ARGMAX:
                return outputs.argmax(axis=1)[:, None].astype(outputs.dtype)
        return outputs


def add_link(node: ModelNode, outputs: Operand, link: Link) -> Operand:
    """The link of [rows, outputs] in a graph: as many outputs, of the same type; of ARGMAX one."""
    match link:
        case Link.SIGMOID:
            return _sigmoid(node, outputs)
        case Link.SHARED_SIGMOID:
            shares = node.add("Sigmoid", outputs)
            return node.add("Div", shares, node.add("ReduceSum", shares, axes=(1,), keepdims=True))
        case Link.SOFTMAX:
            return node.add("Softmax", outputs, axis=1)
        case Link.EXP:
            return node.add("Exp", outputs)
        case Link.LOG1P_EXP:
            return node.add("Softplus", outputs)
        case Link.SIGNED_SQUARE:
            return node.add("Mul", outputs, node.add("Abs", outputs))
        case Link.STEP:
            zero = node.constant(np.zeros((), outputs.dtype.numpy))
            return converted(node, node.add("Less", zero, outputs), outputs.dtype)
        case Link.ARGMAX:
            found = node.add("ArgMax", outputs, axis=1, keepdims=True, select_last_index=False)
            return converted(node, found, outputs.dtype)
    return outputs


def _sigmoid(node: ModelNode, outputs: Operand) -> Operand:
    """In float32, what the exponential's last bit decides is seen in the other class: 1 less 0.99. So it is exact."""
    if outputs.dtype is not DType.FLOAT32:
        return node.add("Sigmoid", outputs)
    power = node.add("Exp", converted(node, node.add("Neg", outputs), DType.FLOAT64))
    one = node.constant(np.ones((), np.float32))
    return node.add("Div", one, node.add("Add", one, converted(node, power, DType.FLOAT32)))
