"""Productions of random models that move values of any type about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tests.support.model_maker import ModelMaker, Tensor

Rule = Callable[[ModelMaker, Tensor], Tensor]
"""Takes the model under construction and a value, and adds nodes that read it; gives one of their results."""


def concat(m: ModelMaker, x: Tensor) -> Tensor:
    axis = m.draw(0, x.rank - 1)

    def frame(tensor: Tensor) -> tuple[str, tuple[int, ...]]:
        return tensor.dtype, without(tensor.shape, axis)

    fitting = [tensor for tensor in m.tensors if tensor.rank == x.rank and frame(tensor) == frame(x)]
    return joined(m, [x, *(m.any(fitting) for _ in range(m.draw(1, 3)))], axis)


def split(m: ModelMaker, x: Tensor) -> Tensor:
    """Two or three parts of a value, brought together in another order."""
    axis = m.draw(0, x.rank - 1)
    count = min(m.draw(2, 3), x.shape[axis])
    cuts = (
        sorted(1 + int(cut) for cut in m.rng.choice(x.shape[axis] - 1, count - 1, replace=False)) if count > 1 else []
    )
    sizes = [end - start for start, end in zip([0, *cuts], [*cuts, x.shape[axis]], strict=True)]
    shapes = [(*x.shape[:axis], size, *x.shape[axis + 1 :]) for size in sizes]
    parts = m.nodes("Split", [x, m.indices(sizes)], shapes, axis=axis)
    if x.dtype == "float32" and m.flip(0.5):
        parts = [m.node(m.any(("Relu", "Relu", "Tanh")), [part], part.shape) for part in parts]
    return joined(m, parts[::-1] if m.flip(0.5) else parts, axis)


def slice_(m: ModelMaker, x: Tensor) -> Tensor:
    axis = m.draw(0, x.rank - 1)
    extent = x.shape[axis]
    start, step = m.draw(0, extent - 1), m.draw(1, 2)
    backwards = m.flip(0.3)
    size = (start if backwards else extent - 1 - start) // step + 1
    end = -extent - 1 if backwards else extent
    bounds = [[start], [end], [axis], [-step if backwards else step]]
    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    return m.node("Slice", [x, *map(m.indices, bounds)], shape)


def reshape(m: ModelMaker, x: Tensor) -> Tensor:
    size = int(np.prod(x.shape))
    first = m.any([d for d in range(1, size + 1) if size % d == 0])
    shape = m.any([(size,), (first, size // first), (1, first, size // first), (*x.shape, 1), (1, *x.shape)])
    return m.node("Reshape", [x, m.indices(shape)], shape)


def transpose(m: ModelMaker, x: Tensor) -> Tensor:
    perm = [int(dim) for dim in m.rng.permutation(x.rank)]
    return m.node("Transpose", [x], tuple(x.shape[dim] for dim in perm), perm=perm)


def pad(m: ModelMaker, x: Tensor) -> Tensor:
    mode = m.any(("constant", "constant", "edge", "reflect", "wrap"))
    most = [min(2, extent - 1) if mode == "reflect" else 2 for extent in x.shape]
    pads = [m.draw(0, limit) for limit in (*most, *most)]
    shape = tuple(extent + pads[dim] + pads[x.rank + dim] for dim, extent in enumerate(x.shape))
    operands = [x, m.indices(pads)]
    if mode == "constant":
        operands.append(m.number(m.any((0.0, 0.5)), x.dtype))
    return m.node("Pad", operands, shape, mode=mode)


def tile(m: ModelMaker, x: Tensor) -> Tensor:
    repeats = [m.draw(1, 2) for _ in range(x.rank)]
    shape = [extent * repeat for extent, repeat in zip(x.shape, repeats, strict=True)]
    return m.node("Tile", [x, m.indices(repeats)], shape)


def expand(m: ModelMaker, x: Tensor) -> Tensor:
    shape = (2, *x.shape)
    return m.node("Expand", [x, m.indices(shape)], shape)


def gather(m: ModelMaker, x: Tensor) -> Tensor:
    axis = m.draw(0, x.rank - 1)
    if m.flip(0.3):
        position = m.indices(m.draw(0, x.shape[axis] - 1))
        return m.node("Gather", [x, position], without(x.shape, axis), axis=axis)
    positions = [m.draw(-x.shape[axis], x.shape[axis] - 1) for _ in range(3)]
    return m.node("Gather", [x, m.indices(positions)], (*x.shape[:axis], 3, *x.shape[axis + 1 :]), axis=axis)


def joined(m: ModelMaker, parts: Sequence[Tensor], axis: int) -> Tensor:
    """A Concat."""
    total = sum(part.shape[axis] for part in parts)
    shape = (*parts[0].shape[:axis], total, *parts[0].shape[axis + 1 :])
    return m.node("Concat", parts, shape, axis=axis)


def without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The shape, less a dimension."""
    return shape[:axis] + shape[axis + 1 :]


MOVEMENT_RULES: Mapping[Rule, Sequence[int]] = {
    concat: range(1, 6),
    split: range(1, 6),
    slice_: range(1, 6),
    reshape: range(1, 6),
    transpose: range(2, 6),
    pad: range(1, 5),
    tile: range(1, 5),
    expand: range(1, 5),
    gather: range(2, 6),
}
"""Rule to the ranks that it takes."""
