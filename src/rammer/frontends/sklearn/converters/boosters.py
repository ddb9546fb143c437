"""The estimators of XGBoost, LightGBM and CatBoost, and the boosters inside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rammer.errors import UnsupportedFeatureError
from rammer.frontends.sklearn.converters.classes import two_columns
from rammer.frontends.sklearn.converters.trees import likeliest, sums, vector
from rammer.frontends.sklearn.node import Convert, Entry, Labels, Node, Several, Value
from rammer.frontends.sklearn.table import Table
from rammer.frontends.sklearn.tensor import Tensor
from rammer.frontends.trees import catboost, lightgbm, xgboost
from rammer.frontends.trees.links import Link, add_link
from rammer.ir.types import DType

_CATEGORIES = "categories of data frames: give their codes as numbers"


def _linked(node: Node, outputs: Tensor, link: Link) -> Tensor:
    return Tensor(node, add_link(node, outputs.operand, link))


def _rounds(model: Any) -> int | None:
    """The rounds that predictions take: up to the best one, where fitting stopped early."""
    best = getattr(model.get_booster(), "best_iteration", None) if model.early_stopping_rounds is not None else None
    return None if best is None else int(best) + 1


def _xgboost(node: Node, table: Table) -> tuple[Tensor, Link]:
    model = node.estimator
    missing = np.nan if model.missing is None else float(model.missing)
    return _xgboost_margins(node, table, xgboost.read_booster(model.get_booster(), _rounds(model)), missing)


def _xgboost_margins(
    node: Node, table: Table, read: xgboost.XGBoostModel, missing: float = np.nan
) -> tuple[Tensor, Link]:
    if read.margin is not None:
        return sums(node, table, read.margin, missing=missing), read.link
    assert read.weight is not None  # it is linear
    assert read.bias is not None
    rows = table.all(node).to(DType.FLOAT32)
    is_missing = rows.is_nan() if np.isnan(missing) else rows.is_nan() | rows.equals(missing)
    present = is_missing.choose(Tensor(node, node.constant(np.zeros((), np.float32))), rows)
    return present @ read.weight + read.bias, read.link


def _xgboost_prediction(node: Node, table: Table) -> Tensor:
    return vector(node, _linked(node, *_xgboost(node, table)))


def _bare_xgboost_prediction(node: Node, table: Table) -> Tensor:
    """A booster takes all rounds, wherever fitting found the best one."""
    return vector(node, _linked(node, *_xgboost_margins(node, table, xgboost.read_booster(node.estimator))))


def _xgboost_shares(node: Node, table: Table) -> Tensor:
    outputs, link = _xgboost(node, table)
    likely = _linked(node, outputs, Link.SOFTMAX if link is Link.ARGMAX else link)
    if likely.shape[1] > 1:
        return likely
    return two_columns(1.0 - likely.reshape(node.rows), likely.reshape(node.rows))


def _xgboost_class(node: Node, table: Table) -> Labels:
    outputs, link = _xgboost(node, table)
    if outputs.shape[1] > 1:
        classes = np.asarray(node.estimator.classes_)
        return node.labels(outputs.argmax(), classes.astype(np.int32) if link is Link.ARGMAX else classes)
    return node.labels((_linked(node, outputs, link).reshape(node.rows) > 0.5).to(DType.INT64))


def _unknown_to_bare_xgboost(booster: Any) -> Iterable[str]:
    yield from _unread_by_xgboost(booster)
    if booster.feature_names is not None and "c" in (booster.feature_types or ()):
        yield _CATEGORIES


def _unread_by_xgboost(booster: Any) -> Iterable[str]:
    try:
        xgboost.read_booster(booster)
    except UnsupportedFeatureError as error:
        yield error.message


def _unknown_to_xgboost(model: Any) -> Iterable[str]:
    booster = model.get_booster()
    yield from _unread_by_xgboost(booster)
    if getattr(model, "enable_categorical", False) and "c" in (booster.feature_types or ()):
        yield _CATEGORIES
    if np.ndim(getattr(model, "n_classes_", 0)) > 0:
        yield "several targets"


def _lightgbm(node: Node, table: Table) -> tuple[Tensor, Link]:
    read = lightgbm.read_booster(_booster_of(node.estimator))
    found = sums(node, table, read.raw)
    return (found if read.scale == 1.0 else found * read.scale), read.link


def _booster_of(model: Any) -> Any:
    """The booster of an estimator of LightGBM's, or itself."""
    return getattr(model, "booster_", model)


def _lightgbm_prediction(node: Node, table: Table) -> Tensor:
    return vector(node, _linked(node, *_lightgbm(node, table)))


def _lightgbm_shares(node: Node, table: Table) -> Tensor:
    likely = _linked(node, *_lightgbm(node, table))
    if likely.shape[1] > 1:
        return likely
    return two_columns(1.0 - likely.reshape(node.rows), likely.reshape(node.rows))


def _unknown_to_lightgbm(model: Any) -> Iterable[str]:
    booster = _booster_of(model)
    try:
        lightgbm.read_booster(booster)
    except UnsupportedFeatureError as error:
        yield error.message
    if booster.pandas_categorical:
        yield _CATEGORIES


def _lightgbm_names(model: Any) -> Sequence[str] | None:
    booster = _booster_of(model)
    return _given(booster.feature_name(), [f"Column_{place}" for place in range(booster.num_feature())])


def _given(names: Sequence[str], usual: Sequence[str]) -> Sequence[str] | None:
    """Names, if they are not those that a library gives to columns without any."""
    return None if list(names) == list(usual) else list(names)


def _catboost(node: Node, table: Table) -> Tensor:
    read = catboost.read_model(node.estimator)
    return _linked(node, sums(node, table, read.raw), read.link)


def _bare_catboost_prediction(node: Node, table: Table) -> Tensor:
    """`CatBoost.predict` gives raw values."""
    return vector(node, sums(node, table, catboost.read_model(node.estimator).raw))


def _catboost_prediction(node: Node, table: Table) -> Tensor:
    return vector(node, _catboost(node, table))


def _catboost_shares(node: Node, table: Table) -> Tensor:
    likely = _catboost(node, table)
    if likely.shape[1] > 1:
        return likely
    return two_columns(1.0 - likely.reshape(node.rows), likely.reshape(node.rows))


def _catboost_class(node: Node, table: Table) -> Value:
    """A vector for two classes, a column for more."""
    labels = likeliest(node, table)
    return labels if len(node.estimator.classes_) == 2 else Several((labels,), "columns")


def _unknown_to_catboost(model: Any) -> Iterable[str]:
    try:
        catboost.read_model(model)
    except UnsupportedFeatureError as error:
        yield error.message
    if np.ndim(getattr(model, "classes_", ())) > 1:
        yield "several targets"


def _catboost_features(model: Any) -> int | None:
    """Models that were loaded have no `n_features_in_`."""
    return len(model.feature_names_)


def _catboost_names(model: Any) -> Sequence[str] | None:
    names = model.feature_names_
    return _given(names, [str(place) for place in range(len(names))])


def _catboost_entry(methods: Mapping[str, Convert]) -> Entry:
    return Entry(
        methods=methods,
        refusals=_unknown_to_catboost,
        checks=False,
        features=_catboost_features,
        names=_catboost_names,
    )


ENTRIES: Mapping[str, Entry] = {
    **{
        name: Entry(methods={"predict": _xgboost_prediction}, refusals=_unknown_to_xgboost, accepts_nan=True)
        for name in ("XGBRegressor", "XGBRFRegressor", "XGBRanker")
    },
    **{
        name: Entry(
            methods={"predict_proba": _xgboost_shares, "predict": _xgboost_class},
            refusals=_unknown_to_xgboost,
            accepts_nan=True,
        )
        for name in ("XGBClassifier", "XGBRFClassifier")
    },
    **{
        name: Entry(
            methods={"predict": _lightgbm_prediction},
            refusals=_unknown_to_lightgbm,
            checks=False,
            names=_lightgbm_names,
        )
        for name in ("LGBMRegressor", "LGBMRanker")
    },
    "CatBoost": _catboost_entry({"predict": _bare_catboost_prediction}),
    "CatBoostRegressor": _catboost_entry({"predict": _catboost_prediction}),
    "CatBoostRanker": _catboost_entry({"predict": _catboost_prediction}),
    "CatBoostClassifier": _catboost_entry({"predict_proba": _catboost_shares, "predict": _catboost_class}),
    "xgboost.Booster": Entry(
        methods={"predict": _bare_xgboost_prediction},
        refusals=_unknown_to_bare_xgboost,
        accepts_nan=True,
        features=lambda booster: int(booster.num_features()),
        names=lambda booster: booster.feature_names,
    ),
    "lightgbm.Booster": Entry(
        methods={"predict": _lightgbm_prediction},
        refusals=_unknown_to_lightgbm,
        checks=False,
        features=lambda booster: int(booster.num_feature()),
        names=_lightgbm_names,
    ),
    "LGBMClassifier": Entry(
        methods={"predict_proba": _lightgbm_shares, "predict": likeliest},
        refusals=_unknown_to_lightgbm,
        checks=False,
        names=_lightgbm_names,
    ),
}
