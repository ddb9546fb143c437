"""Tensor expressions: the single definition of what an operator computes (DESIGN D1).

A `TensorExpr` is a set of spatial axes and, for every point of their product, a scalar body over loads with index
expressions; `Reduce` nodes bring reduction axes of their own and may nest (softmax is one expression). From this
one object come shape checks, the regions an rTask touches, Roller's footprints, NumPy evaluation and device code.

Nodes and tensor expressions are interned: equal ones are the same object, so `==` is `is`, shared parts are shared in
memory, and every traversal memoises on the node. They are DAGs: walk them with the functions below, not by recursion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from rammer.ir.functions import CHOICES, FOLDS, INFIX, PREDICATES
from rammer.ir.functions import ReduceFn as ReduceFn  # noqa: PLC0414  (part of this vocabulary)
from rammer.ir.functions import ScalarFn as ScalarFn  # noqa: PLC0414
from rammer.ir.interned import Interned
from rammer.ir.types import DType, TensorType

Scalar = bool | int | float


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Expr(metaclass=Interned):
    """A scalar expression. Arithmetic operators build `Call` nodes; integer constants fold as they are built."""

    @property
    def dtype(self) -> DType:
        """Element type of the value."""
        raise NotImplementedError

    @property
    def children(self) -> tuple[Expr, ...]:
        """Direct operands, in order; a reduction's axes are not operands."""
        return ()

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The operands, and what is there beside them."""
        return self.children

    def _key(self) -> tuple[object, ...]:
        """What makes two nodes of a class equal."""
        raise NotImplementedError

    def __add__(self, other: Expr | Scalar) -> Expr:
        return call(ScalarFn.ADD, self, other)

    def __radd__(self, other: Scalar) -> Expr:
        return call(ScalarFn.ADD, other, self)

    def __sub__(self, other: Expr | Scalar) -> Expr:
        return call(ScalarFn.SUB, self, other)

    def __rsub__(self, other: Scalar) -> Expr:
        return call(ScalarFn.SUB, other, self)

    def __mul__(self, other: Expr | Scalar) -> Expr:
        return call(ScalarFn.MUL, self, other)

    def __rmul__(self, other: Scalar) -> Expr:
        return call(ScalarFn.MUL, other, self)

    def __truediv__(self, other: Expr | Scalar) -> Expr:
        return call(ScalarFn.DIV, self, other)

    def __rtruediv__(self, other: Scalar) -> Expr:
        return call(ScalarFn.DIV, other, self)

    def __floordiv__(self, other: Expr | Scalar) -> Expr:
        return call(ScalarFn.FLOORDIV, self, other)

    def __mod__(self, other: Expr | Scalar) -> Expr:
        return call(ScalarFn.MOD, self, other)

    def __neg__(self) -> Expr:
        return call(ScalarFn.NEG, self)

    def __str__(self) -> str:
        return to_text(self)


@dataclass(frozen=True, slots=True, eq=False)
class Const(Expr):
    """A literal of a given type."""

    value: Scalar
    type: DType

    @property
    def dtype(self) -> DType:
        return self.type

    def _key(self) -> tuple[object, ...]:
        # bool, int and float compare equal across types and -0.0 == 0.0; the repr tells them apart.
        return type(self.value), repr(self.value), self.type


@dataclass(frozen=True, slots=True, eq=False)
class Axis(Expr):
    """An iteration axis over `range(extent)`; as an expression, its current index (int64)."""

    name: str
    extent: int

    @property
    def dtype(self) -> DType:
        return DType.INT64

    def _key(self) -> tuple[object, ...]:
        return self.name, self.extent


@dataclass(frozen=True, slots=True, eq=False)
class Load(Expr):
    """Element of input slot `slot` at `indices`. With `fill`, indices outside the slot's shape give `fill`.

    `finite` says that what is loaded is known to be neither infinite nor NaN: 0 times it is 0.
    """

    slot: int
    indices: tuple[Expr, ...]
    type: DType
    fill: Const | None = None
    finite: bool = False

    @property
    def dtype(self) -> DType:
        return self.type

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.indices

    def _key(self) -> tuple[object, ...]:
        return self.slot, self.indices, self.type, self.fill, self.finite

    def at(self, slot: int, indices: tuple[Expr, ...]) -> Load:
        """The same load from another place."""
        return Load(slot, indices, self.type, self.fill, self.finite)


@dataclass(frozen=True, slots=True, eq=False)
class Call(Expr):
    """A scalar function of operands of one type (`CHOICES`: a bool first)."""

    fn: ScalarFn
    args: tuple[Expr, ...]
    type: DType = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", DType.BOOL if self.fn in PREDICATES else self.args[-1].dtype)

    @property
    def dtype(self) -> DType:
        return self.type

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def _key(self) -> tuple[object, ...]:
        return self.fn, self.args


@dataclass(frozen=True, slots=True, eq=False)
class Cast(Expr):
    """Conversion as in C, except that floats out of an integer's range are unspecified."""

    type: DType
    arg: Expr

    @property
    def dtype(self) -> DType:
        return self.type

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.arg,)

    def _key(self) -> tuple[object, ...]:
        return self.type, self.arg


@dataclass(frozen=True, slots=True, eq=False)
class Reduce(Expr):
    """`fn` over all points of `axes` of `body`. The order of float sums is not specified (DESIGN D10)."""

    fn: ReduceFn
    axes: tuple[Axis, ...]
    body: Expr

    @property
    def dtype(self) -> DType:
        return self.body.dtype

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.body,)

    def _key(self) -> tuple[object, ...]:
        return self.fn, self.axes, self.body


@dataclass(frozen=True, slots=True, eq=False)
class Guarded(Expr):
    """`value` where `condition` holds, which is nearly everywhere; elsewhere `fallback`.

    The condition depends on spatial axes alone, and on none along which results are chosen by position. It and the
    fallback are no operands: what walks operands sees what is computed nearly everywhere, and so do all that weigh, cut
    and fuse work. Whoever has to know what may be read takes `all_nodes`; `rebuild` rewrites all three.
    """

    condition: Expr
    value: Expr
    fallback: Expr

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.value,)

    @property
    def parts(self) -> tuple[Expr, ...]:
        return self.value, self.condition, self.fallback

    def _key(self) -> tuple[object, ...]:
        return self.parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One result: `body` stored at `indices` (expressions over the spatial axes) of a tensor of `type`.

    Over the whole domain the indices are distinct and in bounds. Where outputs of several expressions make up one
    tensor (a concatenation), they cover it together.
    """

    type: TensorType
    indices: tuple[Expr, ...]
    body: Expr


@dataclass(frozen=True, eq=False, kw_only=True)
class TensorExpr(metaclass=Interned):
    """What an operator computes: for each point of `axes`, each output's body from loads of the input slots.

    Not slotted, because what follows from the bodies is found once and kept.
    """

    axes: tuple[Axis, ...]
    inputs: tuple[TensorType, ...]
    outputs: tuple[Output, ...]

    @cached_property
    def roots(self) -> tuple[Expr, ...]:
        """The outputs' bodies."""
        return tuple(output.body for output in self.outputs)

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        """Distinct loads, in order of first appearance, those of conditions and fallbacks included."""
        return tuple(node for node in all_nodes(*self.roots) if isinstance(node, Load))

    @cached_property
    def guards(self) -> tuple[Guarded, ...]:
        """Distinct guarded values, in order of first appearance."""
        return tuple(node for node in nodes(*self.roots) if isinstance(node, Guarded))

    @cached_property
    def usual(self) -> TensorExpr:
        """What is computed where all guards hold, over the same slots."""
        return self._with_guards(lambda guarded: guarded.value)

    @cached_property
    def unusual(self) -> TensorExpr:
        """What is computed where they do not, over the same slots."""
        return self._with_guards(lambda guarded: guarded.fallback)

    def _with_guards(self, choose: Callable[[Guarded], Expr]) -> TensorExpr:
        if not self.guards:
            return self
        bodies = rebuild(self.roots, lambda node: choose(node) if isinstance(node, Guarded) else None)
        outputs = tuple(replace(output, body=body) for output, body in zip(self.outputs, bodies, strict=True))
        return TensorExpr(axes=self.axes, inputs=self.inputs, outputs=outputs)

    @cached_property
    def reductions(self) -> tuple[Reduce, ...]:
        """Distinct reductions, inner ones first, without those of fallbacks."""
        return tuple(node for node in nodes(*self.roots) if isinstance(node, Reduce))

    @cached_property
    def reduce_axes(self) -> tuple[Axis, ...]:
        """Distinct reduction axes, in order of first appearance, without those of fallbacks."""
        return tuple(dict.fromkeys(axis for reduction in self.reductions for axis in reduction.axes))

    def _key(self) -> tuple[object, ...]:
        """What makes two expressions equal."""
        return self.axes, self.inputs, self.outputs

    def __str__(self) -> str:
        head = ", ".join(f"{axis.name}<{axis.extent}" for axis in self.axes)
        lines = [
            f"  out{i}[{', '.join(map(to_text, output.indices))}] = {to_text(output.body)}  : {output.type}"
            for i, output in enumerate(self.outputs)
        ]
        slots = ", ".join(f"in{i}: {type_}" for i, type_ in enumerate(self.inputs))
        return "\n".join([f"for {head or '()'} ({slots})", *lines])


def const(value: Scalar, dtype: DType) -> Const:
    """A literal, its Python type made to match `dtype`."""
    if dtype is DType.BOOL:
        return Const(bool(value), dtype)
    return Const(float(value) if dtype.is_float else int(value), dtype)


def call(fn: ScalarFn, *args: Expr | Scalar) -> Expr:
    """A `Call`; Python numbers take the type of the expression operand, integer arithmetic folds.

    Raises:
        TypeError: no operand is an expression, or operand types differ.
    """
    typed = [arg for arg in args if isinstance(arg, Expr)]
    if not typed:
        raise TypeError(f"{fn.value} needs an expression operand")
    dtype = typed[-1].dtype
    operands = tuple(
        typed if len(typed) == len(args) else [arg if isinstance(arg, Expr) else const(arg, dtype) for arg in args]
    )
    for operand in operands[1:] if fn in CHOICES else operands:
        if operand.dtype is not dtype:
            raise TypeError(f"{fn.value} of {', '.join(operand.dtype.value for operand in operands)}")
    folded = _fold_integers(fn, operands) if dtype is DType.INT64 else None
    return folded if folded is not None else Call(fn, operands)


def cast(dtype: DType, arg: Expr) -> Expr:
    """`arg` as `dtype`; no node where it already is, or where a 16-bit float was merely widened."""
    if isinstance(arg, Cast) and arg.arg.dtype is dtype and dtype.is_rounded and arg.type is dtype.compute:
        return arg.arg
    return arg if arg.dtype is dtype else Cast(dtype, arg)


def select(condition: Expr, if_true: Expr, if_false: Expr) -> Expr:
    """`if_true` where `condition`, else `if_false`."""
    return call(ScalarFn.SELECT, condition, if_true, if_false)


def load(
    slot: int, type_: TensorType, indices: Sequence[Expr | int], fill: Scalar | None = None, *, finite: bool = False
) -> Expr:
    """An element of a slot in its compute type: 16-bit floats are widened to float32 as they are read.

    Raises:
        ValueError: the number of indices is not the slot's rank.
    """
    if len(indices) != type_.rank:
        raise ValueError(f"{len(indices)} indices for {type_}")
    full = tuple(i if isinstance(i, Expr) else const(i, DType.INT64) for i in indices)
    node = Load(slot, full, type_.dtype, None if fill is None else const(fill, type_.dtype), finite)
    return cast(type_.dtype.compute, node)


def _fold_integers(fn: ScalarFn, operands: tuple[Expr, ...]) -> Expr | None:
    """Fold constant and neutral operands of int64 arithmetic: index expressions stay short."""
    if fn not in FOLDS:
        return None
    left, right = operands
    if isinstance(right, Const):
        value = int(right.value)
        divides = fn in (ScalarFn.FLOORDIV, ScalarFn.MOD)
        if divides and value == 0:
            return None
        if isinstance(left, Const):
            return const(FOLDS[fn](int(left.value), value), DType.INT64)
        if value == 0 and fn in (ScalarFn.ADD, ScalarFn.SUB):
            return left
        if value == 0 and fn is ScalarFn.MUL:
            return right
        if value == 1 and fn in (ScalarFn.MUL, ScalarFn.FLOORDIV):
            return left
        if value == 1 and fn is ScalarFn.MOD:
            return const(0, DType.INT64)
        if isinstance(left, Axis) and divides and 0 < left.extent <= value:
            return const(0, DType.INT64) if fn is ScalarFn.FLOORDIV else left
        if fn in (ScalarFn.ADD, ScalarFn.SUB) and isinstance(left, Call) and left.fn is ScalarFn.ADD:
            inner = left.args[1]
            if isinstance(inner, Const):
                return call(ScalarFn.ADD, left.args[0], FOLDS[fn](int(inner.value), value))
        return call(ScalarFn.ADD, left, -value) if fn is ScalarFn.SUB else None
    if isinstance(left, Const) and fn in (ScalarFn.ADD, ScalarFn.MUL):
        return call(fn, right, left)
    return None


@lru_cache(maxsize=4096)
def nodes(*roots: Expr) -> tuple[Expr, ...]:
    """Every distinct node below `roots`, operands before users, in a deterministic order."""
    return _walked(roots, lambda node: node.children)


@lru_cache(maxsize=4096)
def all_nodes(*roots: Expr) -> tuple[Expr, ...]:
    """As `nodes`, with those of conditions and fallbacks."""
    return _walked(roots, lambda node: node.parts)


def _walked(roots: Sequence[Expr], below: Callable[[Expr], tuple[Expr, ...]]) -> tuple[Expr, ...]:
    seen: dict[Expr, None] = {}
    stack: list[tuple[Expr, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        node, expanded = stack.pop()
        if node in seen:
            continue
        if expanded:
            seen[node] = None
            continue
        stack.append((node, True))
        for child in reversed(below(node)):
            if child not in seen:
                stack.append((child, False))
    return tuple(seen)


def rebuild(roots: Sequence[Expr], visit: Callable[[Expr], Expr | None]) -> tuple[Expr, ...]:
    """Rewrite bottom-up: `visit` sees each distinct node after its operands were rewritten; None keeps it."""
    done: dict[Expr, Expr] = {}
    for node in all_nodes(*roots):
        rewritten = tuple([done[part] for part in node.parts])
        fresh = node if rewritten == node.parts else _with_parts(node, rewritten)
        # Folding may leave a bare operand (of x + 0), which was visited already: to replace it again would be wrong.
        replacement = visit(fresh) if type(fresh) is type(node) else None
        done[node] = fresh if replacement is None else replacement
    return tuple(done[root] for root in roots)


def _with_parts(node: Expr, parts: tuple[Expr, ...]) -> Expr:
    match node:
        case Load(slot):
            return node.at(slot, parts)
        case Call(fn, _):
            return call(fn, *parts)
        case Cast(type_, _):
            return cast(type_, parts[0])
        case Reduce(fn, axes, _):
            return Reduce(fn, axes, parts[0])
        case Guarded():
            return Guarded(condition=parts[1], value=parts[0], fallback=parts[2])
    return node


def substitute(roots: Sequence[Expr], mapping: Mapping[Axis, Expr]) -> tuple[Expr, ...]:
    """Replace axes by expressions. A reduction axis may only be mapped to another axis."""

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, Axis):
            return mapping.get(node)
        if isinstance(node, Reduce) and any(axis in mapping for axis in node.axes):
            renamed = tuple(mapping.get(axis, axis) for axis in node.axes)
            if not all(isinstance(axis, Axis) for axis in renamed):
                raise TypeError("a reduction axis can only be replaced by an axis")
            return Reduce(node.fn, tuple(axis for axis in renamed if isinstance(axis, Axis)), node.body)
        return None

    return rebuild(roots, visit)


def to_text(root: Expr) -> str:
    """A one-line rendering for dumps and messages; nodes used more than once are spelled out each time."""
    texts: dict[Expr, str] = {}
    for node in nodes(root):
        match node:
            case Const(value, _):
                texts[node] = str(value)
            case Axis(name, _):
                texts[node] = name
            case Load(slot, indices, _, fill, _):
                tail = "" if fill is None else f" else {fill.value}"
                texts[node] = f"in{slot}[{', '.join(texts[i] for i in indices)}{tail}]"
            case Call(fn, (a, b)) if fn in INFIX:
                texts[node] = f"({texts[a]} {INFIX[fn]} {texts[b]})"
            case Call(fn, args):
                texts[node] = f"{fn.value}({', '.join(texts[a] for a in args)})"
            case Cast(type_, arg):
                texts[node] = f"{type_.value}({texts[arg]})"
            case Guarded(condition, value, fallback):
                texts[node] = f"({texts[value]} if {to_text(condition)} else {to_text(fallback)})"
            case Reduce(fn, axes, body):
                span = ", ".join(f"{axis.name}<{axis.extent}" for axis in axes)
                texts[node] = f"{fn.value}[{span}]({texts[body]})"
        if len(texts[node]) > 2000:
            texts[node] = texts[node][:1990] + "..."
    return texts[root]
