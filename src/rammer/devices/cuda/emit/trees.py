"""The skeleton `trees` (`skeletons/trees.cuh`): its sizes as constants, where operands are, and its epilogue."""

from __future__ import annotations

from collections.abc import Sequence

from rammer.devices.codegen.scalar import C_TYPES
from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.cuda.emit.points import Side, ends
from rammer.devices.cuda.emit.wait import emit_wait
from rammer.ir.tree_forms import SharedTreesForm
from rammer.tiling.trees import tree_sum


def emit_trees(scope: Scope, sides: Sequence[Side], form: SharedTreesForm) -> None:
    """Write what computes one rTask."""
    kernel, writer = scope.operands.kernel, scope.writer
    found = tree_sum(kernel.expr)
    if found is None:
        raise ValueError("the skeleton 'trees' takes sums of leaves")
    slots, side_of = found.slots, {side.axis: side for side in sides}
    codes, roots, node, value = (
        kernel.expr.inputs[slot] for slot in (slots.codes, slots.roots, slots.node, slots.value)
    )
    width, fields = value.shape[1], found.fields
    types = ", ".join(C_TYPES[type_.dtype] for type_ in (codes, node, value))
    bits = f"{fields.column_bits}, {fields.bound_bits}"
    how = f"rammer_trees_{form.strategy}"
    writer.line(f"typedef rammer_tree_walk<{types}, {codes.shape[0]}, {bits}, {found.depth}, {how}> walk;")
    writer.line(f"typedef rammer_trees<walk, {form.rows}, {width}, {form.nodes}> trees;")
    first, past = ends(side_of[found.rows]) if found.rows is not None else ("0", "1")
    first = writer.let(writer.index_type, "first", first)
    present = writer.let("uint32_t", "present", f"({past}) - {first}")
    group = side_of[found.groups].lo or "0" if found.groups is not None else "0"
    count, length = roots.shape
    with writer.block("const rammer_forest<walk> forest =", ";"):
        writer.line(f"in{slots.roots} + {group} * {length}, {length}, {length} * ({count}u - {group}),")
        writer.line(f"in{slots.node}, in{slots.value}, {node.shape[0]}")
    real = C_TYPES[value.dtype]
    with writer.block(f"const auto finish = [&](uint32_t row, uint32_t place, {real} total)", ";"):
        axes = {found.groups: Position(group), found.places: Position("place")}
        if found.rows is not None:
            axes[found.rows] = Position(f"({first} + row)")
        at_row = scope.enter({axis: position for axis, position in axes.items() if axis is not None})
        at_row.bind(found.total, "total")
        at_row.store_results()
    emit_wait(writer)
    steps = kernel.layouts[slots.codes].strides
    place = f"in{slots.codes} + {first} * {steps[1]}, {steps[0]}, {steps[1]}, {present}"
    shared_out = f"by_rows<{form.each}, {form.side}>" if form.each else f"by_pairs<{form.room}, {form.side}>"
    writer.line(f"trees::{shared_out}(scratch, {place}, forest, finish);")
