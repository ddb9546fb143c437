"""Small graphs for tests of passes, and the comparison of a graph before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rammer.ir.evaluate import evaluate_graph
from rammer.ir.expr import TensorExpr
from rammer.ir.graph import Array, Graph, Operator, SourceLocation
from rammer.ir.types import DType, TensorType
from rammer.operators.builder import GraphBuilder
from rammer.verify.graph import verify

Pass = Callable[[Graph], Graph]


class Net:
    """A graph under construction: random float32 constants, and one source per operator, named as it is."""

    def __init__(self) -> None:
        self._builder = GraphBuilder("net")
        self._rng = np.random.default_rng(7)
        self._count = 0

    def input(self, *shape: int, dtype: DType = DType.FLOAT32) -> int:
        self._count += 1
        return self._builder.input(f"x{self._count}", TensorType(dtype, shape))

    def weight(self, *shape: int) -> int:
        return self.constant(self._rng.standard_normal(shape).astype(np.float32))

    def constant(self, array: Array) -> int:
        self._count += 1
        return self._builder.constant(array, f"c{self._count}")

    def add(self, kind: str, *inputs: int, name: str = "", **attributes: Any) -> int:
        """The first result of an operator."""
        return self.add_all(kind, *inputs, name=name, **attributes)[0]

    def add_all(self, kind: str, *inputs: int, name: str = "", **attributes: Any) -> tuple[int, ...]:
        self._count += 1
        name = name or f"{kind.lower()}{self._count}"
        source = SourceLocation(model="m.onnx", node=name, op_type=kind)
        return self._builder.add(kind, inputs, attributes, name=name, sources=[source])

    def conv(self, x: int, w: int, *bias: int, pad: int = 0, stride: int = 1, group: int = 1, name: str = "") -> int:
        """A convolution over two dimensions by finite weights."""
        return self.add(
            "Conv",
            x,
            w,
            *bias,
            name=name,
            strides=(stride, stride),
            dilations=(1, 1),
            pads=(pad,) * 4,
            group=group,
            finite_weights=True,
        )

    def part(self, x: int, dim: int, start: int, size: int, name: str = "") -> int:
        """Elements `start` to `start + size` of a dimension."""
        shape = self._builder.type(x).shape
        return self.add(
            "Slice",
            x,
            name=name,
            starts=tuple(start if d == dim else 0 for d in range(len(shape))),
            steps=(1,) * len(shape),
            sizes=tuple(size if d == dim else extent for d, extent in enumerate(shape)),
        )

    def build(self, *outputs: int) -> Graph:
        graph = self._builder.build(outputs)
        verify(graph)
        return graph


def rewritten(before: Graph, *passes: Pass, tolerance: float = 1e-5) -> Graph:
    """The graph after passes: checked to be valid, of the same interface and to compute the same."""
    after = before
    for run in passes:
        after = run(after)
        verify(after)
        for value, recipe in after.recipes.items():
            made, constant = recipe.array(), after.constants[value]
            assert made.dtype == constant.dtype
            assert np.array_equal(made, constant)
    interface = [[graph.values[i] for i in (*graph.inputs, *graph.outputs)] for graph in (before, after)]
    assert [(value.name, value.type) for value in interface[1]] == [(value.name, value.type) for value in interface[0]]
    inputs = random_inputs(before)
    for expected, found in zip(evaluate_graph(before, inputs), evaluate_graph(after, inputs), strict=True):
        assert_close(found, expected, tolerance)
    return after


def unchanged(before: Graph, *passes: Pass) -> bool:
    """Whether passes leave every operator as it is; see `rewritten` for what else is checked."""
    after = rewritten(before, *passes)
    described = [[(op.kind, op.name, op.expr, dict(op.attributes)) for op in g.operators] for g in (before, after)]
    return described[0] == described[1]


def random_inputs(graph: Graph, seed: int = 3) -> list[Array]:
    """An array for each input: normal numbers, or small integers."""
    rng = np.random.default_rng(seed)
    types = [graph.values[value].type for value in graph.inputs]
    arrays = [
        rng.standard_normal(type_.shape) if type_.dtype.is_float else rng.integers(0, 3, type_.shape) for type_ in types
    ]
    return [array.astype(type_.dtype.numpy) for array, type_ in zip(arrays, types, strict=True)]


def assert_close(found: Array, expected: Array, tolerance: float = 1e-5) -> None:
    """Equality up to `tolerance`, relative to the norm where that is above 1."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    a, b = found.astype(np.float64), expected.astype(np.float64)
    assert np.linalg.norm(a - b) <= tolerance * max(1.0, float(np.linalg.norm(b)))


def kinds(graph: Graph) -> list[str]:
    """The operators' kinds in order."""
    return [operator.kind for operator in graph.operators]


def only(graph: Graph, kind: str) -> Operator:
    """The one operator of a kind."""
    (found,) = [operator for operator in graph.operators if operator.kind == kind]
    return found


def expression_of(operator: Operator) -> TensorExpr:
    """The operator's expression."""
    assert operator.expr is not None
    return operator.expr


def source_nodes(operator: Operator) -> Sequence[str]:
    """The model's nodes that an operator stands for."""
    return [source.node for source in operator.sources]
