"""How many rows of a value anything reads: what only the first ones of are used need not be computed whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx

from rammer.frontends.builder import Operand
from rammer.frontends.onnx.checking import domain_of, names_read, subgraphs
from rammer.frontends.onnx.sequences import Value
from rammer.frontends.onnx.tensors import array_of


@dataclass(kw_only=True)
class Reach:
    """What the nodes of one graph read.

    Attributes:
        nodes: of the graph.
        outputs: of the graph, with how many rows are read of each; None for all.
        scope: the values in sight, as far as they are there yet.
        folder: of the model's file.
    """

    nodes: Sequence[onnx.NodeProto]
    outputs: Mapping[str, int | None]
    scope: Mapping[str, Value | None]
    folder: Path | None

    def rows(self, name: str) -> int | None:
        """How many rows are read of a value at most, from the first on; None where all may be."""
        counts: list[int | None] = [0]
        names = [name]
        while names:
            name = names.pop()
            if name in self.outputs:
                counts.append(self.outputs[name])
            for node, position in self._readers.get(name, ()):
                if position == 0 and self._keeps_rows(node):
                    names.append(node.output[0])
                else:
                    counts.append(self._first_rows(node) if position == 0 else None)
        known = [count for count in counts if count is not None]
        return max(known) if len(known) == len(counts) else None

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

    def _keeps_rows(self, node: onnx.NodeProto) -> bool:
        """Whether each row of a node's result is made of that row of its first operand."""
        if domain_of(node):
            return False
        match node.op_type:
            case "Cast" | "Identity":
                return True
            case "Squeeze" | "Unsqueeze":
                axes = self._integers(node, 1)
                return axes is not None and min(axes, default=0) > 0
            case "Gather":
                return any(attribute.name == "axis" and attribute.i > 0 for attribute in node.attribute)
        return False

    def _first_rows(self, node: onnx.NodeProto) -> int | None:
        """The end of a slice forwards along the first dimension alone, from the front; None for what is none."""
        starts, ends, axes, steps = (self._integers(node, position) for position in (1, 2, 3, 4))
        is_slice = node.op_type == "Slice" and not domain_of(node)
        if not is_slice or starts is None or ends is None or len(starts) != 1 or len(ends) != 1:
            return None
        if (len(node.input) > 3 and axes != (0,)) or min(*starts, *ends) < 0:
            return None
        if len(node.input) > 4 and (steps is None or min(steps, default=0) < 1):
            return None
        return ends[0]

    def _integers(self, node: onnx.NodeProto, position: int) -> tuple[int, ...] | None:
        """The elements of an operand that is a constant of the model."""
        name = node.input[position] if position < len(node.input) else ""
        value = self.scope.get(name)
        if isinstance(value, Operand) and value.array is not None:
            array = value.array
        elif name in self._constants:
            array = array_of(self._constants[name], self.folder, f"constant '{name}'")
        else:
            return None
        return tuple(int(element) for element in array.flat)

    @cached_property
    def _constants(self) -> Mapping[str, onnx.TensorProto]:
        constants = [node for node in self.nodes if node.op_type == "Constant" and len(node.attribute) == 1]
        return {node.output[0]: node.attribute[0].t for node in constants if node.attribute[0].HasField("t")}
