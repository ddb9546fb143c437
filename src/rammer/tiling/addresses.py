"""Index expressions as addresses: linear where they can be, with as few operations as that leaves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import MappingProxyType

from rammer.ir.expr import Axis, Call, Const, Expr, Load, Reduce, ScalarFn, TensorExpr, nodes
from rammer.ir.region import depends_on_data, interval_of
from rammer.ir.types import DType, Layout, Panel
from rammer.tiling.pattern import free_axes


@dataclass(frozen=True, slots=True)
class Linear:
    """`sum(coefficient * atom) + offset` of integers; an atom is an axis or any other expression, once each."""

    terms: tuple[tuple[Expr, int], ...]
    offset: int

    @property
    def atoms(self) -> tuple[Expr, ...]:
        """The atoms that are not axes: values that have to be computed."""
        return tuple(atom for atom, _ in self.terms if not isinstance(atom, Axis))

    def coefficient(self, atom: Expr) -> int:
        """The atom's coefficient, 0 where it does not appear."""
        return dict(self.terms).get(atom, 0)


ZERO = Linear((), 0)


def linear(root: Expr) -> Linear:
    """The linear form of an integer expression."""
    forms: dict[Expr, Linear] = {}
    for node in nodes(root):
        match node:
            case Const(value, _):
                forms[node] = Linear((), int(value))
            case Call(ScalarFn.ADD, (a, b)):
                forms[node] = combine(forms[a], forms[b], 1)
            case Call(ScalarFn.SUB, (a, b)):
                forms[node] = combine(forms[a], forms[b], -1)
            case Call(ScalarFn.NEG, (a,)):
                forms[node] = combine(ZERO, forms[a], -1)
            case Call(ScalarFn.MUL, (a, Const(factor, _))):
                forms[node] = combine(ZERO, forms[a], int(factor))
            case _:
                forms[node] = Linear(((node, 1),), 0)
    return forms[root]


def combine(a: Linear, b: Linear, factor: int) -> Linear:
    """`a + factor * b`."""
    terms = dict(a.terms)
    for atom, coefficient in b.terms:
        terms[atom] = terms.get(atom, 0) + factor * coefficient
    return Linear(tuple((atom, c) for atom, c in terms.items() if c), a.offset + factor * b.offset)


def rejoined(form: Linear) -> Linear:
    """The form with `(e // d) * d + e % d` put together again: a reshape that was undone costs nothing."""
    for atom, quotient_factor in form.terms:
        match atom:
            case Call(ScalarFn.FLOORDIV, (e, Const(value, _) as divisor)):
                rest = Call(ScalarFn.MOD, (e, divisor))
                rest_factor = form.coefficient(rest)
                if rest_factor and quotient_factor == rest_factor * int(value):
                    kept = tuple(term for term in form.terms if term[0] is not atom and term[0] is not rest)
                    return rejoined(combine(Linear(kept, form.offset), linear(e), rest_factor))
    return form


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An index that cannot be folded into the linear form: `address(i) = i * stride` or that of a panelled dimension.

    With `clamp`, i comes from data and is kept within `range(clamp)`, whatever the data says.
    """

    form: Linear
    stride: int
    panel: Panel | None
    clamp: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A test that a padded load needs: `0 <= form` and `form < extent`, as far as they are not certain."""

    dim: int
    form: Linear
    extent: int
    below: bool
    above: bool


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where an element lies: `form` plus all `parts`, if all `checks` hold.

    Not slotted, because its atoms are found once and kept.
    """

    form: Linear
    parts: tuple[Part, ...]
    checks: tuple[Check, ...]

    @cached_property
    def atoms(self) -> tuple[Expr, ...]:
        """Values that have to be computed before the address."""
        forms = (self.form, *(part.form for part in self.parts), *(check.form for check in self.checks))
        return tuple(dict.fromkeys(atom for form in forms for atom in form.atoms))

    def is_linear_in(self, axis: Axis) -> bool:
        """Whether the address changes by a constant from each point along `axis` to the next, unconditionally."""
        forms = (*(part.form for part in self.parts), *(check.form for check in self.checks))
        return axis not in nodes(*self.atoms) and not any(form.coefficient(axis) for form in forms)


def address_of(indices: Sequence[Expr], layout: Layout, clamps: Mapping[int, int] = MappingProxyType({})) -> Address:
    """The address of indices that are in bounds once those in `clamps` are kept within the extents given there."""
    form, parts = ZERO, []
    for dim, (index, stride) in enumerate(zip(indices, layout.strides, strict=True)):
        panel = layout.panel if layout.panel is not None and layout.panel.dim == dim else None
        if panel is None and dim not in clamps:
            form = combine(form, linear(index), stride)
        else:
            parts.append(Part(form=rejoined(linear(index)), stride=stride, panel=panel, clamp=clamps.get(dim)))
    return Address(form=rejoined(form), parts=tuple(parts), checks=())


def load_address(load: Load, shape: Sequence[int], layout: Layout) -> Address:
    """The address of a load, with its checks or its clamps.

    Indices that depend on data are clamped where the load has no fill: a wrong index in a model's input reads some
    element of the operand instead of other memory.
    """
    spans = [interval_of(index, {}) for index in load.indices]
    if load.fill is None:
        clamps = {
            dim: extent
            for dim, (index, span, extent) in enumerate(zip(load.indices, spans, shape, strict=True))
            if span is None and depends_on_data(index)
        }
        return address_of(load.indices, layout, clamps)
    checks = []
    for dim, (index, span, extent) in enumerate(zip(load.indices, spans, shape, strict=True)):
        below, above = span is None or span.lo < 0, span is None or span.hi > extent
        if below or above:
            checks.append(Check(dim=dim, form=rejoined(linear(index)), extent=extent, below=below, above=above))
    return replace(address_of(load.indices, layout), checks=tuple(checks))


class Accesses:
    """The addresses of an expression's loads and stores, and what has to be computed for them."""

    def __init__(self, expr: TensorExpr, layouts: Sequence[Layout]) -> None:
        """`layouts` are those of the slots, then of the outputs."""
        self.expr = expr
        self.layouts = tuple(layouts)
        self.free = free_axes(*expr.roots, *expr.unusual.roots)
        self.loads = {load: load_address(load, expr.inputs[load.slot].shape, layouts[load.slot]) for load in expr.loads}
        self.stores = tuple(
            address_of(output.indices, layout)
            for output, layout in zip(expr.outputs, layouts[len(expr.inputs) :], strict=True)
        )

    @cached_property
    def results(self) -> tuple[Expr, ...]:
        """Everything a point of the domain computes: the outputs' bodies and what their addresses take."""
        return tuple(dict.fromkeys((*self.expr.roots, *self._store_atoms)))

    @property
    def fallbacks(self) -> tuple[Expr, ...]:
        """What a point computes where guards do not hold, and the guards' conditions; nothing without guards."""
        conditions = [guarded.condition for guarded in self.expr.guards]
        results = (*conditions, *self.expr.unusual.roots, *self._store_atoms)
        return tuple(dict.fromkeys(results)) if conditions else ()

    @property
    def _store_atoms(self) -> tuple[Expr, ...]:
        return tuple(atom for address in self.stores for atom in address.atoms)

    def below(self, node: Expr) -> tuple[Expr, ...]:
        """The values that a value is computed from. A reduction is opaque."""
        if isinstance(node, Load):
            return self.loads[node].atoms
        return () if isinstance(node, Reduce) else node.children

    def inside(self, node: Expr) -> tuple[Expr, ...]:
        """Like `below`, but a reduction takes its body, unless there is nothing to reduce."""
        if isinstance(node, Reduce):
            return (node.body,) if all(axis.extent for axis in node.axes) else ()
        return self.below(node)

    def reach(self, roots: Iterable[Expr], there: Collection[Expr] = ()) -> tuple[Expr, ...]:
        """All values that `roots` take, those inside reductions included; axes only where their value is used.

        What takes part in values that are `there` already is left out.
        """
        seen: dict[Expr, None] = {}
        stack = list(roots)
        while stack:
            node = stack.pop()
            if node not in seen:
                seen[node] = None
                stack.extend(() if node in there else self.inside(node))
        return tuple(seen)

    def outer_loads(self, known: Collection[Expr] = ()) -> list[Load]:
        """Loads outside of reductions and of what is `known`."""
        seen: dict[Expr, None] = {}
        stack = list(self.results)
        while stack:
            node = stack.pop()
            if node not in seen and node not in known:
                seen[node] = None
                stack.extend(self.below(node))
        return [node for node in seen if isinstance(node, Load)]

    def lies_in_groups(self, load: Load, axis: Axis, size: int, alignments: Sequence[int]) -> bool:
        """Whether neighbours along an axis lie side by side, each `size` of them from a multiple of it on.

        Positions along the axis are from its own beginning. Whether elements are padding is not looked at. `alignments`
        are those of an rKernel.
        """
        return bool(alignments) and _in_groups(self.loads[load], axis, size, alignments[load.slot])

    def is_stored_in_groups(self, output: int, axis: Axis, size: int, alignments: Sequence[int]) -> bool:
        """The same of an output."""
        return bool(alignments) and _in_groups(
            self.stores[output], axis, size, alignments[len(self.expr.inputs) + output]
        )

    def loads_vectors(self, load: Load, axis: Axis, size: int, alignments: Sequence[int]) -> bool:
        """Whether one load brings so many neighbours along an axis, which are all there or all padding."""
        if size == 1 or load.dtype is DType.BOOL or self.layouts[load.slot].tagged:
            return False
        padded_along = any(check.form.coefficient(axis) for check in self.loads[load].checks)
        return not padded_along and self.lies_in_groups(load, axis, size, alignments)

    def stores_vectors(self, output: int, axis: Axis, size: int, alignments: Sequence[int]) -> bool:
        """Whether one store takes so many neighbours along an axis."""
        slot = len(self.expr.inputs) + output
        if size == 1 or self.layouts[slot].tagged:
            return False
        return self.is_stored_in_groups(output, axis, size, alignments)


def _in_groups(address: Address, axis: Axis, size: int, alignment: int) -> bool:
    """Whether elements at addresses lie in such groups, if the first element's place is a multiple of `alignment`."""
    if alignment % size or axis in nodes(*address.atoms):
        return False
    for part in address.parts:
        panel = part.panel
        if panel is None:  # an index from data
            if part.form.coefficient(axis) or part.stride % size:
                return False
        elif part.clamp is not None or part.stride != 1 or panel.width % size or panel.stride % size:
            return False
    forms = (address.form, *(part.form for part in address.parts if part.panel is not None))
    others = [coefficient for form in forms for atom, coefficient in form.terms if atom is not axis]
    return sum(form.coefficient(axis) for form in forms) == 1 and all(
        number % size == 0 for number in (*others, *(form.offset for form in forms))
    )


@lru_cache(maxsize=512)
def accesses_of(expr: TensorExpr, layouts: tuple[Layout, ...]) -> Accesses:
    """The accesses of an expression, which all its tiles have in common."""
    return Accesses(expr, layouts)
