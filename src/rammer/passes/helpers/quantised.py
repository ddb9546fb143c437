"""What values stand for that are made of integers of 8 bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rammer.ir.graph import Array, Graph, Operator
from rammer.ir.types import DType

Integers = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Values that stand for numbers: integers of 8 bits less a zero point (None: 0), times a scale (None: 1)."""

    integers: int
    zero: int | None
    scale: int | None


def numbers_of(value: int, makers: dict[int, Operator]) -> Numbers | None:
    """What a value stands for, if it is made of integers of 8 bits."""
    scale = None
    maker = makers.get(value)
    if maker is not None and maker.kind == "Mul":
        number, scale = maker.inputs
        maker = makers.get(number)
        if maker is None or maker.kind != "Cast" or maker.attributes["to"] is not DType.FLOAT32:
            return None
        maker = makers.get(maker.inputs[0])
    if maker is None or maker.kind != "Centre":
        return None
    integers, *zeros = maker.inputs
    return Numbers(integers=integers, zero=zeros[0] if zeros else None, scale=scale)


def weights_of(w: Numbers, graph: Graph) -> Integers | None:
    """Constants less their zero point, if int8 holds them."""
    centred = centred_weights(w, graph)
    limits = np.iinfo(np.int8)
    if centred is None or centred.min(initial=0) < limits.min or centred.max(initial=0) > limits.max:
        return None
    return centred


def centred_weights(w: Numbers, graph: Graph) -> Integers | None:
    """Constants less their zero point: a bit more than those of 8 have."""
    array = graph.constants.get(w.integers)
    zero = np.zeros((), np.int32) if w.zero is None else graph.constants.get(w.zero)
    if array is None or zero is None:
        return None
    return array.astype(np.int32) - zero.astype(np.int32)


def scales_of(scales: Array | None, rank: int, features: int) -> npt.NDArray[np.float32] | None:
    """Scales that broadcast to weights, if they are constants that are one or differ along the features alone."""
    if scales is None or scales.dtype != np.float32:
        return None
    shape = (1,) * (rank - scales.ndim) + scales.shape
    if any(extent != 1 for dim, extent in enumerate(shape) if dim != features):
        return None
    return scales.reshape(-1).astype(np.float32)
