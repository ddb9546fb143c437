"""Staging of operands: the functors that say where elements lie, or compute them, for a stage in shared memory.

What lies in memory as it is multiplied is copied, beside the arithmetic; all else is computed and stored, *windows*
(`windows.py`) by threads that take several points each. What lies beyond an operand is 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum, auto

from rammer.devices.codegen.scalar import C_TYPES, convert
from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.codegen.writer import Writer
from rammer.devices.cuda.emit.points import Side, decode, guarded, within
from rammer.devices.cuda.emit.vectors import Registers, Vector
from rammer.devices.cuda.emit.windows import write_windows
from rammer.ir.expr import Axis, Expr, Load, nodes
from rammer.ir.types import DType, Layout
from rammer.tiling.addresses import Check
from rammer.tiling.pattern import Joint, joint_of, stride_along, window_points
from rammer.tiling.windows import neighbours, points_together

_COPIES_BYTES = (16, 8, 4)  # that one instruction copies
_MULTIPLIED = {DType.FLOAT32, DType.TF32, DType.BFLOAT16, DType.FLOAT16, DType.UINT8, DType.INT8}  # as it lies


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """An operand in shared memory, of the type `name`: `element` is what is staged of it.

    There it has `points` along `sides`, from number `first` on, each with the `k` elements of a stage along the
    `moving` axes, from number `start` on; the `outer` ones stand still.
    """

    name: str
    element: Expr
    sides: tuple[Side, ...]
    first: str
    points: int
    moving: tuple[Side, ...]
    outer: tuple[Side, ...]
    k: int
    start: str = "steps.element[0]"

    def decode(self, writer: Writer) -> tuple[dict[Axis, Position], list[str]]:
        """Write the positions of point `point_` of a tile and of element `element_` of a stage.

        Returns them, and conditions that hold unless they are beyond the operand.
        """
        writer.let("uint32_t", "point", f"{self.first} + point_")
        writer.let("uint32_t", "element", f"{self.start} + element_")
        points, beyond = decode(writer, "point", self.sides)
        elements, _ = decode(writer, "element", self.moving)
        conditions = [*within("point", self.sides, self.points), *within("element", self.moving, self.k)]
        return {**points, **elements}, [*conditions, *beyond]


class Readiness(Enum):
    """What of an operand may be read before an rTask has waited: none, what lies in the first of two arrays, or all."""

    NONE = auto()
    BEFORE = auto()
    WHOLE = auto()


def stage(scope: Scope, operand: Operand, threads: int) -> None:
    """Write what brings a stage of an operand."""
    writer, dtype = scope.writer, C_TYPES[operand.element.dtype]
    if window_points(operand.element):
        sides = [(side.axis, side.size) for side in operand.sides]
        together = points_together(sides, operand.points, operand.k, threads)
        head = f"{operand.name}::compute_neighbours<{together}>"
        with _functor(writer, f"{head}(stage", f"{dtype} (&value)[{together}]"):
            positions, conditions = operand.decode(writer)
            with guarded(writer, conditions):
                write_windows(scope.enter(positions), neighbours(sides)[0], operand.element, together)
        return
    if _joint(scope, operand) is not None:
        stage_part(scope, operand, before=True)
        stage_part(scope, operand, before=False)
        return
    load, chunk = _copied(scope, operand.element, operand.moving[0])
    # Neighbouring threads take pieces that lie near to each other.
    along_points = str(chunk == 1 and _runs_along_points(scope, operand)).lower()
    if load is None and (together := _together(scope, operand)) > 1:
        with _functor(writer, f"{operand.name}::compute_vectors<{together}>(stage", _values(operand, together)):
            _write_values(scope, operand, operand.element, together)
        return
    short = _as_it_lies(scope, operand.element)
    if load is None and short is not None and short.type.itemsize_bytes < _COPIES_BYTES[-1]:
        with _functor(writer, f"{operand.name}::bring<{along_points}>(stage"):
            positions, conditions = operand.decode(writer)
            writer.line(f"return {_piece(scope.enter(positions), short, conditions)};")
        return
    if load is None:
        with _functor(writer, f"{operand.name}::compute<{along_points}>(stage"):
            positions, conditions = operand.decode(writer)
            writer.line(f"{dtype} value = 0;")
            with guarded(writer, conditions):
                writer.line(f"value = {scope.enter(positions).value(operand.element)};")
            writer.line("return value;")
        return
    with _functor(writer, f"{operand.name}::copy<{chunk}, {along_points}>(stage"):
        positions, conditions = operand.decode(writer)
        writer.line(f"return {_piece(scope.enter(positions), load, conditions)};")


def readiness(scope: Scope, operand: Operand, unwritten: Collection[int]) -> Readiness:
    """How much of an operand lies in slots that no rTask writes."""
    if {node.slot for node in nodes(operand.element) if isinstance(node, Load)} <= {*unwritten}:
        return Readiness.WHOLE
    joint = _joint(scope, operand)
    return Readiness.NONE if joint is None or joint.before.slot not in unwritten else Readiness.BEFORE


def stage_part(scope: Scope, operand: Operand, *, before: bool) -> None:
    """Write what brings of a stage the points before a joint, or those behind it.

    Points that there are not come with the former.
    """
    writer, joint = scope.writer, _joint(scope, operand)
    assert joint is not None  # `readiness` said so
    element = joint.before if before else joint.behind
    ends = (f"rammer_place<{operand.points}>({end}, {operand.first})" for end in (joint.start, joint.axis.extent))
    places = ", ".join(ends)
    load, chunk = _copied(scope, element, operand.moving[0])
    if load is not None:
        copy = f"copy_outside<{chunk}, false>" if before else f"copy_between<{chunk}>"
        with _functor(writer, f"{operand.name}::{copy}(stage, {places}"):
            positions, conditions = operand.decode(writer)
            writer.line(f"return {_piece(scope.enter(positions), load, conditions)};")
        return
    together = _together(scope, replace(operand, element=element))
    head = f"{operand.name}::compute_between<{together}>(stage, {places}"
    with _functor(writer, head, _values(operand, together)):
        _write_values(scope, operand, element, together)


def _piece(at_point: Scope, load: Load, conditions: Sequence[str]) -> str:
    """What is copied from where a load's element is, if some conditions hold."""
    address, checks = at_point.element(load)
    present = " & ".join([*conditions, *checks]) or "true"
    return f"rammer_piece<{C_TYPES[load.dtype]}>{{in{load.slot} + ({address}), {present}}}"


def _joint(scope: Scope, operand: Operand) -> Joint | None:
    """The joint of an operand's points, if those before it are copied as they lie."""
    joint, innermost = joint_of(operand.element), operand.moving[0]
    if joint is None or [side.axis for side in operand.sides] != [joint.axis]:
        return None
    return None if _copied(scope, joint.before, innermost)[0] is None else joint


def _together(scope: Scope, operand: Operand) -> int:
    """Neighbouring elements for which each load of a computed operand is one instruction; 1 if there are none."""
    innermost = operand.moving[0]
    loads = [node for node in nodes(operand.element) if isinstance(node, Load)]
    along = [load for load in loads if innermost.axis in scope.operands.free[load]]
    widest = max((load.dtype.itemsize_bytes for load in along), default=_COPIES_BYTES[0])
    for size_bytes in _COPIES_BYTES:
        vector = Vector(axis=innermost.axis, size=size_bytes // widest)
        if vector.size <= 1:
            break
        fits = innermost.size % vector.size == 0 and operand.k % vector.size == 0
        if fits and all(vector.is_loaded(scope, load) for load in along):
            return vector.size
    return 1


def _values(operand: Operand, together: int) -> str:
    """The parameter for neighbouring elements that are computed."""
    return f"{C_TYPES[operand.element.dtype]} (&values)[{together}]"


def _write_values(scope: Scope, operand: Operand, element: Expr, together: int) -> None:
    """Write what computes `together` neighbouring elements."""
    writer, axis = scope.writer, operand.moving[0].axis
    positions, conditions = operand.decode(writer)
    if together == 1:
        with guarded(writer, conditions):
            value = scope.enter(positions).value(element)
            writer.line(f"values[0] = {convert(value, element.dtype, operand.element.dtype)};")
        return
    vector = Vector(axis=axis, first=replace(positions.pop(axis), multiple=together), size=together)
    with guarded(writer, conditions):
        at_point = scope.enter(positions)
        registers = Registers(axis, together, 1)
        loads = [node for node in nodes(element) if isinstance(node, Load)]
        registers.declare(at_point, loads)
        registers.bring(at_point, vector, loads)
        registers.bind_fixed(at_point)
        with vector.lanes(at_point) as at_lane:
            registers.bind(at_lane)
            value = at_lane.value(element)
            writer.line(f"values[lane] = {convert(value, element.dtype, operand.element.dtype)};")


@contextmanager
def _functor(writer: Writer, call: str, *parameters: str) -> Iterator[None]:
    """A call whose last argument is the functor of a point and an element that is written inside."""
    head = ", ".join(["uint32_t point_", "uint32_t element_", *parameters])
    with writer.block(f"{call}, [&]({head})", ");"):
        yield


def _as_it_lies(scope: Scope, element: Expr) -> Load | None:
    """The load that an operand is, if its elements are multiplied as they lie in memory, its padding being 0."""
    if not isinstance(element, Load) or element.type not in _MULTIPLIED:
        return None
    has_other = element.fill is not None and element.fill.value != 0 and scope.open_checks(element)
    return None if has_other else element


def _copied(scope: Scope, element: Expr, innermost: Side) -> tuple[Load | None, int]:
    """The load that an operand is, if it can be copied as it lies; and elements at a time."""
    load = _as_it_lies(scope, element)
    if load is not None:
        for size_bytes in _COPIES_BYTES:
            chunk = size_bytes // load.type.itemsize_bytes
            if chunk == 1 or _lies_in_chunks(scope, load, innermost, chunk):
                return load, chunk
    return None, 1


def _lies_in_chunks(scope: Scope, load: Load, innermost: Side, chunk: int) -> bool:
    """Whether a step's elements lie in such groups, each all padding or none."""
    address, axis = scope.operands.loads[load], innermost.axis
    return (
        innermost.size % chunk == 0
        and not address.parts
        and axis not in nodes(*address.atoms)
        and all(_is_of_groups(check, axis, chunk) for check in address.checks)
        and scope.operands.lies_in_groups(load, innermost.axis, chunk, scope.operands.kernel.alignments)
    )


def _is_of_groups(check: Check, axis: Axis, chunk: int) -> bool:
    """Whether a check says the same of each of so many neighbours along an axis."""
    own = check.form.coefficient(axis)
    others = [coefficient for atom, coefficient in check.form.terms if atom is not axis]
    return own == 0 or (own == 1 and all(number % chunk == 0 for number in (check.form.offset, check.extent, *others)))


def _runs_along_points(scope: Scope, operand: Operand) -> bool:
    """Whether neighbouring points of an operand lie nearer to each other than neighbouring elements of sums."""
    load = next((node for node in nodes(operand.element) if isinstance(node, Load)), None)
    if load is None:
        return True
    layout = scope.operands.kernel.layouts[load.slot]
    elements = (*operand.moving, *operand.outer)
    return _nearest(load, layout, operand.sides) <= _nearest(load, layout, elements)


def _nearest(load: Load, layout: Layout, sides: Sequence[Side]) -> float:
    """The shortest stride of a load along any of some sides."""
    strides = (abs(stride_along(load.indices, layout, side.axis)) for side in sides if side.size > 1)
    return min(filter(None, strides), default=float("inf"))
