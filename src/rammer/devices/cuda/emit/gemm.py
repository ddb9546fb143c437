"""The skeleton `gemm` (`skeletons/gemm.cuh`): its sizes as constants, and its functors.

`staging.py` and `windows.py` say where elements of operands lie, `gemm_epilogue.py` what is made of the sums.
`tiling.gemm` has the sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rammer.devices.codegen.scalar import C_TYPES
from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.cuda.emit.gemm_epilogue import emit_epilogue
from rammer.devices.cuda.emit.loads import is_constant
from rammer.devices.cuda.emit.patches import Patch
from rammer.devices.cuda.emit.points import Side, count, decode
from rammer.devices.cuda.emit.staging import Operand, stage
from rammer.devices.cuda.emit.tiles import Tiles
from rammer.devices.cuda.emit.wait import BEGIN
from rammer.ir.expr import Expr
from rammer.ir.kernel_form import GemmForm, Instruction
from rammer.ir.task import RKernel
from rammer.tiling.gemm import INSTRUCTION_TILES, group_order, moving_axes, operands_of, staged_operand, staged_product
from rammer.tiling.patches import WindowProduct, extents, window_product
from rammer.tiling.pattern import Contraction, Group, window_points

_WARP_TILES: Mapping[Instruction, str] = {
    Instruction.FFMA: "rammer_multiply_adds<",
    Instruction.MMA_F64: "rammer_double_products<",
    Instruction.MMA_TF32: "rammer_tf32_products<",
    Instruction.MMA_BF16: "rammer_half_products<rammer_bf16, ",
    Instruction.MMA_F16: "rammer_half_products<rammer_f16, ",
    Instruction.MMA_I8: "rammer_byte_products<",
}

_LEAST_STAGES = 2  # of which all but one are on their way while one is multiplied


def emit_gemm(scope: Scope, sides: Sequence[Side], form: GemmForm) -> None:
    """Write what computes one rTask."""
    kernel, writer = scope.operands.kernel, scope.writer
    found = staged_product(kernel.expr)
    if found is None:
        raise ValueError("a product is a contraction")
    tiles = Tiles.of(kernel, form, sides)
    warp = f"{_WARP_TILES[form.instruction]}{form.warp.m}, {form.warp.n}>"
    sizes = [len(found.terms), *form.threadblock, form.slices]
    sizes += [count(of) for of in (tiles.rows, tiles.columns, tiles.batches)]
    overlapped = str(form.overlapped).lower()
    writer.line(f"typedef rammer_gemm<{warp}, {', '.join(map(str, sizes))}, {overlapped}> gemm;")
    with writer.block("const auto inside = [&](const rammer_tile &block)", ";"):
        _, conditions = decode(writer, "block.batch", tiles.batches)
        writer.line(f"return {' && '.join(conditions) or 'true'};")
    groups = [_emit_group(scope, _Group.of(scope, tiles, found, group)) for group in found.groups]
    epilogue = emit_epilogue(scope, tiles, found.terms)
    writer.line(f"gemm::run(scratch, {BEGIN}, inside, {epilogue}, {', '.join(groups)});")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Sums over the same axes, with their distinct operands.

    Within a stage the `moving` axes move, the `outer` ones stand still; both are fastest first. `terms` has the types
    of the sums, `stage_bytes` what a stage takes of shared memory.
    """

    tiles: Tiles
    moving: tuple[Side, ...]
    outer: tuple[Side, ...]
    operands: tuple[Operand | Patch, ...]
    terms: tuple[str, ...]
    stage_bytes: int

    @classmethod
    def of(cls, scope: Scope, tiles: Tiles, found: Contraction, group: Group) -> _Group:
        """A group of a contraction's sums; declares its operands."""
        kernel, form = scope.operands.kernel, tiles.form
        assert kernel.tile.lane is not None  # along which N runs
        lane = kernel.expr.axes[kernel.tile.lane]
        axes = [Side.whole(axis) for axis in reversed(group_order(group, kernel.layouts))]
        number = moving_axes([side.size for side in axes], form.threadblock.k) or len(axes)
        of_rows, of_columns = operands_of(found, group, lane)
        operands: dict[Expr, Operand | Patch] = {}
        at = 0
        for operand in (*of_rows, *of_columns):
            is_row = operand in of_rows
            if is_row and form.patch:
                operands[operand], taken_bytes = _patch(scope, tiles, at)
                at += taken_bytes
                continue
            staged = Operand(
                name=scope.writer.name("operand"),
                element=staged_operand(operand, form.instruction),
                sides=tiles.rows if is_row else tiles.columns,
                first="block.row0" if is_row else "block.column0",
                points=form.threadblock.m if is_row else form.threadblock.n,
                moving=tuple(axes[:number]),
                outer=tuple(axes[number:]),
                k=form.threadblock.k,
            )
            operands[operand] = staged
            at += _declare(scope, staged, at, INSTRUCTION_TILES[form.instruction].padding)
        terms = []
        for term in group.terms:
            of_column, of_row = found.split(term, lane)
            names = f"{found.terms.index(term)}, {operands[of_row].name}, {operands[of_column].name}"
            terms.append(
                f"rammer_window_term<{names}, {_windows(kernel, tiles)}>" if form.patch else f"rammer_term<{names}>"
            )
        return cls(
            tiles=tiles,
            moving=tuple(axes[:number]),
            outer=tuple(axes[number:]),
            operands=tuple(operands.values()),
            terms=tuple(terms),
            stage_bytes=at,
        )


def _window_product(kernel: RKernel) -> WindowProduct:
    found = window_product(kernel.expr, kernel.layouts, kernel.alignments, kernel.tile.lane)
    assert found is not None  # its form has a patch
    return found


def _patch(scope: Scope, tiles: Tiles, at: int) -> tuple[Patch, int]:
    """The patch that rows are windows of, from byte `at` of a stage on, and the bytes it takes there; declares it."""
    found = _window_product(scope.operands.kernel)
    sides = {side.axis: side for side in tiles.rows}
    patch = Patch(
        name=scope.writer.name("operand"),
        memory="stage",
        image=found.image,
        windows=found.windows,
        channel=Side.whole(found.channel),
        sides=sides,
    )
    sizes = {axis: side.size for axis, side in sides.items()}
    numbers = f"{at}, {found.pixels(sizes)}, {found.pitch}, {found.channel.extent}"
    scope.writer.line(f"typedef rammer_operand<{C_TYPES[found.image.type]}, {numbers}> {patch.name};")
    return patch, found.patch_bytes(sizes)


def _windows(kernel: RKernel, tiles: Tiles) -> str:
    """What `rammer_window_term` is to know of windows: channels, where they begin, where their taps are."""
    found = _window_product(kernel)
    sizes = {side.axis: side.size for side in tiles.rows}
    of_points, of_taps, pitch = {}, {}, found.pitch
    for window, extent in zip(reversed(found.windows), reversed(extents(found.windows, sizes)), strict=True):
        if window.axis is not None:
            of_points[window.axis] = f"rammer_axis<{sizes[window.axis]}, {window.stride * pitch}>"
        if window.tap is not None:
            of_taps[window.tap] = f"rammer_axis<{window.taps}, {window.dilation * pitch}>"
        pitch *= extent
    rows, taps = (", ".join(of[axis] for axis in axes) for of, axes in ((of_points, sizes), (of_taps, found.taps)))
    return f"{found.channel.extent}, rammer_axes<{rows}>, rammer_axes<{taps}>"


def _declare(scope: Scope, operand: Operand, at: int, padding: int) -> int:
    """Write the type of an operand that lies from byte `at` of a stage on; returns the bytes it takes there."""
    dtype, pitch = operand.element.dtype, operand.k + padding
    sizes = f"{C_TYPES[dtype]}, {at}, {operand.points}, {pitch}, {operand.k}"
    scope.writer.line(f"typedef rammer_operand<{sizes}> {operand.name};")
    return operand.points * pitch * dtype.itemsize_bytes


def _emit_group(scope: Scope, group: _Group) -> str:
    """Write the functors of a group; returns its name."""
    writer, form = scope.writer, group.tiles.form
    name, k = writer.name("group"), writer.name("steps")
    extents = [count(group.moving), *(side.size for side in group.outer)]
    repeats = str(form.overlapped).lower()
    sizes = ", ".join(map(str, [form.threadblock.k, *extents]))
    writer.line(f"typedef rammer_k<{writer.index_type}, {repeats}, {sizes}> {k};")
    staged = [operand for operand in group.operands if isinstance(operand, Operand)]
    constants = [operand for operand in staged if is_constant(scope, operand.element)]
    others = [operand for operand in staged if operand not in constants]
    others.sort(key=lambda operand: window_points(operand.element))  # copies are on their way meanwhile
    functors = []
    for kind, members in (("constants", constants), ("others", others)):
        functors.append(writer.name(kind))
        parameters = f"const rammer_tile &block, const {k} &steps, char *stage"
        with writer.block(f"const auto {functors[-1]} = [&]({parameters})", ";"):
            for number, side in enumerate(group.outer, 1):
                writer.let(writer.index_type, side.axis.name, f"steps.element[{number}]")
            in_stage = group.tiles.enter(scope).enter({side.axis: Position(side.axis.name) for side in group.outer})
            in_stage.hoist(operand.element for operand in members)
            for operand in members:
                stage(in_stage, operand, form.threads)
            for patch in (operand for operand in group.operands if kind == "others" and isinstance(operand, Patch)):
                patch.write_copies(scope, _window_product(scope.operands.kernel).chunk)
    stages = max(form.stages, _LEAST_STAGES)  # the last is not used where there is one
    types = ", ".join([k, str(stages), str(group.stage_bytes), *group.terms])
    writer.line(f"const auto {name} = rammer_group_of<{types}>({', '.join(functors)});")
    return name
