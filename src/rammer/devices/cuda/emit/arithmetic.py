"""The arithmetic of the skeleton `gemm`: the sums that each warp holds, and the products that it adds to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rammer.devices.codegen.writer import Writer
from rammer.devices.cuda.emit.product import Product
from rammer.ir.kernel_form import GemmForm, Instruction
from rammer.tiling.gemm import WARP
from rammer.tiling.pattern import Term

_MULTIPLIERS: Mapping[Instruction, str] = {
    Instruction.FFMA: "rammer_multiply_adds<",
    Instruction.MMA_TF32: "rammer_tf32_products<",
    Instruction.MMA_BF16: "rammer_half_products<rammer_bf16, ",
    Instruction.MMA_F16: "rammer_half_products<rammer_f16, ",
}


def write_warp(writer: Writer, form: GemmForm) -> None:
    """Write where in a threadblock tile a warp's sums begin, and the number of its part of each step: its `split`."""
    down = form.threadblock.m // form.warp.m
    writer.let("uint32_t", "warp", f"threadIdx.x / {WARP} % {form.warps}")
    writer.let("uint32_t", "split", f"threadIdx.x / {WARP} / {form.warps}")
    writer.let("uint32_t", "warp_row", f"warp % {down} * {form.warp.m}")
    writer.let("uint32_t", "warp_lane", f"warp / {down} * {form.warp.n}")


def declare_sums(writer: Writer, form: GemmForm, terms: Iterable[Term]) -> dict[Term, str]:
    """Write the sums of a warp, all 0. Returns their names."""
    sums = {term: writer.name("sums") for term in terms}
    for name in sums.values():
        writer.line(f"{_MULTIPLIERS[form.instruction]}{form.warp.m}, {form.warp.n}> {name};")
    return sums


def clear_sums(writer: Writer, sums: Mapping[Term, str]) -> None:
    """Make them 0 again."""
    for name in sums.values():
        writer.line(f"{name} = {{}};")


def multiply_step(writer: Writer, product: Product, sums: Mapping[Term, str]) -> None:
    """Multiply and add the present step, each warp its part of the sums."""
    splits = product.form.slices
    share = product.steps.size // splits
    with writer.block(f"if (split < {splits})"):
        writer.line("char *from = scratch + multiplied;")
        for term, (of_rows, of_lanes) in product.terms.items():
            rows = of_rows.place("from", "warp_row", f"split * {share}")
            lanes = of_lanes.place("from", "warp_lane", f"split * {share}")
            writer.line(f"{sums[term]}.multiply<{share}, {of_rows.pitch}>({rows}, {lanes});")
    product.next_stage(writer, "multiplied")
