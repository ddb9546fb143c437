"""Decision trees: features become codes, codes choose a path through each tree, leaves are added up.

A code says between which thresholds a feature lies, so all that libraries compare in their own ways is compared once
per row, and trees compare small integers exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

from rammer.ir.expr import Axis, Expr, Output, Reduce, ReduceFn, ScalarFn, TensorExpr, call, cast, const, load
from rammer.ir.graph import Attributes
from rammer.ir.types import DType, TensorType
from rammer.operators.attributes import integer
from rammer.operators.registry import OperatorDef, register, require
from rammer.operators.scalars import choose, less
from rammer.operators.shapes import check_dtype, plain_result, reduced, spatial_axes
from rammer.tiling.trees import NodeFields, TreeSlots, next_node

CODES = frozenset({DType.UINT8, DType.UINT16})
_REALS = frozenset({DType.FLOAT32, DType.FLOAT64})
_INT32 = frozenset({DType.INT32})
_WORDS = frozenset({DType.UINT32, DType.UINT64})
_COUNTED_PARTS = 32
"""Parts of a column's thresholds that are told apart by comparing with all their edges, which takes no gathers for each
of many rows."""


def tree_codes(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """How many thresholds of a column are less than its feature, for each column and row.

    Operands: rows [N, F]; feature of each column, int32 [C]; thresholds [C, 2^m - 1] of the rows' type, rising, padded
    with infinity; the code of NaN [S, C], whose type is the result's, S being 1 or 2. The result is [S * C, N]: columns
    that differ in the code of NaN alone share what is counted.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    require(len(inputs) == 4, f"TreeCodes of {len(inputs)} operands")
    rows, features, thresholds, missing = inputs
    check_dtype("TreeCodes of rows", rows, _REALS)
    check_dtype("TreeCodes of features", features, _INT32)
    check_dtype("TreeCodes with codes", missing, CODES)
    fits = rows.rank == thresholds.rank == missing.rank == 2
    fits = fits and features.shape == missing.shape[1:] == thresholds.shape[:1] and missing.shape[0] in (1, 2)
    fits = fits and thresholds.dtype is rows.dtype and (thresholds.shape[1] + 1).bit_count() == 1
    require(fits, f"TreeCodes of {rows}: {features}, {thresholds} and {missing} do not fit")
    column, row, side = spatial_axes((*features.shape, rows.shape[0], missing.shape[0]))
    x = load(0, rows, [row, cast(DType.INT64, load(1, features, [column]))])
    places = thresholds.shape[1] + 1
    parts = min(places, _COUNTED_PARTS) if rows.shape[0] >= _COUNTED_PARTS else 1
    step = places // parts
    counted: Expr = const(0, DType.INT32)
    edges = (load(2, thresholds, [column, part * step - 1]) for part in range(1, parts))
    for edge in edges:
        counted = counted + choose(less(edge, x), const(1, DType.INT32), 0)
    found, step = cast(DType.INT64, counted) * step, step // 2
    while step:
        is_less = less(load(2, thresholds, [column, found + (step - 1)]), x)
        found, step = found + choose(is_less, const(step, DType.INT64), 0), step // 2
    of_nan = load(3, missing, [0, column])
    if missing.shape[0] == 2:  # a choice: what is counted stands once beside both
        of_nan = choose(call(ScalarFn.EQ, side, 0), of_nan, load(3, missing, [1, column]))
    # No threshold is less than NaN.
    code = cast(missing.dtype, found) + choose(call(ScalarFn.ISNAN, x), of_nan, 0)
    if missing.shape[0] == 1:
        return plain_result(inputs, missing.dtype, (column, row), code)
    type_ = TensorType(missing.dtype, (2 * column.extent, row.extent))
    output = Output(type=type_, indices=(side * column.extent + column, row), body=code)
    return TensorExpr(axes=(column, row, side), inputs=tuple(inputs), outputs=(output,))


def tree_table(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """Codes of columns by tables, from other codes.

    Operands: codes [B, N]; for each column the row of the codes, int32 [C]; tables [C, codes], whose type is the
    result's. The result is [C, N].

    Raises:
        InvalidModelError: the operands do not fit.
    """
    require(len(inputs) == 3, f"TreeTable of {len(inputs)} operands")
    codes, source, table = inputs
    check_dtype("TreeTable of codes", codes, CODES)
    check_dtype("TreeTable of sources", source, _INT32)
    check_dtype("TreeTable with codes", table, CODES)
    fits = codes.rank == table.rank == 2 and source.shape == table.shape[:1]
    require(fits, f"TreeTable of {codes}: {source} and {table} do not fit")
    column, row = axes = spatial_axes((*source.shape, codes.shape[1]))
    code = load(0, codes, [cast(DType.INT64, load(1, source, [column])), row])
    return plain_result(inputs, table.dtype, axes, load(2, table, [column, cast(DType.INT64, code)]))


def tree_sum(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The sums of the leaves that each row comes to.

    Attributes: depth, column_bits, bound_bits: int. Operands: see `tiling.trees.TreeSlots`. The result is [N, groups *
    values of a leaf]; groups of trees have outputs of their own.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    require(len(inputs) == 4, f"TreeSum of {len(inputs)} operands")
    leaf, axes, tree = _leaves("TreeSum", inputs, attributes)
    total = Reduce(ReduceFn.SUM, (tree,), load(3, inputs[3], [leaf, axes[2]]))
    return _summed(inputs, axes, total)


def tree_linear_sum(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The sums of the leaves that each row comes to, where leaves are linear functions of features.

    Operands: those of `tree_sum`, values being one a leaf; features [nodes, terms], int32, -1 for none; coefficients
    [nodes, terms]; constants [nodes]; rows [N, F]. A leaf gives its value where one of its features is NaN.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    require(len(inputs) == 8, f"TreeLinearSum of {len(inputs)} operands")
    value, feature, coefficient, constant, rows = inputs[3:]
    leaf, axes, tree = _leaves("TreeLinearSum", inputs[:4], attributes)
    check_dtype("TreeLinearSum of features", feature, _INT32)
    fits = feature.rank == rows.rank == 2 and feature.shape == coefficient.shape and value.shape[1] == 1
    fits = fits and constant.shape == value.shape[:1] == feature.shape[:1] and rows.shape[0] == axes[0].extent
    same = value.dtype is coefficient.dtype is constant.dtype is rows.dtype
    require(fits and same, f"TreeLinearSum of {', '.join(map(str, inputs[3:]))} do not fit")
    place, again = Axis("r1", feature.shape[1]), Axis("r2", feature.shape[1])

    def factor(position: Axis) -> tuple[Expr, Expr]:
        number = load(4, feature, [leaf, position])
        x = load(7, rows, [axes[0], cast(DType.INT64, call(ScalarFn.MAX, number, 0))])
        return less(number, 0), x

    is_none, x = factor(place)
    products = choose(is_none, const(0, value.dtype), load(5, coefficient, [leaf, place]) * x)
    linear = load(6, constant, [leaf]) + reduced(ReduceFn.SUM, [place], products)
    is_none, x = factor(again)
    missing = choose(is_none, const(0, DType.INT32), cast(DType.INT32, call(ScalarFn.ISNAN, x)))
    has_missing = less(0, reduced(ReduceFn.MAX, [again], missing))
    plain = load(3, value, [leaf, axes[2]])
    return _summed(inputs, axes, Reduce(ReduceFn.SUM, (tree,), choose(has_missing, plain, linear)))


def _leaves(
    kind: str, inputs: Sequence[TensorType], attributes: Attributes
) -> tuple[Expr, tuple[Axis, Axis, Axis], Axis]:
    """The leaf that a row comes to, the axes of rows, groups and values, and that of trees."""
    codes, roots, words, value = inputs
    check_dtype(f"{kind} of codes", codes, CODES)
    check_dtype(f"{kind} of values", value, _REALS)
    check_dtype(f"{kind} of roots", roots, _INT32)
    check_dtype(f"{kind} of nodes", words, _WORDS)
    fields = NodeFields(column_bits=integer(attributes, "column_bits"), bound_bits=integer(attributes, "bound_bits"))
    fits = codes.rank == roots.rank == value.rank == 2 and words.shape == value.shape[:1]
    fits = fits and min(fields.column_bits, fields.bound_bits) > 0
    fits = fits and fields.column_bits + fields.bound_bits < 8 * words.dtype.itemsize_bytes
    require(fits, f"{kind} of {codes}: {', '.join(map(str, inputs[1:]))} do not fit")
    row, group, place = Axis("i0", codes.shape[1]), Axis("i1", roots.shape[0]), Axis("i2", value.shape[1])
    tree = Axis("r0", roots.shape[1])
    node = cast(DType.INT64, load(1, roots, [group, tree]))
    for _ in range(integer(attributes, "depth")):
        node = next_node(node, row, TreeSlots(), fields, tuple(inputs))
    return node, (row, group, place), tree


def _summed(inputs: Sequence[TensorType], axes: tuple[Axis, Axis, Axis], total: Expr) -> TensorExpr:
    row, group, place = axes
    type_ = TensorType(total.dtype, (row.extent, group.extent * place.extent))
    output = Output(type=type_, indices=(row, group * place.extent + place), body=total)
    return TensorExpr(axes=axes, inputs=tuple(inputs), outputs=(output,))


register(OperatorDef(kind="TreeCodes", build=tree_codes))
register(OperatorDef(kind="TreeTable", build=tree_table))
register(OperatorDef(kind="TreeSum", build=tree_sum))
register(OperatorDef(kind="TreeLinearSum", build=tree_linear_sum))
