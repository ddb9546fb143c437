"""Graphs put together at random of operators that values flow through whose size depends on the data."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import helper

import rammer
from tests.support.flow import check
from tests.support.onnx_reference import model_of

ROWS, COLUMNS = 9, 4
CONSTANTS: dict[str, Any] = {
    "zero": np.array([0], np.int64),
    "one": np.array([1], np.int64),
    "three": np.array([3], np.int64),
    "far": np.array([2**63 - 1], np.int64),
    "minus": np.array([-1], np.int64),
    "minus2": np.array([-2], np.int64),
    "back": np.array([-(2**63)], np.int64),
    "flat": np.array([-1, COLUMNS], np.int64),
    "first": np.array(0, np.int64),
    "eight": np.array(8, np.float32),
    "level": np.array(0.1, np.float32),
    "table": np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS),
    "square": np.linspace(-1, 1, COLUMNS * COLUMNS, dtype=np.float32).reshape(COLUMNS, COLUMNS),
}


@dataclass
class Drawn:
    """A growing model; `matrices` and `vectors` are values `[n, 4]` and `[n]` by the number that n is."""

    rng: np.random.Generator
    nodes: list = field(default_factory=list)
    matrices: list = field(default_factory=list)
    vectors: list = field(default_factory=list)
    sizes: int = 0

    def add(self, op_type, *inputs, outputs=1, **attributes):
        names = [f"v{len(self.nodes)}_{output}" for output in range(outputs)]
        self.nodes.append(helper.make_node(op_type, inputs, names, **attributes))
        return names[-1]

    def new_size(self):
        self.sizes += 1
        return self.sizes

    def matrix(self):
        return self.matrices[self.rng.integers(len(self.matrices))]

    def vector(self):
        return self.vectors[self.rng.integers(len(self.vectors))]

    def picked(self, places, size):
        """Rows, and elements, at places of values of a size."""
        new = self.new_size()
        for pool in (self.matrices, self.vectors):
            alike = [value for value, own in pool if own == size]
            if alike:
                pool.append((self.add("Gather", alike[self.rng.integers(len(alike))], places, axis=0), new))

    def step(self):
        if self.rng.random() < 0.5:
            self.keep()
        else:
            self.resize()

    def keep(self):
        """A matrix, or a vector, as long as another."""
        matrix, size = self.matrix()
        alike = [value for value, own in self.matrices if own == size]
        other = alike[self.rng.integers(len(alike))]
        match self.rng.integers(8):
            case 0:
                made = self.add(self.rng.choice(["Relu", "Neg", "Abs", "Softplus"]), matrix)
            case 1:
                made = self.add("Sub", matrix, other)
            case 2:
                made = self.add("Softmax", matrix, axis=int(self.rng.integers(2)))
            case 3:
                made = self.add("Slice", matrix, "minus", "back", "zero", "minus")
            case 4:
                made = self.add("CumSum", matrix, "first", reverse=int(self.rng.integers(2)))
            case 5:
                made = self.add("Add", other, self.add("ReduceSum", matrix, "zero", keepdims=1))
            case 6:
                made = self.add("MatMul", matrix, "square")
            case _:
                places = self.add("NonZero", self.add("Greater", matrix, "level"))
                values = self.add("GatherND", matrix, self.add("Transpose", places))
                made = self.add("ScatterND", matrix, self.add("Transpose", places), self.add("Neg", values))
        self.matrices.append((made, size))
        column = self.add("ReduceSum", made, "one")
        self.matrices.append((self.add("Mul", other, self.add("Sigmoid", column)), size))
        self.vectors.append((self.add("Squeeze", column, "one"), size))

    def resize(self):
        """Matrices and vectors of another length."""
        (matrix, _), (exact, own) = self.matrix(), self.vector()
        vector = self.add("Round", self.add("Mul", exact, "eight"))  # what is equal but for rounding is equal
        match self.rng.integers(5):
            case 0:
                ends = [("zero", "three"), ("one", "far"), ("minus2", "far"), ("zero", "minus")]
                start, end = ends[self.rng.integers(len(ends))]
                self.matrices.append((self.add("Slice", matrix, start, end, "zero"), self.new_size()))
            case 1:
                holds = self.add("NonZero", self.add("Greater", vector, "level"))
                self.picked(self.add("Squeeze", holds, "zero"), own)
            case 2:
                other, _ = self.matrix()
                self.matrices.append((self.add("Concat", matrix, other, axis=0), self.new_size()))
            case 3:
                number = self.add("Min", self.add("Shape", vector), "three")
                self.picked(self.add("TopK", vector, number, outputs=2, axis=0), own)
            case 4:
                line = self.add("Relu", self.add("Reshape", matrix, "minus"))
                self.matrices.append((self.add("Reshape", line, "flat"), self.new_size()))


def drawn(seed):
    """A model of rows that a condition chooses, and calls of it with conditions that hold for none, all or some."""
    graph = Drawn(np.random.default_rng(seed))
    graph.matrices.append((graph.add("Compress", "x", "c", axis=0), graph.new_size()))
    graph.vectors.append((graph.add("ReduceSum", graph.matrices[0][0], "one", keepdims=0), graph.sizes))
    for _ in range(12):
        graph.step()
    outputs = [graph.matrices[-1][0], graph.matrices[len(graph.matrices) // 2][0], graph.vectors[-1][0]]
    x = graph.rng.uniform(-1, 1, (ROWS, COLUMNS)).astype(np.float32)
    conditions = np.stack([np.zeros(ROWS, np.bool_), np.ones(ROWS, np.bool_), graph.rng.random(ROWS) < 0.5])
    read = {name for node in graph.nodes for name in node.input}
    constants = {name: array for name, array in CONSTANTS.items() if name in read}
    model = model_of(graph.nodes, {"x": x, "c": conditions[0]}, list(dict.fromkeys(outputs)), constants=constants)
    return model, [{"x": x, "c": condition} for condition in conditions]


@pytest.mark.parametrize("seed", range(60))
def test_graphs(seed):
    model, calls = drawn(seed)
    for inputs in calls:
        check(model, inputs, tolerance=1e-4)


@pytest.mark.parametrize("seed", range(100, 104))
def test_compiled(seed):
    model, calls = drawn(seed)
    net = rammer.compile(model, "cpu", veus=2)
    for inputs in calls:
        check(model, inputs, run=lambda _, given: net.run(given), tolerance=1e-4)
