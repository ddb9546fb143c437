"""round_products: products run in the precision that was asked for.

    y = sum(x * w)  ->  y = sum(f32(f16(x)) * f32(w16)), w16 being w stored in 16 bits     precision fp16; bf16 alike
    y = sum(x * w)  ->  y = sum(f32(tf32(x)) * f32(wt)), wt being w stored as TF32         precision tf32

The graph says what is rounded: the two operands of products that the device stages, for these are what tensor cores
take; in attention queries, keys, values and weights, to 16 bits only, and the sum of the weights is of what they are
before. Sums and all else stay float32. Products that stream their weights from memory gain from narrow weights alone,
which are stored in 16 bits. Where weights that several operators share (the cells of a recurrent layer) stay on the
units that use them, both operands are rounded to 16 bits: of narrow ones a unit keeps more. Staged weights with an odd
number of elements summed are rounded to 16 bits when they are multiplied instead.

Ordering restriction: after `fuse`, when products have their last form; before `split_reduction` and `layout`, which
decide by the rounded form.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from rammer.ir.evaluate import converted
from rammer.ir.expr import Call, Cast, Expr, Load, Reduce, ReduceFn, ScalarFn, TensorExpr, cast, rebuild
from rammer.ir.graph import Graph, Operator
from rammer.ir.kernel_form import Skeleton
from rammer.ir.types import DType, TensorType
from rammer.ir.vdevice import VDevice
from rammer.passes.helpers.rewrite import Rewriter
from rammer.tiling.attention import attention
from rammer.tiling.packing import is_staged
from rammer.tiling.pattern import Contraction, contraction

ROUNDED: Mapping[str, DType] = {"tf32": DType.TF32, "fp16": DType.FLOAT16, "bf16": DType.BFLOAT16}
"""What operands of products are rounded to, by precision."""

_WORD_BYTES = 4


def run(graph: Graph, device: VDevice) -> Graph:
    """Round the operands of products; see the module.

    Args:
        graph: after fusion; every operator has an expression.
        device: says the precision, and what it stages.
    """
    dtype = ROUNDED.get(device.precision)
    if dtype is None:
        return graph
    readers = Counter(value for operator in graph.operators for value in set(operator.inputs))
    rewriter = Rewriter(graph)
    narrowed: dict[int, int] = {}

    def narrow(value: int) -> int:
        if value not in narrowed:
            array = converted(graph.constants[value], dtype)
            narrowed[value] = rewriter.constant(array, graph.values[value].name, dtype)
        return narrowed[value]

    for operator in graph.operators:
        if operator.expr is None:
            rewriter.insert(operator)
            continue
        found = contraction(operator.expr)
        if found is None:
            rewriter.insert(replace(operator, expr=rounded(operator.expr, device)))
            continue
        expr, inputs = operator.expr, list(operator.inputs)
        staged, stays = is_staged(expr, found, device), False
        for slot in sorted(_weights(operator, found, graph)):
            is_once = readers[operator.inputs[slot]] == 1
            if _lies_in_words(found, dtype) if staged else dtype.is_half and (is_once or device.stationary_bytes > 0):
                inputs[slot] = narrow(operator.inputs[slot])
                expr = _with_narrow_slot(expr, slot, dtype)
                stays |= not is_once
        if staged or stays:
            expr = _with_rounded_products(expr, dtype)
        rewriter.insert(replace(operator, expr=expr, inputs=tuple(inputs)))
    return rewriter.finish()


def rounded(expr: TensorExpr, device: VDevice) -> TensorExpr:
    """The expression with the operands of its products rounded to the precision, where the device takes them so."""
    dtype = ROUNDED.get(device.precision)
    if dtype is None:
        return expr
    found = contraction(expr)
    if found is not None:
        return _with_rounded_products(expr, dtype) if is_staged(expr, found, device) else expr
    takes = dtype.is_half and Skeleton.ATTENTION in device.skeletons and attention(expr) is not None
    return _with_rounded_products(expr, dtype) if takes else expr


def is_copied(elements: int, dtype: DType) -> bool:
    """Whether a row of so many elements are whole words, which can be copied as they lie."""
    return elements * dtype.itemsize_bytes % _WORD_BYTES == 0


def _lies_in_words(found: Contraction, dtype: DType) -> bool:
    """Whether what is summed over can be copied as it lies."""
    return all(is_copied(math.prod(axis.extent for axis in group.axes), dtype) for group in found.groups)


def _weights(operator: Operator, found: Contraction, graph: Graph) -> set[int]:
    """The slots of float32 constants that are read as operands of products alone."""
    if operator.expr is None:
        return set()
    operands = {operand for term in found.terms for operand in term.operands}
    slots = {operand.slot for operand in operands if isinstance(operand, Load)}
    others = {load.slot for load in operator.expr.usual.loads if load not in operands}
    return {
        slot
        for slot in slots - others
        if operator.inputs[slot] in graph.constants and operator.expr.inputs[slot].dtype is DType.FLOAT32
    }


def _with_narrow_slot(expr: TensorExpr, slot: int, dtype: DType) -> TensorExpr:
    """The expression with a slot of rounded floats, widened where they are read."""

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.slot != slot:
            return None
        fill = None if node.fill is None else replace(node.fill, type=dtype)
        return cast(DType.FLOAT32, Load(slot, node.indices, dtype, fill))

    inputs = tuple(
        TensorType(dtype, type_.shape) if number == slot else type_ for number, type_ in enumerate(expr.inputs)
    )
    return _rebuilt(expr, inputs, visit)


def _with_rounded_products(expr: TensorExpr, dtype: DType) -> TensorExpr:
    """The expression with both operands of every float32 product rounded."""

    def narrow(operand: Expr) -> Expr:
        is_rounded = isinstance(operand, Cast) and operand.arg.dtype is dtype
        return operand if is_rounded else cast(DType.FLOAT32, cast(dtype, operand))

    def visit(node: Expr) -> Expr | None:
        match node:
            case Reduce(ReduceFn.SUM, axes, Call(ScalarFn.MUL, (left, right))) if node.dtype is DType.FLOAT32:
                return Reduce(ReduceFn.SUM, axes, narrow(left) * narrow(right))
        return None

    return _rebuilt(expr, expr.inputs, visit)


def _rebuilt(expr: TensorExpr, inputs: tuple[TensorType, ...], visit: Callable[[Expr], Expr | None]) -> TensorExpr:
    bodies = rebuild(expr.roots, visit)
    outputs = tuple(replace(output, body=body) for output, body in zip(expr.outputs, bodies, strict=True))
    return replace(expr, inputs=inputs, outputs=outputs)
