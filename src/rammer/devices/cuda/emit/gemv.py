"""The skeleton `gemv` (`skeletons/gemv.cuh`): its sizes as constants, and its functors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rammer.devices.codegen.scalar import C_TYPES
from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.cuda.emit.loads import Early
from rammer.devices.cuda.emit.points import Side, count, decode, guarded, lane_first, within
from rammer.devices.cuda.emit.wait import emit_wait, waits_one_by_one
from rammer.ir.expr import Axis, Load, Reduce
from rammer.ir.kernel_form import GemvForm
from rammer.tiling.gemm import group_order
from rammer.tiling.pattern import Contraction, Group, contraction

STREAM = "rammer_load_streaming"
"""The function that reads an element, or a vector of them, which nobody will read again soon."""

_REGISTERS_IN_FLIGHT = 96  # of each thread, for what it loads
_REGISTER_BYTES = 4


def emit_gemv(scope: Scope, sides: Sequence[Side], form: GemvForm) -> None:
    """Write what computes one rTask."""
    found = contraction(scope.operands.kernel.expr)
    if found is None:
        raise ValueError("a product is a contraction")
    writer = scope.writer
    points = lane_first(scope.operands.kernel, sides)
    element = C_TYPES[found.terms[0].reduce.dtype]
    meets = str(waits_one_by_one(scope.operands.kernel)).lower()
    sizes = f"{len(found.terms)}, {form.width}, {form.vector}, {count(points)}, {meets}"
    writer.line(f"typedef rammer_gemv<{element}, {sizes}> gemv;")
    emit_epilogue(scope, points, [term.reduce for term in found.terms], form.width)
    with writer.block("const auto sum = [&](uint32_t point, uint32_t split, gemv::sums &sums)", ";"):
        heads, present = decode(writer, "point", points)
        with guarded(writer, [*present, *within("point", points, form.width)]):
            for group in found.groups:
                _emit_group(scope, points[0].axis, heads, found, group, form)
    emit_wait(writer)
    writer.line("gemv::run<rammer_early>(scratch, load, sum, finish);")


def emit_epilogue(scope: Scope, points: Sequence[Side], sums: Sequence[Reduce], width: int) -> None:
    """Write `load` and `finish`, for `width` points at a time.

    What is read early is read for each of them: not where some are none.
    """
    writer = scope.writer
    is_whole = not any(side.is_ragged for side in points) and count(points) % width == 0
    loads = scope.operands.outer_loads() if is_whole else []
    early = Early(writer, loads)
    with writer.block("const auto load = [&](uint32_t point, rammer_early &early)", ";"):
        if loads:
            early.load(scope.enter(decode(writer, "point", points)[0]))
    with writer.block(
        "const auto finish = [&](uint32_t point, const gemv::sums &sums, const rammer_early &early)", ";"
    ):
        positions, conditions = decode(writer, "point", points)
        with guarded(writer, [*conditions, *within("point", points, width)]):
            at_point = scope.enter(positions)
            early.bind(at_point)
            for number, reduce in enumerate(sums):
                at_point.bind(reduce, f"sums[{number}][0]")
            at_point.store_results()


def _emit_group(
    scope: Scope, lane: Axis, heads: Mapping[Axis, Position], found: Contraction, group: Group, form: GemvForm
) -> None:
    """A thread's part of the sums of a group, for the vector of points that begins at `heads`."""
    writer, vector = scope.writer, form.vector
    operands = [operand for term in group.terms for operand in term.operands]
    scope = scope.enter({axis: place for axis, place in heads.items() if vector == 1 or axis is not lane})
    scope.hoist(operands)
    sides = [Side.whole(axis) for axis in reversed(group_order(group, scope.operands.kernel.layouts))]
    length = count(sides)
    loads = [node for node in scope.operands.reach(operands) if isinstance(node, Load)]
    sizes = {load: vector if lane in scope.operands.free[load] else 1 for load in loads}
    registers = sum(-(-load.dtype.itemsize_bytes * size // _REGISTER_BYTES) for load, size in sizes.items())
    unroll = _unrolled(-(-length // form.splits), _REGISTERS_IN_FLIGHT // max(1, registers))
    head = f"rammer_over_elements<{length}, {form.splits}, {unroll}>(split, [&](uint32_t element)"
    with writer.block(head, ");"):
        positions, _ = decode(writer, "element", sides)
        at_element = scope.enter(positions)
        at_element.hoist(operands)
        points = [at_element]
        if vector > 1:
            points = [at_element.enter({lane: replace(heads[lane], offset=i, multiple=vector)}) for i in range(vector)]
            for load in (load for load, size in sizes.items() if size > 1):
                name = _load_vector(points[0], load, vector)
                for i, at_point in enumerate(points):
                    at_point.bind(load, f"{name}.lane[{i}]")
        for i, at_point in enumerate(points):
            for term in group.terms:
                left, right = (at_point.value(operand) for operand in term.operands)
                writer.line(f"sums[{found.terms.index(term)}][{i}] += {left} * {right};")


def _load_vector(scope: Scope, load: Load, size: int) -> str:
    """The name of a vector of elements, of which `scope` is at the first."""
    address, _ = scope.element(load)
    vector = f"rammer_vector<{C_TYPES[load.dtype]}, {size}>"
    place = f"(const {vector} *)&in{load.slot}[{address}]"
    text = f"{STREAM}({place})" if load.slot in scope.operands.readers else f"*{place}"
    return scope.writer.let(vector, scope.writer.name("vector"), text)


def _unrolled(count: int, most: int) -> int:
    """Elements that are loaded together, so that `count` of them wait for memory as few times as can be.

    Those that are left over at the end are loaded one by one.
    """
    return min(range(max(1, min(most, count)), 0, -1), key=lambda together: count // together + count % together)
