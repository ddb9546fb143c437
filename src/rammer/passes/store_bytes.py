"""store_bytes: numbers that stand for bytes are stored as these bytes, and made again where they are read.

    n = max(int32(round(min(x, 255 - z))), -z)
    q = uint8(n + z), y = float32(n) * s; u = y + r  ->  q = uint8(n + z); u = float32(int32(q) - z) * s + r
    y = float32(n) * s; u = y + r                    ->  q = uint8(n + z); u = float32(int32(q) - z) * s + r

What a model quantises and dequantises for two readers, a product and the sum behind the next one, fuses with what makes
it. The sum would read four times as many bytes, of a tensor of its own. The numbers are the same.

Numbers that products read stay as they are, as their operands are copied: so do those that an output of the model is,
and those that are padded.

Ordering restriction: after `fuse`, which says what is stored; before `channels_last` and `layout`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rammer.ir.expr import Call, Cast, Const, Expr, Load, Output, ScalarFn, cast, nodes, rebuild
from rammer.ir.graph import Graph, Operator
from rammer.ir.types import DType, TensorType
from rammer.ir.vdevice import VDevice
from rammer.passes.helpers.rewrite import PLACED_KINDS, Rewriter
from rammer.passes.helpers.work import Work, lift, lower

_BYTES = (DType.UINT8, DType.INT8)
_MOST = 255
"""That a byte has beyond its least value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """Numbers that are `body` of `quanta`, the integers of which value `bytes_` has the bytes, `zero` being added."""

    bytes_: int
    dtype: DType
    zero: int
    body: Expr
    quanta: Expr

    def at(self, indices: tuple[Expr, ...]) -> Expr:
        """The number at some indices; `Load.slot` is a value id."""
        made = cast(DType.INT32, Load(self.bytes_, indices, self.dtype))
        if self.zero:
            made = made - self.zero
        (number,) = rebuild([self.body], lambda node: made if node == self.quanta else None)
        return number


def run(graph: Graph, device: VDevice) -> Graph:
    """Store bytes; see the module.

    Args:
        graph: after fusion; operators that are set apart have no expression.
        device: nothing is done where it has no products of bytes: quantised numbers are float32 there.
    """
    if device.byte_products is None:
        return graph
    readers: dict[int, list[Operator]] = defaultdict(list)
    for operator in graph.operators:
        for value in dict.fromkeys(operator.inputs):
            readers[value].append(operator)
    rewriter, stored = Rewriter(graph), dict[int, _Stored]()
    for operator in graph.operators:
        if operator.expr is None or operator.kind in PLACED_KINDS or not _is_concerned(operator, stored):
            rewriter.insert(operator)
            continue
        before = lift(operator)
        work = _reading(before, stored)
        for value in operator.outputs:
            if value not in graph.outputs and all(_computes(reader, value) for reader in readers[value]):
                work = _storing(work, value, rewriter, stored)
        if work is not before:
            expr, inputs = lower(work, rewriter.type)
            operator = replace(operator, expr=expr, inputs=inputs, outputs=tuple(work.outputs), attributes={})
        rewriter.insert(operator)
    return rewriter.finish()


def _is_concerned(operator: Operator, stored: Mapping[int, _Stored]) -> bool:
    """Whether an operator reads what is stored as bytes now, or has integers that may be bytes; hardly any has."""
    expr = operator.expr
    return expr is not None and (
        not stored.keys().isdisjoint(operator.inputs)
        or any(_as_quanta(node) is not None for node in nodes(*expr.roots))
    )


def _computes(reader: Operator, value: int) -> bool:
    """Whether a reader computes with a value's elements, all of which there are, and multiplies none as they lie."""
    if reader.expr is None or reader.kind in PLACED_KINDS:
        return False
    work = lift(reader)
    is_padded = any(load.slot == value and load.fill is not None for load in work.loads)
    return not is_padded and value not in work.contracted and value not in work.positions


def _reading(work: Work, stored: Mapping[int, _Stored]) -> Work:
    """The work with numbers made of the bytes that are stored instead."""
    if stored.keys().isdisjoint(work.reads):
        return work

    def visit(node: Expr) -> Expr | None:
        return stored[node.slot].at(node.indices) if isinstance(node, Load) and node.slot in stored else None

    return work.rewritten(visit)


def _storing(work: Work, value: int, rewriter: Rewriter, stored: dict[int, _Stored]) -> Work:
    """The work that stores bytes instead of a value's numbers, if they stand for bytes."""
    output = work.outputs[value]
    quanta = None if output.type.dtype in _BYTES else _quanta(output.body)
    if quanta is None:
        return work
    outputs = dict(work.outputs)
    del outputs[value]
    found = _bytes_of(quanta, output, outputs)
    if found is None:
        zero, type_ = -quanta.least, TensorType(DType.UINT8, output.type.shape)
        bytes_ = rewriter.value(type_, rewriter.name(value))
        body = cast(DType.UINT8, quanta.node + zero)
        outputs[bytes_] = Output(type=type_, indices=output.indices, body=body)
    else:
        bytes_, zero = found
    dtype = outputs[bytes_].type.dtype
    stored[value] = _Stored(bytes_=bytes_, dtype=dtype, zero=zero, body=output.body, quanta=quanta.node)
    return Work(axes=work.axes, outputs=outputs)


@dataclass(frozen=True, slots=True)
class _Quanta:
    """Integers of 32 bits, the least of which is known, and of which there are no more than a byte has."""

    node: Expr
    least: int


def _quanta(body: Expr) -> _Quanta | None:
    """The integers that numbers are computed of, and of constants; None where they are computed of anything else."""
    found: _Quanta | None = None
    stack = [body]
    while stack:
        node = stack.pop()
        quanta = _as_quanta(node)
        if quanta is not None and found in (None, quanta):
            found = quanta
        elif quanta is not None or not isinstance(node, (Call, Cast, Const)):
            return None
        else:
            stack.extend(node.children)
    return found


def _as_quanta(node: Expr) -> _Quanta | None:
    """What `fold_scales` makes of numbers that are rounded and clipped."""
    match node:
        case Call(ScalarFn.MAX, (Cast(DType.INT32, Call(ScalarFn.ROUND, (clipped,))), Const(least))):
            match clipped:
                case Call(ScalarFn.MIN, (_, Const(greatest))) if 0 <= greatest - least <= _MOST:
                    return _Quanta(node, int(least))
    return None


def _bytes_of(quanta: _Quanta, output: Output, others: Mapping[int, Output]) -> tuple[int, int] | None:
    """Another output that has the integers as bytes where `output` has its numbers, and what is added to them."""
    for value, other in others.items():
        match other.body:
            case Cast(dtype, Call(ScalarFn.ADD, (node, Const(zero)))) if dtype in _BYTES and node == quanta.node:
                if other.indices == output.indices:
                    return value, int(zero)
    return None
