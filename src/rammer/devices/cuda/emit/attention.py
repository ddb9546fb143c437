"""The skeleton `attention` (`skeletons/attention.cuh`): its sizes as constants, and its functors.

`staging.py` says where elements of operands lie, `epilogue.py` what is made of sums and totals.
`tiling.flash_attention` has the sizes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rammer.devices.codegen.scalar import C_TYPES
from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.cuda.emit.epilogue import Epilogue
from rammer.devices.cuda.emit.points import Side, count, decode, decode_inside, within
from rammer.devices.cuda.emit.staging import Operand, Readiness, readiness, stage, stage_part
from rammer.devices.cuda.emit.wait import BEGIN
from rammer.ir.expr import Axis, Expr, Load, nodes
from rammer.ir.kernel_form import FlashAttentionForm, Instruction
from rammer.tiling.addresses import Linear
from rammer.tiling.attention import Attention
from rammer.tiling.flash_attention import AttentionBlock, block_of
from rammer.tiling.gemm import of_float32
from rammer.tiling.pattern import reduction_order

_WARP_TILES: Mapping[Instruction, str] = {
    Instruction.FFMA: "rammer_float_attention<",
    Instruction.MMA_F64: "rammer_double_attention<",
    Instruction.MMA_BF16: "rammer_half_attention<rammer_bf16, ",
    Instruction.MMA_F16: "rammer_half_attention<rammer_f16, ",
}

_FEW_ROWS = 8  # of floats of 16 bits: a thread then has one row instead of two


def emit_attention(scope: Scope, sides: Sequence[Side], form: FlashAttentionForm, unwritten: Collection[int]) -> None:
    """Write what computes one rTask; nobody writes the slots that are `unwritten`."""
    block = block_of(scope.operands.kernel.expr, of_float32([form.instruction]))
    if block is None:
        raise ValueError("the skeleton 'attention' takes attention")
    found, writer = block.found, scope.writer
    by_axis = {side.axis: side for side in sides}
    rows, columns = (tuple(by_axis[axis] for axis in reversed(axes)) for axes in (found.rows, found.columns))
    head = [side for side in sides if side not in (*rows, *columns)]  # an rTask has one
    in_head = scope.enter({side.axis: Position(side.lo) for side in head})
    operands = _operands(in_head, block, form, rows)
    _declare(in_head, operands, block, form)
    warp = f"{_WARP_TILES[form.instruction]}{_warp_sizes(block, form, count(rows))}>"
    counts = f"{form.row_warps}, {form.column_warps}, {form.teams}, {form.stages}"
    names = ", ".join(operand.name for operand in operands)
    writer.line(f"typedef rammer_attention<{warp}, {counts}, {names}> attention;")
    queries, *of_steps = operands
    with writer.block("const auto queries = [&](char *stage)", ";"):
        stage(in_head.enter({}), queries, form.threads)
    for name, is_ready in (("ready", True), ("others", False)):
        with writer.block(f"const auto {name} = [&](uint32_t first, char *stage)", ";"):
            for operand in reversed(of_steps):  # keys may be computed: copies are on their way meanwhile
                _stage_part(in_head.enter({}), operand, form, unwritten, is_ready=is_ready)
    _emit_score(in_head, found, rows, form)
    past = _past_keys(in_head, found, rows)
    writer.line(f"if (!attention::run(scratch, {BEGIN}, {past}, queries, ready, others, score))")
    writer.line("    return;")
    Epilogue(
        sums=found.weighted,
        rows=rows,
        columns=columns,
        pitch=block.sums_pitch(form),
        threads=form.threads,
        of_rows={found.total: "sums[attention::TOTALS + row]"},
    ).emit(in_head)


def _warp_sizes(block: AttentionBlock, form: FlashAttentionForm, rows: int) -> str:
    """The sizes of a warp's share; of few rows, how many there are."""
    sizes = f"{block.depth}, {form.team_keys}, {block.warp_columns(form)}"
    is_half = form.instruction in (Instruction.MMA_F16, Instruction.MMA_BF16)
    return f"{sizes}, {rows}" if is_half and form.row_warps == 1 and rows <= _FEW_ROWS else sizes


def _stage_part(
    scope: Scope, operand: Operand, form: FlashAttentionForm, unwritten: Collection[int], *, is_ready: bool
) -> None:
    """Write what brings of a step's operand what is ready before the rTask waits, or the rest."""
    found = readiness(scope, operand, unwritten)
    if found is Readiness.BEFORE:
        stage_part(scope, operand, before=is_ready)
    elif (found is Readiness.WHOLE) is is_ready:
        stage(scope, operand, form.threads)


def _operands(
    scope: Scope, block: AttentionBlock, form: FlashAttentionForm, rows: Sequence[Side]
) -> tuple[Operand, Operand, Operand]:
    """Queries, keys and values as they lie in shared memory."""
    found, writer = block.found, scope.writer
    keys = (Side.whole(found.keys),)

    def operand(element: Expr, sides: Sequence[Side], points: int, axes: Sequence[Axis], elements: int) -> Operand:
        loads = [node for node in nodes(element) if isinstance(node, Load)]
        moving = reduction_order(loads, axes, scope.operands.kernel.layouts) if axes == found.depth else axes
        return Operand(
            name=writer.name("operand"),
            element=element,
            sides=tuple(sides),
            first="0u" if sides is rows else "first",
            points=points,
            start="0u",
            moving=tuple(Side.whole(axis) for axis in reversed(moving)),
            outer=(),
            k=elements,
        )

    columns = form.column_warps * block.warp_columns(form)
    return (
        operand(block.query, rows, form.rows, found.depth, block.depth),
        operand(block.key, keys, form.team_keys, found.depth, block.depth),
        operand(block.value, keys, form.team_keys, found.columns, columns),
    )


def _declare(scope: Scope, operands: Sequence[Operand], block: AttentionBlock, form: FlashAttentionForm) -> None:
    """Write the types of operands: queries at the beginning of scratch, values behind the keys of a team's stage."""
    team = f"rammer_attention_team<{form.row_warps * form.column_warps}, {form.teams}>"
    places = ("0", "0", f"{operands[1].name}::BYTES")
    for operand, at, threads in zip(operands, places, ("rammer_block", team, team), strict=True):
        pitch = operand.k + block.tile.padding
        sizes = f"{C_TYPES[operand.element.dtype]}, {at}, {operand.points}, {pitch}, {operand.k}, {threads}"
        scope.writer.line(f"typedef rammer_operand<{sizes}> {operand.name};")


def _emit_score(scope: Scope, found: Attention, rows: Sequence[Side], form: FlashAttentionForm) -> None:
    """Write what is made of the product of a row and a key; of those that are not there, what is made of the last."""
    writer, keys = scope.writer, Side.whole(found.keys)
    with writer.block("const auto score = [&](uint32_t row_, uint32_t key_, float product)", ";"):
        writer.let("uint32_t", "row", _kept_within("row_", rows, form.rows))
        writer.let("uint32_t", "key", _kept_within("key_", [keys], form.keys))
        positions = decode_inside(writer, "row", rows)[0] | decode(writer, "key", [keys])[0]
        at_score = scope.enter(positions)
        at_score.bind(found.product, "product")
        writer.line(f"return {at_score.value(found.score)};")


def _kept_within(number: str, sides: Sequence[Side], part: int) -> str:
    """A number of a point, kept within `sides` if parts of so many points reach beyond them."""
    return f"min({number}, {count(sides) - 1}u)" if within(number, sides, part) else number


def _past_keys(scope: Scope, found: Attention, rows: Sequence[Side]) -> str:
    """The end of the keys that any row of the rTask gives a weight."""
    extent, last = found.keys.extent, found.last_key
    if last is None:
        return f"{extent}u"
    ends = {side.axis: Position(side.lo, side.size - 1 if last.coefficient(side.axis) > 0 else 0) for side in rows}
    past = scope.enter(ends).linear(Linear(last.terms, last.offset + 1))
    return f"(uint32_t)max(min({past}, {extent}), 0)"
