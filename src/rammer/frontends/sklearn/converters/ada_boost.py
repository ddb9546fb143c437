"""AdaBoost: votes of classifiers, weighted medians of regressors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rammer.frontends.sklearn.converters.classes import labels_of_scores, two_columns
from rammer.frontends.sklearn.converters.trees import classic
from rammer.frontends.sklearn.node import Entry, Labels, Node
from rammer.frontends.sklearn.table import Table
from rammer.frontends.sklearn.tensor import Tensor, stacked
from rammer.frontends.trees import scikit_learn


def _votes(node: Node, table: Table) -> Tensor:
    if _others(node.estimator):
        found = _votes_of_others(node, table)
    else:
        found = classic(node, table, scikit_learn.read_ada_boost(node.estimator))
    return found.column(1) - found.column(0) if found.shape[1] == 2 else found


def _votes_of_others(node: Node, table: Table) -> Tensor:
    """The votes for each class where members are no trees, as `read_ada_boost` has them."""
    model = node.estimator
    count, weights = len(model.classes_), np.asarray(model.estimator_weights_, np.float64)
    total = node.filled(0.0, node.rows, count)
    for (name, member), weight in zip(_others(model), weights, strict=False):
        part = node.part(name, member)
        if scikit_learn.votes_by_shares(model):
            shares = part.tensor("predict_proba", table).maximum(float(np.finfo(np.float64).eps)).log()
            total = total + (shares - shares.mean(keep=True)) * float(count - 1)
        else:
            chosen = part.value("predict", table)
            assert isinstance(chosen, Labels)  # it is a classifier
            total = total + chosen.places.look_up(scikit_learn.ballots(chosen.classes, model.classes_, weight))
    return total / float(weights.sum())


def _votes_as_shares(node: Node, table: Table) -> Tensor:
    votes = node.tensor("decision_function", table)
    if len(votes.shape) == 1:
        return two_columns(votes / -2.0, votes / 2.0).softmax()
    return (votes / float(votes.shape[1] - 1)).softmax()


def _voted(node: Node, table: Table) -> Labels:
    return labels_of_scores(node, node.tensor("decision_function", table))


def _weighted_median(node: Node, table: Table) -> Tensor:
    """The least prediction such that those up to it have at least half of the weights."""
    model = node.estimator
    if others := _others(model):
        parts = [node.part(name, member).tensor("predict", table) for name, member in others]
        found = stacked(parts)
    else:
        found = classic(node, table, scikit_learn.read_each(model))
        parts = [found.column(place) for place in range(found.shape[1])]
    weights = np.asarray(model.estimator_weights_[: len(parts)], np.float64)
    reached = []
    for part in parts:
        up_to = (found <= part.new_axis(1)).real() * weights
        is_enough = up_to.sum() >= 0.5 * float(weights.sum())
        reached.append(is_enough.choose(part, np.inf))
    return stacked(reached).min()


def _others(model: Any) -> list[tuple[str, Any]]:
    """The members, unless all are trees, which are read at once."""
    if all(hasattr(member, "tree_") for member in model.estimators_):
        return []
    return [(f"estimators_.{number}", member) for number, member in enumerate(model.estimators_)]


def _of_one_class(model: Any) -> Iterable[str]:
    if len(model.classes_) < 2:
        yield "a single class"


ENTRIES: Mapping[str, Entry] = {
    "AdaBoostClassifier": Entry(
        methods={"decision_function": _votes, "predict_proba": _votes_as_shares, "predict": _voted},
        refusals=_of_one_class,
        parts=_others,
    ),
    "AdaBoostRegressor": Entry(methods={"predict": _weighted_median}, parts=_others),
}
