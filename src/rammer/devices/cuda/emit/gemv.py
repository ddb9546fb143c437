"""The skeleton `gemv`: products with few points and long sums, matrix-vector products and recurrent cells.

Neighbouring threads take neighbouring points along the lane axis, so that weights stream in whole lines; a thread takes
a *run* of them where one load brings the weights of all. Threads that have the same points split the sums, and their
parts are put together through shuffles and shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from rammer.devices.codegen.scalar import C_TYPES
from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.codegen.writer import Writer
from rammer.devices.cuda.emit.points import Side, count, decode, guarded, lane_first, within
from rammer.devices.cuda.emit.wait import emit_meet, emit_wait
from rammer.ir.expr import Axis, Expr, Load
from rammer.ir.kernel_form import GemvForm
from rammer.tiling.gemm import WARP, group_order
from rammer.tiling.gemv import gemv_parts
from rammer.tiling.pattern import Group, Term, contraction

STREAM = "rammer_stream"
"""The function that reads an element, or a run of them, which nobody will read again soon."""

_REGISTERS_IN_FLIGHT = 96  # of each thread, for what it loads
_REGISTER_BYTES = 4


def emit_gemv(scope: Scope, sides: Sequence[Side], form: GemvForm) -> None:
    """Write the loops over one rTask."""
    found = contraction(scope.operands.kernel.expr)
    if found is None:
        raise ValueError("a product is a contraction")
    writer = scope.writer
    ordered = lane_first(scope.operands.kernel, sides)
    points = count(ordered)
    width, run = form.width, form.vector
    element = C_TYPES[found.terms[0].reduce.dtype]
    writer.let("uint32_t", "place", f"threadIdx.x % {width}")
    writer.let("uint32_t", "split", f"threadIdx.x / {form.across}")
    emit_wait(writer)
    with writer.block(f"for (uint32_t first = 0; first < {points}u; first += {width})"):
        writer.let("uint32_t", "point", "first + place")
        positions, conditions = decode(writer, "point", ordered)
        conditions += within("point", ordered, width)
        at_point = scope.enter(positions)
        if not conditions:  # what the rest will read is on its way while the sums run
            at_point.hoist(scope.operands.outer_loads())
        sums = {term: writer.name("sum") for term in found.terms}
        for name in sums.values():
            writer.line(f"{element} {name}[{run}] = {{}};")
        with writer.block():
            writer.let("uint32_t", "head", f"first + threadIdx.x % {form.across} * {run}")
            heads, present = decode(writer, "head", ordered)
            with guarded(writer, [*present, *within("head", ordered, width)]):
                for group in found.groups:
                    _sum(scope, ordered[0].axis, heads, group, form, sums)
        if form.splits > 1:
            emit_meet(scope)
            _combine(scope, list(sums.values()), form, element)
            conditions.append(f"threadIdx.x < {width}")
        with guarded(writer, conditions):
            for term, name in sums.items():
                at_point.bind(term.reduce, f"{name}[0]")
            at_point.store_results()


def _sum(
    scope: Scope,
    lane: Axis,
    heads: Mapping[Axis, Position],
    group: Group,
    form: GemvForm,
    sums: Mapping[Term, str],
) -> None:
    """A thread's part of the sums of a group, for the run of points that begins at `heads`."""
    writer, run, splits = scope.writer, form.vector, form.splits
    operands = [operand for term in group.terms for operand in term.operands]
    scope = scope.enter({axis: place for axis, place in heads.items() if run == 1 or axis is not lane})
    scope.hoist(operands)
    sides = [Side.whole(axis) for axis in reversed(group_order(group, scope.operands.kernel.layouts))]
    length = count(sides)
    runs = {load: run if lane in scope.operands.free[load] else 1 for load in _loads(scope, operands)}
    registers = sum(-(-load.dtype.itemsize_bytes * taken // _REGISTER_BYTES) for load, taken in runs.items())
    writer.line(f"#pragma unroll {_unrolled(-(-length // splits), _REGISTERS_IN_FLIGHT // max(1, registers))}")
    with writer.block(f"for (uint32_t element = split; element < {length}u; element += {splits})"):
        positions, _ = decode(writer, "element", sides)
        at_element = scope.enter(positions)
        at_element.hoist(operands)
        points = [at_element]
        if run > 1:
            points = [at_element.enter({lane: replace(heads[lane], offset=i, multiple=run)}) for i in range(run)]
            for load in (load for load, taken in runs.items() if taken > 1):
                name = _load_run(points[0], load, run)
                for i, at_point in enumerate(points):
                    at_point.bind(load, f"{name}.lane[{i}]")
        for i, at_point in enumerate(points):
            for term in group.terms:
                left, right = (at_point.value(operand) for operand in term.operands)
                writer.line(f"{sums[term]}[{i}] += {left} * {right};")


def _loads(scope: Scope, operands: Sequence[Expr]) -> list[Load]:
    return [node for node in scope.operands.reach(operands) if isinstance(node, Load)]


def _load_run(scope: Scope, load: Load, run: int) -> str:
    """The name of a vector of a run's elements, of which `scope` is at the first."""
    address, _ = scope.element(load)
    vector = f"rammer_vector<{C_TYPES[load.dtype]}, {run}>"
    place = f"(const {vector} *)&in{load.slot}[{address}]"
    text = f"{STREAM}({place})" if load.slot in scope.operands.readers else f"*{place}"
    return scope.writer.let(vector, scope.writer.name("run"), text)


def _unrolled(count: int, most: int) -> int:
    """Elements that are loaded together, so that `count` of them wait for memory as few times as can be.

    Those that are left over at the end are loaded one by one.
    """
    return min(range(max(1, min(most, count)), 0, -1), key=lambda together: count // together + count % together)


def _combine(scope: Scope, sums: Sequence[str], form: GemvForm, element: str) -> None:
    """Put the parts of all threads that have the same points together; the first `width` threads get a whole each."""
    writer, width, run, across, parts = scope.writer, form.width, form.vector, form.across, gemv_parts(form)
    for name in sums:
        with _over_run(writer, run):
            distance = WARP // 2
            while distance >= across:
                writer.line(f"{name}[i] += __shfl_xor_sync(0xffffffffu, {name}[i], {distance});")
                distance //= 2
    writer.line(f"{element} *partial = ({element} *)scratch;")
    writer.line(f"{element} *whole = partial + {len(sums) * parts * width};")
    writer.line("__syncthreads();")
    part = "split" if across >= WARP else f"threadIdx.x / {WARP}"
    with guarded(writer, [] if across >= WARP else [f"threadIdx.x % {WARP} < {across}"]):
        for number, name in enumerate(sums):
            with _over_run(writer, run):
                place = f"({number * parts} + {part}) * {width} + threadIdx.x % {across} * {run} + i"
                writer.line(f"partial[{place}] = {name}[i];")
    writer.line("__syncthreads();")
    with writer.block(f"for (uint32_t i = threadIdx.x; i < {len(sums) * width}u; i += RAMMER_THREADS)"):
        writer.line(f"const {element} *from = partial + i / {width} * {parts * width} + i % {width};")
        writer.line(f"{element} total = from[0];")
        with writer.loop("part", "1", str(parts)):
            writer.line(f"total += from[part * {width}];")
        writer.line("whole[i] = total;")
    writer.line("__syncthreads();")
    for number, name in enumerate(sums):
        writer.line(f"{name}[0] = whole[{number * width} + place];")


@contextmanager
def _over_run(writer: Writer, run: int) -> Iterator[None]:
    """For each point `i` of a run."""
    writer.line("#pragma unroll")
    with writer.loop("i", "0", str(run)):
        yield
