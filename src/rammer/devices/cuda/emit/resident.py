"""A contraction whose weights stay in registers while its vEU walks a run of records.

bring: the weights into registers, at the beginning of the run
keep: the constants of the elementwise rest into shared memory, where another rKernel was before
step: for each record
  for each vector, short ones together: take it; each warp multiplies its slice into the sums of all rows
  put the sums of all lanes that have the same row together, then those of all warps
  each total: its function; each point: the elementwise rest

This file has the step; `weights.py` brings, `rest.py` keeps and has what comes behind the sums, `runs.py` the walk.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rammer.devices.codegen.scope import Scope
from rammer.devices.codegen.writer import Writer
from rammer.devices.cuda.emit.points import Side, decode, guarded, lane_first
from rammer.devices.cuda.emit.rest import emit_rest, hoist_rest, write_point
from rammer.devices.cuda.emit.wait import takes_any_apart
from rammer.ir.types import Layout
from rammer.tiling.gemm import WARP
from rammer.tiling.persistent_rnn import Part, PersistentRnn


def emit_step(scope: Scope, sides: Sequence[Side], plan: PersistentRnn, unwritten: Collection[int]) -> None:
    """Write the work for one record.

    Args:
        scope: where `warp`, `lane` and the pointers to all operands but weights have names.
        sides: of the tile.
        plan: how it is shared out.
        unwritten: slots that no rTask writes.
    """
    writer = scope.writer
    positions, conditions = write_point(writer, plan, lane_first(scope.operands.kernel, sides))
    at_point = scope.enter(positions)
    read = {load.slot for part in plan.parts for load in part.loads}
    layouts = scope.operands.kernel.layouts
    if not all(slot in unwritten or layouts[slot].tagged for slot in read):
        # Other threads may have written it for the record before; a Wait has a barrier.
        writer.line("if (rammer_at(position)->wait_count == 0)")
        writer.line("    __syncthreads();")
    writer.line(f"float sums[{plan.slots}] = {{}};")
    hoist_rest(at_point, plan)
    for together in _together(plan, layouts):
        _take(scope.enter({}), together)
        for part in together:
            _multiply(writer, plan, part)
    _put_together(writer, plan)
    emit_rest(at_point, conditions, plan)


def _together(plan: PersistentRnn, layouts: Sequence[Layout]) -> list[list[Part]]:
    """The parts, those side by side whose vectors can be taken at once: each element by a thread without a point."""
    groups: list[list[Part]] = []
    for part in plan.parts:
        last = groups[-1] if groups else []
        is_tagged = all(layouts[load.slot].tagged for one in (*last, part) for load in one.loads)
        if last and is_tagged and sum(map(_taken, (*last, part))) <= (plan.warps - plan.point_warps) * WARP:
            last.append(part)
        else:
            groups.append([part])
    return groups


def _take(scope: Scope, parts: Sequence[Part]) -> None:
    """Take vectors, the last threads first: the first ones may still be finishing points of the record before.

    Whole warps take what is tagged, those behind the end of a vector its last element once more.
    """
    writer, kernel = scope.writer, scope.operands.kernel
    threads = end = kernel.form.threads
    for part in parts:
        taken = _taken(part)
        first = max(0, end - taken)
        own = f"threadIdx.x < {end}u && turn < {taken}u" if end < threads else f"turn < {taken}u"
        with writer.block(f"for (uint32_t turn = threadIdx.x - {first}u; {own}; turn += RAMMER_THREADS)"):
            writer.let("uint32_t", "element", "turn" if taken == part.length else f"min(turn, {part.length - 1}u)")
            positions, _ = decode(writer, "element", [Side.whole(axis) for axis in part.fastest_first(kernel.layouts)])
            value = scope.enter(positions).value(part.vector)
            with guarded(writer, [] if taken == part.length else [f"turn < {part.length}u"]):
                place = f"element / {part.slice}u * {part.pitch}u + element % {part.slice}u"
                writer.line(f"shared[{part.vector_at} + {place}] = {value};")
        end = first
    writer.line("rammer_meet();" if takes_any_apart(kernel) else "__syncthreads();")


def _taken(part: Part) -> int:
    """How many threads take a vector's elements: whole warps."""
    return -(-part.length // WARP) * WARP


def _multiply(writer: Writer, plan: PersistentRnn, part: Part) -> None:
    """Multiply each warp's slice of a vector into the sums."""
    width = part.vector_width
    with writer.block():
        writer.line(f"const float *slice = shared + {part.vector_at} + warp * {part.pitch};")
        writer.line(f"slice += lane / {plan.across} * {part.elements};")
        writer.line("#pragma unroll")
        with writer.block(f"for (int32_t j = 0; j < {part.elements}; j += {width})"):
            writer.line(f"float vector[{width}];")
            writer.line(f"rammer_load_vector<{width}>(vector, slice + j);")
            writer.line("#pragma unroll")
            with writer.loop("k", "0", str(width)):
                writer.line("#pragma unroll")
                with writer.loop("i", "0", str(part.slots)):
                    weight = f"weights[{part.weights_at} + i * {part.elements} + j + k]"
                    writer.line(f"sums[{part.first_slot} + i] += {weight} * vector[k];")


def _put_together(writer: Writer, plan: PersistentRnn) -> None:
    """Add the sums of lanes that have the same row, and write those of each warp where all find them."""
    slots, rows, across = plan.slots, plan.rows, plan.across
    # Those of the last record are still being read.
    writer.line(f"float *partial = shared + {plan.vectors} + position % 2 * {plan.warps * rows};")
    writer.line(f"int32_t present = {slots};")
    first = f"rammer_sum_lanes<{slots}, {across}>(sums, &present)"
    writer.let("uint32_t", "row", f"{first} * {across} + lane % {across}")
    writer.line("#pragma unroll")
    with (
        writer.loop("i", "0", str(plan.slots_left)),
        guarded(writer, ["i < present", f"row + i * {across} < {rows}u"]),
    ):
        writer.line(f"partial[warp * {rows} + row + i * {across}] = sums[i];")
    writer.line("__syncthreads();")
