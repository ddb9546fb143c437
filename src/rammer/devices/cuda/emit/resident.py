"""A contraction whose weights stay in registers while its vEU walks a run of records.

bring the weights into registers, before the first Wait
for each record of the run
  wait; bring the vectors into shared memory
  each warp: its sums, each lane over its elements, then over the lanes
  each point: the elementwise rest; signal
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.codegen.writer import Writer
from rammer.devices.cuda.describe import THREADS
from rammer.devices.cuda.emit.map import lane_first
from rammer.devices.cuda.emit.points import Side, count, decode, guarded
from rammer.devices.cuda.emit.residence import Part, Residence
from rammer.devices.cuda.emit.stream import other_loads
from rammer.devices.cuda.emit.wait import emit_wait
from rammer.ir.blocks import WARP
from rammer.ir.expr import Axis, Expr, Load, nodes
from rammer.ir.pattern import reduction_order
from rammer.ir.types import DType

_ELEMENT_BYTES = 4


def emit_resident(scope: Scope, sides: Sequence[Side], residence: Residence, pointers: Sequence[str]) -> int:
    """Write the body of the function that walks a run. Returns the scratch that it takes, in bytes.

    Args:
        scope: where the pointers to constants have names.
        sides: of the tile.
        residence: the parts.
        pointers: what gives names to the other operands' addresses, once for each record.
    """
    writer = scope.writer
    ordered = lane_first(scope.operands.kernel, sides)
    points = count(ordered)
    writer.let("uint32_t", "warp", f"threadIdx.x / {WARP}")
    writer.let("uint32_t", "lane", f"threadIdx.x % {WARP}")
    writer.line("float *shared = (float *)scratch;")
    # Values that no path leaves open: the compiler would keep their registers for the whole program.
    writer.line(f"float weights[{residence.weights}] = {{}};")
    staged = _bring_weights(scope, residence, ordered)
    vectors = residence.parts[0].sums_at
    with writer.block(f"for (uint32_t i = threadIdx.x; i < {vectors}u; i += RAMMER_THREADS)"):
        writer.line("shared[i] = 0.0f;")  # elements beyond the end of a vector are added, too
    writer.let("uint32_t", "point", f"min(threadIdx.x, {points - 1}u)")
    positions, conditions = _positions(writer, ordered)
    at_point = scope.enter(positions)
    rest = other_loads(scope)
    kept = _keep_constants(at_point, residence, [load for load in rest if load.slot in residence.kept])
    writer.line("__syncthreads();")
    with writer.block("for (;; rammer_reach(++position))"):
        emit_wait(writer)
        writer.line("char *const *pointers = (char *const *)rammer_at(position)->operands;")
        for line in pointers:
            writer.line(line)
        here = at_point.enter({})
        here.hoist(load for load in rest if load.slot not in residence.kept)
        _bring_vectors(scope.enter({}), residence.parts)
        writer.line("__syncthreads();")
        writer.line("if (!rammer_took(position))")
        writer.line("    return false;")
        for part in residence.parts:
            _sum(writer, part)
        writer.line("__syncthreads();")
        with guarded(writer, [f"threadIdx.x < {points}u", *conditions]):
            for load, place in kept.items():
                here.bind(load, writer.let("float", writer.name("kept"), f"shared[{place} + threadIdx.x]"))
            for part in residence.parts:
                for number, term in enumerate(part.terms):
                    place = part.sums_at + number * points
                    here.bind(term.reduce, writer.let("float", writer.name("total"), f"shared[{place} + threadIdx.x]"))
            here.store_results()
        # What threads still read of shared memory is written again only behind the next barriers.
        writer.line("rammer_end_early(position);")
        with writer.block("if (position == last)"):
            writer.line("__syncthreads();")
            writer.line("return true;")
    return _ELEMENT_BYTES * max(staged, residence.kept_at + len(kept) * points)


def _keep_constants(scope: Scope, residence: Residence, loads: Sequence[Load]) -> dict[Load, int]:
    """Bring constants that the elementwise rest reads into shared memory; their places, each point's next to it."""
    places: dict[Load, int] = {}
    with guarded(scope.writer, [f"threadIdx.x < {residence.points}u"]):
        for load in loads:
            if load.dtype is DType.FLOAT32:
                places[load] = residence.kept_at + len(places) * residence.points
                scope.writer.line(f"shared[{places[load]} + threadIdx.x] = {scope.enter({}).value(load)};")
    return places


def _positions(writer: Writer, sides: Sequence[Side]) -> tuple[dict[Axis, Position], list[str]]:
    """The positions of the thread's point, kept within the axes, and conditions that it is one of them."""
    positions, conditions = decode(writer, "point", sides)
    for side in sides:
        if side.is_ragged:
            inside = f"min({positions[side.axis].text}, ({writer.index_type}){side.axis.extent - 1})"
            positions[side.axis] = Position(writer.let(writer.index_type, f"{side.axis.name}_inside", inside))
    return positions, conditions


def _bring_weights(scope: Scope, residence: Residence, points: Sequence[Side]) -> int:
    """Bring weights through shared memory into the registers of their warps. Returns elements of scratch."""
    writer, parts = scope.writer, residence.parts
    begin = 0
    for part in parts:
        elements = [Side.whole(axis) for axis in reversed(_order(scope, part))]
        total = part.points * part.length
        writer.line("#pragma unroll 4")
        with writer.loop("i", "0", str(-(-total // THREADS))):
            writer.let("uint32_t", "number", f"threadIdx.x + i * {THREADS}")
            with guarded(writer, [f"number < {total}u"] if total % THREADS else []):
                writer.let("uint32_t", "point", f"number % {part.points}u")
                writer.let("uint32_t", "element", f"number / {part.points}u")
                # Points beyond an axis get weights of others: their sums are not used.
                at_points, _ = _positions(writer, points)
                at_elements, _ = decode(writer, "element", elements)
                there = scope.enter({**at_points, **at_elements})
                for number, weight in enumerate(part.weights):
                    first = begin + number * part.points * part.pitch
                    _bring(there, weight, f"shared[{first} + point * {part.pitch}u + element]")
        begin += part.sums * part.pitch
    writer.line("rammer_copies_end();")
    writer.line("rammer_copies_wait<0>();")
    writer.line("__syncthreads();")
    begin = 0
    for part in parts:
        with _own_warps(writer, part):
            writer.line("#pragma unroll")
            with writer.loop("i", "0", str(part.sums_per_warp)):
                writer.let("uint32_t", "sum", f"(warp - {part.first_warp}u) * {part.sums_per_warp}u + i")
                writer.line("#pragma unroll")
                with writer.loop("j", "0", str(part.elements_per_lane)):
                    writer.let("uint32_t", "element", _element(part))
                    present = f"sum < {part.sums}u && element < {part.length}u"
                    value = f"{present} ? shared[{begin} + sum * {part.pitch}u + element] : 0.0f"
                    writer.line(f"weights[i * {part.elements_per_lane} + j] = {value};")
        begin += part.sums * part.pitch
    writer.line("__syncthreads();")
    return begin


def _bring(scope: Scope, weight: Expr, place: str) -> None:
    """Bring a weight to its place in shared memory, if it lies in memory as it is by a copy that nobody waits for."""
    if isinstance(weight, Load) and weight.type is DType.FLOAT32 and weight.fill is None:
        address, _ = scope.element(weight)
        scope.writer.line(f"rammer_copy<4>(&{place}, &in{weight.slot}[{address}], true);")
    else:
        scope.writer.line(f"{place} = {scope.value(weight)};")


def _bring_vectors(scope: Scope, parts: Sequence[Part]) -> None:
    """Bring the vectors into shared memory, each thread some elements."""
    writer = scope.writer
    for part in parts:
        elements = [Side.whole(axis) for axis in reversed(_order(scope, part))]
        first = f"(threadIdx.x + {-part.vector_at % THREADS}u) % RAMMER_THREADS"
        with writer.block(f"for (uint32_t element = {first}; element < {part.length}u; element += RAMMER_THREADS)"):
            positions, _ = decode(writer, "element", elements)
            value = scope.enter(positions).value(part.vector)
            writer.line(f"shared[{part.vector_at} + element] = {value};")


def _sum(writer: Writer, part: Part) -> None:
    """A part's sums by its warps."""
    width, lanes = part.vector_width, part.elements_per_lane
    with _own_warps(writer, part):
        writer.line(f"float sums[{part.sums_per_warp}] = {{}};")
        writer.line("#pragma unroll")
        with writer.block(f"for (int32_t j = 0; j < {lanes}; j += {width})"):
            writer.line(f"float vector[{width}];")
            writer.line(
                f"rammer_load_vector<{width}>(vector, shared + {part.vector_at} + j * {WARP} + lane * {width});"
            )
            writer.line("#pragma unroll")
            with writer.loop("k", "0", str(width)):
                writer.line("#pragma unroll")
                with writer.loop("i", "0", str(part.sums_per_warp)):
                    writer.line(f"sums[i] += weights[i * {lanes} + j + k] * vector[k];")
        writer.let("uint32_t", "own", f"rammer_sum_lanes<{part.sums_per_warp}>(sums)")
        writer.let("uint32_t", "sum", f"(warp - {part.first_warp}u) * {part.sums_per_warp}u + own")
        with guarded(writer, [f"own < {part.sums_per_warp}u", f"sum < {part.sums}u"]):
            writer.line(f"shared[{part.sums_at} + sum] = sums[0];")


def _own_warps(writer: Writer, part: Part) -> AbstractContextManager[None]:
    """What is written inside runs in the warps of a part."""
    return guarded(writer, [f"warp - {part.first_warp}u < {part.warps}u"])


def _element(part: Part) -> str:
    """Which element of a sum a lane holds at `j`."""
    if part.vector_width == 1:
        return f"j * {WARP} + lane"
    return (
        f"j / {part.vector_width} * {part.vector_width * WARP} + lane * {part.vector_width} + j % {part.vector_width}"
    )


def _order(scope: Scope, part: Part) -> tuple[Axis, ...]:
    """The axes of a part, those along which the vector lies innermost."""
    loads = [node for node in nodes(part.vector) if isinstance(node, Load)]
    return reduction_order(loads, part.axes, scope.operands.kernel.layouts)
