"""An ensemble in codes: every comparison of a feature becomes a comparison of small integers.

A *column* is a feature together with one treatment of missing values. Its code counts the thresholds below the feature,
so `x <= threshold number j` is `code <= j`; missing values have the least or the greatest code. What is no comparison
with a threshold (a value set, zeros that are missing) takes a table: the feature's place among all numbers at which
anything changes has a code for each such column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rammer.errors import UnsupportedFeatureError
from rammer.frontends.trees.ensemble import ZERO_REACH, Ints, LinearLeaves, Missing, Reals, Tree, TreeEnsemble
from rammer.ir.types import DType
from rammer.tiling.trees import MAX_CODE, MAX_COLUMNS, NodeFields

Codes = npt.NDArray[np.generic]
Numbers = npt.NDArray[np.int64]

_NARROW_BITS = 32
"""Of a node's word, where its fields have room in them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranks:
    """Counts of thresholds, for columns of one type of code.

    Attributes:
        feature: of each column, int32 [columns].
        thresholds: [columns, 2^m - 1], rising, padded with infinity.
        missing: the code of NaN, [1, columns], or [2, columns] for two columns each that share the rest.
    """

    feature: Ints
    thresholds: npt.NDArray[np.generic]
    missing: Codes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tables:
    """Columns by table.

    Attributes:
        ranks: the places that tables are about.
        source: for each column its place's number in `ranks`, int32 [columns].
        table: [columns, codes of places].
    """

    ranks: Ranks
    source: Ints
    table: Codes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CodedEnsemble:
    """Trees over codes; see `tiling.trees.TreeSlots` for the nodes.

    Attributes:
        ranks: the first columns; None: there are none.
        tables: the columns after those; None: there are none.
        roots: [groups, trees]; each group's first tree is its base.
        words: [nodes]; see `TreeSlots.node`.
        fields: of words.
        value: [nodes, values of a leaf], of the type of the sums.
        depth: comparisons on the longest path.
        linear: leaves that are functions, numbered as the nodes here.
    """

    ranks: Ranks | None
    tables: Tables | None
    roots: Ints
    words: npt.NDArray[np.generic]
    fields: NodeFields
    value: Reals
    depth: int
    linear: LinearLeaves | None


def coded(source: TreeEnsemble) -> CodedEnsemble:
    """The ensemble in codes; columns are in the order of their features.

    Raises:
        UnsupportedFeatureError: there are more columns, or more places of a feature with value sets, than codes name.
    """
    nodes = source.nodes
    inner = np.flatnonzero(nodes.feature >= 0)
    zero, by_set = nodes.missing[inner] == Missing.ZERO, nodes.set[inner] >= 0
    tabled = zero | by_set | np.isnan(nodes.threshold[inner])
    plain = _Columns(source, inner[~tabled])
    other = _Columns(source, inner[tabled])
    others = [len(np.unique(nodes.threshold[part])) for part in other.parts]
    order, roots = _placed(source)
    steps = _steps(source, order)
    groups = _shared(source, plain.parts, others, int(steps.max(initial=0)).bit_length())
    sides, columns, most = _extent(source, groups, others)
    dtype = code_type(most)
    if columns > MAX_COLUMNS:
        raise UnsupportedFeatureError(
            f"trees that compare {columns} features",
            hint=f"there is room for {MAX_COLUMNS}, each counted for every treatment of missing values and categories",
        )
    column, bound = np.zeros((2, len(nodes.feature)), np.int64)
    thresholds, missing = list[Reals](), list[int]()
    for number, group in enumerate(groups):
        line = _line(source, group)
        thresholds.append(line)
        for side in range(sides):
            part = group[min(side, len(group) - 1)]
            missing.append(_missing_code(nodes, int(part[0]), line))
            column[part] = min(side, len(group) - 1) * len(groups) + number
            bound[part] = np.searchsorted(line, nodes.threshold[part])
    tables = _tables(source, other, dtype, len(groups) * sides, column, bound) if other.parts else None
    features = nodes.feature[[group[0][0] for group in groups]] if groups else np.zeros(0, np.int32)
    zeros = np.zeros((1, source.width))
    value = np.concatenate([nodes.value, zeros, source.base.reshape(-1, source.width)])
    fields, words = _packed(source, order, steps, column, bound, most)
    return CodedEnsemble(
        ranks=_ranks(features, thresholds, missing, dtype, source.compare) if plain.parts else None,
        tables=tables,
        roots=roots,
        words=words,
        fields=fields,
        value=value[order].astype(source.total.numpy),
        depth=source.depth,
        linear=None if source.linear is None else _placed_leaves(source.linear, order, value[len(nodes.feature) :]),
    )


def code_type(most: int) -> DType:
    """The least type of codes up to `most`."""
    return DType.UINT8 if most <= 0xFF else DType.UINT16


def _placed(source: TreeEnsemble) -> tuple[Numbers, Ints]:
    """The nodes in their new order, and where each tree begins, [groups, trees].

    A group's base comes first, then its trees, each level by level, siblings side by side; groups with fewer trees are
    filled up. What is no node of the ensemble's is numbered behind them: a leaf of zeros, then the bases.
    """
    groups, zeros = source.outputs // source.width, len(source.nodes.feature)
    lines = [source.roots[source.target == group * source.width] for group in range(groups)]
    longest = max(map(len, lines))
    pieces, roots, count = list[Numbers](), np.zeros((groups, 1 + longest), np.int32), 0
    for group, line in enumerate(lines):
        trees = [np.array([zeros + 1 + group]), *(_level_order(source.nodes, root) for root in line)]
        for number in range(1 + longest):
            roots[group, number] = count
            pieces.append(trees[number] if number < len(trees) else np.array([zeros]))
            count += len(pieces[-1])
    return np.concatenate(pieces), roots


def _level_order(nodes: Tree, root: int) -> Numbers:
    """The nodes of a tree, level by level, siblings side by side."""
    levels, level = list[Numbers](), np.array([root])
    while level.size:
        levels.append(level)
        inner = level[nodes.feature[level] >= 0]
        level = np.stack([nodes.left[inner], nodes.right[inner]], 1).reshape(-1)
    return np.concatenate(levels)


def _steps(source: TreeEnsemble, order: Numbers) -> Numbers:
    """How far behind them the first children of inner nodes lie, which are taken in their order there."""
    nodes = source.nodes
    place = np.zeros(len(nodes.feature), np.int64)
    own = order < len(nodes.feature)
    place[order[own]] = np.flatnonzero(own)
    inner = order[_is_inner(source, order)]
    steps: Numbers = place[nodes.left[inner]] - place[inner]
    return steps


def _is_inner(source: TreeEnsemble, order: Numbers) -> npt.NDArray[np.bool_]:
    behind = np.zeros(1 + source.outputs // source.width, np.bool_)
    found: npt.NDArray[np.bool_] = np.append(source.nodes.feature >= 0, behind)[order]
    return found


def _packed(
    source: TreeEnsemble, order: Numbers, steps: Numbers, column: Numbers, bound: Numbers, most: int
) -> tuple[NodeFields, npt.NDArray[np.generic]]:
    """The words of nodes in their new order; codes are at most `most`."""
    is_inner = _is_inner(source, order)
    inner = order[is_inner]
    widths = (max(1, int(column.max()).bit_length()), int(most).bit_length(), int(steps.max(initial=0)).bit_length())
    fields = NodeFields(column_bits=widths[0], bound_bits=widths[1])
    dtype = DType.UINT32 if sum(widths) <= _NARROW_BITS else DType.UINT64
    words = np.full(len(order), fields.pack(dtype, 0, 0, (1 << widths[1]) - 1), dtype.numpy)
    words[is_inner] = fields.pack(dtype, column[inner], steps, bound[inner])
    return fields, words


def _shared(
    source: TreeEnsemble, parts: Sequence[Numbers], others: Sequence[int], step_bits: int
) -> list[list[Numbers]]:
    """Columns that count the same thresholds, those of one feature that treat NaN in two ways, in groups.

    Each is alone where codes or nodes would have wider types otherwise.
    """
    apart = [[part] for part in parts]
    of_feature: dict[int, list[Numbers]] = {}
    for part in parts:
        of_feature.setdefault(int(source.nodes.feature[part[0]]), []).append(part)
    together = list(of_feature.values())
    if max(map(len, together), default=1) != 2 or any(len(_line(source, group)) > MAX_CODE for group in together):
        return apart

    def types(groups: list[list[Numbers]]) -> tuple[DType, bool]:
        _, columns, most = _extent(source, groups, others)
        bits = max(1, (columns - 1).bit_length()) + most.bit_length() + step_bits
        return code_type(most), bits <= _NARROW_BITS

    return together if types(together) == types(apart) else apart


def _extent(source: TreeEnsemble, groups: Sequence[Sequence[Numbers]], others: Sequence[int]) -> tuple[int, int, int]:
    """How many columns share a group's thresholds, how many there are, and the greatest code."""
    sides = max(map(len, groups), default=1)
    counts = [len(_line(source, group)) for group in groups]
    return sides, sides * len(groups) + len(others), max((*counts, *others), default=1)


def _line(source: TreeEnsemble, group: Sequence[Numbers]) -> Reals:
    """The thresholds of columns, rising."""
    found: Reals = np.unique(source.nodes.threshold[np.concatenate(group)])
    return found


def _missing_code(nodes: Tree, node: int, line: Reals) -> int:
    """The code of NaN in a node's column."""
    if nodes.missing[node] == Missing.NONE:
        return int(np.searchsorted(line, 0.0))
    return 0 if nodes.missing_left[node] else len(line)


class _Columns:
    """Nodes by their columns: the nodes of each in `parts`."""

    def __init__(self, source: TreeEnsemble, numbers: npt.NDArray[np.intp]) -> None:
        nodes = source.nodes
        never = np.isnan(nodes.threshold[numbers]) & (nodes.set[numbers] < 0)
        # What a column is of: where nothing is missing, `missing_left` says nothing.
        keys = np.stack(
            [
                nodes.feature[numbers],
                np.where(never, -2, nodes.set[numbers]),
                nodes.missing[numbers],
                nodes.missing_left[numbers] & (nodes.missing[numbers] != Missing.NONE),
            ],
            axis=1,
        ).astype(np.int64)
        found, place = np.unique(keys, axis=0, return_inverse=True)
        order = np.argsort(place.reshape(-1), kind="stable")
        ends = np.cumsum(np.bincount(place.reshape(-1), minlength=len(found)))
        parts = np.split(numbers[order], ends[:-1]) if len(found) else []
        self.parts = [piece for part in parts for piece in _few_thresholds(part, nodes.threshold[part])]


def _few_thresholds(part: Numbers, thresholds: Reals) -> list[Numbers]:
    """A column's nodes, in as many columns as its thresholds take."""
    rank = np.unique(thresholds, return_inverse=True)[1].reshape(-1) // MAX_CODE
    return [part[rank == piece] for piece in range(rank.max() + 1)]


def _ranks(features: Ints, thresholds: Sequence[Reals], missing: Sequence[int], dtype: DType, compare: DType) -> Ranks:
    longest = max(len(line) for line in thresholds)
    table = np.full((len(thresholds), (1 << longest.bit_length()) - 1), np.inf, compare.numpy)
    for row, line in zip(table, thresholds, strict=True):
        row[: len(line)] = line
    sides = np.array(missing, dtype.numpy).reshape(len(table), -1)
    return Ranks(feature=features, thresholds=table, missing=np.ascontiguousarray(sides.T))


def _tables(
    source: TreeEnsemble,
    columns: _Columns,
    dtype: DType,
    before: int,
    column: Numbers,
    bound: Numbers,
) -> Tables:
    """The tables of columns; sets `column` and `bound` of their nodes."""
    nodes = source.nodes
    owner = nodes.feature[[part[0] for part in columns.parts]]
    features, place = np.unique(owner, return_inverse=True)
    edges = [
        _edges(source, np.concatenate([p for p, f in zip(columns.parts, owner, strict=True) if f == feature]))
        for feature in features
    ]
    size = max(map(len, edges)) + 2
    if size > MAX_CODE:
        raise UnsupportedFeatureError(
            f"trees with value sets or missing zeros that tell {size} numbers of one feature apart",
            hint=f"there is room for {MAX_CODE}",
        )
    table = np.zeros((len(columns.parts), size), dtype.numpy)
    for number, part in enumerate(columns.parts):
        edge = edges[place[number]]
        # A number for each place: the edge itself, one beyond the last edge, then NaN.
        numbers = np.concatenate([edge, [_after(edge[-1], source.compare)], [np.nan]])
        thresholds = np.unique(nodes.threshold[part])
        thresholds = thresholds[~np.isnan(thresholds)]
        column[part] = before + number
        bound[part] = np.searchsorted(thresholds, nodes.threshold[part]) if len(thresholds) else 0
        table[number, : len(numbers)] = _column_codes(source, int(part[0]), thresholds, numbers)
    ranks = _ranks(features.astype(np.int32), edges, [len(edge) + 1 for edge in edges], code_type(size), source.compare)
    return Tables(ranks=ranks, source=place.reshape(-1).astype(np.int32), table=table)


def _edges(source: TreeEnsemble, numbers: npt.NDArray[np.intp]) -> Reals:
    """The numbers after which anything changes at some node: between two of them all numbers are alike."""
    nodes = source.nodes
    found = [0.0, _before(-ZERO_REACH, source.compare), _reach(source.compare)]
    found += [t for t in np.unique(nodes.threshold[numbers]) if not np.isnan(t)]
    for number in np.unique(nodes.set[numbers]):
        if number >= 0:
            for lo, hi in source.sets[number].intervals:
                found += [_before(lo, source.compare), hi]
    return np.unique(np.array(found, np.float64))


def _column_codes(source: TreeEnsemble, node: int, thresholds: Reals, numbers: Reals) -> npt.NDArray[np.int64]:
    """The codes of numbers in the column of a node; without thresholds 0 goes left, 1 right."""
    nodes = source.nodes
    is_nan, kind = np.isnan(numbers), nodes.missing[node]
    plain = np.where(is_nan, 0.0, numbers)
    most = max(len(thresholds), 1)
    if nodes.set[node] >= 0:
        codes = np.where(source.sets[nodes.set[node]].goes_left(plain), 0, 1)
    else:
        codes = np.searchsorted(thresholds, plain) if len(thresholds) else np.ones(len(plain), np.int64)
    if kind == Missing.NONE:
        return codes
    is_missing = is_nan | (np.abs(plain) <= ZERO_REACH) if kind == Missing.ZERO else is_nan
    return np.where(is_missing, 0 if nodes.missing_left[node] else most, codes)


def _placed_leaves(linear: LinearLeaves, order: Numbers, numbers: Reals) -> LinearLeaves:
    """Linear leaves in the new order, with those behind them that are numbers."""
    count, terms = len(numbers), linear.feature.shape[1]
    return LinearLeaves(
        feature=np.concatenate([linear.feature, np.full((count, terms), -1, np.int32)])[order],
        coefficient=np.concatenate([linear.coefficient, np.zeros((count, terms))])[order],
        constant=np.concatenate([linear.constant, numbers[:, 0]])[order],
    )


def _before(number: float, compare: DType) -> float:
    """The number of a type before another; minus infinity before itself."""
    return _neighbour(number, -np.inf, compare)


def _after(number: float, compare: DType) -> float:
    return _neighbour(number, np.inf, compare)


def _neighbour(number: float, side: float, compare: DType) -> float:
    with np.errstate(over="ignore"):
        return float(np.nextafter(*np.array([number, side], compare.numpy)))


def _reach(compare: DType) -> float:
    return float(compare.numpy.type(ZERO_REACH))
