"""The skeleton `persistent_rnn` (`skeletons/persistent_rnn.cuh`): its sizes as constants, and its functors.

`tiling.persistent_rnn` shares the weights out; `runtime/runs.cuh` walks along the records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from rammer.devices.codegen.scalar import C_TYPES, call_text
from rammer.devices.codegen.scope import Operands, Position, Scope
from rammer.devices.codegen.writer import Writer
from rammer.devices.cuda.emit.loads import Early
from rammer.devices.cuda.emit.points import Side, decode, decode_inside, guarded, lane_first
from rammer.devices.cuda.emit.wait import takes_apart
from rammer.devices.cuda.runs import Runs
from rammer.devices.cuda.source_files import CALLED
from rammer.ir.expr import Axis, Load, ScalarFn, nodes
from rammer.ir.kernel_form import Instruction
from rammer.ir.task import RKernel
from rammer.ir.types import DType, Layout
from rammer.tiling.gemm import WARP
from rammer.tiling.persistent_rnn import Family, Part, PersistentRnn, epilogue_loads, kept_loads

_FORMATS: Mapping[Instruction, str] = {
    Instruction.MMA_3XF16: "rammer_rnn_f32",
    Instruction.MMA_SCALED_F16: "rammer_rnn_tf32",
    Instruction.MMA_BF16: "rammer_rnn_bf16",
    Instruction.MMA_F16: "rammer_rnn_f16",
}
_HALVES: Mapping[DType, str] = {DType.FLOAT16: "f16", DType.BFLOAT16: "bf16"}
_TOGETHER = (8, 4, 2, 1)  # such weights of a row, by one load where they lie so
_VECTOR_BYTES = 16  # of a load
_PAIR = 2  # units, whose weights are a word
_LOOK_BYTES = 64  # that a thread asks for together, where registers are left


def emit_walk(symbol: str, family: Family, members: Mapping[int, str], runs: Mapping[int, Runs]) -> str:
    """The function that walks runs of a family: `uint32_t symbol(uint32_t position)`.

    Args:
        symbol: the function's name.
        family: whose runs.
        members: the symbols of its rKernels, by number.
        runs: what runs each has, by number; all that can be where nothing is said.
    """
    writer = Writer()
    types = [str(family.registers), str(family.vectors)]
    for number, member in members.items():
        found = runs.get(number, Runs())
        flags = {"RAMMER_BEGIN": found.begin, "RAMMER_BUSY": found.busy, "RAMMER_LONG": found.long}
        said = " | ".join(name for name, is_so in flags.items() if is_so) or "0"
        types.append(f"rammer_member<{number}, {member}, {said}>")
    with writer.block(f"{CALLED} uint32_t {symbol}(uint32_t position)"):
        writer.line(f"return rammer_walk<{', '.join(types)}>(position);")
    return writer.text()


def declare_cell(writer: Writer, kernel: RKernel, plan: PersistentRnn, *, meets: bool) -> None:
    """Write the sizes of a cell: the type `rnn`."""
    shares, layouts = plan.shares, kernel.layouts
    if shares.tensor is not None:
        names = []
        for part in plan.parts:
            names.append(writer.name("part"))
            sizes = [part.length, part.slices, part.pitch, part.elements, part.weights_at, part.vector_at]
            sizes += [part.stored, part.stored_at, part.team.start * WARP, part.team.stop * WARP]
            sizes.append(_bringers(plan, part, layouts))
            writer.line(f"typedef rammer_rnn_batch_part<{_arguments(sizes)}> {names[-1]};")
        sizes = [plan.units, plan.columns, len(plan.gates), shares.slices, shares.slots, plan.at_once]
        sizes += [plan.has_room, plan.column_pitch, shares.row_pitch, meets]
        kind = "_beside" if shares.is_beside else "_pairs" if _come_in_pairs(Operands(kernel), plan) else ""
        format_ = _FORMATS[shares.instruction] + kind
        types = ", ".join([format_, *names])
        writer.line(f"typedef rammer_rnn_batch<{_arguments(sizes)}, {types}> rnn;")
        return
    names = []
    for number, together in enumerate(loaded_together(plan, layouts)):
        end = shares.warps * WARP
        for part in together:
            sizes = [part.length, part.slice, part.pitch, part.elements, part.first_slot, part.slots]
            sizes += [part.weights_at, part.vector_at, number, end, part is together[-1]]
            names.append(writer.name("part"))
            writer.line(f"typedef rammer_rnn_part<{_arguments(sizes)}> {names[-1]};")
            end = max(0, end - _loading_threads(part))
    sizes = [plan.units, len(plan.gates), shares.across, plan.column_pitch, meets]
    half = _HALVES.get(plan.weight_dtype)
    words = "rammer_rnn_floats" if half is None else f"rammer_rnn_widened_{half}"
    writer.line(f"typedef rammer_rnn<{_arguments(sizes)}, {', '.join([words, *names])}> rnn;")


def _arguments(sizes: Sequence[int]) -> str:
    """Of a template."""
    return ", ".join(str(size).lower() for size in sizes)


def loaded_together(plan: PersistentRnn, layouts: Sequence[Layout]) -> list[list[Part]]:
    """The parts, those together whose vectors can be loaded at once: each element by a thread without a point."""
    groups: list[list[Part]] = []
    for part in plan.parts:
        last = groups[-1] if groups else []
        is_tagged = all(layouts[load.slot].tagged for one in (*last, part) for load in one.loads)
        threads = sum(_loading_threads(one) for one in (*last, part))
        if last and is_tagged and threads <= (plan.shares.warps - plan.point_warps) * WARP:
            last.append(part)
        else:
            groups.append([part])
    return groups


def emit_load_weights(scope: Scope, sides: Sequence[Side], plan: PersistentRnn) -> None:
    """Write what brings `weights` into registers."""
    writer, kernel = scope.writer, scope.operands.kernel
    names = []
    for part in plan.parts:
        names.append(writer.name("weight"))
        with writer.block(f"const auto {names[-1]} = [&](uint32_t gate, uint32_t unit)", ";"):
            table = part.tables[min(part.tables)]
            chosen = f"in{table}"
            for gate, slot in part.tables.items():
                chosen = f"gate == {gate}u ? in{slot} : {chosen}" if slot != table else chosen
            writer.line(f"const auto *const chosen = {chosen};")
            # Units beyond an axis get weights of others: their sums are not used.
            at_units, _ = decode_inside(writer, "unit", lane_first(kernel, _unit_sides(sides, plan)))
            _emit_weight(scope, part, plan, at_units)
    writer.line(f"rnn::load_weights(shared, weights, {', '.join(names)});")


def _emit_weight(scope: Scope, part: Part, plan: PersistentRnn, at_units: Mapping[Axis, Position]) -> None:
    """Write what a weight of a row is; where tensor cores multiply, what some neighbours are."""
    writer, tensor = scope.writer, plan.shares.tensor
    elements = [Side.whole(axis) for axis in part.fastest_first(scope.operands.kernel.layouts)]

    def at_element(number: str) -> Scope:
        return scope.enter({**at_units, **decode(writer, number, elements)[0]})

    load = _weight_load(part)
    if tensor is None and plan.weight_dtype.is_half:
        _emit_halves(scope, part, plan, at_units)
        return
    conditions = " && ".join(["present", *_adds(part, plan)])
    if tensor is None:
        with writer.block("return [=](uint32_t element, bool present)", ";"):
            writer.line(f"const auto *const in{load.slot} = chosen;")
            value = at_element("element").value(part.weight)
            writer.line(f"return {conditions} ? {value} : 0.0f;")
        return
    if _come_in_pairs(scope.operands, plan):
        _emit_pairs(scope, part, plan, at_units)
        return
    width, loaded = tensor.elements, writer.name("loaded")
    with writer.block(f"return [=](uint32_t element, bool present, float (&values)[{width}])", ";"):
        writer.line(f"const auto *const in{load.slot} = chosen;")
        writer.line(f"__builtin_assume(__isGlobal(in{load.slot}));")
        together = _lie_together(scope, part, load, elements[0].axis, width)
        if together:
            first = at_element(f"min(element, {part.length - width}u)")
            writer.line(f"{C_TYPES[load.dtype]} {loaded}[{width}];")
            writer.line(f"rammer_load_vector<{width}>({loaded}, &in{load.slot}[{first.element(load)[0]}]);")
        writer.line("#pragma unroll")
        with writer.block(f"for (uint32_t i = 0; i < {width}; ++i)"):
            at = scope.enter({})
            if together:
                at.bind(load, f"{loaded}[i]")
            else:
                at = at_element(f"min(element + i, {part.length - 1}u)")
            inside = f"{conditions} && element{'' if together else ' + i'} < {part.length}u"
            writer.line(f"values[i] = {inside} ? {at.value(part.weight)} : 0.0f;")


def _emit_halves(scope: Scope, part: Part, plan: PersistentRnn, at_units: Mapping[Axis, Position]) -> None:
    """Write what some neighbouring weights of a row are, two in a word, of which so many are `left`."""
    writer, load = scope.writer, _weight_load(part)
    elements = [Side.whole(axis) for axis in part.fastest_first(scope.operands.kernel.layouts)]
    width = next(width for width in _TOGETHER if part.elements % width == 0)
    together = part.slice % width == 0 and _lie_together(scope, part, load, elements[0].axis, width)
    with writer.block(f"return [=](uint32_t element, int left, uint32_t (&pairs)[{(width + 1) // 2}])", ";"):
        writer.line(f"const auto *const in{load.slot} = chosen;")
        writer.line(f"__builtin_assume(__isGlobal(in{load.slot}));")
        halves = writer.name("halves")
        writer.line(f"uint16_t {halves}[{width}];")

        def place(number: str) -> str:
            at = scope.enter({**at_units, **decode(writer, number, elements)[0]})
            return f"in{load.slot}[{at.element(load)[0]}]"

        if together:
            writer.line(f"rammer_load_vector<{width}>({halves}, &{place('element')});")
        else:
            writer.line("#pragma unroll")
            with writer.block(f"for (int i = 0; i < {width}; ++i)"):
                writer.line(f"{halves}[i] = {place(f'min(element + i, {part.length - 1}u)')};")
        writer.line("#pragma unroll")
        with writer.block(f"for (int i = 0; i < {width}; i += 2)"):
            inside = [" && ".join([f"{i} < left", *_adds(part, plan)]) for i in ("i", "i + 1")]
            both = [f"({one} ? {halves}[i + {i}] : 0u) << {i * 16}" for i, one in enumerate(inside[:width])]
            writer.line(f"pairs[i / 2] = {' | '.join(both)};")


def _emit_pairs(scope: Scope, part: Part, plan: PersistentRnn, at_units: Mapping[Axis, Position]) -> None:
    """Write what some neighbouring weights of two rows are: of each a word, the first row in its lower half."""
    writer, load = scope.writer, _weight_load(part)
    elements = [Side.whole(axis) for axis in part.fastest_first(scope.operands.kernel.layouts)]
    assert plan.shares.tensor is not None  # pairs are of its formats
    width = plan.shares.tensor.elements
    with writer.block(f"return [=](uint32_t element, bool present, uint32_t (&pairs)[{width}])", ";"):
        writer.line(f"const auto *const in{load.slot} = chosen;")
        writer.line(f"__builtin_assume(__isGlobal(in{load.slot}));")
        writer.line("#pragma unroll")
        with writer.block(f"for (uint32_t i = 0; i < {width}; ++i)"):
            at = scope.enter({**at_units, **decode(writer, f"min(element + i, {part.length - 1}u)", elements)[0]})
            inside = " && ".join(["present", *_adds(part, plan), f"element + i < {part.length}u"])
            # Units beyond the axis are its last one, whose word begins with the one before.
            place = f"({at.element(load)[0]}) / 2 * 2"
            writer.line(f"pairs[i] = {inside} ? *(const uint32_t *)&in{load.slot}[{place}] : 0u;")


def _come_in_pairs(operands: Operands, plan: PersistentRnn) -> bool:
    """Whether one load brings the weights of two units that stay as they are."""
    kernel, lane = operands.kernel, operands.kernel.tile.lane
    if not plan.shares.is_narrow or not plan.weight_dtype.is_half or lane is None:
        return False
    axis, extent = kernel.expr.axes[lane], kernel.tile.task[lane]
    loads = [_weight_load(part) for part in plan.parts]
    slots = {slot for part in plan.parts for slot in part.tables.values()}
    return (
        axis.extent % _PAIR == extent % _PAIR == 0
        and all(operands.loads_vectors(load, axis, _PAIR, kernel.alignments) for load in loads)
        and all(kernel.alignments[slot] % _PAIR == 0 for slot in slots)
    )


def _weight_load(part: Part) -> Load:
    return next(node for node in nodes(part.weight) if isinstance(node, Load))


def _lie_together(scope: Scope, part: Part, load: Load, axis: Axis, width: int) -> bool:
    """Whether one load brings so many neighbouring weights of a row."""
    operands = scope.operands
    alignments = operands.kernel.alignments
    return (
        axis.extent % width == 0
        and operands.loads_vectors(load, axis, width, alignments)
        and all(alignments[slot] % width == 0 for slot in part.tables.values())
    )


def emit_keep_constants(scope: Scope, sides: Sequence[Side], plan: PersistentRnn) -> None:
    """Write what brings the constants of the epilogue into shared memory."""
    writer = scope.writer
    loads = kept_loads(scope.operands, plan)
    with writer.block("const auto constants = [&](uint32_t gate, uint32_t point, float *kept)", ";"):
        positions, _ = decode_inside(writer, "point", _point_sides(scope.operands.kernel, sides, plan))
        at_point = scope.enter(positions)
        # All loads before the first store: the compiler does not know that they are of other memory.
        biases = [_bias(at_point, plan, i) for i in range(max(len(gate.biases) for gate in plan.gates))]
        for number, value in enumerate([at_point.value(load) for load in loads]):
            writer.line(f"kept[{number}] = {value};")
        writer.line(f"return {' + '.join(biases) or '0.0f'};")
    writer.line(f"rnn::keep_constants<{len(loads)}>(shared, constants);")


def emit_step(scope: Scope, sides: Sequence[Side], plan: PersistentRnn, unwritten: Collection[int]) -> None:
    """Write the work for one record.

    Args:
        scope: where the pointers to all operands but weights have names.
        sides: of the tile.
        plan: how it is shared out.
        unwritten: slots that no rTask writes.
    """
    writer, kernel = scope.writer, scope.operands.kernel
    if plan.shares.tensor is None:
        names = [_emit_vector(scope, part) for part in plan.parts]
    else:
        columns = _column_sides(sides, plan)
        names = [_emit_batch_vectors(scope, columns, part, plan) for part in plan.parts]
    _emit_activate(writer, plan)
    _emit_epilogue(scope, _point_sides(kernel, sides, plan), plan)
    read = {load.slot for part in plan.parts for load in part.loads}
    is_fresh = all(slot in unwritten or kernel.layouts[slot].tagged for slot in read)
    # Other threads may have written it for the record before; a Wait has a barrier.
    fresh = "false" if is_fresh else "rammer_at(position)->wait_count == 0"
    functors = ", ".join(["load", "activate", "finish", *names])
    writer.line(f"rnn::step<team, rammer_early>({fresh}, shared, weights, {functors});")


def _emit_vector(scope: Scope, part: Part) -> str:
    """Write how elements of a part's vector are looked at and taken; returns the functors."""
    writer, kernel, readers = scope.writer, scope.operands.kernel, scope.operands.readers
    elements = [Side.whole(axis) for axis in part.fastest_first(kernel.layouts)]

    def at_element() -> Scope:
        return scope.enter(decode_inside(writer, "element", elements)[0])

    name, looked = _emit_look(writer, part, readers, "uint32_t element", at_element)
    with writer.block(f"const auto take_{name} = [&](uint32_t element, const rammer_{name} &looked)", ";"):
        inside = at_element()
        for load, field in looked.items():
            value = f"looked.{field}"
            if load.slot in readers:
                taken = f"{readers[load.slot]}(&in{load.slot}[{inside.element(load)[0]}], {value})"
                value = writer.let(C_TYPES[load.dtype], writer.name("taken"), taken)
            inside.bind(load, value)
        writer.line(f"return {inside.value(part.vector)};")
    return f"rammer_vectors{{look_{name}, take_{name}}}"


def _emit_batch_vectors(scope: Scope, columns: Sequence[Side], part: Part, plan: PersistentRnn) -> str:
    """Write how elements of a part's vectors are looked at, waited for and taken; returns the functors."""
    writer, kernel, readers = scope.writer, scope.operands.kernel, scope.operands.readers
    elements = [Side.whole(axis) for axis in part.fastest_first(kernel.layouts)]
    width = _width(scope, part, plan, elements[0].axis)

    def at_element(number: str = "element") -> Scope:
        inside, _ = decode_inside(writer, number, elements)
        column, _ = decode_inside(writer, "column", columns)
        return scope.enter({**inside, **column})

    name, looked = _emit_look(writer, part, readers, "uint32_t column, uint32_t element", at_element, width)
    tagged = [f"tag.is_in(in{load.slot}, looked.{field})" for load, field in looked.items() if load.slot in readers]
    captured = "[=, tag = rammer_tag::now()]" if tagged else "[]"
    there = " && ".join(tagged) or "true"
    writer.line(f"const auto there_{name} = {captured}(const rammer_{name} &looked) {{ return {there}; }};")
    whole = str(not any(takes_apart(kernel, load.slot) for load in looked)).lower()
    poll = f"rammer_flagged_poll<{whole}>{{rammer_at(position)}}" if tagged else "rammer_no_poll{}"
    parameters = f"uint32_t column, uint32_t element, const rammer_{name} &looked, uint32_t number"
    with writer.block(f"const auto take_{name} = [&]({parameters})", ";"):
        at = at_element("(element + number)")
        for load, field in looked.items():
            value = f"looked.{field}[number]"
            value = f"rammer_element(in{load.slot}, {value})" if load.slot in readers else value
            at.bind(load, writer.let(C_TYPES[load.dtype], writer.name("taken"), value))
        writer.line(f"return {at.value(part.vector)};")
    return f"rammer_batch_vectors{{look_{name}, there_{name}, {poll}, take_{name}}}"


def _width(scope: Scope, part: Part, plan: PersistentRnn, axis: Axis) -> int:
    """How many neighbours along the fastest axis of a part's vectors are brought by one load, of 16 bytes at most.

    A thread has two loads at least: with less to do, registers that have to be neighbours cost more.
    """
    operands = scope.operands
    layouts, alignments = operands.layouts, operands.kernel.alignments
    width = _VECTOR_BYTES // max(_looked_bytes(load, layouts) for load in part.loads)
    while width > 1 and part.length * plan.columns < 2 * width * _bringers(plan, part, layouts):
        width //= 2
    are_wide = axis.extent % width == 0 and all(
        load.fill is None and load.dtype.is_float and operands.lies_in_groups(load, axis, width, alignments)
        for load in part.loads
    )
    return width if are_wide else 1


def _bringers(plan: PersistentRnn, part: Part, layouts: Sequence[Layout]) -> int:
    """The threads that bring a part's vectors, the last ones of a block or of a team: all of them, or some.

    Those of a team are a power of two. Of all warps, threads without points bring the first vectors, while others
    finish those of the record before, if these threads can ask for all of them at once.
    """
    warps = plan.shares.warps
    if plan.shares.teams:
        return WARP << (len(part.team).bit_length() - 1)
    lanes = len(plan.gates) if plan.points <= warps * plan.points_per_warp else 1  # of a point
    without_points = warps - -(-plan.points // (WARP // lanes))
    quarter = warps // 4
    most_bytes = quarter * WARP * (_LOOK_BYTES if plan.has_room else _LOOK_BYTES // 2)
    looked_bytes = part.length * plan.columns * sum(_looked_bytes(load, layouts) for load in part.loads)
    is_beside = part is plan.parts[0] and without_points >= quarter and looked_bytes <= most_bytes
    return WARP * (quarter if is_beside else warps)


def _looked_bytes(load: Load, layouts: Sequence[Layout]) -> int:
    """The size of an element that is looked at, with its tag if it has one."""
    size_bytes = load.dtype.itemsize_bytes
    if not layouts[load.slot].tagged:
        return size_bytes
    return 4 if load.dtype.is_rounded else 2 * size_bytes


def _emit_look(
    writer: Writer,
    part: Part,
    readers: Mapping[int, str],
    parameters: str,
    at_element: Callable[[], Scope],
    width: int | None = None,
) -> tuple[str, dict[Load, str]]:
    """Write the type of what a part's vectors are looked at as, and the functor; returns its name, and a field by load.

    With a `width` fields are arrays of so many neighbours. What may be padding is looked at where it is taken.
    """
    looked = {load: writer.name("v") for load in part.loads if load.fill is None}
    name = writer.name("vector")
    with writer.block(f"struct rammer_{name}", ";"):
        if width is not None:
            writer.line(f"enum {{ WIDTH = {width} }};")
        for load, field in looked.items():
            writer.line(f"{_looked(load, readers)} {field}{'' if width is None else f'[{width}]'};")
    with writer.block(f"const auto look_{name} = [&]({parameters})", ";"):
        at = at_element()
        if width is not None:
            writer.line(f"rammer_{name} looked;")
            for load, field in looked.items():
                look = "rammer_look" if load.slot in readers else f"rammer_load_vector<{width}>"
                writer.line(f"{look}(looked.{field}, &in{load.slot}[{at.element(load)[0]}]);")
            writer.line("return looked;")
            return name, looked
        values = []
        for load in looked:
            place = f"&in{load.slot}[{at.element(load)[0]}]"
            values.append(f"rammer_look({place})" if load.slot in readers else at.value(load))
        writer.line(f"return rammer_{name}{{{', '.join(values)}}};")
    return name, looked


def _looked(load: Load, readers: Mapping[int, str]) -> str:
    """The type of what is looked at: an element, with its tag if it has one."""
    if load.slot not in readers:
        return C_TYPES[load.dtype]
    return "uint32_t" if load.dtype.is_rounded else "uint64_t"


def _column_sides(sides: Sequence[Side], plan: PersistentRnn) -> list[Side]:
    return [side for side in reversed(sides) if side.axis in plan.column_axes]


def _unit_sides(sides: Sequence[Side], plan: PersistentRnn) -> list[Side]:
    return [side for side in sides if side.axis not in plan.column_axes]


def _point_sides(kernel: RKernel, sides: Sequence[Side], plan: PersistentRnn) -> list[Side]:
    """In the order in which points are numbered: units before columns."""
    return [*lane_first(kernel, _unit_sides(sides, plan)), *_column_sides(sides, plan)]


def _emit_epilogue(scope: Scope, points: Sequence[Side], plan: PersistentRnn) -> None:
    """Write `load` and `finish`."""
    writer = scope.writer
    kept = kept_loads(scope.operands, plan)
    early = Early(writer, [load for load in epilogue_loads(scope.operands, plan) if load not in kept])
    with writer.block("const auto load = [&](uint32_t point, rammer_early &early)", ";"):
        early.load(scope.enter(decode_inside(writer, "point", points)[0]))
    parameters = (
        "uint32_t point, bool is_first, const rnn::totals &totals, const float *kept, const rammer_early &early"
    )
    with writer.block(f"const auto finish = [&]({parameters})", ";"):
        positions, conditions = decode_inside(writer, "point", points)
        at_point = scope.enter(positions)
        for number, gate in enumerate(plan.gates):
            at_point.bind(gate.node, f"totals[{number}]")
        for number, load in enumerate(kept):
            value = f"kept[{number * plan.points} + point]"
            at_point.bind(load, writer.let("float", writer.name("kept"), value))
        early.bind(at_point)
        at_point.hoist(at_point.operands.results)
        with guarded(writer, ["is_first", *conditions]):
            at_point.store_results()


def _emit_activate(writer: Writer, plan: PersistentRnn) -> None:
    """Write the functions of gates: all lanes compute each, for lanes in branches of their own take turns."""
    gates: dict[ScalarFn | None, list[int]] = {}
    for number, gate in enumerate(plan.gates):
        gates.setdefault(gate.function, []).append(number)
    with writer.block("const auto activate = [&](uint32_t gate, float sum)", ";"):
        chosen = ""
        for function, numbers in gates.items():
            text = "sum" if function is None else call_text(function, DType.FLOAT32, ["sum"])
            value = writer.let("float", writer.name("activated"), text)
            condition = " || ".join(f"gate == {number}" for number in numbers)
            chosen = f"{condition} ? {value} : {chosen}" if chosen else value
        writer.line(f"return {chosen};")


def _loading_threads(part: Part) -> int:
    """How many threads load an element each of a part's vector: whole warps."""
    return -(-part.length // WARP) * WARP


def _adds(part: Part, plan: PersistentRnn) -> list[str]:
    """The condition that a part adds to the gate of a row."""
    rows = range(plan.shares.rows)
    if plan.shares.tensor is None:
        rows = range(part.first_slot * plan.shares.across, (part.first_slot + part.slots) * plan.shares.across)
    own = {gate * plan.units + unit for gate in part.tables for unit in range(plan.units)}
    return [] if own.issuperset(rows) else [f"({' || '.join(f'gate == {gate}u' for gate in part.tables)})"]


def _bias(scope: Scope, plan: PersistentRnn, number: int) -> str:
    """The value of a bias of `gate`."""
    writer = scope.writer
    chosen = "nullptr"
    for i, gate in enumerate(plan.gates):
        if number < len(gate.biases):
            bias: Load = gate.biases[number]
            chosen = f"gate == {i} ? &in{bias.slot}[{scope.element(bias)[0]}] : {chosen}"
    bias_from = writer.let("float *", writer.name("from"), chosen)
    return writer.let("float", writer.name("bias"), f"{bias_from} == nullptr ? 0.0f : *{bias_from}")
