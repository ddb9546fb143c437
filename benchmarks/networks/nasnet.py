"""NASNet-A 6@768 for CIFAR-10 and 4@1056 for ImageNet (Zoph et al. 2018), which the Rammer paper measured (OSDI 2020,
section 5).

The cells are data: `NORMAL_CELL` and `REDUCTION_CELL` list the five pairs of operations that the search found
(figure 4). Windows are padded evenly on both sides, as PyTorch's implementations do and TensorFlow's, at
stride two, don't; extents and costs are the same. Dropout, drop path and the auxiliary head belong to
training and are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx

from benchmarks.networks import operators, weights
from benchmarks.networks.builder import Float32, GraphBuilder, Value

EPSILON = 1e-5
STEM_MULTIPLIER = 3
REDUCTIONS = 2

CURRENT = 0
PREVIOUS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of a cell on hidden state `source`: the cell's input (0), the last cell's (1), block i (2 + i)."""

    kind: Literal["separable", "max", "average", "identity"]
    kernel: int
    source: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Five blocks, each the sum of two operations, and the hidden states that together are the cell's output.

    `stride` applies to operations on the cell's inputs; blocks have the output's resolution already.
    """

    blocks: tuple[tuple[Operation, Operation], ...]
    concatenated: tuple[int, ...]
    stride: int


def _separable(kernel: int, source: int) -> Operation:
    return Operation(kind="separable", kernel=kernel, source=source)


def _average(source: int) -> Operation:
    return Operation(kind="average", kernel=3, source=source)


def _max(source: int) -> Operation:
    return Operation(kind="max", kernel=3, source=source)


def _identity(source: int) -> Operation:
    return Operation(kind="identity", kernel=1, source=source)


NORMAL_CELL = Cell(
    blocks=(
        (_separable(5, CURRENT), _separable(3, PREVIOUS)),
        (_separable(5, PREVIOUS), _separable(3, PREVIOUS)),
        (_average(CURRENT), _identity(PREVIOUS)),
        (_average(PREVIOUS), _average(PREVIOUS)),
        (_separable(3, CURRENT), _identity(CURRENT)),
    ),
    concatenated=(1, 2, 3, 4, 5, 6),
    stride=1,
)

REDUCTION_CELL = Cell(
    blocks=(
        (_separable(5, CURRENT), _separable(7, PREVIOUS)),
        (_max(CURRENT), _separable(7, PREVIOUS)),
        (_average(CURRENT), _separable(5, PREVIOUS)),
        (_identity(3), _average(2)),
        (_separable(3, 2), _max(CURRENT)),
    ),
    concatenated=(3, 4, 5, 6),
    stride=2,
)


def plan(cells: int, reductions: int = REDUCTIONS) -> tuple[Cell, ...]:
    """All cells in order: stages of `cells` normal cells with a reduction cell between them."""
    stage = (NORMAL_CELL,) * cells
    return stage + (REDUCTION_CELL, *stage) * reductions


def build(
    *,
    seed: int = 0,
    batch: int = 1,
    image: int = 32,
    cells: int = 6,
    reductions: int = REDUCTIONS,
    filters: int = 32,
    stem_cells: int = 0,
    stem_channels: int | None = None,
    classes: int = 10,
) -> onnx.ModelProto:
    """Stages of `cells` normal cells, a reduction cell between them; it doubles the `filters` in a block of the first.

    Before them come `stem_cells` reduction cells, each of which has half the filters of the next, behind a convolution
    of stride two: two for ImageNet.

    Input `image` (batch, 3, image, image), output (batch, classes), float32.
    """
    rng = np.random.default_rng(seed)
    graph = GraphBuilder("nasnet")
    x = graph.input("image", (batch, 3, image, image))
    channels = stem_channels or filters * STEM_MULTIPLIER
    stride = 2 if stem_cells else 1
    stem = weights.scaled_normal(rng, (channels, 3, 3, 3))
    x = operators.conv(graph, "stem", x, stem, stride=(stride, stride), pad=(1, 1))
    x = operators.batch_norm(graph, "bn", x, weights.batch_norm(rng, channels), epsilon=EPSILON)

    previous = x
    for index in range(stem_cells):
        fewer = filters >> (stem_cells - index)
        previous, x = x, _cell(graph, rng, f"stem.{index}", REDUCTION_CELL, fewer, x, previous)
    for index, cell in enumerate(plan(cells, reductions)):
        filters *= cell.stride
        previous, x = x, _cell(graph, rng, f"cells.{index}", cell, filters, x, previous)

    x = operators.relu(graph, "relu", x)
    x = operators.global_average(graph, "pool", x)
    fc = weights.scaled_normal(rng, (classes, x.shape[1]))
    return graph.build(operators.linear(graph, "fc", x, fc, bias=weights.bias(rng, classes)))


def _cell(
    graph: GraphBuilder,
    rng: np.random.Generator,
    name: str,
    cell: Cell,
    filters: int,
    current: Value,
    previous: Value,
) -> Value:
    fit_previous = _project if previous.shape[2:] == current.shape[2:] else _reduce
    states = [
        _project(graph, rng, f"{name}.current", current, filters),
        fit_previous(graph, rng, f"{name}.previous", previous, filters),
    ]
    for index, block in enumerate(cell.blocks):
        branches = [
            _operation(graph, rng, f"{name}.operations.{2 * index + side}", states, operation, cell.stride)
            for side, operation in enumerate(block)
        ]
        states.append(operators.add(graph, f"{name}.add{index}", *branches))
    return operators.concat_channels(graph, f"{name}.concat", [states[state] for state in cell.concatenated])


def _operation(
    graph: GraphBuilder,
    rng: np.random.Generator,
    name: str,
    states: list[Value],
    operation: Operation,
    cell_stride: int,
) -> Value:
    x = states[operation.source]
    stride = cell_stride if operation.source in (CURRENT, PREVIOUS) else 1
    if operation.kind == "identity":
        return x
    if operation.kind == "separable":
        x = _separable_half(graph, rng, f"{name}.0", x, operation.kernel, stride)
        return _separable_half(graph, rng, f"{name}.1", x, operation.kernel, 1)
    op_type: Literal["MaxPool", "AveragePool"] = "MaxPool" if operation.kind == "max" else "AveragePool"
    pad = operation.kernel // 2
    return operators.pool(graph, op_type, name, x, kernel=operation.kernel, stride=stride, pad=pad)


def _separable_half(
    graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value, kernel: int, stride: int
) -> Value:
    """ReLU, depthwise and pointwise convolution, batch normalisation: half of a separable operation."""
    channels = x.shape[1]
    depthwise = weights.scaled_normal(rng, (channels, 1, kernel, kernel))
    pointwise = weights.scaled_normal(rng, (channels, channels, 1, 1), gain=1.0)
    x = operators.relu(graph, f"{name}.relu", x)
    x = operators.conv(
        graph,
        f"{name}.depthwise",
        x,
        depthwise,
        stride=(stride, stride),
        pad=(kernel // 2, kernel // 2),
        groups=channels,
    )
    x = operators.conv(graph, f"{name}.pointwise", x, pointwise)
    return operators.batch_norm(graph, f"{name}.bn", x, weights.batch_norm(rng, channels), epsilon=EPSILON)


def _project(graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value, channels: int) -> Value:
    """ReLU, 1x1 convolution, batch normalisation: any input to the cell's number of channels."""
    x = operators.relu(graph, f"{name}.relu", x)
    x = operators.conv(graph, f"{name}.conv", x, _projection(rng, x, channels))
    return operators.batch_norm(graph, f"{name}.bn", x, weights.batch_norm(rng, channels), epsilon=EPSILON)


def _reduce(graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value, channels: int) -> Value:
    """The same at half the resolution: half of the channels see the even positions, half the odd ones.

    For an even extent this equals the published form (pad, crop and average pools of one position).
    """
    x = operators.relu(graph, f"{name}.relu", x)
    batch, inputs, height, width = x.shape
    cropped = graph.node(
        "Slice",
        f"{name}.crop",
        [x, graph.integers(1, 1), graph.integers(height, width), graph.integers(2, 3)],
        (batch, inputs, height - 1, width - 1),
    )
    halves = [
        operators.conv(
            graph, f"{name}.conv{half}", source, _projection(rng, x, (channels + 1 - half) // 2), stride=(2, 2)
        )
        for half, source in enumerate((x, cropped))
    ]
    x = operators.concat_channels(graph, f"{name}.concat", halves)
    return operators.batch_norm(graph, f"{name}.bn", x, weights.batch_norm(rng, channels), epsilon=EPSILON)


def _projection(rng: np.random.Generator, x: Value, channels: int) -> Float32:
    # A block adds two branches and doubles the second moment; a gain of one after the ReLU halves it.
    return weights.scaled_normal(rng, (channels, x.shape[1], 1, 1), gain=1.0)
