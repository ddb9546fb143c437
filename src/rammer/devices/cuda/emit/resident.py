"""A contraction whose weights stay in registers while its vEU walks a run of records.

bring: the weights into registers, at the beginning of the run
keep: the constants of the elementwise rest into shared memory, where another rKernel was before
step: for each record
  for each vector, short ones together: take it; each warp multiplies its slice into the sums of all rows
  put the sums of all lanes that have the same row together, then those of all warps
  each total: its function; each point: the elementwise rest

A run may change between rKernels that have the same weights, as the first and the last cell of a recurrent layer have
with those in between: `emit_runs` writes the function that walks the runs of such a family.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rammer.devices.codegen.scalar import call_text
from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.codegen.writer import Writer
from rammer.devices.cuda.emit.map import lane_first
from rammer.devices.cuda.emit.points import Side, decode, guarded
from rammer.devices.cuda.emit.residence import Family, Part, Residence
from rammer.devices.cuda.emit.stream import other_loads
from rammer.devices.cuda.emit.wait import takes_apart
from rammer.ir.blocks import WARP
from rammer.ir.expr import Axis, Load, ScalarFn, nodes
from rammer.ir.pattern import reduction_order
from rammer.ir.types import DType, Layout


def emit_bring(scope: Scope, sides: Sequence[Side], residence: Residence) -> None:
    """Write what brings `weights` into registers."""
    _write_lane(scope.writer)
    _bring_weights(scope, residence, lane_first(scope.operands.kernel, sides))


def emit_keep(scope: Scope, sides: Sequence[Side], residence: Residence) -> int:
    """Write what brings other constants into shared memory, those of a point by the lanes that need them.

    Returns the elements of shared memory that a record takes.
    """
    writer = scope.writer
    _write_lane(writer)
    with writer.block(f"if (warp < {residence.point_warps}u)"):
        at_point = scope.enter(_write_point(writer, residence, lane_first(scope.operands.kernel, sides))[0])
        # All loads before the first store: the compiler does not know that they are of other memory.
        biases = [_own_bias(at_point, residence, i) for i in range(max(len(one.biases) for one in residence.totals))]
        kept = [at_point.value(load) for load in _kept(scope, residence)]
        own_row = f"lane % {len(residence.totals)} * {residence.points} + point"
        writer.line("__syncwarp();")  # lanes may still read those of another rKernel
        writer.line(f"shared[{residence.kept_at} + {own_row}] = {' + '.join(biases) or '0.0f'};")
        place = residence.kept_at + residence.rows
        for value in kept:
            writer.line(f"shared[{place} + point] = {value};")
            place += residence.points
        writer.line("__syncwarp();")
    return place


def emit_step(scope: Scope, sides: Sequence[Side], residence: Residence, unwritten: Collection[int]) -> None:
    """Write the work for one record.

    Args:
        scope: where the pointers to all operands but weights have names.
        sides: of the tile.
        residence: how it keeps its weights.
        unwritten: slots that no rTask writes.
    """
    writer = scope.writer
    points, rows, totals = residence.points, residence.rows, len(residence.totals)
    _write_lane(writer)
    positions, conditions = _write_point(writer, residence, lane_first(scope.operands.kernel, sides))
    here = scope.enter(positions)
    read = {slot for part in residence.parts for slot in _read(part)}
    layouts = scope.operands.kernel.layouts
    if not all(slot in unwritten or layouts[slot].tagged for slot in read):
        # Other threads may have written it for the record before; a Wait has a barrier.
        writer.line("if (rammer_at(position)->wait_count == 0)")
        writer.line("    __syncthreads();")
    writer.line(f"float sums[{residence.slots}] = {{}};")
    kept = _kept(scope, residence)
    here.hoist(load for load in _rest(scope, residence) if load not in kept)
    for together in _together(residence, layouts):
        _take(scope.enter({}), together)
        for part in together:
            _multiply(writer, residence, part)
    # Those of the last record are still being read.
    writer.line(f"float *partial = shared + {residence.vectors} + position % 2 * {residence.warps * rows};")
    writer.line(f"int32_t present = {residence.slots};")
    first = f"rammer_sum_lanes<{residence.slots}, {residence.across}>(sums, &present)"
    writer.let("uint32_t", "row", f"{first} * {residence.across} + lane % {residence.across}")
    writer.line("#pragma unroll")
    with (
        writer.loop("i", "0", str(residence.slots_left)),
        guarded(writer, ["i < present", f"row + i * {residence.across} < {rows}u"]),
    ):
        writer.line(f"partial[warp * {rows} + row + i * {residence.across}] = sums[i];")
    writer.line("__syncthreads();")
    with writer.block(f"if (warp < {residence.point_warps}u)"):
        writer.let("uint32_t", "own_row", f"lane % {totals} * {points} + point")
        total = f"rammer_sum_warps<{rows}>(partial + own_row) + shared[{residence.kept_at} + own_row]"
        own = _finished(writer, residence, writer.let("float", "own", total))
        for number, one in enumerate(residence.totals):
            value = f"__shfl_sync(0xffffffffu, {own}, place * {totals} + {number})"
            here.bind(one.node, writer.let("float", writer.name("total"), value))
        for number, load in enumerate(kept):
            value = f"shared[{residence.kept_at + rows + number * points} + point]"
            here.bind(load, writer.let("float", writer.name("kept"), value))
        here.hoist(scope.operands.results)
        with guarded(writer, [f"lane % {totals} == 0", *conditions]):
            here.store_results()


def emit_runs(symbol: str, family: Family, members: Mapping[int, str]) -> str:
    """The function that walks runs of a family that join, from the record at `position` on. It returns what is behind.

        uint32_t symbol(uint32_t position, char *scratch)

    Args:
        symbol: the function's name.
        family: whose runs.
        members: its rKernels' symbols by number.
    """
    writer, pointers = Writer(), "rammer_operands(rammer_at(position))"
    with writer.block(f"static __device__ __noinline__ uint32_t {symbol}(uint32_t position, char *scratch)"):
        writer.let("uint32_t", "tile", "rammer_at(position)->tile")
        writer.line("float *shared = (float *)scratch;")
        # Values that no path leaves open: the compiler would keep their registers for the whole program.
        writer.line(f"float weights[{family.registers}] = {{}};")
        with writer.block("switch (rammer_at(position)->kernel)"):
            for number, member in members.items():
                writer.line(f"case {number}: {member}_bring({pointers}, tile, weights); break;")
        with writer.block(f"for (uint32_t i = threadIdx.x; i < {family.vectors}u; i += RAMMER_THREADS)"):
            writer.line("shared[i] = 0.0f;")  # elements beyond the end of a slice are multiplied, too
        writer.line("__syncthreads();")
        with writer.block("for (;; rammer_reach(++position))"):
            writer.let("uint32_t", "last", "position + rammer_at(position)->run - 1")
            writer.let("bool", "busy", "rammer_is_busy(position)")
            with writer.block("switch (rammer_at(position)->kernel)"):
                for number, member in members.items():
                    writer.line(f"case {number}:")
                    writer.line(f"{member}_keep({pointers}, tile, shared);")
                    with writer.block("for (;; rammer_reach(++position))"):
                        writer.line("if (busy && !rammer_begin(rammer_at(position)))")
                        writer.line("    return position;")
                        writer.line(f"{member}_step({pointers}, tile, position, shared, weights);")
                        writer.line("if (busy)")
                        writer.line("    rammer_end_early(rammer_at(position));")
                        writer.line("if (position == last)")
                        writer.line("    break;")
                    writer.line("break;")
            with writer.block("if (rammer_at(position)->joins == 0)"):
                writer.line("__syncthreads();")
                writer.line("return position + 1;")
    return writer.text()


def _write_lane(writer: Writer) -> None:
    writer.let("uint32_t", "warp", f"threadIdx.x / {WARP}")
    writer.let("uint32_t", "lane", f"threadIdx.x % {WARP}")


def _write_point(writer: Writer, residence: Residence, sides: Sequence[Side]) -> tuple[dict[Axis, Position], list[str]]:
    """The positions of the point that a lane has a total of, and conditions that there is such a point."""
    per_warp, points = residence.points_per_warp, residence.points
    writer.let("uint32_t", "place", f"min(lane / {len(residence.totals)}, {per_warp - 1}u)")
    writer.let("uint32_t", "point", f"min(warp * {per_warp} + place, {points - 1}u)")
    positions, conditions = _positions(writer, sides)
    conditions.append(f"lane < {per_warp * len(residence.totals)}u")
    if points % per_warp:
        conditions.append(f"warp * {per_warp} + place < {points}u")
    return positions, conditions


def _rest(scope: Scope, residence: Residence) -> list[Load]:
    """Loads of the elementwise rest."""
    return other_loads(scope, {total.node for total in residence.totals})


def _kept(scope: Scope, residence: Residence) -> list[Load]:
    """Those of them that stay in shared memory."""
    return [load for load in _rest(scope, residence) if load.slot in residence.kept and load.dtype is DType.FLOAT32]


def _own_bias(scope: Scope, residence: Residence, number: int) -> str:
    """The value of a bias of the total that a lane finishes."""
    writer, count = scope.writer, len(residence.totals)
    chosen = "nullptr"
    for i, total in enumerate(residence.totals):
        if number < len(total.biases):
            bias = total.biases[number]
            chosen = f"lane % {count} == {i} ? &in{bias.slot}[{scope.element(bias)[0]}] : {chosen}"
    bias_from = writer.let("float *", writer.name("from"), chosen)
    return writer.let("float", writer.name("bias"), f"{bias_from} == nullptr ? 0.0f : *{bias_from}")


def _finished(writer: Writer, residence: Residence, own: str) -> str:
    """The function of a lane's total: all lanes compute each, for lanes in branches of their own take turns."""
    lanes: dict[ScalarFn | None, list[int]] = {}
    for number, total in enumerate(residence.totals):
        lanes.setdefault(total.function, []).append(number)
    finished = ""
    for function, numbers in lanes.items():
        text = own if function is None else call_text(function, DType.FLOAT32, [own])
        value = writer.let("float", writer.name("finished"), text)
        condition = " || ".join(f"lane % {len(residence.totals)} == {number}" for number in numbers)
        finished = f"{condition} ? {value} : {finished}" if finished else value
    return writer.let("float", "mine", finished)


def _positions(writer: Writer, sides: Sequence[Side]) -> tuple[dict[Axis, Position], list[str]]:
    """The positions of the thread's point, kept within the axes, and conditions that it is one of them."""
    positions, conditions = decode(writer, "point", sides)
    for side in sides:
        if side.is_ragged:
            inside = f"min({positions[side.axis].text}, ({writer.index_type}){side.axis.extent - 1})"
            positions[side.axis] = Position(writer.let(writer.index_type, f"{side.axis.name}_inside", inside))
    return positions, conditions


def _bring_weights(scope: Scope, residence: Residence, points: Sequence[Side]) -> None:
    """Bring weights into registers: all loads are on their way together."""
    writer, across = scope.writer, residence.across
    for part in residence.parts:
        elements = [Side.whole(axis) for axis in reversed(_order(scope, part))]
        table = part.tables[min(part.tables)]
        chosen = f"in{table}"
        for total, slot in part.tables.items():
            chosen = f"total == {total}u ? in{slot} : {chosen}" if slot != table else chosen
        writer.line("#pragma unroll")
        with writer.loop("i", "0", str(part.slots)):
            writer.let("uint32_t", "row", f"(i + {part.first_slot}) * {across} + lane % {across}")
            writer.let("uint32_t", "total", f"row / {residence.points}u")
            writer.let("uint32_t", "point", f"row % {residence.points}u")
            # Points beyond an axis get weights of others: their sums are not used.
            at_points, _ = _positions(writer, points)
            writer.line(f"const auto *const chosen = {chosen};")
            writer.line("#pragma unroll")
            with writer.loop("j", "0", str(part.elements)):
                writer.let("uint32_t", "place", f"lane / {across} * {part.elements} + j")
                writer.let("uint32_t", "element", _clamped(f"warp * {part.slice} + place", part))
                at_elements, _ = decode(writer, "element", elements)
                writer.line(f"const auto *const in{table} = chosen;")
                value = scope.enter({**at_points, **at_elements}).value(part.weight)
                present = [*_present(part, "place"), *_adds(part, residence)]
                value = f"{' && '.join(present)} ? {value} : 0.0f" if present else value
                writer.line(f"weights[{part.weights_at} + i * {part.elements} + j] = {value};")


def _adds(part: Part, residence: Residence) -> list[str]:
    """The condition that a part adds to the total of a row."""
    rows = range(part.first_slot * residence.across, (part.first_slot + part.slots) * residence.across)
    own = {total * residence.points + point for total in part.tables for point in range(residence.points)}
    if own.issuperset(rows):
        return []
    return [f"({' || '.join(f'total == {total}u' for total in part.tables)})"]


def _clamped(element: str, part: Part) -> str:
    """An element that is one of a part's vector."""
    return element if part.is_even else f"min({element}, {part.length - 1}u)"


def _present(part: Part, place: str) -> list[str]:
    """Conditions that a place of a warp's slice has an element."""
    if part.is_even:
        return []
    return [f"{place} < {part.slice}u", f"warp * {part.slice} + {place} < {part.length}u"]


def _together(residence: Residence, layouts: Sequence[Layout]) -> list[list[Part]]:
    """The parts, those side by side whose vectors can be taken at once: each element by a thread without a point."""
    groups: list[list[Part]] = []
    for part in residence.parts:
        last = groups[-1] if groups else []
        is_tagged = all(layouts[slot].tagged for one in (*last, part) for slot in _read(one))
        if last and is_tagged and sum(map(_taken, (*last, part))) <= (residence.warps - residence.point_warps) * WARP:
            last.append(part)
        else:
            groups.append([part])
    return groups


def _take(scope: Scope, parts: Sequence[Part]) -> None:
    """Take vectors, the last threads first: the first ones may still be finishing points of the record before.

    Whole warps take what is tagged, those behind the end of a vector its last element once more.
    """
    writer, kernel = scope.writer, scope.operands.kernel
    threads = end = kernel.resources.threads
    for part in parts:
        taken = _taken(part)
        first = max(0, end - taken)
        own = f"threadIdx.x < {end}u && turn < {taken}u" if end < threads else f"turn < {taken}u"
        with writer.block(f"for (uint32_t turn = threadIdx.x - {first}u; {own}; turn += RAMMER_THREADS)"):
            writer.let("uint32_t", "element", "turn" if taken == part.length else f"min(turn, {part.length - 1}u)")
            positions, _ = decode(writer, "element", [Side.whole(axis) for axis in reversed(_order(scope, part))])
            value = scope.enter(positions).value(part.vector)
            with guarded(writer, [] if taken == part.length else [f"turn < {part.length}u"]):
                place = f"element / {part.slice}u * {part.pitch}u + element % {part.slice}u"
                writer.line(f"shared[{part.vector_at} + {place}] = {value};")
        end = first
    is_apart = any(takes_apart(kernel, slot) for slot in range(len(kernel.expr.inputs)))
    writer.line("rammer_meet();" if is_apart else "__syncthreads();")


def _taken(part: Part) -> int:
    """How many threads take a vector's elements: whole warps."""
    return -(-part.length // WARP) * WARP


def _multiply(writer: Writer, residence: Residence, part: Part) -> None:
    """Multiply each warp's slice of a vector into the sums."""
    width = part.vector_width
    with writer.block():
        writer.line(f"const float *slice = shared + {part.vector_at} + warp * {part.pitch};")
        writer.line(f"slice += lane / {residence.across} * {part.elements};")
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


def _read(part: Part) -> set[int]:
    """The operands that a part's vector comes from."""
    return {node.slot for node in nodes(part.vector) if isinstance(node, Load)}


def _order(scope: Scope, part: Part) -> tuple[Axis, ...]:
    """The axes of a part, those along which the vector lies innermost."""
    loads = [node for node in nodes(part.vector) if isinstance(node, Load)]
    return reduction_order(loads, part.axes, scope.operands.kernel.layouts)
