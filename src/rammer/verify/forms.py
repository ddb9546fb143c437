"""Whether the form of an rKernel fits its expression and its tile (rules T09 and T10)."""

from __future__ import annotations

import math

from rammer.ir.expr import Axis
from rammer.ir.kernel_form import (
    PRODUCTS,
    DepthwiseForm,
    ExternForm,
    FlashAttentionForm,
    GemmForm,
    GemvForm,
    GemvRowsForm,
    Instruction,
    KernelForm,
    MapForm,
    MicroKernelForm,
    PersistentRnnForm,
    Skeleton,
    WarpgroupGemmForm,
)
from rammer.ir.task import RKernel
from rammer.ir.tree_forms import SharedTreesForm, TreesForm
from rammer.ir.types import DType
from rammer.ir.vdevice import ByteProducts
from rammer.tiling.attention import attention
from rammer.tiling.byte_tiles import TILE_LANES, TILE_ROWS, TILES, tile_product
from rammer.tiling.depthwise import depthwise
from rammer.tiling.flash_attention import block_of
from rammer.tiling.gemm import of_float32, staged_product, whole_form
from rammer.tiling.gemv_rows import gemv_rows_form
from rammer.tiling.patches import window_product
from rammer.tiling.pattern import contraction
from rammer.tiling.persistent_rnn import can_be_narrow, plan_of
from rammer.tiling.trees import tree_sum
from rammer.tiling.warpgroup_gemm import INSTRUCTIONS, matrix_product

_WARP = 32
_BATCHES = (1, 2, 4, 8, 16, 32)
_WARPS_OF_GROUP = 4
_OTHER_WARPS = 2  # of products of warpgroups: one asks for copies, one gives Signals
_GROUP_ROWS = 64
_INSTRUCTION_COLUMNS = 8
_ANY_BYTES = 1 << 31  # of shared memory


def form_fault(kernel: RKernel) -> tuple[str, str] | None:
    """The rule that an rKernel's tile and form break, and how, or None."""
    return _tile_fault(kernel) or _expression_fault(kernel) or _inner_fault(kernel) or _narrow_fault(kernel)


def _tile_fault(kernel: RKernel) -> tuple[str, str] | None:
    tile, axes = kernel.tile, kernel.expr.axes
    if len(tile.task) != len(axes) or any(size < 1 for size in tile.task):
        return "T09", f"cuts {len(axes)} axes by {tile.task}"
    if tile.lane is not None and not 0 <= tile.lane < len(axes):
        return "T09", f"runs axis {tile.lane} of {len(axes)} along lanes"
    return None


def _expression_fault(kernel: RKernel) -> tuple[str, str] | None:
    skeleton = kernel.form.skeleton
    if skeleton is Skeleton.MAP and kernel.expr.reductions:
        return "T10", "has the skeleton 'map' and a reduction"
    if isinstance(kernel.form, GemvRowsForm):
        return _rows_fault(kernel, kernel.form)
    found = contraction(kernel.expr, ByteProducts.QUADS) if skeleton in PRODUCTS else None
    if isinstance(kernel.form, GemmForm):
        found = staged_product(kernel.expr)
    if skeleton in PRODUCTS and (found is None or kernel.tile.lane is None):
        return "T10", f"has the skeleton '{skeleton}', but its expression is no product along an axis"
    if isinstance(kernel.form, MicroKernelForm) and kernel.form.instruction is not None:
        return _tiles_fault(kernel, kernel.form)
    if skeleton is Skeleton.ATTENTION and attention(kernel.expr) is None:
        return "T10", "has the skeleton 'attention', but its expression is none"
    if isinstance(kernel.form, FlashAttentionForm):
        return _attention_fault(kernel, kernel.form)
    if isinstance(kernel.form, DepthwiseForm):
        return _depthwise_fault(kernel, kernel.form)
    if isinstance(kernel.form, GemmForm) and kernel.form.patch:
        return _patch_fault(kernel, kernel.form)
    if isinstance(kernel.form, TreesForm | SharedTreesForm) and tree_sum(kernel.expr) is None:
        return "T10", "has the skeleton 'trees', but its expression is no sum of leaves"
    if isinstance(kernel.form, ExternForm):
        return _extern_fault(kernel, kernel.form)
    if isinstance(kernel.form, WarpgroupGemmForm):
        product = matrix_product(kernel.expr, kernel.layouts, kernel.alignments, kernel.tile.lane)
        if product is None or INSTRUCTIONS[product.dtype] is not kernel.form.instruction:
            return "T10", f"multiplies by {kernel.form.instruction} what are no such matrices in memory"
    return None


def _tiles_fault(kernel: RKernel, form: MicroKernelForm) -> tuple[str, str] | None:
    """What is wrong with a product of bytes whose blocks are kept in tiles."""
    product = tile_product(kernel.expr, kernel.layouts)
    if form.instruction is not Instruction.TDPBUSD or product is None:
        return "T10", f"multiplies by {form.instruction} what are no bytes in quads that lie as tiles do"
    sizes = dict(zip(kernel.expr.axes, form.register, strict=True))
    rows = math.prod(size for axis, size in sizes.items() if axis is not product.lane)
    most_rows, most_lanes = TILES * TILE_ROWS, TILES * TILE_LANES
    if rows > most_rows or sizes[product.lane] > most_lanes or form.vector != TILE_LANES:
        return "T09", f"keeps {rows} rows of {sizes[product.lane]} lanes in tiles for {most_rows} of {most_lanes}"
    return None


def _extern_fault(kernel: RKernel, form: ExternForm) -> tuple[str, str] | None:
    """Whether a user's code is called for other operands or axes than there are."""
    count = len(kernel.expr.inputs)
    results = range(count, count + len(kernel.expr.outputs))
    if not {*form.operands} <= {*range(results.stop)} or [n for n in form.operands if n >= count] != [*results]:
        return "T10", f"hands {form.operands} to '{form.name}', of {count} operands and {len(results)} results"
    if [place for place in form.axes if place is not None] != [*range(len(kernel.expr.axes))]:
        return "T10", f"hands axes {form.axes} of {len(kernel.expr.axes)} to '{form.name}'"
    return None


def _rows_fault(kernel: RKernel, form: GemvRowsForm) -> tuple[str, str] | None:
    """What is wrong with how threads share out rows, each of which has to be read whole, by loads of whole vectors."""
    found = gemv_rows_form(kernel.expr, kernel.layouts, kernel.tile, form.threads, kernel.alignments)
    if found is None or kernel.tile.lane is None:
        return "T10", "streams rows, but its expression has none, or they lie otherwise"
    shared = (form.across, form.turns, form.vector)
    if shared != (found.across, found.turns, found.vector) or form.batch not in _BATCHES:
        return (
            "T09",
            f"has {form.across} threads for a row, {form.turns} vectors of {form.vector} of each, {form.batch} rows",
        )
    if form.scratch_bytes < found.scratch_bytes:
        return "T09", f"has {form.scratch_bytes} bytes for sums that take {found.scratch_bytes}"
    return None


def _depthwise_fault(kernel: RKernel, form: DepthwiseForm) -> tuple[str, str] | None:
    """What is wrong with how threads share out points, whose windows lie in a patch in shared memory."""
    found = depthwise(kernel.expr, kernel.layouts, kernel.alignments)
    if found is None:
        return "T10", "slides windows over what is no such image"
    sizes = dict(zip(kernel.expr.axes, kernel.tile.task, strict=True))
    along = [found.along, found.channel]
    if form.points < 1 or any(sizes[axis] % size for axis, size in zip(along, (form.points, form.vector), strict=True)):
        return "T09", f"has {form.points} points of {form.vector} channels of {kernel.tile.task} to a thread"
    wanted_bytes = found.image_bytes(sizes) + found.weight_bytes(sizes)
    if form.scratch_bytes < wanted_bytes:
        return "T09", f"has {form.scratch_bytes} bytes for a patch and weights that take {wanted_bytes}"
    return None


def _patch_fault(kernel: RKernel, form: GemmForm) -> tuple[str, str] | None:
    """What is wrong with a product whose rows are windows of a patch in shared memory."""
    windows = window_product(kernel.expr, kernel.layouts, kernel.alignments, kernel.tile.lane)
    if windows is None:
        return "T10", "multiplies windows of what is no such image"
    sizes = dict(zip(kernel.expr.axes, kernel.tile.task, strict=True))
    found = whole_form(
        kernel.expr, kernel.layouts, kernel.tile, form.threads, _ANY_BYTES, patch_bytes=windows.patch_bytes(sizes)
    )
    if found is None or (form.tiles, form.stages, form.threadblock.k) != (1, 1, found.threadblock.k):
        return "T09", f"has {form.stages} stages of {form.threadblock.k} elements in {form.tiles} tiles beside a patch"
    if form.scratch_bytes < found.scratch_bytes:
        return "T09", f"has {form.scratch_bytes} bytes for a patch and a matrix that take {found.scratch_bytes}"
    return None


def _narrow_fault(kernel: RKernel) -> tuple[str, str] | None:
    """How weights that are kept as 16 bits do not fit the expression, or have no place."""
    form = kernel.form
    if not isinstance(form, PersistentRnnForm) or not form.is_narrow:
        return None
    if not can_be_narrow(kernel.expr, kernel.layouts, kernel.constants):
        return "T10", "keeps weights as they are, which are not 16 bits that one vector is multiplied with"
    plan = plan_of(kernel)
    if (form.weight_registers, form.weight_bytes) != (plan.weights, plan.weight_bytes):
        return "T09", f"has {form.weight_registers} registers a thread, {form.weight_bytes} bytes, not {plan.weights}"
    if form.scratch_bytes < plan.kept_at * DType.FLOAT32.itemsize_bytes:
        return "T09", f"has {form.scratch_bytes} bytes of shared memory for {plan.kept_at} words"
    return None


def _attention_fault(kernel: RKernel, form: FlashAttentionForm) -> tuple[str, str] | None:
    """How a block's part of attention does not fit the expression, or its tile."""
    block = block_of(kernel.expr, of_float32([form.instruction]))
    if block is None or block.instruction is not form.instruction:
        return "T10", f"multiplies by {form.instruction} what are no such queries, keys and values"
    sizes = (form.row_warps, form.column_warps, form.teams, form.team_keys, form.stages)
    if min(sizes) < 1 or form.threads // _WARP // form.teams < form.row_warps * form.column_warps:
        return "T09", f"needs {form.warps} warps of {form.threads // _WARP}"
    if form.team_keys % block.tile.keys:
        return "T09", f"has {form.team_keys} keys of a team, not a multiple of {block.tile.keys}"
    extents = dict(zip(kernel.expr.axes, kernel.tile.task, strict=True))
    found = block.found
    if any(size > 1 for axis, size in extents.items() if axis not in (*found.rows, *found.columns)):
        return "T09", "has several heads in an rTask"
    if math.prod(extents[axis] for axis in found.rows) > form.rows:
        return "T09", f"has more than {form.rows} rows in an rTask"
    if any(extents[axis] < axis.extent for axis in found.columns):
        return "T09", "has not all columns in an rTask"
    if form.scratch_bytes < block.scratch_bytes(form):
        return "T09", f"has {form.scratch_bytes} bytes of {block.scratch_bytes(form)}"
    return None


def _inner_fault(kernel: RKernel) -> tuple[str, str] | None:
    """What is wrong inside of an rTask."""
    form, tile, axes = kernel.form, kernel.tile, kernel.expr.axes
    if form.threads < 1 or form.scratch_bytes < 0 or form.vector < 1:
        return "T09", f"has {form.threads} threads, {form.scratch_bytes} bytes and vectors of {form.vector}"
    register = form.register if isinstance(form, MicroKernelForm) else form.block if isinstance(form, MapForm) else ()
    if register and (len(register) != len(axes) or not all(map(_is_inner, register, tile.task, axes))):
        return "T09", f"keeps {register} of {tile.task} in registers"
    message = _threads_fault(form, math.prod(tile.task))
    return None if message is None else ("T09", message)


def _threads_fault(form: KernelForm, points: int) -> str | None:
    """How a form shares out more or less than its threads, or leaves points out."""
    match form:
        case GemmForm(threads=threads, threadblock=outer, warp=inner, stages=stages, tiles=tiles):
            if min(*outer, *inner, stages, tiles) < 1 or any(
                whole % part for whole, part in zip(outer, inner, strict=True)
            ):
                return f"cuts a threadblock tile of {outer} into warp tiles of {inner}"
            if form.warps * form.slices * _WARP > threads:
                return f"needs {form.warps * form.slices} warps of {threads // _WARP}"
            if tiles * outer.m * outer.n < points:
                return f"covers {points} points by {tiles} tiles of {outer}"
        case WarpgroupGemmForm():
            return _warpgroup_fault(form, points)
        case GemvForm(threads=threads, width=width, vector=vector):
            if width < 1 or width % vector or threads % (width // vector):
                return f"shares out {width} points among {threads} threads, {vector} to each"
        case PersistentRnnForm(threads=threads, across=across, slices=slices, columns=columns):
            if across < 1 or _WARP % across:
                return f"has {across} rows across a warp"
            if not 1 <= slices <= threads // _WARP:
                return f"cuts vectors into {slices} slices for {threads // _WARP} warps"
            if columns < 1 or points % columns:
                return f"has {points} points in {columns} columns"
    return None


def _warpgroup_fault(form: WarpgroupGemmForm, points: int) -> str | None:
    """The same of a product by warpgroups."""
    outer, threads = form.threadblock, form.threads
    if min(*outer, form.stages) < 1 or form.instruction_m % _GROUP_ROWS or form.instruction_n % _INSTRUCTION_COLUMNS:
        return f"has a threadblock tile of {outer}, which warpgroups do not multiply"
    warps = form.instruction_m // _GROUP_ROWS * _WARPS_OF_GROUP
    if warps > threads // _WARP - _OTHER_WARPS:
        return f"needs {warps} warps of {threads // _WARP} beside {_OTHER_WARPS}"
    if form.finishers not in (threads, threads - warps * _WARP):
        return f"has results made by {form.finishers} of {threads} threads, where {warps} warps multiply"
    if outer.m * outer.n < points:
        return f"covers {points} points by a tile of {outer}"
    return None


def _is_inner(inner: int, outer: int, axis: Axis) -> bool:
    """Whether a block fits in a tile. Where the tile ends with the axis, a block of whole vectors may reach beyond."""
    return inner >= 1 and (inner <= outer or outer >= axis.extent)
