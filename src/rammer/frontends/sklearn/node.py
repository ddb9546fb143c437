"""What a converter sees: one fitted estimator, and what it may ask of the estimators inside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from rammer.frontends.builder import FoldingBuilder
from rammer.frontends.node import ModelNode
from rammer.frontends.sklearn.table import Column, Positions, Table, Vocabulary, computed
from rammer.frontends.sklearn.tensor import Tensor
from rammer.ir.graph import Array, SourceLocation
from rammer.ir.types import DType


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """Classes of rows: a vector of places (int64) in `classes`, which holds the labels."""

    places: Tensor
    classes: Array

    def numbers(self) -> Tensor:
        """The labels as float64.

        Raises:
            ValueError: they are no numbers.
        """
        return self.places.look_up(self.classes.astype(np.float64))


@dataclass(frozen=True, slots=True, eq=False)
class Several:
    """Results for several targets: columns of one array, or a list of arrays."""

    parts: tuple[Tensor | Labels, ...]
    joined: Literal["columns", "list"]


Value: TypeAlias = Table | Tensor | Labels | Several
Convert = Callable[["Node", Table], Value]
"""Adds what a method computes from a table of features."""


def _no_refusals(estimator: Any) -> Iterable[str]:
    return ()


def _itself(estimator: Any) -> Any:
    return estimator


def _fitted_features(estimator: Any) -> int | None:
    return getattr(estimator, "n_features_in_", None)


def _fitted_names(estimator: Any) -> Sequence[str] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _no_parts(estimator: Any) -> Iterable[tuple[str, Any]]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """How a class of estimators is converted.

    Attributes:
        methods: a converter for each method.
        refusals: why an estimator of the class cannot be converted, as many reasons as there are.
        parts: the estimators inside, by name.
        stands_for: the estimator inside whose methods this one has; the class itself where there is none.
        lacks: methods that an estimator has by name only.
        features: how many features an estimator takes; None where it does not know.
        names: those of its columns; None where it was fitted without any.
        accepts_nan: whether NaN in the features is data, or a function of the estimator that says so. Infinities are
            none in any case.
        checks: whether the features are checked for NaN and infinities at all.
    """

    methods: Mapping[str, Convert]
    refusals: Callable[[Any], Iterable[str]] = _no_refusals
    parts: Callable[[Any], Iterable[tuple[str, Any]]] = _no_parts
    stands_for: Callable[[Any], Any] = _itself
    lacks: Callable[[Any], Iterable[str]] = _no_refusals
    features: Callable[[Any], int | None] = _fitted_features
    names: Callable[[Any], Sequence[str] | None] = _fitted_names
    accepts_nan: bool | Callable[[Any], bool] = False
    checks: bool = True

    def takes_nan(self, estimator: Any) -> bool:
        """Whether NaN in the features is data for an estimator of the class."""
        return self.accepts_nan if isinstance(self.accepts_nan, bool) else self.accepts_nan(estimator)


@dataclass(slots=True, kw_only=True, eq=False)
class Session:
    """One conversion: a graph for so many rows, and what its nodes share.

    Attributes:
        name: what messages call the model.
        builder: the graph.
        rows: extent of the axis of rows.
        entry_of: how an estimator is converted.
        vocabularies: what the columns of the input are read as.
        no_nan, no_infinity: columns of the input in which a row may not have any.
        conditions: booleans `[rows]`, each with the reason why rows are refused for which it holds.
        checks: tables that are to be finite, each with the node that says so and whether it takes NaN.
        transformers: the tables that transformers gave, by place.
    """

    name: str
    builder: FoldingBuilder
    rows: int
    entry_of: Callable[[Any], Entry]
    vocabularies: tuple[Vocabulary, ...]
    no_nan: set[int] = field(default_factory=set)
    no_infinity: set[int] = field(default_factory=set)
    conditions: list[tuple[str, Tensor]] = field(default_factory=list)
    checks: list[tuple[Node, Table, bool]] = field(default_factory=list)
    transformers: dict[str, list[Table]] = field(default_factory=dict)
    _checked: set[tuple[str, int]] = field(default_factory=set)
    _results: dict[tuple[str, str, int], tuple[Table, Value]] = field(default_factory=dict)

    def node(self, place: str, estimator: Any) -> Node:
        """The node of an estimator."""
        location = SourceLocation(model=self.name, node=place, op_type=type(estimator).__name__)
        return Node(location=location, builder=self.builder, session=self, estimator=estimator)

    def result(self, node: Node, method: str, table: Table) -> Value:
        """What a method gives for a table; computed once."""
        key = (node.location.node, method, id(table))
        if key not in self._results:
            entry = self.entry_of(node.estimator)
            if entry.checks and (place := (node.location.node, id(table))) not in self._checked:
                self._checked.add(place)
                node.check_finite(table, accepts_nan=entry.takes_nan(node.estimator))
            derived = method == "predict_log_proba" and method not in entry.methods
            value = node.tensor("predict_proba", table).log() if derived else entry.methods[method](node, table)
            self._results[key] = table, value
            if method == "transform" and isinstance(value, Table):
                self.transformers.setdefault(node.location.node, []).append(value)
        return self._results[key][1]


@dataclass(slots=True, kw_only=True, eq=False)
class Node(ModelNode):
    """A fitted estimator in the model."""

    session: Session
    estimator: Any

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.session.rows

    def part(self, name: str, estimator: Any) -> Node:
        """The node of an estimator inside this one."""
        return self.session.node(f"{self.location.node}.{name}", estimator)

    def value(self, method: str, table: Table) -> Value:
        """What a method of the estimator gives."""
        return self.session.result(self, method, table)

    def tensor(self, method: str, table: Table) -> Tensor:
        """What a method gives that computes numbers; labels as numbers.

        Raises:
            UnsupportedFeatureError: it gives something else.
        """
        value = self.value(method, table)
        if isinstance(value, Labels):
            if value.classes.dtype.kind not in "biuf":
                raise self.unsupported("labels that are texts, used as numbers")
            return value.numbers()
        if isinstance(value, Several):
            raise self.unsupported(f"{method} of several targets, used as one")
        return value.all(self) if isinstance(value, Table) else Tensor(self, value.operand)

    def table(self, table: Table) -> Table:
        """What the transformer gives.

        Raises:
            UnsupportedFeatureError: the estimator transforms nothing.
        """
        value = self.value("transform", table)
        if not isinstance(value, Table):
            raise self.unsupported("a transform that gives no table")
        return value

    def labels(self, places: Tensor, classes: npt.ArrayLike | None = None) -> Labels:
        """Labels of this estimator's classes."""
        return Labels(places, np.asarray(self.estimator.classes_ if classes is None else classes))

    def constant_tensor(self, values: npt.ArrayLike, dtype: DType = DType.FLOAT64) -> Tensor:
        """Numbers as a tensor."""
        return Tensor(self, self.constant(np.ascontiguousarray(np.asarray(values, dtype.numpy))))

    def filled(self, value: float, *shape: int) -> Tensor:
        """A tensor of one number."""
        return self.constant_tensor(value).reshape(*(1,) * len(shape)).expand(*shape)

    # What rows are refused for.

    def check_finite(self, table: Table, *, accepts_nan: bool) -> None:
        """Refuse rows with an infinity, or with a NaN where the estimator does not take any.

        Of the input, every column counts. Of columns that an earlier step can make infinite, those that are computed.
        """
        for column in table.columns:
            self.session.no_infinity |= column.sources
            if not accepts_nan:
                self.session.no_nan |= column.sources
        if not all(column.is_clean for column in table.columns):
            self.session.checks.append((self, table, accepts_nan))

    def check_computed(self, table: Table, *, accepts_nan: bool) -> None:
        """`check_finite` of columns that an earlier step made, once it is known which of them are computed."""
        unclean = [position for position in sorted(table.asked) if not table.columns[position].is_clean]
        if unclean:
            found = table.passed(self, np.array(unclean, np.intp))
            misfit = found.abs().equals(np.inf) if accepts_nan else (found - found).is_nan()
            what = "an infinity" if accepts_nan else "NaN or an infinity"
            self.refuse(misfit.any(), f"{what} reaches {self.location.op_type} '{self.location.node}'")

    def refuse(self, condition: Tensor, reason: str) -> None:
        """Refuse the rows for which a condition `[rows]` holds."""
        self.session.conditions.append((reason, condition))


def columnwise(
    node: Node, table: Table, formula: Callable[[Tensor, Positions], Tensor], *, dtype: DType = DType.FLOAT64
) -> Table:
    """A table each of whose columns follows from the same column of another.

    Args:
        node: what computes it.
        table: the other one.
        formula: computes columns from those, given their positions.
        dtype: the element type that the estimator gives.
    """

    def make(_: ModelNode, positions: Positions) -> Tensor:
        return formula(table.take(node, positions), positions)

    columns = [replace(column, vocabulary=None, constant=None, dtype=dtype) for column in table.columns]
    return Table(tuple(columns), make)


def tabled(tensor: Tensor, dtype: DType = DType.FLOAT64) -> Table:
    """A matrix, or a vector as its single column, as a table whose columns are given an element type."""
    matrix = tensor if len(tensor.shape) == 2 else tensor.new_axis(1)
    return computed([Column(is_clean=False, dtype=dtype)] * matrix.shape[1], lambda: matrix)


def accepts_nan(model: Any) -> bool:
    """Whether NaN is data for an estimator, as its tags say."""
    if hasattr(model, "__sklearn_tags__"):
        return bool(model.__sklearn_tags__().input_tags.allow_nan)
    return bool(model._get_tags()["allow_nan"])  # before scikit-learn 1.6


def numbers(values: Any) -> npt.NDArray[np.float64]:
    """Fitted numbers in float64."""
    return np.asarray(values, np.float64)
