"""How many rows of a value anything reads: what only the first ones of are used need not be computed whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import onnx
from onnx import numpy_helper

from rammer.frontends.builder import Operand
from rammer.frontends.onnx.checking import names_read, subgraphs
from rammer.frontends.onnx.sequences import Value
from rammer.ir.graph import Array


@dataclass(kw_only=True)
class Reach:
    """What the nodes of one graph read.

    Attributes:
        nodes: of the graph.
        outputs: of the graph, with how many rows are read of each; None for all.
        scope: the values in sight, as far as they are there yet.
    """

    nodes: Sequence[onnx.NodeProto]
    outputs: Mapping[str, int | None]
    scope: Mapping[str, Value | None]

    def rows(self, name: str) -> int | None:
        """How many rows are read of a value at most, from the first on; None where all may be."""
        most = self.outputs.get(name, 0)
        for node, position in self._readers[name]:
            read = self._rows_by(node) if position == 0 else None
            most = None if most is None or read is None else max(most, read)
        return most

    @cached_property
    def _readers(self) -> Mapping[str, list[tuple[onnx.NodeProto, int]]]:
        """By the name of a value, the nodes that read it and the positions; -1 for what a graph of the node reads."""
        readers = defaultdict(list)
        for node in self.nodes:
            for position, name in enumerate(node.input):
                readers[name].append((node, position))
            for name in (name for graph in subgraphs(node) for name in names_read(graph)):
                readers[name].append((node, -1))
        return readers

    def _rows_by(self, node: onnx.NodeProto) -> int | None:
        """How many rows of a node's first operand are read."""
        if node.domain not in ("", "ai.onnx"):
            return None
        if node.op_type in ("Cast", "Identity"):
            return self.rows(node.output[0])
        if node.op_type in ("Squeeze", "Unsqueeze"):
            axes = self._integers(node, 1)
            return self.rows(node.output[0]) if axes and min(axes) > 0 else None
        if node.op_type == "Gather":
            axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
            return self.rows(node.output[0]) if axis > 0 else None
        return self._first_rows(node) if node.op_type == "Slice" else None

    def _first_rows(self, node: onnx.NodeProto) -> int | None:
        """The end of a slice along the first dimension, counted from the front."""
        starts, ends = self._integers(node, 1), self._integers(node, 2)
        if starts is None or ends is None or len(starts) != len(ends):
            return None
        axes = self._integers(node, 3) if len(node.input) > 3 else tuple(range(len(starts)))
        if axes is None or len(axes) != len(ends) or min(axes, default=0) < 0:
            return None
        if 0 not in axes:
            return self.rows(node.output[0])
        place = axes.index(0)
        return ends[place] if min(starts[place], ends[place]) >= 0 else None

    def _integers(self, node: onnx.NodeProto, position: int) -> tuple[int, ...] | None:
        """The elements of an operand that is a constant of the model."""
        name = node.input[position] if position < len(node.input) else ""
        value, array = self.scope.get(name), self._constants.get(name)
        if isinstance(value, Operand) and value.array is not None:
            array = value.array
        return None if array is None else tuple(int(element) for element in array.flat)

    @cached_property
    def _constants(self) -> Mapping[str, Array]:
        return {
            node.output[0]: numpy_helper.to_array(node.attribute[0].t)
            for node in self.nodes
            if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t")
        }
