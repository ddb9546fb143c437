"""rOperators, rKernels, rTasks: the graph cut into tile-sized work over tensors that own storage (paper section 3)."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from rammer.ir.expr import Axis, TensorExpr
from rammer.ir.graph import Array, SourceLocation
from rammer.ir.interned import Interned
from rammer.ir.kernel_form import KernelForm
from rammer.ir.recipe import Recipe
from rammer.ir.region import Box, Interval, full_box, read_boxes, reshape_box, write_boxes
from rammer.ir.types import DType, Layout, TensorType


class TensorRole(enum.Enum):
    """Who owns a tensor's storage."""

    INPUT = "input"  # the caller, read only
    OUTPUT = "output"  # the caller
    CONSTANT = "constant"  # the compiled model, filled at compile time
    INTERMEDIATE = "intermediate"  # the arena, placed by the memory plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """Storage with a shape. With `alias_of`, the same bytes as that (root) tensor under another dense shape."""

    id: int
    name: str
    type: TensorType
    layout: Layout
    role: TensorRole
    alias_of: int | None = None

    @property
    def element_bytes(self) -> int:
        """Bytes from one address to the next. A tag takes as much as its element, but where TF32 leaves room for it."""
        has_own = self.layout.tagged and self.type.dtype is not DType.TF32
        return self.type.dtype.itemsize_bytes * (2 if has_own else 1)

    @property
    def nbytes(self) -> int:
        """Bytes of storage, layout padding and tags included."""
        return self.layout.span * self.element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A slot or output bound to a tensor: expression index + `origin` = tensor index.

    The slot's shape may be a part of the tensor's (a slice read, a concatenation written), which is how equal
    operators on different slices share one rKernel.
    """

    tensor: int
    origin: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RTile:
    """Roller's tile at the outermost level; the levels inside an rTask are the form's (`ir.kernel_form`).

    `task` is what one rTask computes, over the spatial axes in order. `lane` is the position of the axis along which
    neighbouring vector lanes or threads take neighbouring points (None: along none).
    """

    task: tuple[int, ...]
    lane: int | None = None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True, kw_only=True)
class RKernel(metaclass=Interned):
    """One implementation of an expression: tile, form and what is known of its operands. Equal rKernels share code.

    They are interned, as expressions are.

    `expr` is canonical (see `lowering.canonical`): axes `s0..`, `r0..`, slots in order of first appearance, so equal
    work compares equal. `layouts` are those of the bound tensors: input slots first, then outputs. `alignments` say of
    how many elements the place of each operand's first element is a multiple (1: nothing is known; empty: of none).
    `constants` are slots that are constants of the model wherever the rKernel is used, or states that a run reads again
    and again and writes elsewhere: an rTask may read them before it waits, and keep them.
    """

    expr: TensorExpr
    layouts: tuple[Layout, ...]
    tile: RTile
    form: KernelForm
    alignments: tuple[int, ...] = ()
    constants: frozenset[int] = frozenset()

    def _key(self) -> tuple[object, ...]:
        """What makes two rKernels equal."""
        return self.expr, self.layouts, self.tile, self.form, self.alignments, self.constants

    @property
    def grid(self) -> tuple[int, ...]:
        """Tiles along each spatial axis."""
        return tuple(-(-axis.extent // size) for axis, size in zip(self.expr.axes, self.tile.task, strict=True))

    @property
    def task_count(self) -> int:
        """Number of rTasks; an operator with an empty domain has none."""
        return math.prod(self.grid)

    def tile_ranges(self, index: int) -> dict[Axis, Interval]:
        """The interval of each spatial axis in rTask `index` (row-major over the grid), clipped to the extent."""
        ranges: dict[Axis, Interval] = {}
        for axis, size, count in reversed(list(zip(self.expr.axes, self.tile.task, self.grid, strict=True))):
            index, i = divmod(index, count)
            ranges[axis] = Interval(i * size, min((i + 1) * size, axis.extent))
        return dict(reversed(ranges.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ROperator:
    """A (fused) operator with its candidate rKernels; the policy picks one. All candidates share `expr`'s slots.

    With a `predicate`, one bool, its rTasks do nothing where that does not hold; every rTask reads it. What is then not
    written nobody looks at. Signals and Waits happen either way.
    """

    id: int
    name: str
    kind: str
    kernels: tuple[RKernel, ...]
    reads: tuple[Binding, ...]
    writes: tuple[Binding, ...]
    sources: tuple[SourceLocation, ...] = ()
    predicate: Binding | None = None

    @property
    def needs(self) -> tuple[Binding, ...]:
        """What has to be there before it runs: what it reads, and its predicate."""
        return self.reads if self.predicate is None else (*self.reads, self.predicate)

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """Whatever it touches, in the order of a device's slots: its predicate, what it reads, what it writes."""
        return (*(() if self.predicate is None else (self.predicate,)), *self.reads, *self.writes)


class RTask(NamedTuple):
    """The smallest unit that one execution unit runs: tile number `tile` of rOperator `operator`.

    A NamedTuple, for it is a key wherever rTasks are scheduled, proved or simulated.
    """

    operator: int
    tile: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A box of a root tensor that an rTask touches."""

    tensor: int
    box: Box


@dataclass(frozen=True, kw_only=True)
class TaskGraph:
    """A model as rOperators over tensors, in topological order. Not slotted, because what follows is found once.

    `inputs` and `outputs` are tensor ids in the model's order; `constants` hold logical (row-major) arrays, which
    each device packs by the tensor's layout, and `recipes` say how some of them follow from less. The last `states`
    inputs are what a run reads of as many states, the last outputs what it leaves in them. Those `in_place`, by their
    positions among the states, are read and written at the same addresses, and what is not written stays.
    """

    name: str
    tensors: tuple[Tensor, ...]
    constants: Mapping[int, Array]
    operators: tuple[ROperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    states: int = 0
    in_place: tuple[int, ...] = ()
    recipes: Mapping[int, Recipe] = field(default_factory=dict)

    @cached_property
    def updated(self) -> Mapping[int, int]:
        """The states in place: the tensor that a run reads, by the tensor at the same addresses that it writes."""
        first_read, first_written = len(self.inputs) - self.states, len(self.outputs) - self.states
        return {self.outputs[first_written + i]: self.inputs[first_read + i] for i in self.in_place}

    def root(self, tensor: int) -> Tensor:
        """The tensor that owns the storage."""
        found = self.tensors[tensor]
        return found if found.alias_of is None else self.tensors[found.alias_of]

    def accesses(self, operator: ROperator, kernel: RKernel, index: int) -> tuple[list[Access], list[Access]]:
        """What rTask `index` reads and writes, as boxes of root tensors. Constants are included."""
        ranges = kernel.tile_ranges(index)
        reads = [
            self._access(binding, box)
            for binding, box in zip(operator.reads, read_boxes(kernel.expr, ranges), strict=True)
            if box is not None
        ]
        if operator.predicate is not None:
            element = tuple(Interval(0, 1) for _ in operator.predicate.origin)
            reads.append(self._access(operator.predicate, element))
        writes = [
            self._access(binding, box)
            for binding, box in zip(operator.writes, write_boxes(kernel.expr, ranges), strict=True)
        ]
        return reads, writes

    def _access(self, binding: Binding, box: Box) -> Access:
        tensor = self.tensors[binding.tensor]
        moved = tuple(interval.shifted(offset) for interval, offset in zip(box, binding.origin, strict=True))
        if tensor.alias_of is None:
            return Access(tensor=tensor.id, box=moved)
        root = self.tensors[tensor.alias_of]
        return Access(tensor=root.id, box=reshape_box(moved, tensor.type.shape, root.type.shape))

    def whole(self, tensor: int) -> Box:
        """The box of a whole tensor."""
        return full_box(self.tensors[tensor].type.shape)


def kernels_of(graph: TaskGraph, choice: Sequence[int]) -> tuple[RKernel, ...]:
    """The chosen rKernel of each rOperator."""
    return tuple(operator.kernels[pick] for operator, pick in zip(graph.operators, choice, strict=True))
