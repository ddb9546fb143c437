"""The skeletons of products (`gemm`, `implicit_gemm`, `gemv`, `depthwise`): a register-tiled micro-kernel.

    for each block of lanes
      for each point of the axes that both operands have   (the batch of a batched product)
        copy lane operands whose lanes lie apart           (a transposed, padded or 16-bit operand)
        for each block of rows
          for each group of sums                           (a cell has two: its input's and its state's)
            accumulators[rows][vectors] = 0
            for each point of the group's reduction axes
              accumulators += row operand (a scalar) * lane operand (a vector)
          for each row and lane: the epilogue, store

Blocks along an axis are written in runs that are alike: equally many rows or lanes, and at a border the same rows
inside. Each run has a micro-kernel of its own without a branch: a row that would read padding is left out of it.

With tiles instead of vectors (`emit.tiles`) the sums of a block go through an array.

Blocks of rows that share a lane operand prefetch their shares of the next one, and what the next rows begin with. A
matrix that one row reads, once, from memory is prefetched a little ahead.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rammer.devices.codegen.scalar import C_TYPES, sum_text
from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.cpu.emit.ahead import emit_ahead
from rammer.devices.cpu.emit.micro import Block, each_row, edges_of, emit_group, vector_type
from rammer.devices.cpu.emit.narrow import NONE, WIDTHS, narrow, store_lane, widen
from rammer.devices.cpu.emit.nest import Loop, Range, nest
from rammer.devices.cpu.emit.pack import emit_packs
from rammer.devices.cpu.emit.tiles import emit_tiles
from rammer.ir.expr import Axis
from rammer.ir.kernel_form import Instruction, MicroKernelForm
from rammer.ir.task import RKernel
from rammer.ir.types import DType
from rammer.ir.vdevice import ByteProducts
from rammer.tiling.borders import Border
from rammer.tiling.pattern import Term, contraction
from rammer.tiling.stores import by_steps

_SQUARES = (4, 8, 16)  # of sums that are transposed at a time
_LEAST_ROWS = 3  # of which vectors are worth it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Blocks along an axis that are alike: they start at `start`, `start + size` ... and have `count` points each."""

    start: int
    stop: int
    count: int


def emit_product(scope: Scope, ranges: Mapping[Axis, Range], form: MicroKernelForm) -> None:
    """Write the loops over one rTask."""
    kernel = scope.operands.kernel
    block = _block(kernel, form)
    borders = [
        border
        for group in block.found.groups
        for border in edges_of(block.found, group, block.rows, block.lane, kernel.expr.inputs).settled
    ]
    runs = {axis: _runs(axis, size, borders) for axis, size in block.sizes.items()}
    if block.tiled:
        scope.writer.include("byte_tiles.h")
        scope.writer.line("rammer_tiles tiles = {0};")
    # Lanes outside of rows: the lane operand of a block stays in the cache for all of them. Lanes outside of what is
    # shared: the lane operand is read from panels, each from its beginning to its end.
    single = [Loop(axes=(axis,), range=ranges[axis]) for axis in kernel.expr.axes if axis not in block.sizes]
    shared = [loop for loop in single if not _is_row(loop.axes[0], block)]
    rows = [loop for loop in single if _is_row(loop.axes[0], block)]

    def lanes(at_lanes: Scope, lane_block: Block) -> None:
        def rest(inside: Scope) -> None:
            packed = _prepared(inside, lane_block, shared, rows)
            nest(inside, rows, (), lambda at_row: _emit_blocks(at_row, block.rows, runs, ranges, packed, _emit_block))

        nest(at_lanes, shared, (), rest)

    _emit_blocks(scope, (block.lane,), runs, ranges, block, lanes)
    if block.tiled:
        scope.writer.line("RAMMER_TILES_END;")


def _prepared(scope: Scope, block: Block, shared: Sequence[Loop], rows: Sequence[Loop]) -> Block:
    """A block whose lane operands are copied where that pays, and prefetched for the next lanes or shared point."""
    next_ = shared[-1].axes[0] if shared else block.lane
    ahead = emit_ahead(scope, block, next_, _row_blocks(scope.operands.kernel, block))
    row_loop = rows[-1].axes[0] if rows else None
    packs = {} if block.tiled else emit_packs(scope, block)
    return replace(block, packs=packs, ahead=ahead, row_loop=row_loop)


def _is_row(axis: Axis, block: Block) -> bool:
    """Whether no lane operand depends on an axis."""
    operands = (block.found.split(term, block.lane)[0] for term in block.found.terms)
    return not any(axis in block.found.free[operand] for operand in operands)


def _row_blocks(kernel: RKernel, block: Block) -> int:
    """Blocks of rows of an rTask beside one block of lanes."""
    extents = dict(zip(kernel.expr.axes, kernel.tile.task, strict=True))
    rows = [axis for axis in kernel.expr.axes if _is_row(axis, block)]
    return math.prod(-(-extents[axis] // block.sizes.get(axis, 1)) for axis in rows)


def _block(kernel: RKernel, form: MicroKernelForm) -> Block:
    """A full block of the rKernel."""
    expr, tile = kernel.expr, kernel.tile
    found = contraction(expr, ByteProducts.QUADS)
    if found is None or tile.lane is None or expr.axes[tile.lane] not in (*found.lanes, *found.shared):
        raise ValueError("a product is a contraction with one of its lane axes")
    lane = expr.axes[tile.lane]
    sizes = {axis: size for axis, size in zip(expr.axes, form.register, strict=True) if size > 1 or axis is lane}
    rows = tuple(axis for axis in sizes if axis is not lane)
    if found.rows(rows, lane) != rows or sizes[lane] % form.vector:
        raise ValueError(f"register tile {form.register} does not fit the contraction")
    for axis, task, count in zip(expr.axes, tile.task, kernel.grid, strict=True):
        if count > 1 and task % sizes.get(axis, 1):
            raise ValueError(f"task tile {tile.task} is no multiple of register tile {form.register}")
    return Block(
        found=found,
        lane=lane,
        rows=rows,
        vector=form.vector,
        sizes=sizes,
        counts=sizes,
        starts=dict.fromkeys(sizes, 0),
        packs={},
        ahead_bytes=form.ahead_bytes,
        tiled=form.instruction is Instruction.TDPBUSD,
    )


def _runs(axis: Axis, size: int, borders: Sequence[Border]) -> list[_Run]:
    """The blocks along an axis, joined while neighbours are alike."""
    runs: list[_Run] = []
    last: tuple[tuple[bool, ...], ...] = ()
    for start in range(0, axis.extent, size):
        stop = min(start + size, axis.extent)
        inside = tuple(_inside(border, axis, range(start, stop)) for border in borders if axis in border.axes)
        if runs and stop - start == size and inside == last:
            runs[-1] = replace(runs[-1], stop=stop)
        else:
            runs.append(_Run(start=start, stop=stop, count=stop - start))
        last = inside
    return runs


def _inside(border: Border, axis: Axis, positions: range) -> tuple[bool, ...]:
    """For each position and each point of a border's other axes: is it inside?"""
    others = [other for other in border.axes if other is not axis]
    points = list(itertools.product(*(range(other.extent) for other in others)))
    return tuple(
        border.inside({axis: position, **dict(zip(others, point, strict=True))})
        for position in positions
        for point in points
    )


def _emit_blocks(
    scope: Scope,
    axes: Sequence[Axis],
    runs: Mapping[Axis, Sequence[_Run]],
    ranges: Mapping[Axis, Range],
    block: Block,
    body: Callable[[Scope, Block], None],
) -> None:
    """Loops over the blocks of one axis after the other, a loop for each run."""
    if not axes:
        body(scope, block)
        return
    axis, *rest = axes
    for run in runs[axis]:
        settled = replace(block, starts={**block.starts, axis: run.start}, counts={**block.counts, axis: run.count})
        bounds = _overlap(ranges[axis], run, axis.extent)
        with scope.writer.loop(f"{axis.name}_block", bounds.lo, bounds.hi, block.sizes[axis]):
            _emit_blocks(scope.enter({}), rest, runs, ranges, settled, body)


def _overlap(bounds: Range, run: _Run, extent: int) -> Range:
    """The part of an rTask's range that a run covers."""
    if run.stop - run.start == extent:
        return bounds
    if bounds.count == extent:
        return Range(str(run.start), str(run.stop))
    return Range(f"rammer_max_i64({bounds.lo}, {run.start})", f"rammer_min_i64({bounds.hi}, {run.stop})")


def _emit_block(scope: Scope, block: Block) -> None:
    """The sums of one block, then the epilogue."""
    kernel = scope.operands.kernel
    order = by_steps(kernel.expr, kernel.layouts, (*block.rows, block.lane), block.lane)
    in_lanes = order[-1] is block.lane
    if block.tiled:
        arrays = emit_tiles(scope, block)
        if in_lanes:
            _emit_rows(scope, block, block.rows, arrays)
        else:
            _emit_over_arrays(scope, block, arrays, order)
        return
    sums: dict[Term, str] = {}
    for group in block.found.groups:
        sums |= emit_group(scope, block, group)
    if in_lanes:
        _emit_in_registers(scope, block, sums)
    elif square := _square(block, order[-1]):
        _emit_over_rows(scope, block, _emit_arrays(scope, block, sums, square), order, square)
    else:
        _emit_over_arrays(scope, block, _emit_arrays(scope, block, sums), order)


def _emit_in_registers(scope: Scope, block: Block, sums: Mapping[Term, str]) -> None:
    """A loop over the lanes of each vector of sums, which becomes vector code that finds them in their registers."""
    with each_row(scope, block) as (number, at_row):
        _emit_vectors(at_row, block, number, {term: f"{array}[{{row}}][{{v}}]" for term, array in sums.items()})


def _emit_rows(scope: Scope, block: Block, rows: Sequence[Axis], arrays: Mapping[Term, str]) -> None:
    """Loops over rows, each of whose vectors of sums is loaded from arrays."""
    if rows:
        axis, *rest = rows
        points = _points(axis, block)
        with scope.writer.loop(axis.name, points.lo, points.hi):
            _emit_rows(_with_sums(scope, {axis: Position(axis.name)}, {}), block, rest, arrays)
        return
    place = f"[{{row}}][{{v}} * {block.vector}]"
    vectors = {term: f"RAMMER_LOAD({vector_type(block, term)}, &{array}{place})" for term, array in arrays.items()}
    _emit_vectors(scope, block, _row_text(block), vectors)


def _emit_vectors(row: Scope, block: Block, number: str, sums: Mapping[Term, str]) -> None:
    """What is made of a row's vectors of sums: written once for all that are whole, and for one that is not.

    Args:
        row: the scope at the row.
        block: which it is of.
        number: of the row, in C.
        sums: the vector of each term, in C, with `{row}` and `{v}` for the numbers of row and vector.
    """
    writer = row.writer
    whole, rest = divmod(block.counts[block.lane], block.vector)
    if whole > 1:
        with writer.macro("RESULT(v, row)", "{", "}"):
            at_first = Position(f"{block.lane.name}_block", step=f"v * {block.vector}")
            _emit_lanes(row, block, at_first, block.vector, _at(sums, "v", "row"))
        writer.line(f"RAMMER_VECTORS({whole}, RESULT, {number})")
        writer.undefine("RESULT")
    for v, present in [(0, block.vector)] * (whole == 1) + [(whole, rest)] * (rest > 0):
        at_first = Position(f"{block.lane.name}_block", v * block.vector, block.sizes[block.lane])
        _emit_lanes(row, block, at_first, present, _at(sums, str(v), number))


def _at(sums: Mapping[Term, str], v: str, row: str) -> dict[Term, str]:
    return {term: text.format(v=v, row=row) for term, text in sums.items()}


def _emit_lanes(row: Scope, block: Block, at_first: Position, present: int, sums: Mapping[Term, str]) -> None:
    """The loop over the lanes of one vector of sums, bytes apart where the vector is whole."""
    writer, lane = row.writer, block.lane
    # A copy: what is read lane by lane would not stay in a register during the sums.
    copies = {}
    for term, vector in sums.items():
        name = writer.name("of_lanes")
        writer.line(f"RAMMER_BY_LANE({vector_type(block, term)}, {name}, {vector});")
        copies[term] = f"{name}[i]"
    row = _with_sums(row, {}, copies)
    apart = widen(row, lane, at_first, present) if present in WIDTHS else NONE
    writer.line("RAMMER_ONE_VECTOR")
    with writer.loop("i", "0", str(present), lanes=True):
        terms = dict.fromkeys(filter(None, (at_first.text, "i", at_first.step)), 1)
        writer.let("int64_t", lane.name, sum_text(terms, at_first.offset))
        if apart.loaded or apart.stored:
            inside = row.enter({lane: Position(lane.name)})
            for term, name in copies.items():
                inside.bind(term.reduce, name)
            store_lane(inside, apart)
        else:
            _with_sums(row, {lane: Position(lane.name)}, copies).store_results()
    narrow(row, lane, at_first, present, apart)


def _emit_arrays(scope: Scope, block: Block, sums: Mapping[Term, str], square: int = 1) -> dict[Term, str]:
    """Sums in memory, `[row][lane]`, in a multiple of `square` rows, those beyond the block's zero."""
    writer = scope.writer
    height, width = block.array_shape
    rows = math.prod(block.counts[axis] for axis in block.rows)
    height = max(height, _whole(rows, square))
    arrays = {term: writer.name("sums") for term in block.found.terms}
    for term, array in arrays.items():
        writer.line(f"{C_TYPES[term.reduce.dtype]} {array}[{height}][{width}] __attribute__((aligned(64)));")
    with each_row(scope, block) as (number, _):
        for term, array in sums.items():
            types = f"{block.vectors}, {vector_type(block, term)}, {block.vector}"
            writer.line(f"RAMMER_STORE_VECTORS({types}, {arrays[term]}[{number}], {array}[{number}])")
    for term, array in arrays.items():
        for row in range(rows, _whole(rows, square)):
            for v in range(block.vectors):
                zero = f"({vector_type(block, term)}){{0}}"
                writer.line(f"RAMMER_STORE({vector_type(block, term)}, &{array}[{row}][{v * block.vector}], {zero});")
    return arrays


def _square(block: Block, nearest: Axis) -> int:
    """The side of the squares in which the sums of a block are transposed, so that the epilogue loads vectors of rows.

    0 where there are rows along several axes, or too few, or sums of another type: then they are read one by one.
    """
    of_float = all(term.reduce.dtype is DType.FLOAT32 for term in block.found.terms)
    alone = all(block.counts[axis] == 1 for axis in block.rows if axis is not nearest)
    rows = block.counts[nearest]
    if not of_float or not alone or rows < _LEAST_ROWS:
        return 0
    return min(next(side for side in _SQUARES if side >= min(rows, _SQUARES[-1])), block.vector)


def _whole(count: int, size: int) -> int:
    """The next multiple."""
    return -(-count // size) * size


def _emit_over_rows(scope: Scope, block: Block, arrays: Mapping[Term, str], order: Sequence[Axis], square: int) -> None:
    """The epilogue of sums in memory that are transposed first: it runs along the rows."""
    writer = scope.writer
    width, height = block.array_shape[1], _whole(math.prod(block.counts[axis] for axis in block.rows), square)
    across = {term: writer.name("across") for term in arrays}
    for term, array in arrays.items():
        writer.line(f"float {across[term]}[{width}][{height}] __attribute__((aligned(64)));")
        into = f"{across[term]}[0], {height}"
        writer.line(f"rammer_transpose_f32x{square}({array}[0], {width}, {height}, {width}, {into});")
    element = f"[{block.lane.name} - {block.lane.name}_block][{_row_text(block)}]"
    _emit_at_points(scope, block, {term: array + element for term, array in across.items()}, order)


def _emit_over_arrays(scope: Scope, block: Block, arrays: Mapping[Term, str], order: Sequence[Axis]) -> None:
    """The epilogue of sums in memory, where another axis than the lanes has the shortest steps in the stores."""
    element = f"[{_row_text(block)}][{block.lane.name} - {block.lane.name}_block]"
    _emit_at_points(scope, block, {term: array + element for term, array in arrays.items()}, order)


def _emit_at_points(scope: Scope, block: Block, elements: Mapping[Term, str], order: Sequence[Axis]) -> None:
    """The epilogue, point by point in an order of axes, with the C text of each sum at a point."""
    loops = [Loop(axes=(axis,), range=_points(axis, block), lanes=True) for axis in order]
    _emit_epilogue(_with_sums(scope, {}, elements), loops, elements)


def _points(axis: Axis, block: Block) -> Range:
    start = f"{axis.name}_block"
    return Range(start, f"{start} + {block.counts[axis]}", block.counts[axis])


def _emit_epilogue(scope: Scope, loops: Sequence[Loop], sums: Mapping[Term, str]) -> None:
    """Loops over the points of a block, with the C text of each sum at a point."""
    if not loops:
        scope.store_results()
        return
    first, *rest = loops
    with scope.writer.loop(first.name, first.range.lo, first.range.hi, lanes=not rest):
        _emit_epilogue(_with_sums(scope, first.positions, sums), rest, sums)


def _with_sums(scope: Scope, positions: Mapping[Axis, Position], sums: Mapping[Term, str]) -> Scope:
    """The scope at some positions, where the sums have names and what else is certain is written."""
    inside = scope.enter(positions)
    for term, name in sums.items():
        inside.bind(term.reduce, name)
    inside.hoist(scope.operands.results)
    return inside


def _row_text(block: Block) -> str:
    """The row of the arrays that belongs to the present point."""
    text = ""
    for axis in block.rows:
        offset = f"{axis.name} - {axis.name}_block"
        text = f"({text}) * {block.counts[axis]} + {offset}" if text else offset
    return text or "0"
