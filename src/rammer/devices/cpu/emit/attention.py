"""What attention brings to its skeleton (`skeletons/attention.h`): sizes of blocks, operands, scores and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rammer.devices.codegen.scalar import sum_text
from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.cpu.emit.nest import Loop, Range, nest
from rammer.devices.cpu.emit.parameters import Parameters, parameters
from rammer.ir.expr import Axis, Expr, Load
from rammer.ir.kernel_form import AttentionForm
from rammer.ir.region import Interval
from rammer.ir.types import DType
from rammer.tiling.addresses import Linear
from rammer.tiling.attention import Attention, attention


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
        with parameters(inside.writer) as given:
            _Functors(inside.enter({}), given, found, lane).write(form)
            for part, count in ((Interval(0, whole), size), (Interval(whole, lane.extent), lane.extent - whole)):
                if part.extent:
                    bounds = ranges[lane].within(part, Interval(0, lane.extent))
                    with inside.writer.loop(_start(lane), bounds.lo, bounds.hi, size):
                        _include(inside.enter({}), found, lane, count, form)

    nest(scope, [Loop(axes=(axis,), range=ranges[axis]) for axis in others], (), blocks)


def _include(scope: Scope, found: Attention, lane: Axis, count: int, form: AttentionForm) -> None:
    """A block of `count` rows."""
    past = str(found.keys.extent)
    if found.last_key is not None:
        last_row = Position(_start(lane), count - 1 if found.last_key.coefficient(lane) > 0 else 0)
        after = Linear(found.last_key.terms, found.last_key.offset + 1)
        last = scope.enter({lane: last_row}).linear(after)
        past = scope.writer.let("int64_t", "seen_keys", f"rammer_min_i64({last}, {past})")
    scope.writer.include("register_tile.h")
    with parameters(scope.writer) as sizes:
        sizes.constant("ROWS", count)
        sizes.constant("VECTORS", -(-count // form.vector))
        sizes.constant("PAST_KEY", past)
        scope.writer.line('#include "attention.h"')


def _start(lane: Axis) -> str:
    """The variable with the first row of a block."""
    return f"{lane.name}_block"


class _Functors:
    """What is the same for all blocks of rows."""

    def __init__(self, scope: Scope, given: Parameters, found: Attention, lane: Axis) -> None:
        self._scope, self._given, self._found, self._lane = scope, given, found, lane

    def write(self, form: AttentionForm) -> None:
        """All macros but those that differ from block to block."""
        found, given = self._found, self._given
        columns = _points(found.columns)
        given.constant("VECTOR", f"rammer_f32x{form.vector}")
        given.constant("WIDTH", form.vector)
        given.constant("KEYS", form.keys)
        given.constant("DEPTH", _points(found.depth))
        given.constant("COLUMNS", columns)
        given.constant("KEY_SIDE", min(form.register, form.keys, found.keys.extent))
        given.constant("COLUMN_SIDE", min(form.register, columns))
        self._queries()
        self._of_key("KEY", found.key, found.depth, "point")
        self._of_key("VALUE", found.value, found.columns, "column")
        self._scores()
        self._results()

    def _of_key(self, name: str, operand: Expr, axes: Sequence[Axis], number: str) -> None:
        at_key = self._scope.enter({self._found.keys: Position("(key)"), **_positions(axes, f"({number})")})
        # What is merely loaded is as cheap where it is used.
        self._given.constant(f"STAGE_{name}S", int(not isinstance(operand, Load) or operand.fill is not None))
        self._given.value(f"{name}(key, {number})", lambda: at_key.value(operand))

    def _queries(self) -> None:
        query, depth, at_row = self._found.query, self._found.depth, self._row()
        if step := self._row_step(query):
            assert isinstance(query, Load)  # it has a step
            first = self._scope.enter({self._lane: Position(_start(self._lane)), **dict.fromkeys(depth, Position(""))})
            address = first.address(self._scope.operands.loads[query])
            self._given.constant("QUERIES", f"in{query.slot} + {address}")
            self._given.constant("QUERY_STEP", step)
        else:
            at_point = at_row.enter(_positions(depth, "(point)"))
            self._given.value("QUERY(row, point)", lambda: at_point.value(query))

    def _row_step(self, query: Expr) -> int:
        """How far apart rows of queries lie; 0 where they are not rows of float32 as they are."""
        if not isinstance(query, Load) or query.dtype is not DType.FLOAT32:
            return 0
        address, depth = self._scope.operands.loads[query], self._found.depth
        axes = (self._lane, *depth)
        if len(depth) > 1 or address.checks or not all(map(address.is_linear_in, axes)):
            return 0
        return address.form.coefficient(axes[0]) if address.form.coefficient(depth[0]) == 1 else 0

    def _scores(self) -> None:
        found, given, writer = self._found, self._given, self._scope.writer
        at_key = self._scope.enter({found.keys: Position("(key)")})
        if found.score is not found.product:
            given.declarations("AT_KEY(key)", lambda: at_key.hoist((found.score,)))

            def score() -> str:
                lane = writer.let("int64_t", self._lane.name, sum_text({_start(self._lane): 1, "(row)": 1}, 0))
                at_row = at_key.enter({self._lane: Position(lane)})
                at_row.bind(found.product, "(product)")
                return at_row.value(found.score)

            given.value("SCORE(row, key, product)", score)

        def weight() -> str:
            at_weight = self._row().enter({found.keys: Position("(key)")})
            at_weight.bind(found.exponential, "(exponential)")
            return at_weight.value(found.weight)

        given.value("WEIGHT(row, key, exponential)", weight)

    def _results(self) -> None:
        found = self._found

        def store() -> None:
            at = self._row().enter(_positions(found.columns, "(column)"))
            at.bind(found.total, "(total)")
            at.bind(found.weighted, "(sum)")
            at.store_results()

        self._given.statements("STORE(row, column, sum, total)", store)

    def _row(self) -> Scope:
        return self._scope.enter({self._lane: Position(f"({_start(self._lane)} + (row))")})


def _points(axes: Sequence[Axis]) -> int:
    points = 1
    for axis in axes:
        points *= axis.extent
    return points


def _positions(axes: Sequence[Axis], number: str) -> dict[Axis, Position]:
    """Where axes stand at the point of a row-major number."""
    if len(axes) == 1:
        return {axes[0]: Position(number)}
    positions: dict[Axis, Position] = {}
    step = 1
    for axis in reversed(axes):
        positions[axis] = Position(f"({number} / {step} % {axis.extent})")
        step *= axis.extent
    return positions
