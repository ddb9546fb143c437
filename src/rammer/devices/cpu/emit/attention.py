"""The skeleton `attention`: one pass over the keys for a block of rows, which lie in the lanes of vectors.

    for each block of rows
      queries[depth][rows] = the queries, sums[columns][rows] = 0, greatest[rows] = -inf, totals[rows] = 0
      for each block of keys
        scores[keys][rows] = key (a scalar) * query (a vector), summed in registers; then scale, mask, ...
        greatest, and by how much that rescales what was summed
        scores become weights = exp(scores - greatest); totals
        sums[columns][rows] = sums * rescale + value (a scalar) * weight (a vector), summed in registers
      for each row and column: sums / totals, the elementwise rest, store

With rows in lanes, greatest scores and totals need no operations across lanes, and keys and values are read as they
lie, whatever their strides. What is laid out anew are the queries and the results, once for all keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rammer.devices.codegen.scalar import sum_text
from rammer.devices.codegen.scope import Position, Scope, Staged
from rammer.devices.cpu.emit.nest import Loop, Range, nest
from rammer.devices.cpu.emit.pack import numbering
from rammer.ir.expr import Axis, Expr, Load
from rammer.ir.kernel_form import AttentionForm
from rammer.ir.region import Interval
from rammer.ir.types import DType
from rammer.tiling.addresses import Address, Linear
from rammer.tiling.attention import Attention, attention


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """A block of rows: `count` that are there, in `vectors` of `width` lanes.

    Keys are taken `keys` at a time; the sums of `side` keys, or columns, are kept in registers together.
    """

    found: Attention
    lane: Axis
    count: int
    width: int
    vectors: int
    keys: int
    side: int

    @property
    def lanes(self) -> int:
        """Lanes of all vectors of a row of an array."""
        return self.vectors * self.width

    @property
    def start(self) -> str:
        """The variable with the first row."""
        return f"{self.lane.name}_block"

    @property
    def vector(self) -> str:
        """The C type of a vector."""
        return f"rammer_f32x{self.width}"


def emit_attention(scope: Scope, ranges: Mapping[Axis, Range], form: AttentionForm) -> None:
    """Write the loops over one rTask."""
    kernel = scope.operands.kernel
    expr, position = kernel.expr, kernel.tile.lane
    found = attention(expr)
    if found is None or position is None or expr.axes[position] not in found.rows:
        raise ValueError("the skeleton 'attention' takes attention with one of its row axes in lanes")
    lane, size = expr.axes[position], form.rows
    others = [axis for axis in expr.axes if axis is not lane and axis not in found.columns]
    whole = lane.extent // size * size

    def blocks(inside: Scope) -> None:
        for part, count in ((Interval(0, whole), size), (Interval(whole, lane.extent), lane.extent - whole)):
            if not part.extent:
                continue
            block = _Block(
                found=found,
                lane=lane,
                count=count,
                width=form.vector,
                vectors=-(-count // form.vector),
                keys=form.keys,
                side=form.register,
            )
            bounds = ranges[lane].within(part, Interval(0, lane.extent))
            with inside.writer.loop(block.start, bounds.lo, bounds.hi, size):
                _Rows(inside.enter({}), block, {axis: ranges[axis] for axis in found.columns}).emit()

    nest(scope, [Loop(axes=(axis,), range=ranges[axis]) for axis in others], (), blocks)


class _Rows:
    """The code for one block of rows."""

    def __init__(self, scope: Scope, block: _Block, columns: Mapping[Axis, Range]) -> None:
        self._scope = scope
        self._writer = scope.writer
        self._block = block
        self._found = block.found
        self._columns = columns
        self._depth = numbering(block.found.depth)
        self._column = numbering(block.found.columns)

    def emit(self) -> None:
        """Everything: queries, all keys, results."""
        found, lanes = self._found, self._block.lanes
        depth = _points(found.depth)
        self._array("queries", depth)
        self._array("sums", _points(found.columns))
        self._array("scores", max(self._block.keys, _points(found.columns)))
        for name in ("greatest", "totals", "shift", "rescale"):
            self._array(name, 1)
        self._pack_queries()
        with self._writer.loop("i", "0", str(_points(found.columns) * lanes), lanes=True):
            self._writer.line("sums[i] = 0;")
        with self._writer.loop("i", "0", str(lanes), lanes=True):
            self._writer.line("greatest[i] = -INFINITY;")
            self._writer.line("totals[i] = 0;")
        keys, step = found.keys, self._block.keys
        past = self._past_keys()
        with self._writer.loop(f"{keys.name}_block", "0", past, step):
            whole = past.isdecimal() and int(past) % step == 0
            end = f"{keys.name}_block + {step}"
            self._writer.let("int64_t", f"{keys.name}_end", end if whole else f"rammer_min_i64({end}, {past})")
            inside = self._scope.enter({})
            self._products(self._staged(inside, found.key, found.depth, "keys"))
            self._finish_scores(inside)
            self._weights(inside)
            self._sums(self._staged(inside, found.value, found.columns, "values"))
        self._results()

    def _past_keys(self) -> str:
        """The end of the keys that any row of the block gives a weight."""
        found, block = self._found, self._block
        if found.last_key is None:
            return str(found.keys.extent)
        step = found.last_key.coefficient(block.lane)
        last_row = Position(block.start, block.count - 1 if step > 0 else 0)
        last = self._scope.enter({block.lane: last_row}).linear(Linear(found.last_key.terms, found.last_key.offset + 1))
        return self._writer.let("int64_t", f"{found.keys.name}_past", f"rammer_min_i64({last}, {found.keys.extent})")

    def _array(self, name: str, rows: int) -> None:
        self._writer.line(f"float {name}[{rows * self._block.lanes}] __attribute__((aligned(64)));")

    def _pack_queries(self) -> None:
        """Queries of the block with rows in lanes; zeros for rows that are not there."""
        block, writer, query = self._block, self._writer, self._found.query
        row_step = self._row_step(query)
        if isinstance(query, Load) and row_step:
            first = self._scope.enter(
                {block.lane: Position(block.start), **dict.fromkeys(self._found.depth, Position(""))}
            )
            start = f"in{query.slot} + {first.address(self._scope.operands.loads[query])}"
            writer.line(
                f"rammer_transpose_f32x{block.width}({start}, {row_step}, {block.count}, {_points(self._found.depth)}, "
                f"queries, {block.lanes});"
            )
        else:
            self._copy_queries()
        if block.count < block.lanes:
            absent = writer.loop("row", str(block.count), str(block.lanes), lanes=True)
            with writer.loop("point", "0", str(_points(self._found.depth))), absent:
                writer.line(f"queries[point * {block.lanes} + row] = 0;")

    def _row_step(self, query: Expr) -> int:
        """How far apart rows of queries lie; 0 where they are not rows of float32 as they are."""
        if not isinstance(query, Load) or query.dtype is not DType.FLOAT32:
            return 0
        address, depth = self._scope.operands.loads[query], self._found.depth
        axes = (self._block.lane, *depth)
        if len(depth) > 1 or address.checks or not all(map(address.is_linear_in, axes)):
            return 0
        return address.form.coefficient(axes[0]) if address.form.coefficient(depth[0]) == 1 else 0

    def _copy_queries(self) -> None:
        block, writer, query = self._block, self._writer, self._found.query
        with writer.loop("row", "0", str(block.count)):
            at_row = self._scope.enter({block.lane: Position(f"({block.start} + row)")})

            def copy(inside: Scope) -> None:
                place = f"queries[({inside.linear(self._depth)}) * {block.lanes} + row]"
                writer.line(f"{place} = {inside.value(query)};")

            nest(at_row, _whole(self._found.depth), (query,), copy)

    def _staged(self, scope: Scope, operand: Expr, axes: Sequence[Axis], name: str) -> Scope:
        """The scope in which a scalar operand is cheap: one that is not merely loaded is copied for a block of keys."""
        if isinstance(operand, Load) and operand.fill is None:
            return scope
        keys, writer = self._found.keys, self._writer
        size = _points(axes)
        array = writer.name(name)
        writer.line(f"float {array}[{self._block.keys * size}];")
        form = Linear((*numbering(axes).terms, (keys, size)), 0)
        base = f"{keys.name}_block * {size}"
        with writer.loop(keys.name, f"{keys.name}_block", f"{keys.name}_end"):

            def copy(inside: Scope) -> None:
                writer.line(f"{array}[{inside.linear(form)} - {base}] = {inside.value(operand)};")

            nest(scope.enter({keys: Position(keys.name)}), _whole(axes), (operand,), copy)
        inside = scope.enter({})
        inside.stage(operand, Staged(array=array, base=base, address=Address(form=form, parts=(), checks=())))
        return inside

    def _in_groups(self, axis: str, end: str, extent: int, body: Callable[[int], None]) -> None:
        """A loop over `axis` up to `end`, several points at a time; what is left over by powers of 2.

        Sums of one point alone are too few to hide a multiply-add's latency.
        """
        side = min(self._block.side, extent)
        writer = self._writer
        with writer.block(f"for (; {axis} + {side} <= {end}; {axis} += {side})"):
            writer.in_order()
            body(side)
        left = int(end) % side if end.isdecimal() else (1 << (side - 1).bit_length()) - 1
        for count in (1 << bit for bit in reversed(range((side - 1).bit_length()))):
            if left & count:
                with writer.block(f"if ({axis} + {count} <= {end})"):
                    body(count)
                    writer.line(f"{axis} += {count};")

    def _accumulate(self, count: int, first: Callable[[int, int], str]) -> list[list[str]]:
        """Vectors that sums are kept in; `first` gives the text of what one begins with."""
        names = [[self._writer.name("sum") for _ in range(self._block.vectors)] for _ in range(count)]
        for i, row in enumerate(names):
            for v, name in enumerate(row):
                self._writer.line(f"{self._block.vector} {name} = {first(i, v)};")
        return names

    def _add_products(self, sums: Sequence[Sequence[str]], vectors: str, factors: Sequence[str]) -> None:
        """Add factors times the vectors of a row of an array to sums."""
        block, writer = self._block, self._writer
        loaded = [
            writer.let(block.vector, writer.name("w"), f"RAMMER_LOAD({block.vector}, {vectors} + {v * block.width})")
            for v in range(block.vectors)
        ]
        for row, factor in zip(sums, factors, strict=True):
            for name, vector in zip(row, loaded, strict=True):
                writer.line(f"{name} += {factor} * {vector};")

    def _store(self, sums: Sequence[Sequence[str]], array: str, first: str) -> None:
        """Store sums as rows of an array."""
        block = self._block
        for i, row in enumerate(sums):
            for v, name in enumerate(row):
                place = f"{array} + ({first} + {i}) * {block.lanes} + {v * block.width}"
                self._writer.line(f"RAMMER_STORE({block.vector}, {place}, {name});")

    def _products(self, scope: Scope) -> None:
        """Scores as far as they are sums of products."""
        found, keys = self._found, self._found.keys
        self._writer.line(f"int64_t {keys.name} = {keys.name}_block;")

        def group(count: int) -> None:
            sums = self._accumulate(count, lambda _i, _v: "{0}")

            def products(inside: Scope) -> None:
                at_keys = [inside.enter({keys: Position(keys.name, i)}) for i in range(count)]
                factors = [at_key.value(found.key) for at_key in at_keys]
                self._add_products(sums, f"queries + ({inside.linear(self._depth)}) * {self._block.lanes}", factors)

            nest(scope.enter({}), _whole(found.depth), (), products)
            self._store(sums, "scores", f"{keys.name} - {keys.name}_block")

        self._in_groups(keys.name, f"{keys.name}_end", min(keys.extent, self._block.keys), group)

    def _finish_scores(self, scope: Scope) -> None:
        """What is done to the products: scale, mask and so on; then the greatest of each row, and the rescaling."""
        found, block, writer = self._found, self._block, self._writer
        keys, lane = found.keys, block.lane
        element = f"scores[({keys.name} - {keys.name}_block) * {block.lanes} + i]"
        with writer.loop("i", "0", str(block.lanes), lanes=True):
            writer.line("shift[i] = greatest[i];")
        with writer.loop(keys.name, f"{keys.name}_block", f"{keys.name}_end"):
            if found.score is not found.product:
                at_key = scope.enter({keys: Position(keys.name)})
                at_key.hoist((found.score,))
                with writer.loop("i", "0", str(block.count), lanes=True):
                    writer.let("int64_t", lane.name, sum_text({block.start: 1, "i": 1}, 0))
                    at_row = at_key.enter({lane: Position(lane.name)})
                    at_row.bind(found.product, element)
                    writer.line(f"{element} = {at_row.value(found.score)};")
            with writer.loop("i", "0", str(block.lanes), lanes=True):
                writer.line(f"shift[i] = rammer_max_f32(shift[i], {element});")
        with writer.loop("i", "0", str(block.lanes), lanes=True):
            writer.let("float", "most", "shift[i]")
            # A row whose scores are all minus infinity so far has weights of 0.
            writer.line("shift[i] = most == -INFINITY ? 0.0f : most;")
            writer.line("rescale[i] = rammer_decay_f32(greatest[i] - shift[i]);")
            writer.line("greatest[i] = most;")
            writer.line("totals[i] *= rescale[i];")

    def _weights(self, scope: Scope) -> None:
        """Scores become weights, which are added up."""
        found, block, writer = self._found, self._block, self._writer
        keys = found.keys
        element = f"scores[({keys.name} - {keys.name}_block) * {block.lanes} + i]"
        lanes = writer.loop("i", "0", str(block.lanes), lanes=True)
        with writer.loop(keys.name, f"{keys.name}_block", f"{keys.name}_end"), lanes:
            weight = writer.let("float", "weight", f"rammer_decay_f32({element} - shift[i])")
            writer.line(f"totals[i] += {weight};")
            at_key = scope.enter({keys: Position(keys.name), block.lane: Position("i")})
            at_key.bind(found.exponential, weight)
            writer.line(f"{element} = {at_key.value(found.weight)};")

    def _sums(self, scope: Scope) -> None:
        """Weighted values, added to what was summed before."""
        found, block, writer = self._found, self._block, self._writer
        keys = found.keys
        *outer, innermost = found.columns

        def columns(at_columns: Scope) -> None:
            with writer.block():
                writer.line(f"int64_t {innermost.name} = 0;")
                self._in_groups(innermost.name, str(innermost.extent), innermost.extent, lambda n: group(at_columns, n))

        def group(at_columns: Scope, count: int) -> None:
            at = [at_columns.enter({innermost: Position(innermost.name, i)}) for i in range(count)]
            first = at[0].linear(self._column)

            def rescaled(i: int, v: int) -> str:
                before = f"RAMMER_LOAD({block.vector}, sums + ({first} + {i}) * {block.lanes} + {v * block.width})"
                return f"{before} * RAMMER_LOAD({block.vector}, rescale + {v * block.width})"

            sums = self._accumulate(count, rescaled)
            with writer.loop(keys.name, f"{keys.name}_block", f"{keys.name}_end"):
                here = [column.enter({keys: Position(keys.name)}) for column in at]
                factors = [column.value(found.value) for column in here]
                row = f"scores + ({keys.name} - {keys.name}_block) * {block.lanes}"
                self._add_products(sums, row, factors)
            self._store(sums, "sums", first)

        nest(scope, _whole(outer), (), columns)

    def _results(self) -> None:
        """The elementwise rest for each row that is there."""
        found, block, writer = self._found, self._block, self._writer
        columns = _points(found.columns)
        # The scores are no longer needed.
        writer.line(
            f"rammer_transpose_f32x{block.width}(sums, {block.lanes}, {columns}, {block.count}, scores, {columns});"
        )
        with writer.loop("row", "0", str(block.count)):
            at_row = self._scope.enter({block.lane: Position(f"({block.start} + row)")})
            # Of a row whose scores are all minus infinity the softmax is undefined.
            total = writer.let("float", "total", "greatest[row] == -INFINITY ? NAN : totals[row]")
            at_row.bind(found.total, total)
            loops = [
                Loop(axes=(axis,), range=self._columns[axis], lanes=axis is found.columns[-1]) for axis in found.columns
            ]

            def store(inside: Scope) -> None:
                inside.bind(found.weighted, f"scores[row * {columns} + {inside.linear(self._column)}]")
                inside.store_results()

            nest(at_row, loops, (), store)


def _points(axes: Sequence[Axis]) -> int:
    points = 1
    for axis in axes:
        points *= axis.extent
    return points


def _whole(axes: Sequence[Axis]) -> list[Loop]:
    return [Loop(axes=(axis,), range=Range.whole(axis.extent)) for axis in axes]
