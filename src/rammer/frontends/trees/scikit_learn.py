"""Trees of scikit-learn's fitted estimators; nothing of scikit-learn is imported.

Its classic trees convert features to float32 and compare them with float64 thresholds; histogram gradient boosting
compares in float64. Both add up in float64. Rows are what the estimator's trees see: the caller selects features of
bagged estimators, and encodes categories as histogram gradient boosting's own encoder does.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.frontends.trees.ensemble import (
    Reals,
    Tree,
    TreeEnsemble,
    ValueSet,
    ensemble,
    rounded_down,
    single_leaf,
    tree,
)
from rammer.ir.types import DType


def read_tree(fitted: Any, value: npt.ArrayLike | None = None) -> Tree:
    """The tree of a fitted `DecisionTree*` or `ExtraTree*`.

    Args:
        fitted: the estimator.
        value: what each node gives, [nodes] or [nodes, values]; None: for a regressor its predictions, for a classifier
            the shares of classes, those of several targets side by side.
    """
    found = fitted.tree_
    return tree(
        found.feature,
        rounded_down(found.threshold, DType.FLOAT32),
        found.children_left,
        found.children_right,
        node_values(fitted) if value is None else value,
        missing_left=np.asarray(found.missing_go_to_left, np.bool_),
    )


def node_values(fitted: Any) -> Reals:
    """What each node of a fitted tree gives, [nodes, values]; see `read_tree`."""
    values = np.asarray(fitted.tree_.value, np.float64)
    counts = getattr(fitted, "n_classes_", None)
    if counts is None:
        return values[:, :, 0]
    return np.concatenate([values[:, target, :count] for target, count in enumerate(np.atleast_1d(counts))], axis=1)


def read_forest(fitted: Any) -> TreeEnsemble:
    """A single tree, or a forest of `RandomForest*` or `ExtraTrees*`: predictions, or shares of classes, averaged."""
    members = getattr(fitted, "estimators_", [fitted])
    return _float64([read_tree(member) for member in members], fitted, divisor=float(len(members)))


def read_gradient_boosting(fitted: Any) -> TreeEnsemble:
    """The raw predictions of `GradientBoosting*`, one for each class, or one; but for those of `first_estimator`."""
    rate, stages = float(fitted.learning_rate), fitted.estimators_
    base = 0.0
    if first_estimator(fitted) is None:
        base = fitted._raw_predict_init(np.zeros((1, fitted.n_features_in_), np.float32))[0]
    trees = [read_tree(member, rate * member.tree_.value[:, 0, 0]) for stage in stages for member in stage]
    return _float64(trees, fitted, outputs=stages.shape[1], target=_in_turn(stages), base=base)


def first_estimator(fitted: Any) -> Any | None:
    """The estimator whose predictions `GradientBoosting*` begins with; None where it begins with constants."""
    first = getattr(fitted, "init_", "zero")
    is_constant = isinstance(first, str) or type(first).__name__ in ("DummyClassifier", "DummyRegressor")
    return None if is_constant else first


class _Certain:
    """A classifier that is sure of the first class."""

    def __init__(self, count: int) -> None:
        self._count = count

    def predict_proba(self, rows: npt.NDArray[np.generic]) -> Reals:
        return np.eye(self._count)[np.zeros(len(rows), np.intp)]


def least_first_probability(fitted: Any) -> float:
    """What `GradientBoostingClassifier` raises probabilities of `first_estimator` to, which depends on the release."""
    certain = copy(fitted)
    certain.init_ = _Certain(len(fitted.classes_))
    scores = certain._raw_predict_init(np.zeros((1, fitted.n_features_in_), np.float32))[0]
    odds = scores[1] - scores[0] if len(scores) > 1 else scores[0] * (2.0 if fitted.loss == "exponential" else 1.0)
    return float(1.0 / (1.0 + np.exp(-odds)))


def read_isolation_forest(fitted: Any) -> TreeEnsemble:
    """The lengths of paths in an `IsolationForest`, added up: the score is -2^-(sum / `isolation_scale`)."""
    trees = []
    for number, member in enumerate(fitted.estimators_):
        lengths = fitted._decision_path_lengths[number] + fitted._average_path_length_per_tree[number] - 1.0
        found = read_tree(member, lengths)
        chosen = np.asarray(fitted.estimators_features_[number], np.int32)
        trees.append(_with_features(found, chosen))
    return _float64(trees, fitted)


def isolation_scale(fitted: Any) -> float:
    """The length of paths that an isolation forest's scores are about."""
    samples = float(fitted._max_samples)
    # The mean length of an unsuccessful search in a binary tree of so many leaves (Liu et al. 2008, equation 1).
    mean = 2.0 * (np.log(samples - 1.0) + np.euler_gamma) - 2.0 * (samples - 1.0) / samples if samples > 2 else 0.0
    mean = 1.0 if samples == 2 else mean
    return float(len(fitted.estimators_) * mean)


def read_ada_boost(fitted: Any) -> TreeEnsemble:
    """`AdaBoostClassifier` of decision trees: the weighted votes for each class, over the sum of the weights."""
    classes, weights = np.asarray(fitted.classes_), np.asarray(fitted.estimator_weights_, np.float64)
    trees = []
    for member, weight in zip(fitted.estimators_, weights[: len(fitted.estimators_)], strict=True):
        shares = member.tree_.value[:, 0, :]
        if votes_by_shares(fitted):
            logs = np.log(np.maximum(shares, np.finfo(np.float64).eps))
            votes = (len(classes) - 1) * (logs - logs.mean(axis=1, keepdims=True))
        else:
            votes = ballots(member.classes_, classes, weight)[shares.argmax(axis=1)]
        trees.append(read_tree(member, votes))
    return _float64(trees, fitted, divisor=float(weights.sum()))


def votes_by_shares(fitted: Any) -> bool:
    """Whether members of an `AdaBoostClassifier` vote by their probabilities; scikit-learn 1.6 took that out."""
    return getattr(fitted, "algorithm", "SAMME") == "SAMME.R"


def ballots(own: npt.ArrayLike, classes: npt.ArrayLike, weight: float) -> Reals:
    """For each of its own classes, what a member of an `AdaBoostClassifier` votes for all classes."""
    chosen, known = np.asarray(own), np.asarray(classes)
    return np.where(chosen[:, None] == known, weight, -1.0 / (len(known) - 1) * weight)


def read_each(fitted: Any) -> TreeEnsemble:
    """The predictions of each tree of an ensemble of regression trees, side by side (for a weighted median)."""
    trees = [read_tree(member, member.tree_.value[:, 0, 0]) for member in fitted.estimators_]
    return _float64(trees, fitted, outputs=len(trees), target=np.arange(len(trees)))


def categories_of(fitted: Any) -> dict[int, npt.NDArray[Any]]:
    """The categories of each categorical feature of `HistGradientBoosting*`, by the number of the feature."""
    if getattr(fitted, "_preprocessor", None) is None:
        return {}
    encoder = fitted._preprocessor.named_transformers_["encoder"]
    return dict(zip(np.flatnonzero(fitted.is_categorical_).tolist(), encoder.categories_, strict=True))


def read_hist_gradient_boosting(fitted: Any, *, encoded: bool = True) -> TreeEnsemble:
    """The raw predictions of `HistGradientBoosting*`.

    Args:
        fitted: the estimator.
        encoded: whether rows are as its own preprocessor leaves them: categorical features first, each category its
            number among those that were fitted, unknown ones NaN. Else they are as it takes them, categories numbers.
    """
    known = fitted._bin_mapper.make_known_categories_bitsets()
    categories, count = categories_of(fitted), int(fitted._n_features)
    # Where each feature of the trees is among those that the estimator takes.
    others = [feature for feature in range(count) if feature not in categories]
    order = np.arange(count) if encoded else np.array([*categories, *others])
    stages, sets, trees = fitted._predictors, list[ValueSet](), []
    for stage in stages:
        for predictor in stage:
            nodes = predictor.nodes
            leaf = nodes["is_leaf"].astype(bool)
            numbers = np.full(len(nodes), -1, np.int32)
            for at in np.flatnonzero(nodes["is_categorical"].astype(bool) & ~leaf):
                numbers[at] = len(sets)
                names = None if encoded else categories[int(order[nodes[at]["feature_idx"]])]
                sets.append(_category_set(predictor, nodes[at], known, names))
            trees.append(
                tree(
                    np.where(leaf, -1, order[np.where(leaf, 0, nodes["feature_idx"])]),
                    nodes["num_threshold"],
                    nodes["left"],
                    nodes["right"],
                    nodes["value"],
                    missing_left=nodes["missing_go_to_left"].astype(bool),
                    sets=numbers,
                )
            )
    base = np.asarray(fitted._baseline_prediction, np.float64).reshape(-1)
    target = np.tile(np.arange(len(base)), len(stages))
    if not trees:
        trees, target = [single_leaf(0.0)], np.zeros(1, np.int64)
    return ensemble(
        trees,
        features=count,
        compare=DType.FLOAT64,
        total=DType.FLOAT64,
        outputs=len(base),
        target=target,
        base=base,
        sets=sets,
    )


def _category_set(
    predictor: Any,
    node: Any,
    known: Any,
    names: npt.NDArray[Any] | None,
) -> ValueSet:
    """Where a category goes at a node: unknown ones as missing values do. `names`: what categories are called."""
    bits, places = known
    listed = _members(predictor.raw_left_cat_bitsets[node["bitset_idx"]])
    if not node["missing_go_to_left"]:
        return ValueSet(_categories(listed, names))
    others = sorted(set(_members(bits[places[node["feature_idx"]]])) - set(listed))
    return ValueSet(_categories(others, names), members_left=False)


def _members(bits: npt.NDArray[np.uint32]) -> list[int]:
    return [32 * word + bit for word, mask in enumerate(bits) for bit in range(32) if int(mask) >> bit & 1]


def _categories(numbers: Sequence[int], names: npt.NDArray[Any] | None) -> tuple[tuple[float, float], ...]:
    if names is not None:
        return tuple(sorted((float(names[number]), float(names[number])) for number in numbers))
    return tuple((float(number), float(np.nextafter(number + 1.0, 0.0))) for number in numbers)


def _with_features(found: Tree, chosen: npt.NDArray[np.int32]) -> Tree:
    """The tree of rows from which its own features were chosen."""
    feature = np.where(found.feature < 0, -1, chosen[found.feature])
    return tree(feature, found.threshold, found.left, found.right, found.value, missing_left=found.missing_left)


def _in_turn(stages: npt.NDArray[np.object_]) -> npt.NDArray[np.intp]:
    """The output of each tree, class after class in every stage."""
    return np.tile(np.arange(stages.shape[1]), stages.shape[0])


def _float64(trees: Sequence[Tree], fitted: Any, **more: Any) -> TreeEnsemble:
    return ensemble(trees, features=int(fitted.n_features_in_), compare=DType.FLOAT32, total=DType.FLOAT64, **more)
