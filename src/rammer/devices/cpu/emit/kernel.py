"""An rKernel as one C function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rammer.devices.codegen.scalar import storage_type
from rammer.devices.codegen.scope import Operands, Scope
from rammer.devices.codegen.writer import Writer
from rammer.devices.cpu.emit.attention import emit_attention
from rammer.devices.cpu.emit.extern import emit_call
from rammer.devices.cpu.emit.map import emit_map
from rammer.devices.cpu.emit.nest import Loop, Range, nest
from rammer.devices.cpu.emit.product import emit_product
from rammer.devices.cpu.emit.reduce import emit_reduce, fold, fold_outside_lanes
from rammer.devices.cpu.emit.trees import emit_trees
from rammer.ir.expr import Axis, Expr, Load
from rammer.ir.kernel_form import AttentionForm, ExternForm, KernelForm, MapForm, MicroKernelForm, ReduceForm
from rammer.ir.region import depends_on_data
from rammer.ir.task import RKernel
from rammer.ir.tree_forms import TreesForm


def emit_kernel(kernel: RKernel, symbol: str) -> str:
    """The C function `void symbol(char *const *restrict pointers, int32_t tile)`.

    `pointers[i]` is the address of the element of slot i whose indices are 0, inputs first, then outputs; `tile` the
    number of the rTask, row-major over `kernel.grid`. The text includes headers of `kernels/` and `skeletons/`,
    needs libm, has no state and takes at most 64 KiB of stack.

    Raises:
        TypeError: the expression applies a function to a type it is not defined for.
        ValueError: the skeleton is none of this device's.
    """
    writer = Writer(in_order="RAMMER_IN_ORDER;")
    writer.include("rammer_kernel.h")
    parameters = "char *const *restrict pointers, int32_t tile"
    if isinstance(kernel.form, ExternForm):
        writer.line(kernel.form.code)
        with writer.block(f"void {symbol}({parameters})"):
            emit_call(writer, kernel, kernel.form, _write_ranges(writer, kernel))
        return writer.text()
    if kernel.expr.guards:
        # A function of its own, so that it takes no registers from what nearly always runs alone.
        with writer.block(f"static RAMMER_RARE void {symbol}_fallbacks({parameters})"):
            _emit_fallbacks(writer, kernel)
    with writer.block(f"void {symbol}({parameters})"):
        operands = Operands(replace(kernel, expr=kernel.expr.usual), precise_erf_plus_one=True)
        _write_operands(writer, operands, operands.results)
        ranges = _write_ranges(writer, kernel)
        _emit_body(Scope(writer, operands, fold), ranges, kernel.form)
        if kernel.expr.guards:
            writer.line(f"{symbol}_fallbacks(pointers, tile);")
    return writer.text()


def _emit_fallbacks(writer: Writer, kernel: RKernel) -> None:
    """Overwrite the results of an rTask where a guard does not hold."""
    operands = Operands(kernel, precise_erf_plus_one=True)
    _write_operands(writer, operands, operands.fallbacks)
    ranges = _write_ranges(writer, kernel)
    asked = frozenset[Axis]().union(*(operands.free[guarded.condition] for guarded in kernel.expr.guards))
    loops = {axis: Loop(axes=(axis,), range=ranges[axis]) for axis in ranges if axis not in operands.chosen}

    def at_tile(scope: Scope) -> None:
        with writer.block(f"if (!({scope.holds()}))"):
            others = [loop for axis, loop in loops.items() if axis not in asked]
            nest(scope.enter({}), others, (), Scope.store_fallbacks)

    nest(Scope(writer, operands, fold_outside_lanes), [loops[axis] for axis in loops if axis in asked], (), at_tile)


def _emit_body(scope: Scope, ranges: Mapping[Axis, Range], form: KernelForm) -> None:
    """Write the loops over one rTask."""
    match form:
        case MapForm():
            emit_map(scope, ranges, form)
        case ReduceForm():
            emit_reduce(scope, ranges)
        case MicroKernelForm():
            emit_product(scope, ranges, form)
        case AttentionForm():
            emit_attention(scope, ranges, form)
        case TreesForm():
            emit_trees(scope, ranges, form)
        case _:
            raise ValueError(f"processors have no rKernels of the form {form}")


def _write_operands(writer: Writer, operands: Operands, roots: Sequence[Expr]) -> None:
    """Pointers to what is loaded below `roots`, and to the outputs: a state in place is both."""
    kernel = operands.kernel
    inputs = kernel.expr.inputs
    in_place = any(depends_on_data(index) for output in kernel.expr.outputs for index in output.indices)
    apart = "" if in_place else "restrict "
    loaded = {node.slot for node in operands.reach(roots) if isinstance(node, Load)}
    for i, type_ in enumerate(inputs):
        if i in loaded:
            storage = storage_type(type_.dtype)
            writer.line(f"const {storage} *{apart}in{i} = (const {storage} *)pointers[{i}];")
    for i, output in enumerate(kernel.expr.outputs):
        storage = storage_type(output.type.dtype)
        writer.line(f"{storage} *{apart}out{i} = ({storage} *)pointers[{len(inputs) + i}];")


def _write_ranges(writer: Writer, kernel: RKernel) -> dict[Axis, Range]:
    """The part of each axis that belongs to the rTask."""
    ranges: dict[Axis, Range] = {}
    inner = kernel.task_count
    for axis, size, count in zip(kernel.expr.axes, kernel.tile.task, kernel.grid, strict=True):
        inner //= count
        if count == 1:
            ranges[axis] = Range.whole(axis.extent)
            continue
        number = "(uint32_t)tile" if inner == 1 else f"(uint32_t)tile / {inner}"
        number = f"{number} % {count}" if inner * count < kernel.task_count else number
        lo = writer.let("int64_t", f"{axis.name}_lo", f"(int64_t)({number}) * {size}")
        if axis.extent % size == 0:
            ranges[axis] = Range(lo, writer.let("int64_t", f"{axis.name}_hi", f"{lo} + {size}"), size)
        else:
            hi = writer.let("int64_t", f"{axis.name}_hi", f"rammer_min_i64({lo} + {size}, {axis.extent})")
            ranges[axis] = Range(lo, hi)
    return ranges
