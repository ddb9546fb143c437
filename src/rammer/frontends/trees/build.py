"""A tree ensemble in a graph."""

from __future__ import annotations

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import concatenated, converted
from rammer.frontends.node import ModelNode
from rammer.frontends.trees.codes import Ranks, coded
from rammer.frontends.trees.ensemble import TreeEnsemble
from rammer.ir.graph import Array
from rammer.ir.types import DType


def add_ensemble(node: ModelNode, rows: Operand, source: TreeEnsemble) -> Operand:
    """What an ensemble gives for rows.

    Args:
        node: what it stands for in the user's model.
        rows: [rows, features], numbers of any type.
        source: the ensemble.

    Returns:
        [rows, outputs] of the ensemble's type of sums.

    Raises:
        InvalidModelError: rows have another number of features.
    """
    if rows.rank != 2 or rows.shape[1] != source.features:
        raise node.invalid(f"rows of {source.features} features are wanted, not {rows.type}")
    found = coded(source)
    compared = converted(node, rows, source.compare)
    columns = []
    if found.ranks is not None:
        columns.append(_ranks(node, compared, found.ranks))
    if found.tables is not None:
        places = _ranks(node, compared, found.tables.ranks)
        constants = (node.constant(found.tables.source), node.constant(found.tables.table))
        columns.append(node.add("TreeTable", places, *constants))
    if not columns:
        columns.append(node.constant(np.zeros((1, rows.shape[0]), DType.UINT8.numpy)))
    codes = concatenated(node, columns, 0)
    arrays: tuple[Array, ...] = (found.roots, found.words, found.value)
    fields = found.fields
    walk = {"depth": found.depth, "column_bits": fields.column_bits, "bound_bits": fields.bound_bits}
    if found.linear is None:
        total = node.add("TreeSum", codes, *map(node.constant, arrays), **walk)
    else:
        parts: tuple[Array, ...] = (*arrays, found.linear.feature, found.linear.coefficient, found.linear.constant)
        total = node.add("TreeLinearSum", codes, *map(node.constant, parts), compared, **walk)
    if source.divisor == 1.0:
        return total
    return node.add("Div", total, node.constant(np.array(source.divisor, source.total.numpy)))


def _ranks(node: ModelNode, rows: Operand, ranks: Ranks) -> Operand:
    return node.add("TreeCodes", rows, *map(node.constant, (ranks.feature, ranks.thresholds, ranks.missing)))
