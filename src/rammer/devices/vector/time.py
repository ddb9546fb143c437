"""How long a unit that computes with vectors takes for the arithmetic of an rTask."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache

from rammer.devices.vector.attention import attention_us
from rammer.devices.vector.byte_tiles import byte_tiles_us
from rammer.devices.vector.register import efficiency
from rammer.devices.vector.trees import trees_us
from rammer.ir.expr import Axis, Call, Cast, Expr, Load, Reduce, ScalarFn, TensorExpr
from rammer.ir.kernel_form import PRODUCTS, AttentionForm, MicroKernelForm, Skeleton
from rammer.ir.task import RKernel
from rammer.ir.tree_forms import TreesForm
from rammer.ir.types import DType
from rammer.ir.vdevice import ByteProducts, VDevice
from rammer.tiling.pattern import Term, choices, contraction, free_axes, values
from rammer.tiling.stores import by_steps

# Vector operations that a function takes; the rest take one. `_SCALAR` are calls of the C library, lane by lane.
_OPERATIONS: Mapping[ScalarFn, float] = {
    ScalarFn.DIV: 5.0,
    ScalarFn.SQRT: 6.0,
    ScalarFn.EXP: 15.0,
    ScalarFn.SIGMOID: 22.0,
    ScalarFn.TANH: 32.0,
    ScalarFn.ERF: 36.0,
}
_LIBRARY = frozenset(
    {ScalarFn.POW, ScalarFn.LOG, ScalarFn.SIN, ScalarFn.COS, ScalarFn.TAN, ScalarFn.ASIN, ScalarFn.ACOS, ScalarFn.ATAN}
    | {ScalarFn.SINH, ScalarFn.COSH, ScalarFn.ASINH, ScalarFn.ACOSH, ScalarFn.ATANH, ScalarFn.FMOD, ScalarFn.MOD}
    | {ScalarFn.FLOORDIV}
)
_LIBRARY_OPERATIONS = 40.0
_LEAST_LANES = 4  # that compilers make vector code of
_TURNED_OPERATIONS = 7.0
"""For a vector of sums where these are stored along another axis than the lanes: they are transposed in memory first.
Measured where nothing else is done with them."""
_IN_TURN = 2.5
"""How many times as long operations on the sums of a vector by a matrix take: these are few, so each waits for the
latency of the one before. Measured in cells of LSTMs."""


def compute_us(kernel: RKernel, vdevice: VDevice) -> float:
    """Time of an rTask's arithmetic: sums of products at the micro-kernel's efficiency, all else by operations."""
    if isinstance(kernel.form, AttentionForm):
        return attention_us(kernel, vdevice)
    if isinstance(kernel.form, TreesForm):
        return trees_us(kernel, vdevice)
    form = kernel.form
    if isinstance(form, MicroKernelForm) and form.instruction is not None:
        return byte_tiles_us(kernel, form.register, vdevice) + _operations_us(kernel, vdevice)
    found = contraction(kernel.expr, ByteProducts.QUADS) if isinstance(form, MicroKernelForm) else None
    if found is None:
        return _operations_us(kernel, vdevice)
    points_us = sum(
        math.prod(axis.extent for axis in term.reduce.axes) / vdevice.flops_per_us[term.multiplied].value
        for term in found.terms
    )
    products_us = 2 * points_us * math.prod(kernel.tile.task) / efficiency(kernel, vdevice)
    return products_us + results_us(kernel, vdevice)


def results_us(kernel: RKernel, vdevice: VDevice) -> float:
    """Of that, the operations on sums of products: they need the whole sums."""
    form = kernel.form
    if not isinstance(form, MicroKernelForm) or contraction(kernel.expr, ByteProducts.QUADS) is None:
        return 0.0
    return _operations_us(kernel, vdevice) * (_IN_TURN if form.skeleton is Skeleton.GEMV else 1.0)


def _operations_us(kernel: RKernel, vdevice: VDevice) -> float:
    """Time of all arithmetic but a micro-kernel's, each operation as often as the axes it depends on say."""
    expr, tile = kernel.expr, kernel.tile
    extents = dict(zip(expr.axes, tile.task, strict=True))
    lane, vector = _lane(kernel)
    slots = 0.0
    for axes, operations in _operations_by_axes(expr, kernel.form.skeleton, vector).items():
        points = math.prod(extents.get(axis, axis.extent) for axis in axes)
        # Without the lane axis, lanes run along reductions that are long enough.
        in_lanes = lane in axes or any(a not in extents and a.extent >= 2 * vector for a in axes)
        slots += points * operations / (vector if in_lanes else 1)
    whole_vector = vdevice.vector_bytes // DType.FLOAT32.itemsize_bytes
    if tile.lane is not None and lane is not expr.axes[tile.lane]:
        slots += math.prod(tile.task) * len(_terms(expr)) * _TURNED_OPERATIONS / whole_vector
    return slots * 2 * whole_vector / vdevice.flops_per_us[DType.FLOAT32].value


def _lane(kernel: RKernel) -> tuple[Axis | None, int]:
    """Along which axis an rTask's operations run side by side, and how many of them do.

    Those on sums of a block run along the axis that its results lie along, where these are not the lanes.
    """
    expr, tile, form = kernel.expr, kernel.tile, kernel.form
    lane = None if tile.lane is None else expr.axes[tile.lane]
    if lane is None or not isinstance(form, MicroKernelForm):
        return lane, form.vector
    sizes = dict(zip(expr.axes, form.register, strict=True))
    rows = [axis for axis in expr.axes if axis is not lane and sizes[axis] > 1]
    *_, nearest = by_steps(expr, kernel.layouts, (*rows, lane), lane)
    if nearest is lane:
        return lane, form.vector
    side_by_side = 1 << (min(sizes[nearest], nearest.extent).bit_length() - 1)
    return nearest, min(form.vector, side_by_side) if side_by_side >= _LEAST_LANES else 1


def _terms(expr: TensorExpr) -> Sequence[Term]:
    """The sums of products of a contraction."""
    found = contraction(expr, ByteProducts.QUADS)
    return () if found is None else found.terms


@lru_cache(maxsize=1024)
def _operations_by_axes(expr: TensorExpr, skeleton: Skeleton, vector: int) -> Mapping[frozenset[Axis], float]:
    """Vector operations for a vector of values, those that depend on the same axes together.

    Choices that a skeleton makes when code is written, and the products of a micro-kernel, are not among them.
    """
    found = contraction(expr, ByteProducts.QUADS) if skeleton in PRODUCTS else None
    if found is not None:
        without = frozenset(values(*(term.reduce for term in found.terms)))
    else:
        without = choices(expr) if skeleton is Skeleton.MAP else frozenset()
    free = free_axes(*expr.roots)
    operations: dict[frozenset[Axis], float] = defaultdict(float)
    for node in values(*expr.roots):
        if node not in without:
            axes = free[node.body].union(node.axes) if isinstance(node, Reduce) else free[node]
            operations[axes] += _operations(node, vector)
    return operations


def _operations(node: Expr, vector: int) -> float:
    """Vector operations for a vector of values of a node."""
    match node:
        case Call(fn, _) if fn in _LIBRARY:
            return _LIBRARY_OPERATIONS * vector
        case Call(fn, _):
            return _OPERATIONS.get(fn, 1.0)
        case Load() | Cast() | Reduce():
            return 1.0
    return 0.0
