"""The skeleton `gemm`: sums of products with both operands staged in shared memory.

    for each point of the batch axes, for each block of rows and lanes
      for each group of sums
        for each step of elements of the sums
          start to copy a later step's operands into shared memory, constants first
          once, at the first step: wait for what others write, load what the rest will read
          multiply and add the present step's, each warp its part of the sums
      put the parts of the sums together in shared memory
      for each row and lane: the elementwise rest, store

Of overlapped tiles the steps are one loop: it copies the next tile's operands while it finishes one. Where they are not
overlapped, an rTask of several tiles waits before the first.

A convolution is such a product, too: an operand's element is whatever its index expressions say, padding included.
Elements that are short sums, *windows*, are computed on the way.
This file has the order of all that; `product.py`, `staging.py`, `arithmetic.py` and `finish.py` have its parts.
`kernels/rammer_contract.cuh` has the copies and what a warp multiplies; `tiling.gemm` has the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rammer.devices.codegen.scope import Scope
from rammer.devices.cuda.emit.arithmetic import clear_sums, declare_sums, multiply_step, write_warp
from rammer.devices.cuda.emit.blocked import BlockedTile
from rammer.devices.cuda.emit.finish import Finish
from rammer.devices.cuda.emit.points import Side, count, decode, guarded
from rammer.devices.cuda.emit.product import Product
from rammer.devices.cuda.emit.staging import stage_step
from rammer.devices.cuda.emit.steps import Steps
from rammer.devices.cuda.emit.wait import emit_wait
from rammer.ir.kernel_form import GemmForm
from rammer.tiling.pattern import Term, contraction


def emit_gemm(scope: Scope, sides: Sequence[Side], form: GemmForm) -> None:
    """Write the loops over one rTask."""
    kernel = scope.operands.kernel
    found = contraction(kernel.expr)
    if found is None:
        raise ValueError("a product is a contraction")
    tile = BlockedTile.of(kernel, form, sides)
    write_warp(scope.writer, form)
    products = [Product.of(kernel, tile, found, group) for group in found.groups]
    if form.overlapped:
        (product,) = products
        _emit_overlapped(scope, tile, product, found.terms)
    else:
        _emit_one_by_one(scope, tile, products, found.terms)


def _emit_overlapped(scope: Scope, tile: BlockedTile, product: Product, terms: Sequence[Term]) -> None:
    """Blocks of which the next one's operands are on their way while one is multiplied and finished."""
    writer, steps = scope.writer, product.steps
    sums = declare_sums(writer, tile.form, terms)
    finish = Finish.of(scope, tile, parts_at=product.scratch_bytes)
    with product.pipeline(writer):
        with product.filled(writer) as number, _in_block(scope, tile, steps, number) as in_block:
            stage_step(in_block, product, lambda: emit_wait(writer))
        with product.multiplied(writer) as number, _in_block(scope, tile, steps, number) as in_block:
            with guarded(writer, _at_step(steps, 0)):
                finish.bring(in_block)
            multiply_step(writer, product, sums)
            with guarded(writer, _at_step(steps, steps.count - 1)):
                finish.emit(in_block, sums)
                clear_sums(writer, sums)


@contextmanager
def _in_block(scope: Scope, tile: BlockedTile, steps: Steps, number: str) -> Iterator[Scope]:
    """The scope in the block of step `number` of all, unless its batch is beyond the tensor; lanes are fastest."""
    writer, form = scope.writer, tile.form
    rows, lanes = -(-count(tile.rows) // form.threadblock.m), -(-count(tile.lanes) // form.threadblock.n)
    writer.let("uint32_t", "block", f"{number} / {steps.count}")
    writer.let("uint32_t", "step", f"{number} % {steps.count}")
    writer.let("uint32_t", "lane0", f"block % {lanes} * {form.threadblock.n}")
    writer.let("uint32_t", "row0", f"block / {lanes} % {rows} * {form.threadblock.m}")
    writer.let("uint32_t", "batch", f"block / {lanes * rows}")
    positions, conditions = decode(writer, "batch", tile.batches)
    with guarded(writer, conditions):  # the same for all threads
        yield scope.enter(positions)


def _at_step(steps: Steps, step: int) -> list[str]:
    """The condition that a step of a block is the present one."""
    return [f"step == {step}"] if steps.count > 1 else []


def _emit_one_by_one(scope: Scope, tile: BlockedTile, products: Sequence[Product], terms: Sequence[Term]) -> None:
    """Blocks one after another, each from its first copies to its results.

    The only block of an rTask begins before the rTask waits.
    """
    writer, form = scope.writer, tile.form
    is_alone = form.tiles == 1
    if not is_alone:
        emit_wait(writer)
    with (
        writer.block(f"for (uint32_t batch = 0; batch < {count(tile.batches)}u; ++batch)"),
        writer.block(f"for (uint32_t row0 = 0; row0 < {count(tile.rows)}u; row0 += {form.threadblock.m})"),
        writer.block(f"for (uint32_t lane0 = 0; lane0 < {count(tile.lanes)}u; lane0 += {form.threadblock.n})"),
    ):
        positions, conditions = decode(writer, "batch", tile.batches)
        in_block = scope.enter(positions)
        sums = declare_sums(writer, form, terms)
        finish = Finish.of(in_block, tile, parts_at=0)

        def wait_and_bring() -> None:
            emit_wait(writer)
            finish.bring(in_block)

        with guarded(writer, conditions):  # the same for all threads
            if not is_alone:
                finish.bring(in_block)
            for product in products:
                begin = wait_and_bring if is_alone and product is products[0] else None
                with writer.block():
                    _emit_sums(in_block.enter({}), product, sums, begin)
            finish.emit(in_block, sums)
            if not is_alone:
                writer.line("__syncthreads();")  # before the next block's operands


def _emit_sums(scope: Scope, product: Product, sums: Mapping[Term, str], begin: Callable[[], None] | None) -> None:
    """The sums of one product of a block; `begin` writes what comes once, behind the first copies of constants."""
    writer = scope.writer
    if begin is None:
        scope.hoist(operand.element for operand in product.operands)
    with product.pipeline(writer):
        with product.filled(writer):
            stage_step(scope, product, begin)
        with product.multiplied(writer):
            multiply_step(writer, product, sums)
    writer.line("__syncthreads();")  # before what follows uses the memory
