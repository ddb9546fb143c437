"""Transformers that scale columns or rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rammer.frontends.sklearn.functions import scale_of
from rammer.frontends.sklearn.node import Entry, Node, columnwise, numbers
from rammer.frontends.sklearn.table import Column, Positions, Table, computed
from rammer.frontends.sklearn.tensor import Tensor


def _shifted_and_divided(node: Node, table: Table, center: object, scale: object) -> Table:
    """`(x - center) / scale`, each where it is not None."""
    width = table.width
    centers = None if center is None else np.broadcast_to(numbers(center), (width,))
    scales = None if scale is None else np.broadcast_to(numbers(scale), (width,))

    def formula(x: Tensor, positions: Positions) -> Tensor:
        if centers is not None:
            x = x - centers[positions]
        return x if scales is None else x / scales[positions]

    return columnwise(node, table, formula)


def _standard(node: Node, table: Table) -> Table:
    model = node.estimator
    return _shifted_and_divided(
        node, table, model.mean_ if model.with_mean else None, model.scale_ if model.with_std else None
    )


def _robust(node: Node, table: Table) -> Table:
    model = node.estimator
    return _shifted_and_divided(
        node, table, model.center_ if model.with_centering else None, model.scale_ if model.with_scaling else None
    )


def _max_abs(node: Node, table: Table) -> Table:
    model = node.estimator
    scaled = _shifted_and_divided(node, table, None, model.scale_)
    return columnwise(node, scaled, lambda x, _: x.clip(-1.0, 1.0)) if getattr(model, "clip", False) else scaled


def _min_max(node: Node, table: Table) -> Table:
    model = node.estimator
    scale, shift = numbers(model.scale_), numbers(model.min_)
    least, greatest = map(float, model.feature_range)

    def formula(x: Tensor, positions: Positions) -> Tensor:
        found = x * scale[positions] + shift[positions]
        return found.clip(least, greatest) if model.clip else found

    return columnwise(node, table, formula)


def _normalizer(node: Node, table: Table) -> Table:
    """Rows divided by their norm; rows that are nearly zeros stay."""

    def matrix() -> Tensor:
        x = table.all(node)
        match node.estimator.norm:
            case "l1":
                norm = x.abs().sum(keep=True)
            case "l2":
                norm = (x * x).sum(keep=True).sqrt()
            case _:
                norm = x.abs().max(keep=True)
        return x / scale_of(norm)

    return computed([Column()] * table.width, matrix)


def _binarizer(node: Node, table: Table) -> Table:
    threshold = float(node.estimator.threshold)
    return columnwise(node, table, lambda x, _: (x > threshold).real())


def _kernel_centerer(node: Node, table: Table) -> Table:
    model = node.estimator

    def matrix() -> Tensor:
        kernel = table.all(node)
        return (
            kernel - kernel.sum(keep=True) / float(table.width) - numbers(model.K_fit_rows_) + float(model.K_fit_all_)
        )

    return computed([Column()] * table.width, matrix)


ENTRIES: Mapping[str, Entry] = {
    "StandardScaler": Entry(methods={"transform": _standard}, accepts_nan=True),
    "RobustScaler": Entry(methods={"transform": _robust}, accepts_nan=True),
    "MaxAbsScaler": Entry(methods={"transform": _max_abs}, accepts_nan=True),
    "MinMaxScaler": Entry(methods={"transform": _min_max}, accepts_nan=True),
    "Normalizer": Entry(methods={"transform": _normalizer}),
    "Binarizer": Entry(methods={"transform": _binarizer}),
    "KernelCenterer": Entry(methods={"transform": _kernel_centerer}),
}
