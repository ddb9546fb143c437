"""Users' own rKernels of an operator: where its operands and axes are in the canonical work."""

from __future__ import annotations

from collections.abc import Sequence

from rammer.errors import OptionError
from rammer.ir.extern import ExternKernel, KernelSource
from rammer.ir.graph import Operator
from rammer.ir.kernel_form import ExternForm
from rammer.ir.task import Binding, RKernel, RTile
from rammer.ir.types import Layout, TensorType
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.lowering.canonical import View
from rammer.lowering.work import Work


def extern_kernels(
    operator: Operator, views: Sequence[View], work: Work, workload: Workload, device: VDevice
) -> tuple[RKernel, ...]:
    """The users' rKernels that can compute an operator as its operands lie: row-major and dense.

    Args:
        operator: after all passes.
        views: where its operands and then its results lie.
        work: its canonical form.
        workload: with the layouts that the tensors have in the end.
        device: has the users' rKernels.

    Raises:
        OptionError: a tile does not fit the operator.
    """
    expr = operator.expr
    externs = [extern for extern in device.externs if extern.kind == operator.kind]
    if not externs or expr is None or expr.guards:
        return ()
    count, inputs = len(work.reads), len(expr.inputs)
    read, written = workload.layouts[:count], workload.layouts[count:]
    types = tuple(output.type for output in expr.outputs)
    slots = [_place(*each, work.reads, read) for each in zip(expr.inputs, views[:inputs], strict=True)]
    results = [_place(*each, work.writes, written) for each in zip(types, views[inputs:], strict=True)]
    operands = tuple(
        place for place in (*slots, *(r if r is None else r + count for r in results)) if place is not None
    )
    if len(operands) < len(views):
        return ()
    kernels = []
    for extern in externs:
        source = extern.source(expr.inputs, operator.attributes)
        if source is not None:
            kernels += _kernels(operator, extern, source, operands, workload, device)
    return tuple(kernels)


def _kernels(
    operator: Operator,
    extern: ExternKernel,
    source: KernelSource,
    operands: tuple[int, ...],
    workload: Workload,
    device: VDevice,
) -> list[RKernel]:
    """A candidate for each tile."""
    axes = () if operator.expr is None else operator.expr.axes
    long = [place for place, axis in enumerate(axes) if axis.extent != 1]
    form = ExternForm(
        threads=device.threads,
        scratch_bytes=source.shared_bytes,
        name=extern.name,
        code=source.code,
        operands=operands,
        axes=tuple(long.index(place) if place in long else None for place in range(len(axes))),
    )
    kernels = []
    for tile in source.tiles:
        if len(tile) != len(axes) or any(size is not None and size < 1 for size in tile):
            extents = ", ".join(str(axis.extent) for axis in axes)
            raise OptionError(
                f"a tile {tuple(tile)} of the kernel '{extern.name}' for {len(axes)} axes of {extents} points",
                where=", ".join(map(str, operator.sources)),
                hint="give a size from 1 on, or None, for each axis of the operator's domain",
            )
        sizes = [axis.extent if size is None else size for axis, size in zip(axes, tile, strict=True)]
        task = tuple(min(sizes[place], axes[place].extent) for place in long)
        kernels.append(workload.kernel(RTile(task=task), form))
    return kernels


def _place(type_: TensorType, view: View, bindings: Sequence[Binding], layouts: Sequence[Layout]) -> int | None:
    """The number of the binding that a value is, from its first element on; None where it does not lie row-major."""
    whole = Binding(tensor=view.tensor, origin=view.origin)
    if whole not in bindings:
        return None
    place = bindings.index(whole)
    layout, plain = layouts[place], Layout.row_major(type_.shape)
    is_dense = layout.panel is None and not layout.tagged
    steps = zip(view.dims, plain.strides, type_.shape, strict=True)
    return place if is_dense and all(_step(layout, dim) == step for dim, step, extent in steps if extent > 1) else None


def _step(layout: Layout, dim: int | None) -> int | None:
    return None if dim is None else layout.strides[dim]
