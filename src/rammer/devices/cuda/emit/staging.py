"""Staging of operands: a step of each on its way into shared memory.

What lies in memory as it is multiplied is copied, beside the arithmetic; all else is computed and stored, *windows*
(`windows.py`) by threads that take several points each. What lies beyond an operand is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rammer.devices.codegen.scalar import C_TYPES
from rammer.devices.codegen.scope import Scope
from rammer.devices.cuda.emit.loads import is_constant
from rammer.devices.cuda.emit.points import Side, guarded
from rammer.devices.cuda.emit.product import Operand, Product
from rammer.devices.cuda.emit.windows import stage_windows
from rammer.ir.expr import Expr, Load, nodes
from rammer.ir.types import DType, Layout
from rammer.tiling.pattern import stride_along, window_points

_COPIES_BYTES = (16, 8, 4)  # that one instruction copies
_COPIES_TOGETHER = 4  # of a thread; more is more code only


def stage_step(scope: Scope, product: Product, begin: Callable[[], None] | None = None) -> None:
    """Set a step of all operands on its way, constants first.

    In the first step of all, `begin` writes what comes between constants and what others write.
    """
    writer = scope.writer
    writer.line("char *into = scratch + filled;")
    in_step = product.steps.enter(scope)
    constants = [operand for operand in product.operands if is_constant(scope, operand.element)]
    for operand in constants:
        _stage(in_step, operand, product.form.threads)
    if begin is not None:
        with writer.block("if (number == 0)"):
            begin()
    others = (operand for operand in product.operands if operand not in constants)
    for operand in sorted(others, key=lambda one: window_points(one.element)):  # copies are on their way meanwhile
        _stage(in_step, operand, product.form.threads)
    product.next_stage(writer, "filled")
    product.steps.advance(writer)


def _stage(scope: Scope, operand: Operand, threads: int) -> None:
    """A step of one operand."""
    if window_points(operand.element):
        stage_windows(scope, operand, threads)
        return
    writer = scope.writer
    load, chunk = _copied(scope, operand.element, operand.steps.moving[0])
    pieces = operand.steps.size // chunk  # of a point
    copies = operand.points * pieces
    # Neighbouring threads take pieces that lie near to each other.
    by_points = chunk == 1 and _runs_along_points(scope, operand)
    fast, slow, extent = ("point", "piece", operand.points) if by_points else ("piece", "point", pieces)
    writer.line(f"#pragma unroll {_COPIES_TOGETHER}")
    with writer.block(f"for (uint32_t i = 0; i < {-(-copies // threads)}u; ++i)"):
        writer.let("uint32_t", "copy", f"threadIdx.x + i * {threads}")
        if copies % threads:
            writer.line(f"if (copy >= {copies}u)")
            writer.line("    break;")
        writer.let("uint32_t", f"{fast}_", f"copy % {extent}")
        writer.let("uint32_t", f"{slow}_", f"copy / {extent}")
        positions, conditions = operand.decode(writer, f"piece_ * {chunk}")
        place = operand.place("into", "point_", f"piece_ * {chunk}")
        at_element = scope.enter(positions)
        if load is None:
            _compute(at_element, operand.element, place, conditions)
            return
        address, checks = at_element.element(load)
        present = " && ".join([*conditions, *checks]) or "true"
        size_bytes = chunk * load.type.itemsize_bytes
        writer.line(f"rammer_cp_async<{size_bytes}>({place}, in{load.slot} + ({address}), {present});")


def _compute(scope: Scope, form: Expr, place: str, conditions: Sequence[str]) -> None:
    """Store an element that has to be computed."""
    writer = scope.writer
    writer.line(f"{C_TYPES[form.dtype]} value = 0;")
    with guarded(writer, conditions):
        writer.line(f"value = {scope.value(form)};")
    writer.line(f"*({place}) = value;")


def _copied(scope: Scope, form: Expr, innermost: Side) -> tuple[Load | None, int]:
    """The load that an operand is, if it can be copied as it lies, its padding being 0; and elements at a time."""
    if not isinstance(form, Load) or form.type.compute is not DType.FLOAT32:
        return None, 1
    if form.fill is not None and form.fill.value != 0 and scope.open_checks(form):
        return None, 1
    for size_bytes in _COPIES_BYTES:
        chunk = size_bytes // form.type.itemsize_bytes
        if chunk == 1 or _lies_in_chunks(scope, form, innermost, chunk):
            return form, chunk
    return None, 1


def _lies_in_chunks(scope: Scope, load: Load, innermost: Side, chunk: int) -> bool:
    """Whether a step's elements lie in such groups, each all padding or none."""
    address = scope.operands.loads[load]
    return (
        innermost.size % chunk == 0
        and not address.parts
        and address.is_linear_in(innermost.axis)
        and scope.operands.lies_in_groups(load, innermost.axis, chunk, scope.operands.kernel.alignments)
    )


def _runs_along_points(scope: Scope, operand: Operand) -> bool:
    """Whether neighbouring points of an operand lie nearer to each other than neighbouring elements of sums."""
    load = next((node for node in nodes(operand.element) if isinstance(node, Load)), None)
    if load is None:
        return True
    layout = scope.operands.kernel.layouts[load.slot]
    elements = (*operand.steps.moving, *operand.steps.outer)
    return _nearest(load, layout, operand.sides) <= _nearest(load, layout, elements)


def _nearest(load: Load, layout: Layout, sides: Sequence[Side]) -> float:
    """The shortest stride of a load along any of some sides."""
    strides = (abs(stride_along(load.indices, layout, side.axis)) for side in sides if side.size > 1)
    return min(filter(None, strides), default=float("inf"))
