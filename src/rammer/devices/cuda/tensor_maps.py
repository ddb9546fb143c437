"""Tensor maps: where the matrices that warpgroups multiply lie, as the hardware's copies want to be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rammer.devices.cuda.encoded_maps import FORMATS
from rammer.devices.cuda.tables import MAP_BYTES, SEGMENT_SHIFT, TENSOR_MAP
from rammer.ir.kernel_form import WarpgroupGemmForm
from rammer.ir.program import Plan
from rammer.ir.task import RKernel
from rammer.tiling.image import Image
from rammer.tiling.warpgroup_gemm import Matrix, MatrixProduct, product_of, slabs_of

_NUMBERS = {dtype: number for number, dtype in enumerate(FORMATS)}
_Row = tuple[int, int, int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMaps:
    """All tensor maps of a program, and what records have of them.

    By where an rOperator's slots begin, `operands` are the place behind its other operands, and the maps' addresses.
    """

    table: npt.NDArray[np.void]
    operands: Mapping[int, tuple[int, ...]]


def tensor_maps(plan: Plan, first_slots: Mapping[int, int], slots: npt.NDArray[np.void], segment: int) -> TensorMaps:
    """The tensor maps of a plan.

    Args:
        plan: the plan.
        first_slots: where the slots of each rOperator that is run begin.
        slots: of all rOperators.
        segment: the number of that of the maps.
    """
    rows: dict[_Row, int] = {}
    operands = {}
    for operator, kernel in zip(plan.graph.operators, plan.kernels, strict=True):
        if operator.id in first_slots and isinstance(kernel.form, WarpgroupGemmForm):
            first = first_slots[operator.id]
            found = _rows(kernel, kernel.form, slots[first:])
            numbers = (rows.setdefault(row, len(rows)) for row in found)
            addresses = (segment << SEGMENT_SHIFT | number * MAP_BYTES for number in numbers)
            operands[first] = (len(kernel.layouts), *addresses)
    return TensorMaps(table=np.array(list(rows), dtype=TENSOR_MAP), operands=operands)


def _rows(kernel: RKernel, form: WarpgroupGemmForm, slots: npt.NDArray[np.void]) -> tuple[_Row, _Row]:
    """The maps of the matrices of an rOperator whose slots these are: of rows, then of columns."""
    product = product_of(kernel)
    tile, sizes = form.threadblock, dict(zip(kernel.expr.axes, kernel.tile.task, strict=True))
    m = product.m
    of_rows = (
        _image_row(product, m, m.box(sizes), slots) if isinstance(m, Image) else _row(product, m, tile.m, form, slots)
    )
    return of_rows, _row(product, product.n, tile.n, form, slots)


def _image_row(product: MatrixProduct, image: Image, box: tuple[int, ...], slots: npt.NDArray[np.void]) -> _Row:
    """The map of an image of which a tile takes a box: its dimensions are channels and those of the image."""
    itemsize, slot = product.dtype.itemsize_bytes, slots[image.slot]
    return (
        int(slot["segment"]),
        _NUMBERS[product.dtype],
        int(slot["offset_bytes"]) + image.offset * itemsize,
        (image.channels, *(dim.extent for dim in image.dims)),
        tuple(dim.stride * itemsize for dim in image.dims),
        (product.slab, *box),
    )


def _row(
    product: MatrixProduct, matrix: Matrix, rows: int, form: WarpgroupGemmForm, slots: npt.NDArray[np.void]
) -> _Row:
    """The map of a matrix of which a tile takes so many rows.

    Its dimensions are elements of a slab, rows, slabs and batches; where slabs do not divide a row, it has one that is
    the whole row.
    """
    itemsize, slot = product.dtype.itemsize_bytes, slots[matrix.slot]
    is_whole = product.k % product.slab == 0
    batches = product.batches if matrix.batch_stride else 1
    extents = (product.slab, matrix.rows, product.slabs, batches) if is_whole else (product.k, matrix.rows, 1, batches)
    strides = (matrix.row_stride, product.slab, matrix.batch_stride or matrix.row_stride)
    return (
        int(slot["segment"]),
        _NUMBERS[product.dtype],
        int(slot["offset_bytes"]) + matrix.offset * itemsize,
        extents,
        tuple(stride * itemsize for stride in strides),
        (product.slab, rows, slabs_of(form), 1),
    )
