"""Legality of fusion: when two works may become one, and the one that they become.

All three forms keep the value of every result, up to the order of a reduction's sums that is unspecified anyway.
Whether operators may be brought together at all (no path between them through others) is the pass's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rammer.ir.expr import Axis, Expr, Load, Output, const, nodes, rebuild, substitute
from rammer.ir.region import affine
from rammer.ir.types import DType, TensorType
from rammer.passes.helpers.simplify import simplified
from rammer.passes.helpers.views import Definition, definition
from rammer.passes.helpers.work import Work

LARGEST_OPERANDS = 16
"""Values that a fused operator reads and writes: a kernel's record of operands stays small."""

LARGEST_NODES = 512
"""Nodes of two operators' bodies that may become one: code stays small, and so does the time for a step of fusion. A
cell of an LSTM has 74, an activation up to 20, the output transform of a filtered convolution 300."""

_ZERO = const(0, DType.INT64)


def with_epilogue(producer: Work, consumer: Work) -> Work | None:
    """The producer, followed at each point of its domain by the consumer.

        p: v[S(i)] = P(i);  c: w[T(j)] = C(j, v[j'])  ->  v[S(i)] = P(i), w[T(S'(i))] = C(S'(i), P(i))

    where j' is a permutation of the consumer's axes and S' the same permutation of the producer's stores. So the
    consumer may transpose, may read any other operands, and must not reduce: its domain has to be the producer's.
    Results that are positions of a gather stay in memory.

    Returns:
        The work with the producer's and the consumer's outputs; None where this cannot be done.
    """
    if consumer.reduces or not _fit_together(producer, consumer):
        return None
    links = [load for load in consumer.loads if load.slot in producer.outputs]
    if not links or any(link.slot in consumer.positions for link in links):
        return None  # an operand of which no element is read links nothing
    mapping = _matched(producer.outputs[links[0].slot], links[0], consumer.axes)
    if mapping is None:
        return None
    for link in links:
        stored = producer.outputs[link.slot]
        if not _same_element(substitute(link.indices, mapping), stored):
            return None

    def visit(node: Expr) -> Expr | None:
        match node:
            case Axis():
                return mapping[node]
            case Load(slot) if slot in producer.outputs:
                return producer.outputs[slot].body
        return None

    followed = consumer.rewritten(visit)
    outputs = dict(producer.outputs)
    for value, output in followed.outputs.items():
        indices = substitute(output.indices, mapping)
        outputs[value] = Output(type=output.type, indices=indices, body=output.body)
    return _few_operands(Work(axes=producer.axes, outputs=outputs))


def _matched(stored: Output, link: Load, axes: tuple[Axis, ...]) -> dict[Axis, Expr] | None:
    """The producer's expression for each of the consumer's axes, where the link reads each element once."""
    if any(affine(index) is None for index in stored.indices):
        return None
    mapping: dict[Axis, Expr] = {}
    for index, place, extent in zip(link.indices, stored.indices, stored.type.shape, strict=True):
        if isinstance(index, Axis) and index.extent == extent and index not in mapping:
            mapping[index] = place
        elif extent != 1:
            return None
    for axis in axes:
        if axis not in mapping and axis.extent != 1:
            return None
        mapping.setdefault(axis, _ZERO)
    return mapping


def _same_element(indices: tuple[Expr, ...], stored: Output) -> bool:
    """Whether indices name the element that is stored at the same point."""
    return all(
        extent == 1 or affine(index) == affine(place)
        for index, place, extent in zip(indices, stored.indices, stored.type.shape, strict=True)
    )


def with_prologue(producer: Work, consumer: Work, type_of: Callable[[int], TensorType]) -> Work | None:
    """The consumer, computing the elements of the producer's result where it loads them.

        p: v[i] = P(i);  c: w = C(v[e])  ->  w = C(P(e))

    The producer must not reduce or be guarded, nothing may be computed more often than before, operands of
    contractions and positions of gathers stay in memory, and so does what is loaded with a padding: where that leaves
    the producer's result, the producer's own loads could leave their operands. Of a function of one element each, which
    makes the padding of 0, that element is padded by 0 instead: of numbers that are quantised, their zero point.

    Args:
        producer: what makes an operand.
        consumer: what reads it.
        type_of: the type of each value.

    Returns:
        The work with the consumer's outputs; None where this cannot be done.
    """
    if producer.reduces or producer.is_guarded or len(producer.outputs) != 1 or not _fit_together(producer, consumer):
        return None
    ((value, output),) = producer.outputs.items()
    found = definition(producer.axes, output)
    links = [load for load in consumer.loads if load.slot == value]
    if found is None or value in consumer.contracted | consumer.positions:
        return None
    if any(link.fill is not None for link in links):
        once = len(links) == 1 and _reads_once(consumer, links[0])
        found = _padded(found, links[0].fill, type_of) if once else None
    elif consumer.evaluations(value) > output.type.size:
        return None
    if found is None:
        return None
    made = found

    def visit(node: Expr) -> Expr | None:
        return made.at(node.indices) if isinstance(node, Load) and node.slot == value else None

    return _few_operands(consumer.rewritten(visit))


def _padded(found: Definition, fill: Expr | None, type_of: Callable[[int], TensorType]) -> Definition | None:
    """Elements that are a function of one element each, padded by 0 where that makes `fill`; None for any others."""
    loads = {node for node in nodes(found.body) if isinstance(node, Load)}
    if len(loads) != 1:
        return None
    (load,) = loads
    is_whole = type_of(load.slot).shape == found.shape and load.indices == tuple(axis or _ZERO for axis in found.dims)
    if load.fill is not None or load.type.is_rounded or not is_whole:
        return None
    zero = const(0, load.type)
    (at_zero,) = rebuild([found.body], lambda node: zero if node == load else simplified(node))
    (body,) = rebuild([found.body], lambda node: replace(load, fill=zero) if node == load else None)
    return replace(found, body=body) if at_zero == fill else None


def _reads_once(consumer: Work, link: Load) -> bool:
    """Whether a work that does not reduce loads each element at most once, where that is not padding."""
    forms = [form for form in map(affine, link.indices) if form is not None]
    moved = [axis for form in forms for axis, step in form.terms if step == 1 and len(form.terms) == 1]
    wide = [axis for axis in consumer.axes if axis.extent > 1]
    return not consumer.reduces and len(forms) == len(link.indices) and set(wide) <= set(moved)


def side_by_side(first: Work, second: Work) -> Work | None:
    """Both works over one domain, where neither reduces and their axes have the same extents.

        a: v[i] = A(i);  b: w[j] = B(j)  ->  v[i] = A(i), w[i] = B(i)

    Returns:
        The work with the outputs of both; None where this cannot be done.
    """
    if first.reduces or second.reduces or first.extents != second.extents or not _fit_together(first, second):
        return None
    mapping: dict[Axis, Expr] = dict(zip(second.axes, first.axes, strict=True))
    outputs = dict(first.outputs)
    for value, output in second.outputs.items():
        body, *indices = substitute([output.body, *output.indices], mapping)
        outputs[value] = Output(type=output.type, indices=tuple(indices), body=body)
    return _few_operands(Work(axes=first.axes, outputs=outputs))


def _fit_together(first: Work, second: Work) -> bool:
    """Whether two works are small enough to become one."""
    return len(first.nodes) + len(second.nodes) <= LARGEST_NODES


def _few_operands(work: Work) -> Work | None:
    return work if len(work.reads) + len(work.outputs) <= LARGEST_OPERANDS else None
