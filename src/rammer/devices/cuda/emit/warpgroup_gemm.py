"""The skeleton `gemm` by warpgroups: what its rKernels bring to `skeletons/gemm_sm90.cuh`.

Sums are computed by code that is inlined into the interpreter, once for all rKernels of equal tiles. An rKernel brings
where an rTask's tile lies, and the function that makes results of the sums.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from rammer.devices.codegen.scalar import sum_text
from rammer.devices.codegen.scope import Operands, Scope
from rammer.devices.codegen.writer import Writer
from rammer.devices.cuda.emit.epilogue import Epilogue
from rammer.devices.cuda.emit.points import Side, count, decode, decode_inside, tile_sides
from rammer.ir.expr import Axis, Const, Expr, Load, Reduce, nodes
from rammer.ir.kernel_form import Instruction, WarpgroupGemmForm
from rammer.ir.task import RKernel
from rammer.tiling.image import Image
from rammer.tiling.warpgroup_gemm import (
    GROUP_ROWS,
    MOST_ROW_VALUES,
    SLAB_BYTES,
    MatrixProduct,
    product_of,
    slabs_of,
    sums_pitch,
)

_FORMATS: Mapping[Instruction, str] = {
    Instruction.WGMMA_F16: "RAMMER_F16",
    Instruction.WGMMA_BF16: "RAMMER_BF16",
    Instruction.WGMMA_TF32: "RAMMER_TF32",
}


def loop_of(form: WarpgroupGemmForm) -> str:
    """The loop over stages that a form has."""
    groups = form.instruction_m // GROUP_ROWS
    sizes = f"{groups}, {form.instruction_n}, {slabs_of(form)}, {form.stages}"
    return f"rammer_gemm_sm90<{_FORMATS[form.instruction]}, {sizes}, {str(form.swapped).lower()}, {form.finishers}>"


def emit_multiply(loops: Mapping[str, str], beside: Collection[str], numbers: Mapping[str, int]) -> str:
    """The function of the interpreter that computes the sums of an rTask, if its rKernel is such a product.

        bool rammer_multiply(uint32_t kernel, const rammer_record *record)

    It returns whether a warp is to call the rKernel's function: none if the run is given up.

    Args:
        loops: of each rKernel that has one, by symbol.
        beside: those of them that wait for elements of rows beside their loops (`emit_rows`).
        numbers: of these rKernels.
    """
    writer = Writer()
    distinct = list(dict.fromkeys(loops.values()))
    with writer.block("RAMMER_INLINE bool rammer_multiply(uint32_t kernel, const rammer_record *record)"):
        writer.line("rammer_product product;")
        writer.line("uint32_t loop = 0;")
        writer.line("const uint32_t alike = __shfl_sync(RAMMER_ALL, kernel, 0);")
        with writer.block("switch (alike)"):
            for symbol, loop in loops.items():
                writer.line(f"case {numbers[symbol]}:")
                writer.line(f"    {symbol}_place(record, &product);")
                writer.line(f"    loop = {distinct.index(loop)};")
                writer.line("    break;")
            writer.line("default:")
            writer.line("    return true;")
        writer.line("const auto begin = [=] {")
        writer.line("    if (record->wait_count == 0)")
        writer.line("        __syncthreads();")
        writer.line("    return rammer_begin(record);")
        writer.line("};")
        with writer.block("const auto beside = [=](uint32_t thread, uint32_t threads)", ";"):
            for symbol in beside:
                writer.line(f"if (alike == {numbers[symbol]})")
                writer.line(f"    {symbol}_rows(record, thread, threads);")
        writer.line("return rammer_with_sums([&](float (&held)[RAMMER_MOST_SUMS]) {")
        with writer.block("switch (loop)"):
            for number, loop in enumerate(distinct):
                writer.line("default:" if number == 0 else f"case {number}:")
                writer.line(f"    return {loop}::run(held, product, rammer_scratch, begin, beside);")
        writer.line("});")
    writer.line("#define RAMMER_MULTIPLY rammer_multiply")
    writer.line("#define RAMMER_ALIKE(position) __reduce_max_sync(RAMMER_ALL, position)")
    return writer.text()


def emit_place(writer: Writer, kernel: RKernel, form: WarpgroupGemmForm) -> None:
    """Write what an rTask multiplies. The tensor maps are operands behind those of the slots and outputs."""
    product = product_of(kernel)
    writer.let("uint32_t", "tile", "record->tile")
    sides = {side.axis: side for side in tile_sides(writer, kernel)}
    slabs, is_whole = slabs_of(form), product.k % product.slab == 0
    operands = [(product.m, product.axes.m, form.threadblock.m), (product.n, product.axes.n, form.threadblock.n)]
    for i, (name, (one, axes, rows)) in enumerate(zip("ba" if form.swapped else "ab", operands, strict=True)):
        writer.line(f"product->{name}.map = rammer_operands(record)[{len(kernel.layouts) + i}];")
        writer.line(f"product->{name}_is_constant = {str(one.slot in kernel.constants).lower()};")
        if isinstance(one, Image):
            places = _image_places(one, product, sides)
        else:
            places = {
                "row": _first(axes, sides),
                "batch": _first(product.axes.batch, sides) if one.batch_stride else "0",
                "elements": "0" if is_whole else str(product.slab),
                "slabs": str(slabs) if is_whole else "0",
                "bytes": str(slabs * rows * SLAB_BYTES),
            }
        for field in ("element", "row", "line", "batch", "elements", "slabs", "across", "down", "bytes"):
            writer.line(f"product->{name}.{field} = {places.get(field, '0')};")
    count = -(-product.slabs // slabs)
    writer.line(f"product->count = {count};")
    image = product.m if isinstance(product.m, Image) else None
    writer.line(f"product->channels = {count if image is None else image.group_channels // product.slab};")
    writer.line(f"product->taps = {1 if image is None else image.dims[0].taps};")


def _image_places(image: Image, product: MatrixProduct, sides: Mapping[Axis, Side]) -> dict[str, str]:
    """Where the windows of a tile begin in an image, and what comes further on."""
    starts = []
    for dim in image.dims:
        lo = "" if dim.axis is None else sides[dim.axis].lo
        starts.append(sum_text({f"(int32_t){lo}": 1} if lo else {}, dim.first))
    batch = _first(product.axes.batch, sides)
    box = image.box({axis: side.size for axis, side in sides.items()})
    return {
        "element": f"({batch}) * {image.group_channels}",
        "row": starts[0],
        "line": starts[1],
        "batch": starts[2],
        "elements": str(product.slab),
        "across": str(image.dims[0].dilation),
        "down": str(image.dims[1].dilation),
        "bytes": str(math.prod(box) * SLAB_BYTES),
    }


def _first(axes: Sequence[Axis], sides: Mapping[Axis, Side]) -> str:
    """The number of a tile's first point along axes, the fastest first."""
    terms, inner = [], 1
    for axis in axes:
        if sides[axis].lo:
            terms.append(f"(int32_t){sides[axis].lo}" + (f" * {inner}" if inner > 1 else ""))
        inner *= axis.extent
    return " + ".join(terms) or "0"


def emit_results(scope: Scope, sides: Sequence[Side], form: WarpgroupGemmForm) -> None:
    """Write how results are made of the sums that lie at the beginning of scratch."""
    kernel = scope.operands.kernel
    product, by_axis = product_of(kernel), {side.axis: side for side in sides}
    batch, _ = decode(scope.writer, "0", [by_axis[axis] for axis in product.axes.batch])  # a tile has one
    at_batch = scope.enter(batch)
    rows, columns = (tuple(by_axis[axis] for axis in side) for side in (product.axes.m, product.axes.n))
    pitch = sums_pitch(form.threadblock.n, swapped=form.swapped)
    of_rows = {node: f"rammer_row_values[row][{i}]" for i, node in enumerate(_made_of_tagged(scope.operands))}
    Epilogue(
        sums=product.sums,
        rows=rows,
        columns=columns,
        pitch=pitch,
        threads=form.finishers,
        awaits="rammer_await_sums();" if form.finishers < form.threads else "",
        of_rows=of_rows,
    ).emit(at_batch)


def emit_rows(scope: Scope, sides: Sequence[Side], form: WarpgroupGemmForm) -> None:
    """Write what follows from tagged elements of rows, once for each row; whole warps wait for them.

    They come while others multiply, and no square roots or quotients of them are computed for each result.
    """
    writer, by_axis = scope.writer, {side.axis: side for side in sides}
    product = product_of(scope.operands.kernel)
    rows = [by_axis[axis] for axis in product.axes.m]
    with writer.block(f"for (uint32_t first = 0; first < {count(rows)}u; first += threads)"):
        writer.line(f"const uint32_t row = min(first + thread, {count(rows) - 1}u);")
        positions, _ = decode_inside(writer, "row", rows)
        batch, _ = decode(writer, "0", [by_axis[axis] for axis in product.axes.batch])
        at_row = scope.enter({**batch, **positions})
        for i, node in enumerate(_made_of_tagged(scope.operands)):
            writer.line(f"rammer_row_values[row][{i}] = {at_row.value(node)};")


def _made_of_tagged(operands: Operands) -> list[Expr]:
    """The outermost values that are made of tagged elements and numbers, or where those are more, the elements."""
    tagged = [
        node for node in nodes(*operands.results) if isinstance(node, Load) and operands.layouts[node.slot].tagged
    ]
    own: set[Expr] = set(tagged)
    for node in nodes(*operands.results):
        inside = [child for child in node.children if not isinstance(child, Const)]
        if not isinstance(node, Load | Reduce) and inside and own.issuperset(inside):
            own.add(node)
    found: dict[Expr, None] = {}
    stack = list(reversed(operands.results))
    while stack:
        node = stack.pop()
        if node in own:
            found[node] = None
        elif not isinstance(node, Load | Reduce):
            stack.extend(reversed(node.children))
    return list(found) if len(found) <= MOST_ROW_VALUES else list(tagged)
