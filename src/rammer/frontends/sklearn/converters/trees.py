"""Decision trees, forests and boosting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from rammer.frontends.sklearn.converters.classes import two_columns
from rammer.frontends.sklearn.functions import expit
from rammer.frontends.sklearn.node import Convert, Entry, Labels, Node, Several, Value, columnwise
from rammer.frontends.sklearn.table import Table
from rammer.frontends.sklearn.tensor import Tensor
from rammer.frontends.trees import scikit_learn
from rammer.frontends.trees.build import add_ensemble
from rammer.frontends.trees.ensemble import TreeEnsemble
from rammer.ir.types import DType


def sums(node: Node, table: Table, source: TreeEnsemble, *, missing: float = np.nan) -> Tensor:
    """What an ensemble gives, `[rows, outputs]`, from those columns alone that its trees look at.

    Args:
        node: the estimator.
        table: its features.
        source: its trees.
        missing: a number that counts as NaN.
    """
    nodes, linear = source.nodes, source.linear
    looked_at = [nodes.feature[nodes.feature >= 0]]
    looked_at += [] if linear is None else [linear.feature[linear.feature >= 0]]
    used = np.unique(np.concatenate(looked_at)).astype(np.intp)
    used = used if used.size else np.zeros(1, np.intp)
    chosen = replace(
        source,
        nodes=replace(nodes, feature=_places(nodes.feature, used)),
        features=len(used),
        linear=None if linear is None else replace(linear, feature=_places(linear.feature, used)),
    )
    rows = table.take(node, used)
    if not np.isnan(missing):
        rows = rows.equals(missing).choose(node.constant_tensor(np.nan), rows)
    return Tensor(node, add_ensemble(node, rows.operand, chosen))


def _places(feature: Any, used: Any) -> Any:
    return np.where(feature < 0, -1, np.searchsorted(used, feature)).astype(np.int32)


def _columns_of(node: Node, outputs: Tensor, counts: Iterable[int]) -> list[Tensor]:
    """Columns in groups of so many."""
    ends = np.cumsum([0, *counts])
    return [outputs.take(np.arange(first, last)) for first, last in pairwise(ends)]


def vector(node: Node, outputs: Tensor) -> Tensor:
    """A single column as a vector."""
    return outputs.reshape(node.rows) if outputs.shape[1] == 1 else outputs


def likeliest(node: Node, table: Table) -> Labels:
    """The class of the greatest probability."""
    return node.labels(node.tensor("predict_proba", table).argmax())


# Trees and forests.


def classic(node: Node, table: Table, source: TreeEnsemble) -> Tensor:
    """Features are converted to float32, in which they have to be finite, or NaN."""
    found = sums(node, table, source)
    used = np.unique(source.nodes.feature[source.nodes.feature >= 0]).astype(np.intp)
    if used.size:
        rows = table.take(node, used).to(DType.FLOAT32)
        node.refuse(rows.abs().equals(np.inf).any(), "a feature is too large for float32, which the trees compare in")
    return found


def _mean(node: Node, table: Table) -> Tensor:
    return vector(node, classic(node, table, scikit_learn.read_forest(node.estimator)))


def _shares(node: Node, table: Table) -> Value:
    model = node.estimator
    found = classic(node, table, scikit_learn.read_forest(model))
    if not isinstance(model.n_classes_, list | np.ndarray):
        return found
    return Several(tuple(_columns_of(node, found, model.n_classes_)), "list")


def _logarithms(node: Node, table: Table) -> Value:
    found = node.value("predict_proba", table)
    if isinstance(found, Several):
        return Several(tuple(part.log() for part in found.parts if isinstance(part, Tensor)), "list")
    return node.tensor("predict_proba", table).log()


def _greatest_share(node: Node, table: Table) -> Value:
    model = node.estimator
    found = node.value("predict_proba", table)
    if isinstance(found, Several):
        pairs = zip(found.parts, model.classes_, strict=True)
        labels = (Labels(part.argmax(), np.asarray(own)) for part, own in pairs if isinstance(part, Tensor))
        return Several(tuple(labels), "columns")
    assert isinstance(found, Tensor)  # shares of one target
    return node.labels(found.argmax())


def _takes_nan(model: Any) -> bool:
    """Whether NaN is data for the trees of a model: that follows from settings that all of them have in common."""
    first = model.estimators_[0] if hasattr(model, "estimators_") else model
    return bool(first._support_missing_values(np.zeros((1, 1))))


# Boosting.


def _boosted(node: Node, table: Table) -> Tensor:
    found = classic(node, table, scikit_learn.read_gradient_boosting(node.estimator))
    return vector(node, found + _first_scores(node, table) if _beginning(node.estimator) else found)


def _beginning(model: Any) -> list[tuple[str, Any]]:
    """The estimator whose predictions boosting begins with, if it is not a constant."""
    begins_with = scikit_learn.first_estimator(model)
    return [] if begins_with is None else [("init_", begins_with)]


def _first_scores(node: Node, table: Table) -> Tensor:
    """The scores that boosting begins with, by the estimator that predicts them from features in float32."""
    model = node.estimator
    ((name, begins_with),) = _beginning(model)
    rounded = columnwise(node, table, lambda columns, _: columns.to(DType.FLOAT32).real())
    member = node.part(name, begins_with)
    if not hasattr(model, "classes_"):
        return member.tensor("predict", rounded).reshape(node.rows, 1)
    least = scikit_learn.least_first_probability(model)
    likely = member.tensor("predict_proba", rounded).clip(least, 1.0 - least)
    if len(model.classes_) > 2:
        return likely.log() - likely.log().mean(keep=True)
    likely = likely.take([1])
    return (likely / (1.0 - likely)).log() * (0.5 if model.loss == "exponential" else 1.0)


def _boosted_shares(node: Node, table: Table) -> Tensor:
    scores = node.tensor("decision_function", table)
    if len(scores.shape) == 2:
        return scores.softmax()
    is_exponential = getattr(node.estimator, "loss", "log_loss") == "exponential"
    likely = expit(scores * 2.0 if is_exponential else scores)
    return two_columns(1.0 - likely, likely)


def _boosted_class(node: Node, table: Table) -> Labels:
    scores = node.tensor("decision_function", table)
    places = scores.argmax() if len(scores.shape) == 2 else (scores >= 0.0).to(DType.INT64)
    return node.labels(places)


def _histogram(node: Node, table: Table) -> Tensor:
    categories = sorted(scikit_learn.categories_of(node.estimator))
    if categories:
        node.refuse(table.take(node, categories).abs().equals(np.inf).any(), "an infinity in a categorical feature")
    return vector(node, sums(node, table, scikit_learn.read_hist_gradient_boosting(node.estimator, encoded=False)))


def _histogram_prediction(node: Node, table: Table) -> Tensor:
    found = _histogram(node, table)
    return found.exp() if type(node.estimator._loss.link).__name__ == "LogLink" else found


def _texts_as_categories(model: Any) -> Iterable[str]:
    for categories in scikit_learn.categories_of(model).values():
        if categories.dtype.kind not in "biuf":
            yield "categories that are texts: encode them with an OrdinalEncoder before"
            return


# Isolation forests.


def _isolation(node: Node, table: Table) -> Tensor:
    model = node.estimator
    length = sums(node, table, scikit_learn.read_isolation_forest(model)).reshape(node.rows)
    return -((length / -scikit_learn.isolation_scale(model)) * float(np.log(2.0))).exp()


def _isolation_margin(node: Node, table: Table) -> Tensor:
    return node.tensor("score_samples", table) - float(node.estimator.offset_)


def _isolated(node: Node, table: Table) -> Labels:
    return Labels((node.tensor("decision_function", table) >= 0.0).to(DType.INT64), np.array([-1, 1]))


def _forest(classifies: bool) -> Entry:
    methods: dict[str, Convert] = {"predict": _mean}
    if classifies:
        methods = {"predict_proba": _shares, "predict_log_proba": _logarithms, "predict": _greatest_share}
    return Entry(methods=methods, accepts_nan=_takes_nan)


_FORESTS = ("DecisionTree", "ExtraTree", "RandomForest", "ExtraTrees")

ENTRIES: Mapping[str, Entry] = {
    **{f"{name}Regressor": _forest(classifies=False) for name in _FORESTS},
    **{f"{name}Classifier": _forest(classifies=True) for name in _FORESTS},
    "GradientBoostingRegressor": Entry(methods={"predict": _boosted}, parts=_beginning),
    "GradientBoostingClassifier": Entry(
        methods={"decision_function": _boosted, "predict_proba": _boosted_shares, "predict": _boosted_class},
        parts=_beginning,
    ),
    "HistGradientBoostingRegressor": Entry(
        methods={"predict": _histogram_prediction}, refusals=_texts_as_categories, checks=False
    ),
    "HistGradientBoostingClassifier": Entry(
        methods={"decision_function": _histogram, "predict_proba": _boosted_shares, "predict": likeliest},
        refusals=_texts_as_categories,
        checks=False,
    ),
    "IsolationForest": Entry(
        methods={"score_samples": _isolation, "decision_function": _isolation_margin, "predict": _isolated},
        checks=False,
    ),
}
