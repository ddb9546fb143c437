"""Estimators that put the predictions of others together: by votes, means, stacks, calibration, chains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from rammer.frontends.sklearn.converters.classes import labels_of_scores, two_columns
from rammer.frontends.sklearn.converters.functions import inverse_of, inverse_refusals
from rammer.frontends.sklearn.converters.linear import shares
from rammer.frontends.sklearn.converters.others import interpolated
from rammer.frontends.sklearn.converters.svm import votes
from rammer.frontends.sklearn.functions import expit
from rammer.frontends.sklearn.node import Entry, Labels, Node, Several, Value, tabled
from rammer.frontends.sklearn.table import Table, beside
from rammer.frontends.sklearn.tensor import Tensor, concatenated, stacked
from rammer.ir.types import DType

_Parts = list[tuple[str, Any]]


def _members(model: Any) -> _Parts:
    return [(f"estimators_.{number}", member) for number, member in enumerate(model.estimators_)]


def _member_nodes(node: Node) -> list[Node]:
    return [node.part(name, member) for name, member in _members(node.estimator)]


def _sum(parts: Iterable[Tensor]) -> Tensor:
    total, *rest = parts
    for part in rest:
        total = total + part
    return total


def _average(parts: list[Tensor], weights: Any) -> Tensor:
    if weights is None:
        return _sum(parts) / float(len(parts))
    return _sum(part * float(weight) for part, weight in zip(parts, weights, strict=True)) / float(np.sum(weights))


# Votes.


def _voted_probabilities(node: Node, table: Table) -> Tensor:
    found = [member.tensor("predict_proba", table) for member in _member_nodes(node)]
    return _average(found, node.estimator._weights_not_none)


def _voted_labels(node: Node, table: Table) -> Labels:
    model = node.estimator
    if model.voting == "soft":
        return node.labels(node.tensor("predict_proba", table).argmax())
    count = len(model.classes_)
    weights = model._weights_not_none or [1.0] * len(model.estimators_)
    ballots = []
    for member, weight in zip(_member_nodes(node), weights, strict=True):
        place = member.tensor("predict", table).to(DType.INT64)
        ballots.append(place.look_up(np.eye(count) * float(weight)))
    return node.labels(_sum(ballots).argmax())


def _voters(node: Node, table: Table) -> Table:
    """The votes as features: probabilities side by side, or predictions."""
    soft = getattr(node.estimator, "voting", None) == "soft"
    method = "predict_proba" if soft else "predict"
    return beside([_predicted(member, method, table) for member in _member_nodes(node)])


def _predicted(member: Node, method: str, table: Table) -> Table:
    """What a method gives as features; the numbers of classes are integers."""
    is_label = isinstance(member.value(method, table), Labels)
    return tabled(member.tensor(method, table), DType.INT64 if is_label else DType.FLOAT64)


def _voted_mean(node: Node, table: Table) -> Tensor:
    found = [member.tensor("predict", table) for member in _member_nodes(node)]
    return _average(found, node.estimator._weights_not_none)


def _voting_lacks(model: Any) -> Iterable[str]:
    if model.voting == "hard":
        return ["predict_proba", "predict_log_proba"]
    return [] if model.flatten_transform else ["transform"]


# Stacks.


def _stacked(node: Node, table: Table) -> Table:
    model = node.estimator
    fitted = [(name, member) for name, member in model.estimators if not isinstance(member, str)]
    parts = []
    for (name, _), member, method in zip(fitted, model.estimators_, model.stack_method_, strict=True):
        found = _predicted(node.part(name, member), method, table)
        is_pair = method == "predict_proba" and len(model.classes_) == 2
        parts.append(found.select([1]) if is_pair else found)
    return beside([*parts, table] if model.passthrough else parts)


def _stack_final(method: str, node: Node, table: Table) -> Value:
    model = node.estimator
    value = node.part("final_estimator_", model.final_estimator_).value(method, node.table(table))
    if not isinstance(value, Labels):
        return value
    return Labels(value.places, np.asarray(model.classes_)[value.classes.astype(np.intp)])


def _stack_parts(model: Any) -> _Parts:
    return [*_members(model), ("final_estimator_", model.final_estimator_)]


def _stack_refusals(model: Any) -> Iterable[str]:
    if isinstance(getattr(model, "_label_encoder", None), list):
        yield "several targets"


def _stack_lacks(model: Any) -> Iterable[str]:
    return [m for m in ("predict_proba", "decision_function") if not hasattr(model.final_estimator_, m)]


# Bags.


def _bagged(node: Node, table: Table) -> Iterable[tuple[Node, Table]]:
    return zip(
        _member_nodes(node), (table.select(chosen) for chosen in node.estimator.estimators_features_), strict=True
    )


def _bagged_probabilities(node: Node, table: Table) -> Tensor:
    model = node.estimator
    count = len(model.classes_)
    parts = []
    for member, own in _bagged(node, table):
        if hasattr(member.estimator, "predict_proba"):
            found = member.tensor("predict_proba", own)
            known = np.asarray(member.estimator.classes_, np.intp)
            parts.append(found if len(known) == count else found @ np.eye(count)[known])
        else:
            parts.append(member.tensor("predict", own).to(DType.INT64).look_up(np.eye(count)))
    return _sum(parts) / float(len(parts))


def _bagged_logarithms(node: Node, table: Table) -> Tensor:
    """Added up as logarithms, where the members have those: probabilities may be too small to be numbers."""
    model = node.estimator
    count = len(model.classes_)
    if not hasattr(model.estimator_, "predict_log_proba"):
        return node.tensor("predict_proba", table).log()
    parts = []
    for member, own in _bagged(node, table):
        found = member.tensor("predict_log_proba", own)
        known = np.asarray(member.estimator.classes_, np.intp)
        columns = dict(zip(known.tolist(), (found.column(place) for place in range(len(known))), strict=True))
        none = node.filled(-np.inf, node.rows)
        parts.append(stacked([columns.get(place, none) for place in range(count)]) if len(known) < count else found)
    together = concatenated([part.new_axis(2) for part in parts], axis=2)
    most = together.max(axis=2, keep=True)
    most = most.equals(-np.inf).choose(node.filled(0.0, *most.shape), most)
    total = (together - most).exp().sum(axis=2).log() + most.reshape(node.rows, count)
    return total - float(np.log(len(parts)))


def _bagged_labels(node: Node, table: Table) -> Labels:
    return node.labels(node.tensor("predict_proba", table).argmax())


def _bagged_scores(node: Node, table: Table) -> Tensor:
    return _average([member.tensor("decision_function", own) for member, own in _bagged(node, table)], None)


def _bagged_mean(node: Node, table: Table) -> Tensor:
    return _average([member.tensor("predict", own) for member, own in _bagged(node, table)], None)


# Several targets.


def _each_target(node: Node, table: Table) -> Value:
    parts = []
    for member in _member_nodes(node):
        value = member.value("predict", table)
        if not isinstance(value, Labels | Tensor):
            raise node.unsupported("an estimator whose prediction is no vector")
        parts.append(value)
    return Several(tuple(parts), "columns")


def _each_probability(node: Node, table: Table) -> Several:
    return Several(tuple(member.tensor("predict_proba", table) for member in _member_nodes(node)), "list")


def _response(member: Node, method: str, table: Table) -> Tensor:
    """A vector of responses: of probabilities, those of the second class."""
    found = member.tensor(method, table)
    return found.column(1) if method == "predict_proba" else found


def _chain(method: str, node: Node, table: Table) -> Tensor:
    model = node.estimator
    feedback = getattr(model, "chain_method_", "predict")
    outputs: list[Tensor] = []
    whole = table
    for member in _member_nodes(node):
        outputs.append(_response(member, method, whole))
        whole = beside([whole, tabled(_response(member, feedback, whole))])
    return stacked([outputs[place] for place in np.argsort(model.order_)])


# One against the rest, or against one other.


def _confidence(member: Node, table: Table) -> Tensor:
    """How much a binary estimator says yes."""
    method = _confidence_method(member.estimator)
    return _response(member, method, table)


def _confidence_method(model: Any) -> str:
    if hasattr(model, "decision_function"):
        return "decision_function"
    return "predict_proba" if hasattr(model, "predict_proba") else "predict"


def _threshold(model: Any) -> float:
    return 0.0 if _confidence_method(model) == "decision_function" else 0.5


def _rest_scores(node: Node, table: Table) -> Tensor:
    found = [member.tensor("decision_function", table) for member in _member_nodes(node)]
    return found[0] if len(found) == 1 else stacked(found)


def _rest_labels(node: Node, table: Table) -> Value:
    model = node.estimator
    found = [_confidence(member, table) for member in _member_nodes(node)]
    if model.label_binarizer_.y_type_ == "multiclass":
        return node.labels(stacked(found).argmax())
    chosen = [(scores > _threshold(model.estimators_[0])).to(DType.INT64) for scores in found]
    if model.multilabel_:
        return Several(tuple(Labels(own, np.array([0, 1])) for own in chosen), "columns")
    return node.labels(chosen[0])


def _rest_probabilities(node: Node, table: Table) -> Tensor:
    model = node.estimator
    found = [member.tensor("predict_proba", table).column(1) for member in _member_nodes(node)]
    likely = two_columns(1.0 - found[0], found[0]) if len(found) == 1 else stacked(found)
    if model.multilabel_:
        return likely
    total = likely.sum(keep=True)
    return likely / total.equals(0.0).choose(node.constant_tensor(1.0), total)


def _pair_scores(node: Node, table: Table) -> Tensor:
    model = node.estimator
    members = _member_nodes(node)
    is_second = stacked([member.tensor("predict", table) for member in members]) > 0.5
    found = votes(node, is_second, stacked([_confidence(member, table) for member in members]), len(model.classes_))
    return found.column(1) if len(model.classes_) == 2 else found


def _pair_labels(node: Node, table: Table) -> Labels:
    model = node.estimator
    found = node.tensor("decision_function", table)
    if len(found.shape) == 1:
        return node.labels((found > _threshold(model.estimators_[0])).to(DType.INT64))
    return labels_of_scores(node, found)


def _pairwise(model: Any) -> Iterable[str]:
    if model.pairwise_indices_ is not None:
        yield "estimators that take a kernel of pairs"


def _same_for_all(node: Node, table: Table) -> Tensor:
    return node.filled(float(np.ravel(node.estimator.y_)[0]), node.rows)


def _same_probability(node: Node, table: Table) -> Tensor:
    likely = _same_for_all(node, table)
    return two_columns(1.0 - likely, likely)


# Calibration.


def _calibrated(node: Node, table: Table) -> Tensor:
    model = node.estimator
    found = [_calibrated_one(node, number, own, table) for number, own in enumerate(model.calibrated_classifiers_)]
    return _sum(found) / float(len(found))


def _calibrated_one(node: Node, number: int, model: Any, table: Table) -> Tensor:
    count = len(model.classes)
    inner = node.part(f"calibrated_classifiers_.{number}.estimator", model.estimator)
    method = "decision_function" if hasattr(model.estimator, "decision_function") else "predict_proba"
    response = inner.tensor(method, table)
    if count == 2 and len(response.shape) == 2:
        response = response.column(1)
    columns = [response] if len(response.shape) == 1 else [response.column(i) for i in range(response.shape[1])]
    places = np.searchsorted(model.classes, model.estimator.classes_)
    likely = [node.filled(0.0, node.rows)] * count
    for place, own, calibrator in zip(places, columns, model.calibrators, strict=False):
        likely[place + (count == 2)] = _calibrate(node, number, own, calibrator)
    if count == 2:
        return two_columns(1.0 - likely[1], likely[1])
    return shares(stacked(likely)).minimum(1.0)


def _calibrate(node: Node, number: int, response: Tensor, calibrator: Any) -> Tensor:
    if type(calibrator).__name__ == "IsotonicRegression":
        return interpolated(node.part(f"calibrated_classifiers_.{number}.calibrators", calibrator), response)
    return expit(-(response * float(calibrator.a_) + float(calibrator.b_)))


def _calibration_refusals(model: Any) -> Iterable[str]:
    if model.method not in ("sigmoid", "isotonic"):
        yield f"method={model.method!r}"


def _calibration_parts(model: Any) -> _Parts:
    return [
        (f"calibrated_classifiers_.{number}.estimator", own.estimator)
        for number, own in enumerate(model.calibrated_classifiers_)
    ]


# Targets.


def _transformed_target(node: Node, table: Table) -> Tensor:
    model = node.estimator
    found = node.part("regressor_", model.regressor_).tensor("predict", table)
    matrix = found if len(found.shape) == 2 else found.new_axis(1)
    back = inverse_of(matrix, model.transformer_)
    is_vector = model._training_dim == 1 and back.shape[1] == 1
    return back.reshape(node.rows) if is_vector else back


ENTRIES: Mapping[str, Entry] = {
    "BaggingClassifier": Entry(
        methods={
            "decision_function": _bagged_scores,
            "predict": _bagged_labels,
            "predict_proba": _bagged_probabilities,
            "predict_log_proba": _bagged_logarithms,
        },
        parts=_members,
        checks=False,
    ),
    "BaggingRegressor": Entry(methods={"predict": _bagged_mean}, parts=_members, checks=False),
    "CalibratedClassifierCV": Entry(
        methods={"predict": _bagged_labels, "predict_proba": _calibrated},
        refusals=_calibration_refusals,
        parts=_calibration_parts,
        checks=False,
    ),
    "ClassifierChain": Entry(
        methods={m: partial(_chain, m) for m in ("predict", "predict_proba", "decision_function")}, parts=_members
    ),
    "MultiOutputClassifier": Entry(
        methods={"predict": _each_target, "predict_proba": _each_probability}, parts=_members, checks=False
    ),
    "MultiOutputRegressor": Entry(methods={"predict": _each_target}, parts=_members, checks=False),
    "OneVsOneClassifier": Entry(
        methods={"decision_function": _pair_scores, "predict": _pair_labels},
        refusals=_pairwise,
        parts=_members,
        checks=False,
    ),
    "OneVsRestClassifier": Entry(
        methods={
            "decision_function": _rest_scores,
            "predict": _rest_labels,
            "predict_proba": _rest_probabilities,
        },
        parts=_members,
        checks=False,
    ),
    "RegressorChain": Entry(methods={"predict": partial(_chain, "predict")}, parts=_members),
    "StackingClassifier": Entry(
        methods={
            **{m: partial(_stack_final, m) for m in ("predict", "predict_proba", "decision_function")},
            "transform": _stacked,
        },
        refusals=_stack_refusals,
        parts=_stack_parts,
        lacks=_stack_lacks,
        checks=False,
    ),
    "StackingRegressor": Entry(
        methods={"predict": partial(_stack_final, "predict"), "transform": _stacked}, parts=_stack_parts, checks=False
    ),
    "TransformedTargetRegressor": Entry(
        methods={"predict": _transformed_target},
        refusals=lambda model: inverse_refusals(model.transformer_),
        parts=lambda model: [("regressor_", model.regressor_)],
        checks=False,
    ),
    "VotingClassifier": Entry(
        methods={"predict": _voted_labels, "predict_proba": _voted_probabilities, "transform": _voters},
        parts=_members,
        lacks=_voting_lacks,
        checks=False,
    ),
    "VotingRegressor": Entry(methods={"predict": _voted_mean, "transform": _voters}, parts=_members, checks=False),
    "_ConstantPredictor": Entry(
        methods={
            "decision_function": _same_for_all,
            "predict": _same_for_all,
            "predict_proba": _same_probability,
        },
        checks=False,
    ),
}
