"""The skeleton `reduce`: any expression with reductions.

Points of the axes that reductions depend on are shared out among *teams* of threads: one thread where many points
have short reductions or threads run along the lane axis, else a warp or the whole block, whose threads take turns at
the elements. A team then runs over the other axes of its point.
"""

from __future__ import annotations

from collections.abc import Sequence

from rammer.devices.codegen.scalar import C_TYPES, COMBINE, call_text, literal
from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.cuda.emit.points import Side, count, decode, guarded, lane_first
from rammer.devices.cuda.emit.wait import emit_wait
from rammer.ir.evaluate import identity
from rammer.ir.expr import Axis, Load, Reduce, nodes
from rammer.ir.kernel_form import ReduceForm
from rammer.tiling.gemm import WARP
from rammer.tiling.pattern import reduction_order
from rammer.tiling.reduce import outer_reductions

_UNROLLED = 8  # points of a loop whose loads are all in flight together


def emit_reduce(scope: Scope, sides: Sequence[Side], form: ReduceForm) -> None:
    """Write the loops over one rTask."""
    kernel, writer = scope.operands.kernel, scope.writer
    shared, used = outer_reductions(kernel.expr)
    ordered = lane_first(kernel, sides)
    outer = [side for side in ordered if side.axis in used]
    inner = [side for side in ordered if side.axis not in used]
    threads, team = form.threads, form.team
    first, step, rank = {
        1: ("threadIdx.x", "RAMMER_THREADS", "0"),
        WARP: (f"threadIdx.x / {WARP}", f"RAMMER_THREADS / {WARP}", f"threadIdx.x % {WARP}"),
        threads: ("0", "1", "threadIdx.x"),
    }[team]
    writer.let("uint32_t", "rank", rank)
    emit_wait(writer)
    with writer.block(f"for (uint32_t group = {first}; group < {count(outer)}u; group += {step})"):
        positions, conditions = decode(writer, "group", outer)
        with guarded(writer, conditions):  # the same for all threads of a team
            at_point = scope.enter(positions)
            for reduction in shared:
                at_point.bind(reduction, _fold_in_team(at_point, reduction, team))
            at_point.hoist(scope.operands.results)
            with writer.block(f"for (uint32_t point = rank; point < {count(inner)}u; point += {team})"):
                more, conditions = decode(writer, "point", inner)
                with guarded(writer, conditions):
                    at_point.enter(more).store_results()


def fold(scope: Scope, node: Reduce) -> str:
    """Write a reduction that each thread computes for itself; returns the name of its value."""
    if _is_empty(node):
        return literal(identity(node.fn, node.dtype), node.dtype)
    total = _start(scope, node)
    _serial(scope, node, reduction_axes(scope, node), total)
    return total


def _fold_in_team(scope: Scope, node: Reduce, team: int) -> str:
    """Write a reduction that all threads of a team compute together."""
    if team == 1 or _is_empty(node):
        return fold(scope, node)
    writer = scope.writer
    total = _start(scope, node)
    scope.hoist((node.body,))
    sides = [Side.whole(axis) for axis in reversed(reduction_axes(scope, node))]
    with writer.block(f"for (uint32_t element = rank; element < {count(sides)}u; element += {team})"):
        positions, _ = decode(writer, "element", sides)
        _accumulate(scope.enter(positions), node, total)
    type_ = C_TYPES[node.dtype]
    combine = f"[]({type_} a, {type_} b) {{ return ({type_})({call_text(COMBINE[node.fn], node.dtype, ('a', 'b'))}); }}"
    over = (
        f"rammer_over_warp({total}, {combine})" if team == WARP else f"rammer_over_block({total}, scratch, {combine})"
    )
    return writer.let(type_, writer.name("whole"), over)


def reduction_axes(scope: Scope, node: Reduce) -> tuple[Axis, ...]:
    """A reduction's axes, short strides innermost."""
    loads = [load for load in nodes(node.body) if isinstance(load, Load)]
    return reduction_order(loads, node.axes, scope.operands.kernel.layouts)


def _serial(scope: Scope, node: Reduce, axes: Sequence[Axis], total: str) -> None:
    """Loops over `axes`, one element after the other."""
    scope.hoist((node.body,))
    if not axes:
        _accumulate(scope, node, total)
        return
    first, *rest = axes
    if first.extent <= _UNROLLED:
        scope.writer.line("#pragma unroll")
    with scope.writer.loop(first.name, "0", str(first.extent)):
        _serial(scope.enter({first: Position(first.name)}), node, rest, total)


def _start(scope: Scope, node: Reduce) -> str:
    total = scope.writer.name("total")
    scope.writer.line(f"{C_TYPES[node.dtype]} {total} = {literal(identity(node.fn, node.dtype), node.dtype)};")
    return total


def _accumulate(scope: Scope, node: Reduce, total: str) -> None:
    value = call_text(COMBINE[node.fn], node.dtype, (total, scope.value(node.body)))
    scope.writer.line(f"{total} = {value};")


def _is_empty(node: Reduce) -> bool:
    return any(axis.extent == 0 for axis in node.axes)
