"""The skeleton `map`: every point for itself, the lane axis innermost.

Where a form has a block, axes are cut into such blocks, which are done one after the other: a transposition then uses
all of a cache line while it is there. Loops are cut into runs where padded loads cross a border (`skeletons/runs.h`),
so that inside nothing is tested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rammer.devices.codegen.scope import Scope
from rammer.devices.cpu.emit.nest import Loop, Range, Runs, fused, nest
from rammer.ir.expr import Axis, TensorExpr
from rammer.ir.kernel_form import MapForm
from rammer.tiling.borders import Border, borders_of

_MAX_VARIANTS = 9  # of the code for a point


def emit_map(scope: Scope, ranges: Mapping[Axis, Range], form: MapForm) -> None:
    """Write the loops over one rTask."""
    kernel = scope.operands.kernel
    lane_number = kernel.tile.lane
    sizes = {axis: size for axis, size in zip(kernel.expr.axes, form.block, strict=bool(form.block)) if size > 1}
    lane = kernel.expr.axes[lane_number] if lane_number is not None else None
    axes = [axis for axis in kernel.expr.axes if axis not in scope.operands.chosen]
    single = [Loop(axes=(axis,), range=ranges[axis]) for axis in axes if axis not in sizes and axis is not lane]
    inner = sorted((axis for axis in axes if axis in sizes or axis is lane), key=lambda axis: axis is lane)
    if sizes:
        nest(scope, single, (), lambda inside: _emit_blocks(inside, sizes, inner, lane, ranges))
    else:
        _emit_points(scope, [*single, *_loops(inner, lane, ranges)])


def _emit_blocks(
    scope: Scope, sizes: Mapping[Axis, int], inner: Sequence[Axis], lane: Axis | None, ranges: Mapping[Axis, Range]
) -> None:
    """Loops over the blocks of each axis in `sizes`, then over the points of one."""
    if not sizes:
        _emit_points(scope, _loops(inner, lane, ranges))
        return
    (axis, size), *rest = sizes.items()
    bounds, block = ranges[axis], f"{axis.name}_block"
    if bounds.count == axis.extent and size >= axis.extent:  # one block, of all there is
        _emit_blocks(scope, dict(rest), inner, lane, ranges)
        return
    is_whole = bounds.count is not None and bounds.count % size == 0
    past = f"{block} + {size}" if is_whole else f"rammer_min_i64({block} + {size}, {bounds.hi})"
    with scope.writer.loop(block, bounds.lo, bounds.hi, size):
        end = scope.writer.let("int64_t", f"{axis.name}_past", past)
        points = Range(block, end, size if is_whole else None)
        _emit_blocks(scope.enter({}), dict(rest), inner, lane, {**ranges, axis: points})


def _loops(axes: Sequence[Axis], lane: Axis | None, ranges: Mapping[Axis, Range]) -> list[Loop]:
    return [Loop(axes=(axis,), range=ranges[axis], lanes=axis is lane) for axis in axes]


def _emit_points(scope: Scope, loops: Sequence[Loop]) -> None:
    operands = scope.operands
    _emit_runs(scope, fused(loops, operands, operands.results), _MAX_VARIANTS)


def _emit_runs(scope: Scope, loops: Sequence[Loop], variants: int) -> None:
    """The loops, those that are not over lanes run by run; code for a point is compiled at most `variants` times."""
    operands = scope.operands
    scope.hoist(operands.results)
    if not loops:
        scope.store_results()
        return
    first, *rest = loops
    found = _borders(first, operands.kernel.expr)
    runs = Runs.cut(first.axes[-1], (border.span(first.axes[-1], {}) for border in found))
    if not 1 < len(runs.parts) <= variants:
        nest(scope, loops[:1], operands.results, lambda inside: _emit_runs(inside, rest, variants))
        return
    told = {border: runs.within(border.span(runs.axis, {})) for border in found}
    runs.loop(scope, first, told, lambda inside: _emit_runs(inside, rest, variants // len(runs.parts)))


def _borders(loop: Loop, expr: TensorExpr) -> list[Border]:
    """Those that padded loads cross at positions of a loop, whatever others stand at."""
    if loop.lanes or len(loop.axes) > 1:
        return []
    return [border for border in borders_of(expr.loads, expr.inputs) if border.axes == loop.axes]
