"""A contraction with few points and long sums: matrix-vector products, recurrent cells.

Neighbouring threads take neighbouring points along the lane axis, so that weights stream in whole lines; threads that
have the same point split the sums, and their parts are put together through shuffles and shared memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rammer.devices.codegen.scalar import C_TYPES
from rammer.devices.codegen.scope import Scope
from rammer.devices.cuda.emit.map import lane_first
from rammer.devices.cuda.emit.points import Side, count, decode, guarded
from rammer.devices.cuda.emit.wait import emit_meet, emit_wait
from rammer.ir.blocks import WARP, blocks_of, group_order
from rammer.ir.expr import Expr, Load
from rammer.ir.pattern import Contraction, Group, Skeleton, Term
from rammer.ir.task import RKernel

_LOADS_IN_FLIGHT = 96  # of each thread


def is_stream(kernel: RKernel) -> bool:
    """Whether an rKernel is such a contraction."""
    return kernel.skeleton == Skeleton.CONTRACT and blocks_of(kernel) is None


def emit_stream(scope: Scope, sides: Sequence[Side], found: Contraction) -> int:
    """Write the loops over one rTask. Returns the scratch that it takes, in bytes."""
    writer = scope.writer
    kernel = scope.operands.kernel
    ordered, threads = lane_first(kernel, sides), kernel.resources.threads
    points = count(ordered)
    width = min(threads, 1 << (points - 1).bit_length())
    splits = threads // width
    element = C_TYPES[found.terms[0].reduce.dtype]
    writer.let("uint32_t", "place", f"threadIdx.x % {width}")
    writer.let("uint32_t", "split", f"threadIdx.x / {width}")
    emit_wait(writer)
    with writer.block(f"for (uint32_t first = 0; first < {points}u; first += {width})"):
        writer.let("uint32_t", "point", "first + place")
        positions, conditions = decode(writer, "point", ordered)
        if points % width:
            conditions.append(f"point < {points}u")
        sums = {term: writer.name("sum") for term in found.terms}
        for name in sums.values():
            writer.line(f"{element} {name} = 0;")
        at_point = scope.enter(positions)
        if not conditions:  # what the rest will read is on its way while the sums run
            at_point.hoist(other_loads(scope))
        with guarded(writer, conditions):
            for group in found.groups:
                _sum(at_point.enter({}), group, splits, sums)
        if splits > 1:
            emit_meet(scope)
            _combine(scope, list(sums.values()), width, element)
            conditions.append("split == 0")
        with guarded(writer, conditions):
            for term, name in sums.items():
                at_point.bind(term.reduce, name)
            at_point.store_results()
    return 2 * len(sums) * threads * found.terms[0].reduce.dtype.itemsize_bytes


def _sum(scope: Scope, group: Group, splits: int, sums: Mapping[Term, str]) -> None:
    """A thread's part of the sums of a group."""
    writer = scope.writer
    scope.hoist(operand for term in group.terms for operand in term.operands)
    sides = [Side.whole(axis) for axis in reversed(group_order(group, scope.operands.kernel.layouts))]
    length = count(sides)
    loads = len({operand for term in group.terms for operand in term.operands})
    writer.line(f"#pragma unroll {_unrolled(-(-length // splits), _LOADS_IN_FLIGHT // loads)}")
    with writer.block(f"for (uint32_t element = split; element < {length}u; element += {splits})"):
        positions, _ = decode(writer, "element", sides)
        at_element = scope.enter(positions)
        for term in group.terms:
            left, right = (at_element.value(operand) for operand in term.operands)
            writer.line(f"{sums[term]} += {left} * {right};")


def _unrolled(count: int, most: int) -> int:
    """Elements that are loaded together, so that `count` of them wait for memory as few times as can be.

    Those that are left over at the end are loaded one by one.
    """
    return min(range(max(1, min(most, count)), 0, -1), key=lambda together: count // together + count % together)


def other_loads(scope: Scope, known: Collection[Expr] = ()) -> list[Load]:
    """Loads outside of sums and of what is `known`."""
    seen: dict[Expr, None] = {}
    stack = list(scope.operands.results)
    while stack:
        node = stack.pop()
        if node not in seen and node not in known:
            seen[node] = None
            stack.extend(scope.operands.below(node))
    return [node for node in seen if isinstance(node, Load)]


def _combine(scope: Scope, sums: Sequence[str], width: int, element: str) -> None:
    """Put the parts of all threads that have the same point together; those with split 0 get the whole."""
    writer, threads = scope.writer, scope.operands.kernel.resources.threads
    for name in sums:
        distance = WARP // 2
        while distance >= width:
            writer.line(f"{name} += __shfl_xor_sync(0xffffffffu, {name}, {distance});")
            distance //= 2
    parts = min(threads // width, threads // WARP)  # that remain of each sum, `across` apart
    writer.line(f"{element} *partial = ({element} *)scratch;")
    writer.line(f"{element} *whole = partial + {len(sums) * parts * width};")
    writer.line("__syncthreads();")
    part = "split" if width >= WARP else f"threadIdx.x / {WARP}"
    with guarded(writer, [] if width >= WARP else [f"threadIdx.x % {WARP} < {width}"]):
        for i, name in enumerate(sums):
            writer.line(f"partial[({i * parts} + {part}) * {width} + place] = {name};")
    writer.line("__syncthreads();")
    with writer.block(f"for (uint32_t i = threadIdx.x; i < {len(sums) * width}u; i += RAMMER_THREADS)"):
        writer.line(f"const {element} *from = partial + i / {width} * {parts * width} + i % {width};")
        writer.line(f"{element} total = from[0];")
        with writer.loop("part", "1", str(parts)):
            writer.line(f"total += from[part * {width}];")
        writer.line("whole[i] = total;")
    writer.line("__syncthreads();")
    for i, name in enumerate(sums):
        writer.line(f"{name} = whole[{i * width} + place];")
