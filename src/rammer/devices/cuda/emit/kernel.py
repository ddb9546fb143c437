"""An rKernel as one device function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rammer.devices.codegen.scalar import C_TYPES
from rammer.devices.codegen.scope import Operands, Scope
from rammer.devices.codegen.writer import Writer
from rammer.devices.cuda.emit.contract import emit_contract
from rammer.devices.cuda.emit.map import emit_map
from rammer.devices.cuda.emit.points import Side
from rammer.devices.cuda.emit.reduce import emit_reduce, fold
from rammer.ir.expr import Load
from rammer.ir.pattern import Skeleton
from rammer.ir.task import RKernel
from rammer.ir.types import DType

_EMITTERS: Mapping[Skeleton, Callable[[Scope, Sequence[Side]], int]] = {
    Skeleton.MAP: emit_map,
    Skeleton.REDUCE: emit_reduce,
    Skeleton.CONTRACT: emit_contract,
}
_INT32_ADDRESSES = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelText:
    """A device function and the shared memory that it takes."""

    text: str
    scratch_bytes: int


def emit_kernel(kernel: RKernel, symbol: str) -> KernelText:
    """The function `void symbol(char *const *pointers, uint32_t tile, char *scratch)`, called by a whole block.

    `pointers[i]` is the address of the element of slot i whose indices are 0, inputs first, then outputs; `tile` the
    number of the rTask, row-major over `kernel.grid`. The text needs `rammer_kernel.cuh` and `rammer_scalars.h`.

    Raises:
        TypeError: the expression applies a function to a type it is not defined for.
        UnsupportedFeatureError: an rTask has more points than threads can count.
        ValueError: the skeleton is none of this device's.
    """
    fits = all(layout.span < _INT32_ADDRESSES for layout in kernel.layouts)
    writer = Writer("int32_t" if fits else "int64_t")
    with writer.block(
        f"static __device__ __noinline__ void {symbol}(char *const *pointers, uint32_t tile, char *scratch)"
    ):
        operands = Operands(kernel)
        _write_operands(writer, operands)
        sides = _write_sides(writer, kernel)
        scratch_bytes = _EMITTERS[Skeleton(kernel.skeleton)](Scope(writer, operands, fold), sides)
    return KernelText(text=writer.text(), scratch_bytes=scratch_bytes)


def _write_operands(writer: Writer, operands: Operands) -> None:
    """Pointers without `restrict`: what another block wrote must not be read through the read-only cache."""
    kernel = operands.kernel
    inputs = kernel.expr.inputs
    loaded = {node.slot for node in operands.reach(operands.results) if isinstance(node, Load)}
    for i, type_ in enumerate(inputs):
        if i in loaded:
            storage = _storage(type_.dtype)
            writer.line(f"const {storage} *in{i} = (const {storage} *)pointers[{i}];")
    for i, output in enumerate(kernel.expr.outputs):
        storage = _storage(output.type.dtype)
        writer.line(f"{storage} *out{i} = ({storage} *)pointers[{len(inputs) + i}];")


def _storage(dtype: DType) -> str:
    """The type in memory: a bool is a byte that may hold any value but 0 for true."""
    return "uint8_t" if dtype is DType.BOOL else C_TYPES[dtype]


def _write_sides(writer: Writer, kernel: RKernel) -> list[Side]:
    """Where the rTask lies along each axis."""
    sides = []
    inner = kernel.task_count
    for axis, size, count in zip(kernel.expr.axes, kernel.tile.task, kernel.grid, strict=True):
        inner //= count
        if count == 1:
            sides.append(Side.whole(axis))
            continue
        number = "tile" if inner == 1 else f"tile / {inner}u"
        number = f"{number} % {count}u" if inner * count < kernel.task_count else number
        lo = writer.let(writer.index_type, f"{axis.name}_lo", f"({writer.index_type})({number}) * {size}")
        sides.append(Side(axis=axis, lo=lo, size=size))
    return sides
