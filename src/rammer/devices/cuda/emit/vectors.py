"""Vectors: neighbours along an axis that a thread takes side by side, in turns whose loads are in flight together.

What is loaded for them lies in arrays of registers, `name[turn][lane]`. As far as a compiler knows, a store might
change what later loads read: the loads of all turns come before the first store.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from rammer.devices.codegen.scalar import C_TYPES, convert, literal
from rammer.devices.codegen.scope import Position, Scope
from rammer.ir.expr import Axis, Expr, Load, Reduce


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """The `size` neighbours along `axis` from position `first` on; without an axis, one point."""

    axis: Axis | None = None
    first: Position = field(default_factory=lambda: Position(""))
    size: int = 1

    def base(self, scope: Scope) -> Scope:
        """The scope at the first of them; in `scope` all axes but theirs stand somewhere."""
        return scope if self.axis is None else scope.enter({self.axis: self.first})

    def is_loaded(self, scope: Scope, load: Load) -> bool:
        """Whether one load brings all of them."""
        operands = scope.operands
        return self.axis is not None and operands.loads_vectors(load, self.axis, self.size, operands.kernel.alignments)

    def is_stored(self, scope: Scope, output: int) -> bool:
        """Whether one store takes all of them."""
        operands = scope.operands
        return self.axis is not None and operands.stores_vectors(
            output, self.axis, self.size, operands.kernel.alignments
        )

    @contextmanager
    def lanes(self, scope: Scope) -> Iterator[Scope]:
        """The scope at each of them, number `lane`."""
        if self.axis is None or self.size == 1:
            yield self.base(scope)
            return
        scope.writer.line("#pragma unroll")
        with scope.writer.block(f"for (int lane = 0; lane < {self.size}; ++lane)"):
            text = f"({self.first.text} + lane)" if self.first.text else "lane"
            yield scope.enter({self.axis: replace(self.first, text=text, multiple=1)})


class Registers:
    """Values that a thread keeps for `turns` vectors of `size` elements along `axis`.

    With a `holder` they are members of a structure of that name, which there is for each turn.
    """

    def __init__(self, axis: Axis | None, size: int, turns: int, holder: str = "") -> None:
        self.axis, self.size, self.turns, self._holder = axis, size, turns, holder
        self._names: dict[Expr, str] = {}

    @property
    def kept(self) -> Collection[Expr]:
        """The values that are kept."""
        return self._names.keys()

    def declare(self, scope: Scope, nodes: Iterable[Expr]) -> None:
        """Make room for values."""
        for node in nodes:
            self._names[node] = scope.writer.name("kept")
            turns = "" if self._holder else f"[{self.turns}]"
            scope.writer.line(f"{C_TYPES[node.dtype]} {self._names[node]}{turns}[{self.width(scope, node)}];")

    def place(self, scope: Scope, node: Expr) -> str:
        """Where a value is kept, in the present turn and lane."""
        return f"{self.array(node)}[{'lane' if self.width(scope, node) > 1 else '0'}]"

    def name(self, node: Expr) -> str:
        """The array of a value, `[turns][width]`."""
        return self._names[node]

    def array(self, node: Expr) -> str:
        """Where the values of the present turn are kept."""
        if self._holder:
            return f"{self._holder}.{self._names[node]}"
        return f"{self._names[node]}[{'turn' if self.turns > 1 else '0'}]"

    def width(self, scope: Scope, node: Expr) -> int:
        """How many values a vector has of a node."""
        return self.size if self.runs_along(scope, node) else 1

    def runs_along(self, scope: Scope, node: Expr) -> bool:
        """Whether a value is another one for each element of a vector."""
        return self.axis is not None and self.axis in scope.operands.free[node]

    def bind(self, at_lane: Scope, nodes: Iterable[Expr] | None = None) -> None:
        """Let the scope of a lane find values, or all of them."""
        for node in self._names if nodes is None else nodes:
            at_lane.bind(node, self.place(at_lane, node))

    def bind_fixed(self, scope: Scope) -> None:
        """Let the scope of a vector find the values that all lanes have in common."""
        self.bind(scope, [node for node in self._names if not self.runs_along(scope, node)])

    def bring(self, scope: Scope, vector: Vector, loads: Iterable[Load]) -> None:
        """Load what there is room for."""
        for load in loads:
            if not self.runs_along(scope, load):
                scope.writer.line(f"{self.place(scope, load)} = {scope.value(load)};")
            elif vector.is_loaded(scope, load):
                load_vector(vector.base(scope), load, vector.size, self.array(load))
            else:
                with vector.lanes(scope) as at_lane:
                    scope.writer.line(f"{self.place(scope, load)} = {at_lane.value(load)};")


def load_vector(base: Scope, load: Load, size: int, into: str) -> None:
    """Write the load of a vector whose first element `base` is at, or its padding."""
    writer = base.writer
    address, checks = base.element(load)
    text = f"rammer_load_vector<{size}>({into}, in{load.slot} + ({address}));"
    if not checks or load.fill is None:
        writer.line(text)
        return
    writer.line(f"rammer_fill<{size}>({into}, ({C_TYPES[load.dtype]}){literal(load.fill.value, load.dtype)});")
    writer.line(f"if ({' & '.join(checks)})")
    writer.line(f"    {text}")


def pending(roots: Iterable[Expr], known: Collection[Expr] = ()) -> list[Expr]:
    """The values that `roots` take; reductions and what is `known` are there, what addresses take is left out."""
    seen: dict[Expr, None] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen and node not in known and not isinstance(node, Reduce):
            seen[node] = None
            stack.extend(() if isinstance(node, Load) else node.children)
    return list(seen)


def store_vector(scope: Scope, vector: Vector, *registers: Registers) -> None:
    """Write what computes and stores all outputs for a vector, and that at every point of the chosen axes.

    Values in `registers` are there.
    """
    writer, operands = scope.writer, scope.operands
    for one in registers:
        one.bind_fixed(scope)
    if vector.size == 1:
        at_point = vector.base(scope)
        for one in registers:
            one.bind(at_point)
        at_point.store_results()
        return
    scope.hoist(operands.results)
    outputs = operands.kernel.expr.outputs
    results = []
    for point in _points(operands.chosen):
        names = [writer.name("result") for _ in outputs]
        results.append((point, names))
        for name, output in zip(names, outputs, strict=True):
            writer.line(f"{C_TYPES[output.type.dtype]} {name}[{vector.size}];")
    with vector.lanes(scope) as at_lane:
        for one in registers:
            one.bind(at_lane)
        at_lane.hoist(operands.results)
        for point, names in results:
            at_point = at_lane.enter(point)
            for name, output in zip(names, outputs, strict=True):
                value = convert(at_point.value(output.body), output.body.dtype, output.type.dtype)
                writer.line(f"{name}[lane] = {value};")
    for point, names in results:
        _store_arrays(scope.enter(point), vector, names)
    if operands.expr.guards:
        with vector.lanes(scope) as at_lane, writer.block(f"if (!({at_lane.holds()}))"):
            at_lane.enter({}).store_fallbacks()


def compute_vector(scope: Scope, vector: Vector, names: Sequence[str], *registers: Registers) -> None:
    """Write what computes all outputs for a vector into the arrays of these names; values in `registers` are there.

    A single point has them in their compute types.
    """
    for one in registers:
        one.bind_fixed(scope)
    with vector.lanes(scope) as at_lane:
        for one in registers:
            one.bind(at_lane)
        for name, output in zip(names, scope.operands.kernel.expr.outputs, strict=True):
            value = at_lane.value(output.body)
            if vector.size > 1:
                value = convert(value, output.body.dtype, output.type.dtype)
            at_lane.writer.line(f"{name}[{'lane' if vector.size > 1 else '0'}] = {value};")


def store_computed(scope: Scope, vector: Vector, names: Sequence[str]) -> None:
    """Write what stores the results of `compute_vector`."""
    if vector.size > 1:
        _store_arrays(scope, vector, names)
        return
    at_point = vector.base(scope)
    for name, output in zip(names, scope.operands.kernel.expr.outputs, strict=True):
        at_point.bind(output.body, f"{name}[0]")
    at_point.store_results()


def _points(axes: Sequence[Axis]) -> Iterator[dict[Axis, Position]]:
    """All points of some axes, as constants."""
    for point in itertools.product(*(range(axis.extent) for axis in axes)):
        yield {axis: Position("", i) for axis, i in zip(axes, point, strict=True)}


def _store_arrays(scope: Scope, vector: Vector, names: Sequence[str]) -> None:
    """Write the stores of a vector's results, which lie in arrays."""
    writer, operands = scope.writer, scope.operands
    for number, name in enumerate(names):
        address = operands.stores[number]
        if vector.is_stored(scope, number):
            place = vector.base(scope).address(address)
            writer.line(f"rammer_store_vector<{vector.size}>(out{number} + ({place}), {name});")
            continue
        with vector.lanes(scope) as at_lane:
            at_lane.store_value(number, f"{name}[lane]")
