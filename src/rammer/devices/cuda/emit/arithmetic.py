"""The arithmetic of the skeleton `contract`: the sums that each warp holds, and the products that it adds to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rammer.devices.codegen.writer import Writer
from rammer.devices.cuda.emit.product import Product
from rammer.tiling.blocks import WARP, Arithmetic, Blocks
from rammer.tiling.pattern import Term

_MULTIPLIERS: Mapping[Arithmetic, str] = {
    Arithmetic.FLOAT32: "rammer_multiply_adds<",
    Arithmetic.TF32: "rammer_tf32_products<",
    Arithmetic.BFLOAT16: "rammer_half_products<rammer_bf16, ",
    Arithmetic.FLOAT16: "rammer_half_products<rammer_f16, ",
}


def write_warp(writer: Writer, blocks: Blocks) -> None:
    """Write where in a block a warp's sums begin, and the number of its part of each step: its `split`."""
    down = blocks.rows // blocks.warp_rows
    writer.let("uint32_t", "warp", f"threadIdx.x / {WARP} % {blocks.warps}")
    writer.let("uint32_t", "split", f"threadIdx.x / {WARP} / {blocks.warps}")
    writer.let("uint32_t", "warp_row", f"warp % {down} * {blocks.warp_rows}")
    writer.let("uint32_t", "warp_lane", f"warp / {down} * {blocks.warp_lanes}")


def declare_sums(writer: Writer, blocks: Blocks, terms: Iterable[Term]) -> dict[Term, str]:
    """Write the sums of a warp, all 0. Returns their names."""
    sums = {term: writer.name("sums") for term in terms}
    for name in sums.values():
        writer.line(f"{_MULTIPLIERS[blocks.arithmetic]}{blocks.warp_rows}, {blocks.warp_lanes}> {name};")
    return sums


def clear_sums(writer: Writer, sums: Mapping[Term, str]) -> None:
    """Make them 0 again."""
    for name in sums.values():
        writer.line(f"{name} = {{}};")


def multiply_step(writer: Writer, product: Product, sums: Mapping[Term, str]) -> None:
    """Multiply and add the present step, each warp its part of the sums."""
    splits = product.blocks.splits
    share = product.steps.size // splits
    with writer.block(f"if (split < {splits})"):
        writer.line("char *from = scratch + multiplied;")
        for term, (of_rows, of_lanes) in product.terms.items():
            rows = of_rows.place("from", "warp_row", f"split * {share}")
            lanes = of_lanes.place("from", "warp_lane", f"split * {share}")
            writer.line(f"{sums[term]}.multiply<{share}, {of_rows.pitch}>({rows}, {lanes});")
    product.next_stage(writer, "multiplied")
