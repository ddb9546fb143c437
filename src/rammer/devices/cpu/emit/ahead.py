"""Lane operands of the next blocks, prefetched while blocks of rows share the present ones."""

from __future__ import annotations

from rammer.devices.codegen.scope import Scope
from rammer.devices.cpu.emit.micro import Ahead, Block
from rammer.ir.expr import Axis, Load


def emit_ahead(scope: Scope, block: Block, axis: Axis, row_blocks: int) -> Ahead | None:
    """Begin to prefetch along `axis`, if several blocks of rows share lane operands that lie in panels.

    In a panel the points of the reduction follow each other, so a share of it is a stretch of bytes. Shares are equal:
    what comes from memory comes no faster than the blocks of rows need it. One block alone reads a plain stream, which
    processors see coming. Where the rows' operand has lanes too, there are few weights beside it.
    """
    kernel = scope.operands.kernel
    operands = {block.found.split(term, block.lane)[0] for term in block.found.terms}
    loads = [operand for operand in operands if isinstance(operand, Load)]
    layouts = [kernel.layouts[load.slot] for load in loads]
    panels = {
        (layout.panel, load.type.itemsize_bytes * (1 if layout.panel is None else layout.strides[layout.panel.dim]))
        for layout, load in zip(layouts, loads, strict=True)
    }
    if (
        row_blocks == 1
        or block.lane in block.found.shared
        or len(block.found.groups) > 1
        or len(loads) < len(operands)
        or len(panels) > 1
    ):
        return None
    ((panel, lane_bytes),) = panels
    if panel is None:
        return None
    offset = scope.writer.name("ahead")
    scope.writer.line(f"int64_t {offset} = 0;")
    share_bytes = -(-panel.width * lane_bytes // row_blocks)
    return Ahead(axis=axis, offset=offset, lanes=panel.width, share_bytes=share_bytes)
