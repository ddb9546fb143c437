"""The skeleton `trees`: sums of leaves for a block of rows after the other.

for each block of rows
codes[columns][rows] = the codes, for a block of 64 rows or more
for each group of trees
sums[values][rows] = 0, then what `trees.h` adds to them
for each row and value: the elementwise rest, store
"""

from __future__ import annotations

from collections.abc import Mapping

from rammer.devices.codegen.scalar import C_TYPES
from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.cpu.emit.nest import Range
from rammer.ir.expr import Axis
from rammer.ir.tree_forms import TreesForm, TreeStrategy
from rammer.ir.types import DType
from rammer.tiling.trees import TreeSum, tree_sum

_NAMES = {
    DType.UINT8: "u8",
    DType.UINT16: "u16",
    DType.UINT32: "w32",
    DType.UINT64: "w64",
    DType.FLOAT32: "f32",
    DType.FLOAT64: "f64",
}
_WORD_ROWS = 64
_LEAST_TABLE = 64
"""Values that there is room for: small tables are read whole."""
_KNOWN_STEPS = (TreeStrategy.PERFECT, TreeStrategy.PERMUTES)


def emit_trees(scope: Scope, ranges: Mapping[Axis, Range], form: TreesForm) -> None:
    """Write the loops over one rTask."""
    found = tree_sum(scope.operands.kernel.expr)
    if found is None:
        raise ValueError("the skeleton 'trees' takes sums of leaves")
    scope.writer.include("trees.h")
    code = _Trees(scope, found, form)
    if found.rows is None:
        code.emit("0", "1")
        return
    rows = ranges[found.rows]
    with scope.writer.loop("block", rows.lo, rows.hi, form.rows):
        code.emit("block", f"rammer_min_i64({form.rows}, {rows.hi} - block)")


class _Trees:
    """The code for one block of rows."""

    def __init__(self, scope: Scope, found: TreeSum, form: TreesForm) -> None:
        self._scope, self._writer, self._found, self._form = scope, scope.writer, found, form
        expr, slots = scope.operands.kernel.expr, found.slots
        self._codes, self._node, self._value = (expr.inputs[slot] for slot in (slots.codes, slots.node, slots.value))
        self._groups, self._trees = expr.inputs[slots.roots].shape
        self._steps = scope.operands.layouts[slots.codes].strides

    def emit(self, first: str, rows: str) -> None:
        """Everything for `rows` rows from `first` on."""
        writer, form = self._writer, self._form
        real = C_TYPES[self._value.dtype]
        count = writer.let("int64_t", "rows", rows)
        writer.line(f"{real} sums[{self._value.shape[1] * form.rows}] __attribute__((aligned(64)));")
        if form.rows > 1:
            self._stage(first, count)
        group = "group" if self._groups > 1 else "0"
        if self._groups > 1:
            with writer.loop(group, "0", str(self._groups)):
                self._group(first, count, group)
        else:
            self._group(first, count, group)

    def _stage(self, first: str, count: str) -> None:
        """Copy the block's codes, column after column, and declare what else trees take that are taken whole."""
        writer, form = self._writer, self._form
        columns, code = self._codes.shape[0], C_TYPES[self._codes.dtype]
        writer.line(f"{code} codes[{columns * form.rows + 4}] __attribute__((aligned(64)));")
        with writer.loop("column", "0", str(columns)):
            place = f"in{self._found.slots.codes} + column * {self._steps[0]} + {first} * {self._steps[1]}"
            writer.line(f"const {code} *restrict from = {place};")
            with writer.loop("row", "0", count, lanes=True):
                writer.line(f"codes[column * {form.rows} + row] = from[row * {self._steps[1]}];")
            with writer.loop("row", count, str(form.rows), lanes=True):
                writer.line(f"codes[column * {form.rows} + row] = 0;")
        if form.strategy is TreeStrategy.PERMUTES:
            return
        words, nodes = f"rammer_rows{form.rows // _WORD_ROWS}", max(form.nodes, 1)
        writer.line(f"{words} above[{nodes // 2 + 1}], node_rows[{nodes + 2}], leaf_rows[{nodes // 2 + 2}];")
        writer.line(f"uint8_t inner[{nodes + 2}];")
        writer.line(f"int32_t leaves[{nodes // 2 + 2}];")
        writer.line(
            f"{C_TYPES[self._value.dtype]} table[{max(nodes // 2 + 2, _LEAST_TABLE)}] __attribute__((aligned(64)));"
        )

    def _group(self, first: str, count: str, group: str) -> None:
        """The sums of a group of trees, and what is stored of them."""
        writer, form, found, slots = self._writer, self._form, self._found, self._found.slots
        width = self._value.shape[1]
        with writer.loop("i", "0", str(width * form.rows), lanes=True):
            writer.line("sums[i] = 0;")
        steps = found.depth if form.strategy in _KNOWN_STEPS else -1
        types = "_".join(_NAMES[type_.dtype] for type_ in (self._codes, self._node, self._value))
        fields = f"(rammer_fields){{{found.fields.column_bits}, {found.fields.bound_bits}}}"
        trees = f"in{slots.roots} + {group} * {self._trees}, {self._trees}, in{slots.node}, in{slots.value}"
        trees = f"{trees}, {width}, {fields}, {steps}"
        if form.rows == 1:
            codes = f"in{slots.codes} + {first} * {self._steps[1]}, {self._steps[0]}"
            writer.line(f"rammer_trees_{types}_row({codes}, {trees}, sums);")
        elif form.strategy is TreeStrategy.PERMUTES:
            types = f"{_NAMES[self._codes.dtype]}_{_NAMES[self._value.dtype]}"
            nodes = self._node.shape[0]
            writer.line(f"rammer_trees_{types}_permuted(codes, {form.rows}, {count}, {trees}, {nodes}, sums);")
        else:
            blend = int(form.strategy is TreeStrategy.GEMM)
            scratch = "inner, above, node_rows, leaf_rows, leaves, table"
            words = form.rows // _WORD_ROWS
            writer.line(
                f"rammer_trees_{types}_{words}(codes, {count}, {trees}, {form.nodes}, {blend}, {scratch}, sums);"
            )
        axes = {axis: Position(text) for axis, text in ((found.groups, "group"), (found.places, "place")) if axis}
        with writer.loop("place", "0", str(width)), writer.loop("i", "0", count, lanes=True):
            if found.rows is not None:
                axes[found.rows] = Position(f"({first} + i)")
            at_row = self._scope.enter(axes)
            at_row.bind(found.total, f"sums[place * {form.rows} + i]")
            at_row.store_results()
