"""simplify_views: fewer, plainer views.

    y = x unchanged (Identity, Cast to its own type, Slice of everything, ...)  ->  readers of y read x
    z = Reshape(Reshape(x)), z = Transpose(Transpose(x))                        ->  z = Reshape(x), z = Transpose(x)
    y = x with its elements in the same order (Transpose or Expand by extents of 1)  ->  y = Reshape(x)

A `Reshape` costs nothing: lowering lets it share its operand's storage.

Ordering restriction: before the passes that change expressions, because a `Transpose` is known by its attributes.
"""

from __future__ import annotations

from rammer.ir.graph import Graph, Operator
from rammer.ir.types import TensorType
from rammer.operators.attributes import integers
from rammer.passes.rewrite import Rewriter
from rammer.passes.views import View, view_of


def run(graph: Graph) -> Graph:
    """Simplify views; see the module."""
    return _Simplification(graph).run()


class _Simplification:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._rewriter = Rewriter(graph)
        self._reshaped: dict[int, int] = {}  # operand of the Reshape that makes a value
        self._transposed: dict[int, tuple[int, tuple[int, ...]]] = {}  # likewise, with the permutation

    def run(self) -> Graph:
        """Walk the operators; what one reads is simple already."""
        for operator in self._graph.operators:
            view = view_of(operator)
            if view is None:
                self._rewriter.insert(operator)
            elif operator.kind == "Reshape" or _keeps_order(view, self._graph.values[view.load.slot].type):
                self._reshape(operator)
            elif operator.kind == "Transpose":
                self._transpose(operator)
            else:
                self._rewriter.insert(operator)
        return self._rewriter.finish()

    def _reshape(self, operator: Operator) -> None:
        """A view that keeps the order of elements."""
        (output,) = operator.outputs
        operand = self._rewriter.current(operator.inputs[0])
        source = self._reshaped.get(operand, operand)
        type_ = self._rewriter.type(output)
        same = next((value for value in (operand, source) if self._rewriter.type(value) == type_), None)
        if same is not None:
            self._rewriter.replace(output, same)
        elif operator.kind == "Reshape" and source == operand:
            self._rewriter.insert(operator)
            self._reshaped[output] = source
        else:
            made = self._rewriter.add(
                "Reshape", [source], {"shape": type_.shape}, name=operator.name, sources=operator.sources
            )
            self._reshaped[made] = source
            self._rewriter.replace(output, made)

    def _transpose(self, operator: Operator) -> None:
        """A transpose that is none of a reshape."""
        (output,) = operator.outputs
        operand = self._rewriter.current(operator.inputs[0])
        perm = integers(operator.attributes, "perm")
        if operand not in self._transposed:
            self._rewriter.insert(operator)
            self._transposed[output] = (operand, perm)
            return
        source, before = self._transposed[operand]
        both = tuple(before[dim] for dim in perm)
        if both == tuple(range(len(both))):
            self._rewriter.replace(output, source)
            return
        made = self._rewriter.add("Transpose", [source], {"perm": both}, name=operator.name, sources=operator.sources)
        self._transposed[made] = (source, both)
        self._rewriter.replace(output, made)


def _keeps_order(view: View, operand: TensorType) -> bool:
    """Whether the view has its operand's elements, all and in the same row-major order."""
    long_axes = [axis for axis in view.definition.dims if axis is not None and axis.extent != 1]
    long_dims = [index for index, extent in zip(view.load.indices, operand.shape, strict=True) if extent != 1]
    extents = [extent for extent in operand.shape if extent != 1]
    same = view.load.fill is None and view.load.type is view.definition.body.dtype
    return same and long_dims == long_axes and extents == [axis.extent for axis in long_axes]
