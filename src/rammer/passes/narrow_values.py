"""narrow_values: what is only read rounded is stored rounded.

    y = relu(a), z = sum(f32(f16(y)) * w)  ->  y = f16(relu(a)), z = sum(f32(y) * w)

A value that products read is read by many rTasks, each element for every tap of a window. Rounded by the rTask that
computes it, it is rounded once; in 16 bits it is half as much to copy. What is multiplied is the same bits.

A value of which some reader wants all bits (a residual, a pooling) stays as it is, and so do rows of an odd number of
16-bit elements, which could not be copied as they lie. Parts of a value (slices, what is concatenated) are stored as
the whole is.

Ordering restriction: after `round_products`, which rounds operands, `channels_last`, which says what a row is, and
`write_rounded`, which writes some values for products alone; before `split_reduction` and `layout`, which decide by the
rounded form.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

from rammer.ir.expr import Cast, Expr, Load, cast, nodes, rebuild
from rammer.ir.graph import Graph, Operator, Value
from rammer.ir.types import DType, TensorType
from rammer.ir.vdevice import VDevice
from rammer.passes.helpers.rewrite import PLACED_KINDS
from rammer.passes.round_products import ROUNDED, is_copied


def run(graph: Graph, device: VDevice) -> Graph:
    """Store values rounded; see the module.

    Args:
        graph: after fusion; operators that are set apart have no expression.
        device: says the precision.
    """
    dtype = ROUNDED.get(device.precision)
    if dtype is None:
        return graph
    readers: dict[int, list[Operator]] = defaultdict(list)
    for operator in graph.operators:
        for value in set(operator.inputs):
            readers[value].append(operator)
    apart = {output for operator in graph.operators if operator.expr is None for output in operator.outputs}
    fixed = {*graph.inputs, *graph.outputs, *graph.constants, *apart}
    narrow = {
        value: TensorType(dtype, graph.values[value].type.shape)
        for joined in _joined(graph)
        if not fixed.intersection(joined)
        and all(_can_be(graph.values[value], readers[value], dtype) for value in joined)
        for value in joined
    }
    values = {number: replace(value, type=narrow.get(number, value.type)) for number, value in graph.values.items()}
    operators = tuple(_rewritten(operator, narrow, dtype) for operator in graph.operators)
    return replace(graph, values=MappingProxyType(values), operators=operators)


def _joined(graph: Graph) -> list[set[int]]:
    """The values, those together that are parts of each other and so lie in one tensor."""
    sets = {value: {value} for value in graph.values}
    for operator in graph.operators:
        if operator.kind in PLACED_KINDS:
            for value in (*operator.inputs, *operator.outputs):
                few, many = sorted((sets[value], sets[operator.outputs[0]]), key=len)
                if few is not many:
                    many |= few
                    sets.update(dict.fromkeys(few, many))
    return list({id(parts): parts for parts in sets.values()}.values())


def _can_be(value: Value, readers: Sequence[Operator], dtype: DType) -> bool:
    """Whether a value loses nothing if it is stored as `dtype`."""
    computing = (reader for reader in readers if reader.kind not in PLACED_KINDS)
    return lies_in_words(value, dtype) and all(rounds(reader, value.id, dtype) for reader in computing)


def lies_in_words(value: Value, dtype: DType) -> bool:
    """Whether a value is float32, and its rows, stored as `dtype`, can be copied as they lie."""
    rows = [extent for extent, step in zip(value.type.shape, value.storage.strides, strict=True) if step == 1]
    return value.type.dtype is DType.FLOAT32 and is_copied(max(rows, default=1), dtype)


def rounds(operator: Operator, value: int, dtype: DType) -> bool:
    """Whether an operator reads a value as `dtype` alone."""
    if operator.expr is None:
        return False
    wanting = [
        *nodes(*operator.expr.roots),
        *(Cast(output.type.dtype, output.body) for output in operator.expr.outputs),
    ]
    return all(
        isinstance(node, Cast) and node.type is dtype
        for node in wanting
        for child in node.children
        if isinstance(child, Load) and operator.inputs[child.slot] == value
    )


def _rewritten(operator: Operator, narrow: dict[int, TensorType], dtype: DType) -> Operator:
    """An operator that reads and makes the values in `narrow` as they are stored."""
    expr = operator.expr
    if expr is None or not any(value in narrow for value in (*operator.inputs, *operator.outputs)):
        return operator
    inputs = tuple(narrow.get(value, type_) for value, type_ in zip(operator.inputs, expr.inputs, strict=True))

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, Load) and operator.inputs[node.slot] in narrow:
            fill = None if node.fill is None else replace(node.fill, type=dtype)
            return cast(DType.FLOAT32, Load(node.slot, node.indices, dtype, fill))
        return None

    bodies = rebuild(expr.roots, visit)
    outputs = tuple(
        replace(output, type=narrow[value], body=cast(dtype, body)) if value in narrow else replace(output, body=body)
        for value, output, body in zip(operator.outputs, expr.outputs, bodies, strict=True)
    )
    return replace(operator, expr=replace(expr, inputs=inputs, outputs=outputs))
