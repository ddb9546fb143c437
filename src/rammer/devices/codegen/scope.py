"""Names of values at one place in the code.

Scopes nest as loops do. A value is written once, as a constant, in the scope that asks for it, and found again from
all scopes inside for which it is the same. `hoist` writes ahead of a loop what does not change in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from rammer.devices.codegen.scalar import C_TYPES, call_text, clamp_text, convert, literal, quotient_text, sum_text
from rammer.devices.codegen.writer import Writer
from rammer.ir.expr import Axis, Call, Cast, Const, Expr, Guarded, Load, Reduce, ScalarFn
from rammer.ir.kernel_form import MapForm
from rammer.ir.region import affine, interval_of
from rammer.ir.task import RKernel
from rammer.ir.types import DType
from rammer.tiling.addresses import Accesses, Address, Check, Linear, Part, address_of
from rammer.tiling.borders import Border
from rammer.tiling.pattern import choice_of, chosen_axes


class Operands(Accesses):
    """The slots and outputs of an rKernel, and the addresses of its loads.

    `readers` are the functions that read an element, given its address, of slots that are not read plainly;
    `tagged_store` is the one that writes an element, given its address and the value, where outputs are tagged.
    `precise_erf_plus_one` says that the device's function for `erf(x) + 1` is exact enough for all results, not only
    for those of 16 bits.
    """

    def __init__(
        self,
        kernel: RKernel,
        readers: Mapping[int, str] | None = None,
        tagged_store: str = "",
        *,
        precise_erf_plus_one: bool = False,
    ) -> None:
        super().__init__(kernel.expr, kernel.layouts)
        halves = all(output.type.dtype.is_half for output in kernel.expr.outputs)
        self._fuses_erf_plus_one = precise_erf_plus_one or halves
        self.kernel = kernel
        self.readers = readers or {}
        self.tagged_store = tagged_store
        self.chosen = _chosen_whole(kernel)
        self.choices = {node: choice for node in self.free if (choice := choice_of(node)) is not None}

    def below(self, node: Expr) -> tuple[Expr, ...]:
        """As of `Accesses`; what is one function here takes that function's operand."""
        operand = self.erf_plus_one(node)
        return super().below(node) if operand is None else (operand,)

    def erf_plus_one(self, node: Expr) -> Expr | None:
        """The x of `erf(x) + 1` where that has a function of its own (GELU)."""
        match node:
            case Call(ScalarFn.ADD, (Call(ScalarFn.ERF, (x,)), Const(1.0, DType.FLOAT32))):
                pass
            case Call(ScalarFn.ADD, (Const(1.0, DType.FLOAT32), Call(ScalarFn.ERF, (x,)))):
                pass
            case _:
                return None
        return x if self._fuses_erf_plus_one else None

    def plain_address(self, load: Load) -> Address:
        """The address of a load as if it needed no checks."""
        return address_of(load.indices, self.layouts[load.slot])


def _chosen_whole(kernel: RKernel) -> tuple[Axis, ...]:
    """The axes whose points an rKernel writes out side by side, because they choose between values."""
    if not isinstance(kernel.form, MapForm):
        return ()
    whole = {axis for axis, size in zip(kernel.expr.axes, kernel.tile.task, strict=True) if size == axis.extent}
    return tuple(axis for axis in chosen_axes(kernel.expr) if axis in whole)


@dataclass(frozen=True, slots=True)
class Position:
    """Where an axis stands: `text + step + offset`; the text (none: 0) is a multiple of `multiple`.

    A `step` is the text of what is a number once macros are expanded.
    """

    text: str
    offset: int = 0
    multiple: int = 1
    step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Where a value has been stored: element `address - base` of `array` (no base: 0)."""

    array: str
    base: str
    address: Address


Reducer = Callable[["Scope", Reduce], str]


class Scope:
    """Values by name. `positions` are those of the axes that have one here."""

    def __init__(self, writer: Writer, operands: Operands, reducer: Reducer) -> None:
        self.writer = writer
        self.operands = operands
        self.positions: Mapping[Axis, Position] = {}
        self._reducer = reducer
        self._parent: Scope | None = None
        self._fresh: frozenset[Axis] = frozenset()
        self._assured: frozenset[tuple[Load, int]] = frozenset()
        self._told: Mapping[tuple[Load, int], str] = {}
        self._names: dict[Expr, str] = {}
        self._elements: dict[tuple[object, ...], str] | None = None
        self._staged: Mapping[Expr, Staged] = {}

    def enter(
        self,
        positions: Mapping[Axis, Position],
        assured: Iterable[Border] = (),
        told: Mapping[Border, str] | None = None,
    ) -> Scope:
        """The scope inside a loop or at one point of it.

        There, no border in `assured` is crossed; of those in `told` a text is true where they are not.
        """
        inner = Scope(self.writer, self.operands, self._reducer)
        inner.positions = {**self.positions, **positions}
        inner._parent = self
        inner._elements = self._elements
        inner._fresh = frozenset(positions)
        inner._staged = self._staged
        inner._told = {**self._told, **{(border.load, border.dim): text for border, text in (told or {}).items()}}
        inner._assured = self._assured.union((border.load, border.dim) for border in assured)
        return inner

    def share_elements(self, reducer: Reducer) -> None:
        """Let all scopes inside load an element once; `reducer` writes no blocks, so that all find it."""
        self._elements = {}
        self._reducer = reducer

    def bind(self, node: Expr, text: str) -> None:
        """Make `text` the value of a node from here on."""
        self._names[node] = text

    def stage(self, node: Expr, staged: Staged) -> None:
        """From here on find a value where it has been stored: a load in a copy, which has the padding in it."""
        self._staged = {**self._staged, node: staged}

    def is_staged(self, load: Load) -> bool:
        """Whether a load reads a copy."""
        return load in self._staged

    def value(self, root: Expr) -> str:
        """A name or literal for a node's value, writing what is not there yet."""
        stack = [(root, False)]
        while stack:
            node, expanded = stack.pop()
            node = self._taken(node)
            if self._is_known(node):
                continue
            if expanded:
                self._names[node] = self._write(node)
            else:
                stack.append((node, True))
                stack.extend((child, False) for child in reversed(self._unless_staged(self.operands.below, node)))
        return self._known(root)

    def hoist(self, roots: Iterable[Expr]) -> None:
        """Write every value that `roots` will take and that is already certain here."""
        for node in self._pending(roots):
            if isinstance(node, Load | Call | Cast | Reduce) and self._is_certain(node):
                self.value(node)

    def _pending(self, roots: Iterable[Expr]) -> Sequence[Expr]:
        """The outermost unknown certain nodes, and unknown nodes above them, operands first."""
        seen: dict[Expr, None] = {}
        stack = [(root, False) for root in reversed(tuple(roots))]
        while stack:
            node, expanded = stack.pop()
            if node in seen or self._is_known(self._taken(node)):
                continue
            if expanded:
                seen[node] = None
                continue
            stack.append((node, True))
            # What a reduction repeats may be certain before it.
            stack.extend((child, False) for child in reversed(self._unless_staged(self.operands.inside, node)))
        return tuple(seen)

    def _unless_staged(self, operands_of: Callable[[Expr], tuple[Expr, ...]], node: Expr) -> tuple[Expr, ...]:
        """What a value takes here: nothing if it has been stored."""
        return () if node in self._staged else operands_of(node)

    def _is_certain(self, node: Expr) -> bool:
        return self.operands.free[node] <= self.positions.keys()

    def _is_known(self, node: Expr) -> bool:
        """Whether a node, which is no choice that is made here, has a value already."""
        if isinstance(node, Axis):
            return node in self.positions
        return isinstance(node, Const) or self._name(node) is not None

    def _name(self, node: Expr) -> str | None:
        """The name of a node's value, if one is valid here."""
        scope: Scope | None = self
        while scope is not None:
            if node in scope._names:
                return scope._names[node]
            if not scope._fresh.isdisjoint(self.operands.free[node]):
                return None
            scope = scope._parent
        return None

    def _taken(self, node: Expr) -> Expr:
        """What a selection takes that depends on an axis with a constant position; any other node itself."""
        while (choice := self.operands.choices.get(node)) is not None:
            position = self.positions.get(choice.axis)
            if position is None or position.text:
                break
            node = choice.if_true if position.offset == choice.value else choice.if_false
        return node

    def _known(self, node: Expr) -> str:
        """The text of a value that is there."""
        node = self._taken(node)
        if isinstance(node, Const):
            return literal(node.value, node.type)
        if isinstance(node, Axis) and node in self.positions:
            position = self.positions[node]
            return f"({sum_text(dict.fromkeys(filter(None, (position.text, position.step)), 1), position.offset)})"
        name = self._name(node)
        if name is None:
            raise KeyError(f"no value for {node}")
        return name

    def _write(self, node: Expr) -> str:
        """Write one value whose operands are there."""
        match node:
            case _ if node in self._staged:
                staged = self._staged[node]
                base = f" - {staged.base}" if staged.base else ""
                text = f"{staged.array}[{self.address(staged.address)}{base}]"
            case Reduce():
                return self._reducer(self, node)
            case Load() if self._elements is not None:
                return self._shared(node, self._elements)
            case Load():
                text = self._load(node)
            case _ if (operand := self.operands.erf_plus_one(node)) is not None:
                text = f"rammer_erf_plus_one_f32({self._known(operand)})"
            case Call(fn, args):
                text = self._call(fn, args)
            case Cast(type_, arg):
                text = convert(self._known(arg), arg.dtype, type_)
            case Guarded():  # where results are stored, guards are looked at
                return self._known(node.value)
            case _:
                raise KeyError(f"{node} has no value here")
        return self.writer.let(C_TYPES[node.dtype], self.writer.name("v"), text)

    def _call(self, fn: ScalarFn, args: Sequence[Expr]) -> str:
        texts = [self._known(arg) for arg in args]
        if fn in (ScalarFn.MIN, ScalarFn.MAX):
            return clamp_text(fn, args, texts) or call_text(fn, args[-1].dtype, texts)
        if fn is ScalarFn.DIV and args[0].dtype is DType.FLOAT32 and isinstance(args[1], Const):
            return quotient_text(texts, args[1].value)
        if fn in (ScalarFn.FLOORDIV, ScalarFn.MOD) and isinstance(args[1], Const) and args[1].value > 0:
            span = interval_of(args[0], {})
            if span is not None and span.lo >= 0:
                # 32-bit division where it is enough: it has vector code, 64-bit division has not.
                narrow = "(uint32_t)" if span.hi <= 1 << 31 else ""
                return f"{narrow}{texts[0]} {'/' if fn is ScalarFn.FLOORDIV else '%'} {narrow}{texts[1]}"
        return call_text(fn, args[-1].dtype, texts)

    def _shared(self, load: Load, elements: dict[tuple[object, ...], str]) -> str:
        """The name of an element that is loaded where it is first asked for."""
        forms = [affine(index) for index in load.indices]
        known = [None if form is None else self.linear(Linear(form.terms, form.offset)) for form in forms]
        key = (load.slot, load.fill, *known)
        if None in known or key not in elements:
            elements[key] = self.writer.let(C_TYPES[load.dtype], self.writer.name("v"), self._load(load))
        return elements[key]

    def _load(self, load: Load) -> str:
        address, checks = self.element(load)
        text = f"in{load.slot}[{address}]"
        if load.slot in self.operands.readers:
            text = f"{self.operands.readers[load.slot]}(&{text})"
        if load.type is DType.BOOL:
            text += " != 0"
        if not checks or load.fill is None:
            return text
        return f"({' & '.join(checks)}) ? {text} : {literal(load.fill.value, load.type)}"

    def element(self, load: Load) -> tuple[str, list[str]]:
        """Where a load's element lies in its operand, and the tests it passes unless it is padding."""
        address = self.operands.loads[load]
        return self.address(address), [self._check(load, check) for check in self.open_checks(load)]

    def open_checks(self, load: Load) -> list[Check]:
        """The tests a padded load needs here."""
        checks = (c for c in self.operands.loads[load].checks if (load, c.dim) not in self._assured)
        return [check for check in map(self._narrowed, checks) if check.below or check.above]

    def _narrowed(self, check: Check) -> Check:
        """A check without what is certain because some axes are at a constant."""
        least = greatest = check.form.offset
        for atom, coefficient in check.form.terms:
            if not isinstance(atom, Axis):
                return check
            position = self.positions.get(atom)
            is_fixed = position is not None and not position.text
            ends = (position.offset, position.offset) if position and is_fixed else (0, atom.extent - 1)
            least += min(coefficient * end for end in ends)
            greatest += max(coefficient * end for end in ends)
        return replace(check, below=least < 0, above=greatest >= check.extent)

    def _check(self, load: Load, check: Check) -> str:
        if (load, check.dim) in self._told:
            return f"({self._told[load, check.dim]})"
        index = self.linear(check.form)
        if check.below and check.above:
            unsigned = "uint32_t" if self.writer.index_type == "int32_t" else "uint64_t"
            return f"(({unsigned})({index}) < {check.extent})"
        return f"(0 <= {index})" if check.below else f"({index} < {check.extent})"

    def store_results(self) -> None:
        """Compute and store all outputs at the present point, and there at every point of the chosen axes."""
        if not self.operands.expr.guards:
            self._store_usual()
            return
        with self.writer.block(f"if ({self.holds()})"):
            self.enter({})._store_usual()
        with self.writer.block("else"):
            self.enter({}).store_fallbacks()

    def holds(self) -> str:
        """Whether all guards hold at the present point."""
        return " & ".join(self.value(guarded.condition) for guarded in self.operands.expr.guards)

    def store_fallbacks(self) -> None:
        """Compute and store all outputs as they are where guards do not hold; see `store_results`."""
        with ExitStack() as stack:
            for axis in self.operands.chosen:
                stack.enter_context(self.writer.loop(axis.name, "0", str(axis.extent)))
            at_point = self.enter({axis: Position(axis.name) for axis in self.operands.chosen})
            for number, output in enumerate(self.operands.expr.unusual.outputs):
                value = at_point.value(output.body)
                at_point.store_value(number, convert(value, output.body.dtype, output.type.dtype))

    def _store_usual(self) -> None:
        self.hoist(self.operands.results)
        chosen = self.operands.chosen
        for point in itertools.product(*(range(axis.extent) for axis in chosen)):
            at_point = self.enter({axis: Position("", i) for axis, i in zip(chosen, point, strict=True)})
            for output in range(len(self.operands.expr.outputs)):
                at_point.store(output)

    def store(self, number: int) -> None:
        """Compute and store an output at the present point."""
        output = self.operands.expr.outputs[number]
        self.store_value(number, convert(self.value(output.body), output.body.dtype, output.type.dtype))

    def store_value(self, number: int, value: str) -> None:
        """Store a value of an output's type at the present point."""
        place = f"out{number}[{self.address(self.operands.stores[number])}]"
        is_tagged = self.operands.layouts[len(self.operands.expr.inputs) + number].tagged
        self.writer.line(f"{self.operands.tagged_store}(&{place}, {value});" if is_tagged else f"{place} = {value};")

    def address(self, address: Address) -> str:
        """An address, in elements."""
        for atom in address.atoms:
            self.value(atom)
        terms, offset = self._terms(address.form)
        for part in address.parts:
            offset += self._add_part(part, terms)
        return self._sum_text(terms, offset)

    def linear(self, form: Linear) -> str:
        """A linear form; its atoms are there."""
        return self._sum_text(*self._terms(form))

    def _sum_text(self, terms: dict[str, int], offset: int) -> str:
        """A sum in C; what is constant last, so that neighbours share the rest."""
        steps = {position.step for position in self.positions.values()}
        return sum_text(dict(sorted(terms.items(), key=lambda term: term[0] in steps)), offset)

    def _terms(self, form: Linear) -> tuple[dict[str, int], int]:
        """C texts with their coefficients, and the constant."""
        terms: dict[str, int] = {}
        offset = form.offset
        for atom, coefficient in form.terms:
            if isinstance(atom, Axis):
                position = self.positions[atom]
                offset += coefficient * position.offset
                texts = [position.text, position.step]
            else:
                texts = [self._known(atom)]
            for text in filter(None, texts):
                _add(terms, text, coefficient)
        return terms, offset

    def _add_part(self, part: Part, terms: dict[str, int]) -> int:
        """Add a part to the terms of an address; returns what it adds to the constant."""
        if part.panel is None:
            _add(terms, self._clamped(part), part.stride)
            return 0
        width, stride = part.panel.width, part.panel.stride
        if part.clamp is None and stride % width == 0 and self.panel_phase(part, width) is not None:
            # A whole number of panels plus a constant: as linear as any other dimension.
            aligned, offset = self._terms(part.form)
            for text, coefficient in aligned.items():
                _add(terms, text, coefficient * stride // width)
            return offset // width * stride + offset % width * part.stride
        index = self._clamped(part)
        _add(terms, f"({index}) / {width}", stride)
        _add(terms, f"({index}) % {width}", part.stride)
        return 0

    def panel_phase(self, part: Part, step: int) -> int | None:
        """The index modulo `step`, if it is the same wherever the axes stand."""
        for atom, coefficient in part.form.terms:
            multiple = self.positions[atom].multiple if isinstance(atom, Axis) and self.positions[atom].text else 1
            is_zero = isinstance(atom, Axis) and not self.positions[atom].text
            if not is_zero and coefficient * multiple % step:
                return None
        return self._terms(part.form)[1] % step

    def _clamped(self, part: Part) -> str:
        index = self.linear(part.form)
        if part.clamp is None:
            return index
        return f"rammer_min_i64(rammer_max_i64({index}, 0), {part.clamp - 1})"


def _add(terms: dict[str, int], text: str, coefficient: int) -> None:
    terms[text] = terms.get(text, 0) + coefficient
