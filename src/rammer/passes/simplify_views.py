"""simplify_views: fewer, plainer views.

    y = x unchanged (Identity, Cast to its own type, Slice of everything, ...)  ->  readers of y read x
    z = Reshape(Reshape(x)), z = Transpose(Transpose(x))                        ->  z = Reshape(x), z = Transpose(x)
    y = x with its elements in the same order (Transpose or Expand by extents of 1)  ->  y = Reshape(x)
    z = Transpose(Reshape(x)), the Reshape merging dimensions    ->  z = Reshape(Transpose(x))
    z = Reshape(Transpose(x)), the Reshape splitting dimensions  ->  z = Transpose(Reshape(x))

A `Reshape` costs nothing: lowering lets it share its operand's storage. By the last two rules a transposition has as
many dimensions as there are, and stands beside the operators that see them all (the rows and columns of an image beside
a convolution), which then read and write through it; pixels in one dimension are the same bytes.

Ordering restriction: before the passes that change expressions, because a `Transpose` is known by its attributes.
"""

from __future__ import annotations

from collections.abc import Sequence

from rammer.ir.graph import Graph, Operator
from rammer.ir.types import TensorType
from rammer.operators.attributes import integers
from rammer.passes.helpers.rewrite import Rewriter
from rammer.passes.helpers.views import View, view_of


def run(graph: Graph) -> Graph:
    """Simplify views; see the module."""
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        view = view_of(operator)
        if view is not None and _keeps_order(view, operator, rewriter.type(view.value)):
            _reshape(operator, view.value, rewriter)
        elif operator.kind == "Transpose":
            _transpose(operator, rewriter)
        else:
            rewriter.insert(operator)
    return rewriter.finish()


def _reshape(operator: Operator, viewed: int, rewriter: Rewriter) -> None:
    """Simplify a view that keeps the order of the elements of `viewed`."""
    (output,) = operator.outputs
    operand = rewriter.current(viewed)
    type_ = rewriter.type(output)
    if _over_transpose(operator, operand, type_.shape, rewriter):
        return
    source = _operand_of("Reshape", operand, rewriter)
    same = next((value for value in (operand, source) if value is not None and rewriter.type(value) == type_), None)
    if same is not None:
        rewriter.replace(output, same)
    elif operator.kind == "Reshape" and source is None:
        rewriter.insert(operator)
    else:
        operands = [operand if source is None else source]
        made = rewriter.add("Reshape", operands, {"shape": type_.shape}, name=operator.name, sources=operator.sources)
        rewriter.replace(output, made)


def _transpose(operator: Operator, rewriter: Rewriter) -> None:
    """Simplify a transpose that changes the order of elements."""
    (output,) = operator.outputs
    operand = rewriter.current(operator.inputs[0])
    perm = integers(operator.attributes, "perm")
    source = _operand_of("Reshape", operand, rewriter)
    if source is not None:
        shape = rewriter.type(source).shape
        runs = _runs(shape, rewriter.type(operand).shape)
        if runs is not None and _regroups(runs, shape):
            moved = _transposed(operator, source, tuple(dim for place in perm for dim in runs[place]), rewriter)
            rewriter.replace(output, _reshaped(operator, moved, rewriter.type(output).shape, rewriter))
            return
    if _operand_of("Transpose", operand, rewriter) is None:
        rewriter.insert(operator)
    else:
        rewriter.replace(output, _transposed(operator, operand, perm, rewriter))


def _over_transpose(operator: Operator, operand: int, shape: Sequence[int], rewriter: Rewriter) -> bool:
    """Let the transposition of what a reshape has split stand for a reshape of a transposition."""
    source = _operand_of("Transpose", operand, rewriter)
    transpose = rewriter.maker(operand)
    runs = _runs(shape, rewriter.type(operand).shape)
    if source is None or transpose is None or runs is None or not _regroups(runs, shape):
        return False
    perm = integers(transpose.attributes, "perm")
    before = [runs[perm.index(dim)] for dim in range(len(perm))]  # of each dimension of `source`
    order = [dim for run in before for dim in run]
    split = _reshaped(operator, source, [shape[dim] for dim in order], rewriter)
    moved = _transposed(operator, split, tuple(order.index(dim) for dim in range(len(shape))), rewriter)
    rewriter.replace(operator.outputs[0], moved)
    return True


def _runs(fine: Sequence[int], coarse: Sequence[int]) -> list[tuple[int, ...]] | None:
    """The dimensions of a shape that each dimension of another one is made of, None where some share one."""
    runs: list[tuple[int, ...]] = []
    start = 0
    for extent in coarse:
        stop, size = start, 1
        while stop < len(fine) and (size < extent or (size == extent and stop == start)):
            size *= fine[stop]
            stop += 1
        if size != extent:
            return None
        runs.append(tuple(range(start, stop)))
        start = stop
    if any(extent != 1 for extent in fine[start:]) or not runs:
        return None
    runs[-1] += tuple(range(start, len(fine)))
    return runs


def _regroups(runs: Sequence[Sequence[int]], fine: Sequence[int]) -> bool:
    """Whether several dimensions, not counting those of extent 1, are one in the coarse shape."""
    return any(sum(fine[dim] != 1 for dim in run) > 1 for run in runs)


def _transposed(operator: Operator, value: int, perm: Sequence[int], rewriter: Rewriter) -> int:
    """A value with its dimensions in another order, made for an operator."""
    source, before = _operand_of("Transpose", value, rewriter), rewriter.maker(value)
    if source is not None and before is not None:
        first = integers(before.attributes, "perm")
        value, perm = source, [first[dim] for dim in perm]
    if tuple(perm) == tuple(range(len(perm))):
        return value
    return rewriter.add("Transpose", [value], {"perm": tuple(perm)}, name=operator.name, sources=operator.sources)


def _reshaped(operator: Operator, value: int, shape: Sequence[int], rewriter: Rewriter) -> int:
    """A value with another shape, made for an operator."""
    source = _operand_of("Reshape", value, rewriter)
    value = value if source is None else source
    if rewriter.type(value).shape == tuple(shape):
        return value
    return rewriter.add("Reshape", [value], {"shape": tuple(shape)}, name=operator.name, sources=operator.sources)


def _operand_of(kind: str, value: int, rewriter: Rewriter) -> int | None:
    """What the operator of a kind that makes a value reads, None where another makes it."""
    maker = rewriter.maker(value)
    return rewriter.current(maker.inputs[0]) if maker is not None and maker.kind == kind else None


def _keeps_order(view: View, operator: Operator, operand: TensorType) -> bool:
    """Whether the view has its operand's elements, all and in the same row-major order."""
    if operator.kind == "Reshape":
        return True
    long_axes = [axis for axis in view.definition.dims if axis is not None and axis.extent != 1]
    long_dims = [index for index, extent in zip(view.load.indices, operand.shape, strict=True) if extent != 1]
    extents = [extent for extent in operand.shape if extent != 1]
    same = view.load.fill is None and view.load.type is view.definition.body.dtype
    return same and long_dims == long_axes and extents == [axis.extent for axis in long_axes]
