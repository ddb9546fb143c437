"""Parts of values, and values of parts, for operators that are made of others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rammer.ir.graph import Attributes
from rammer.ir.types import TensorType
from rammer.operators.registry import Builder


def taken(builder: Builder, value: int, dim: int, index: int, name: str) -> int:
    """The part of a value at `index` of a dimension, without the dimension."""
    shape = builder.type(value).shape
    if shape[dim] != 1:
        starts = tuple(index if d == dim else 0 for d in range(len(shape)))
        sizes = tuple(1 if d == dim else extent for d, extent in enumerate(shape))
        attributes: Attributes = {"starts": starts, "steps": (1,) * len(shape), "sizes": sizes}
        (value,) = builder.add("Slice", [value], attributes, name=f"{name}.slice")
    kept = shape[:dim] + shape[dim + 1 :]
    return builder.add("Reshape", [value], {"shape": kept}, name=name)[0]


def joined(builder: Builder, parts: Sequence[int], dim: int, type_: TensorType, name: str) -> int:
    """Matrices `[b, n]` side by side along `dim`, seen with the type's shape."""
    if not parts:
        return builder.constant(np.zeros(type_.shape, type_.dtype.numpy), name)
    whole = parts[0] if len(parts) == 1 else builder.add("Concat", parts, {"axis": dim}, name=f"{name}.concat")[0]
    return builder.add("Reshape", [whole], {"shape": type_.shape}, name=name)[0]
