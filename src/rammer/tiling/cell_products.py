"""The products of a persistent recurrent layer's cell: sums of vectors' elements times weights that stay."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rammer.ir.expr import Axis, Cast, Expr, Load
from rammer.ir.kernel_form import Instruction
from rammer.ir.types import DType, Layout
from rammer.tiling.gemm import instruction_of
from rammer.tiling.pattern import Contraction, Term

_OF_COLUMNS = {
    Instruction.FFMA: Instruction.MMA_3XF16,
    Instruction.MMA_TF32: Instruction.MMA_SCALED_F16,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CellProduct:
    """A sum of products: the weight loads operand `slot`, `form` is all else about it."""

    axes: tuple[Axis, ...]
    vector: Expr
    weight: Expr
    slot: int
    form: tuple[object, ...]

    @property
    def key(self) -> tuple[object, ...]:
        """The same for products of one part."""
        return self.axes, self.vector, self.form

    @property
    def weight_dtype(self) -> DType:
        """What weights are in memory, if that is all there is to them; else float32."""
        stored = self.weight.arg if isinstance(self.weight, Cast) else self.weight
        return stored.dtype if isinstance(stored, Load) and stored.fill is None else DType.FLOAT32


def products_of(
    layouts: tuple[Layout, ...], found: Contraction, constants: frozenset[int]
) -> dict[Term, CellProduct] | None:
    """Each sum as a product of vectors and weights; None where one is none, or vectors have axes that weights have."""
    for lane in found.lanes:
        products = {term: _product(layouts, found, term, lane, constants) for term in found.terms}
        known = {term: product for term, product in products.items() if product is not None}
        columns = frozenset(columns_of(found, known))
        if len(known) == len(products) and all(
            found.free[product.vector] <= columns.union(product.axes) for product in known.values()
        ):
            return known
    return None


def _product(
    layouts: tuple[Layout, ...], found: Contraction, term: Term, lane: Axis, constants: frozenset[int]
) -> CellProduct | None:
    """A sum of products in float32 of vectors and of weights along a lane, constants at most converted; or None."""
    load, vector = found.split(term, lane)
    weight, types = load, []
    while isinstance(load, Cast):
        types.append(load.type)
        load = load.arg
    if term.reduce.dtype is not DType.FLOAT32 or not isinstance(load, Load) or load.slot not in constants:
        return None
    form = (*types, load.indices, load.type, load.fill, layouts[load.slot])
    return CellProduct(axes=term.reduce.axes, vector=vector, weight=weight, slot=load.slot, form=form)


def columns_of(found: Contraction, products: Mapping[Term, CellProduct]) -> tuple[Axis, ...]:
    """The axes that no weight depends on."""
    taken = frozenset[Axis]().union(*(found.free[product.weight] for product in products.values()))
    return tuple(axis for axis in found.axes if axis not in taken)


def lengths_of(members: Sequence[Mapping[int, CellProduct]]) -> list[int]:
    """Of the vectors of all parts."""
    return [math.prod(axis.extent for axis in products[min(products)].axes) for products in members]


def weight_dtype_of(products: Mapping[Term, CellProduct]) -> DType:
    """What all weights are in memory; float32 if they are not alike."""
    dtypes = {product.weight_dtype for product in products.values()}
    return dtypes.pop() if len(dtypes) == 1 else DType.FLOAT32


def multiplier_of(found: Contraction, columns: int, *, narrow: bool) -> Instruction:
    """What multiplies vectors of some columns; weights that one is multiplied with may be `narrow`, 16 bits."""
    instruction = instruction_of(found)
    if columns == 1 and not narrow:
        return Instruction.FFMA
    return _OF_COLUMNS.get(instruction, instruction)
