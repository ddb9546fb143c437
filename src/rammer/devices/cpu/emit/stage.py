"""Windows of padded operands, copied to the stack together with their padding (`skeletons/stage.h`).

Lanes that run along a padded dimension would have to test every load. From a copy that has the padding in it they load
as from any other operand, and each element is copied once for all the taps that read it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rammer.devices.codegen.scalar import C_TYPES, literal
from rammer.devices.codegen.scope import Position, Scope, Staged
from rammer.devices.cpu.emit.nest import Range
from rammer.ir.expr import Axis, Load
from rammer.ir.region import Affine, affine
from rammer.tiling.addresses import Address, Linear

Span = tuple[Range, int]
"""The range of an axis, and its greatest length in any rTask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dim:
    """A dimension of the operand that the window extends along, `size` elements of it in the copy."""

    dim: int
    form: Affine
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What a load reads while some axes run; `spans` are their ranges and greatest lengths."""

    load: Load
    spans: Mapping[Axis, Span]
    dims: tuple[_Dim, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of a copy."""
        return math.prod(dim.size for dim in self.dims) * self.load.type.itemsize_bytes


def window_of(load: Load, spans: Mapping[Axis, Span]) -> Window | None:
    """The window of a load; None where it is no box with ascending indices."""
    dims = []
    for dim, index in enumerate(load.indices):
        form = affine(index)
        if form is None:
            return None
        steps = [(step, spans[axis][1]) for axis, step in form.terms if axis in spans]
        if any(step < 0 for step, _ in steps):
            return None
        if steps:
            dims.append(_Dim(dim=dim, form=form, size=sum(step * (length - 1) for step, length in steps) + 1))
    return Window(load=load, spans=spans, dims=tuple(dims))


def emit_window(scope: Scope, chosen: Window) -> None:
    """Copy a window; in `scope`, its load then reads the copy."""
    writer, load = scope.writer, chosen.load
    type_, array = C_TYPES[load.type], writer.name("window")
    size = math.prod(dim.size for dim in chosen.dims)
    writer.include("stage.h")
    writer.line(f"{type_} {array}[{size}];")
    writer.line(f"RAMMER_FILL({array}, {size}, {'0' if load.fill is None else literal(load.fill.value, load.type)})")
    first = scope.enter({axis: _start(range_) for axis, (range_, _) in chosen.spans.items()})
    _emit_copy(first, chosen, array, first.address(scope.operands.plain_address(load)))
    scope.stage(load, _staged(scope, chosen, array))


def _start(range_: Range) -> Position:
    """The first position in a range."""
    return Position("", int(range_.lo)) if range_.lo.isdecimal() else Position(range_.lo)


def _emit_copy(first: Scope, chosen: Window, array: str, source: str) -> None:
    """Loops over the part of the window that lies inside the operand; `first` is the window's first point."""
    slot, writer = chosen.load.slot, first.writer
    shape, strides = first.operands.kernel.expr.inputs[slot].shape, first.operands.kernel.layouts[slot].strides
    target: list[str] = []
    stride = math.prod(dim.size for dim in chosen.dims)
    for number, here in enumerate(chosen.dims):
        loop = "RAMMER_INSIDE" if here is not chosen.dims[-1] else "RAMMER_INSIDE_LANES"
        start = first.linear(Linear(here.form.terms, here.form.offset))
        writer.line(f"{'    ' * number}{loop}(w{number}, {start}, {_needed(chosen, here)}, {shape[here.dim]},")
        stride //= here.size
        target.append(f"w{number}{_times(stride)}")
        source += f" + w{number}{_times(strides[here.dim])}"
    element = f"{array}[{' + '.join(target) or '0'}] = in{slot}[{source}];"
    writer.line("    " * len(chosen.dims) + element + ")" * len(chosen.dims))


def _needed(chosen: Window, dim: _Dim) -> str:
    """How many elements along a dimension the rTask at hand reads: fewer than `size` at the end of the domain."""
    text = str(dim.size)
    for axis, step in dim.form.terms:
        if axis in chosen.spans:
            range_, length = chosen.spans[axis]
            if range_.count is None:
                text += f" - ({length} - ({range_.hi} - {range_.lo})){_times(step)}"
    return text


def _times(factor: int) -> str:
    return "" if factor == 1 else f" * {factor}"


def _staged(scope: Scope, chosen: Window, array: str) -> Staged:
    """Addresses in the copy: linear in the axes of the window, from their first positions."""
    terms: dict[Axis, int] = {}
    stride = 1
    for dim in reversed(chosen.dims):
        for axis, step in dim.form.terms:
            if axis in chosen.spans:
                terms[axis] = terms.get(axis, 0) + step * stride
        stride *= dim.size
    moved = [
        f"{range_.lo}{_times(terms[axis])}"
        for axis, (range_, _) in chosen.spans.items()
        if axis in terms and range_.lo != "0"
    ]
    base = scope.writer.let("int64_t", f"{array}_base", " + ".join(moved)) if moved else ""
    return Staged(array=array, base=base, address=Address(form=Linear(tuple(terms.items()), 0), parts=(), checks=()))
