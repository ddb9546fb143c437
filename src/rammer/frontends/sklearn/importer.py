"""From a fitted estimator to graphs for numbers of rows, and the form of its calls."""

from __future__ import annotations

from typing import Any

import numpy as np

from rammer.errors import UnsupportedEstimatorsError
from rammer.frontends.builder import FoldingBuilder, Operand
from rammer.frontends.dispatch import ImportedEstimator
from rammer.frontends.sklearn.node import Labels, Node, Session, Several, Value
from rammer.frontends.sklearn.support import entry_of, methods_of, names_of, width_of
from rammer.frontends.sklearn.table import Column, Positions, Table, Vocabulary
from rammer.frontends.sklearn.tensor import Tensor
from rammer.ir.estimator import REFUSED, ROWS, ClassLabels, EstimatorForm, InputColumn, Method, Part, Step
from rammer.ir.graph import Graph, SourceLocation
from rammer.ir.types import DType, TensorType


def imported(estimator: Any) -> ImportedEstimator:
    """The form of an estimator's calls, and what makes its graphs; `support.check` has passed the estimator.

    Raises:
        ModelError: the estimator cannot be converted.
    """
    return ImportedEstimator(
        form=_Conversion(estimator, rows=1).form,
        graph_of=lambda rows, method: _Conversion(estimator, rows).graph(method),
    )


class _Conversion:
    """All methods of an estimator for a number of rows, in one graph, of which each program has a part.

    The input is a matrix `[rows, features]` in float64. Outputs are a method's and, where rows can be refused, the
    number of the reason for each row.
    """

    def __init__(self, estimator: Any, rows: int) -> None:
        self._name = name = type(estimator).__name__
        width = width_of(estimator, name)
        self._session = session = Session(
            name=name,
            builder=FoldingBuilder(name),
            rows=rows,
            entry_of=entry_of,
            vocabularies=tuple(Vocabulary() for _ in range(width)),
        )
        node, table = session.node(name, estimator), _input(session, width)
        self._outputs: dict[str, list[tuple[str, Operand]]] = {}
        methods = tuple(
            _method(node, method, node.value(method, table), self._outputs.setdefault(method, []))
            for method in methods_of(estimator)
        )
        columns = _columns(estimator, session, table)  # what is read only to refuse rows is not used
        self._refusals: list[tuple[str, Operand]] = []
        reasons = _refusals(node, table, self._refusals)
        self.form = EstimatorForm(
            estimator=name,
            named=names_of(estimator) is not None,
            columns=columns,
            methods=methods,
            refusals=reasons,
            steps=_steps(session),
        )

    def graph(self, method: str) -> Graph:
        """The graph of one method."""
        location = SourceLocation(model=self._name, node=self._name, op_type=self._name)
        return self._session.builder.finish([*self._outputs[method], *self._refusals], location)


def _input(session: Session, width: int) -> Table:
    operand = session.builder.input(ROWS, TensorType(DType.FLOAT64, (session.rows, width)))

    def make(node: Any, positions: Positions) -> Tensor:
        return Tensor(node, operand).take(positions)

    columns = [
        Column(vocabulary=vocabulary, sources=frozenset([position]))
        for position, vocabulary in enumerate(session.vocabularies)
    ]
    return Table(tuple(columns), make)


def _method(node: Node, name: str, value: Value, outputs: list[tuple[str, Operand]]) -> Method:
    """The form of a method's result, whose operands are added to the outputs."""
    if isinstance(value, Several):
        parts = tuple(_part(node, f"{name}.{i}", part, outputs) for i, part in enumerate(value.parts))
        return Method(name=name, parts=parts, joined=value.joined)
    if isinstance(value, Table):
        value = _typed(node, value)
    return Method(name=name, parts=(_part(node, name, value, outputs),), joined="alone")


def _typed(node: Node, table: Table) -> Tensor:
    """All columns, in the one element type that NumPy finds for theirs."""
    types = [column.dtype.numpy for column in table.columns] or [DType.FLOAT64.numpy]
    return table.all(node).to(DType(np.result_type(*types).name))


def _part(node: Node, name: str, value: Tensor | Labels, outputs: list[tuple[str, Operand]]) -> Part:
    tensor = value.places if isinstance(value, Labels) else value
    outputs.append((name, tensor.operand))
    return Part(output=name, labels=_labels(value.classes) if isinstance(value, Labels) else None)


def _labels(classes: np.ndarray[Any, Any]) -> ClassLabels:
    values = np.char.decode(classes, "ascii") if classes.dtype.kind == "S" else classes
    return ClassLabels(dtype=classes.dtype.str, values=tuple(_plain(label) for label in values.tolist()))


def _plain(label: Any) -> Any:
    """A label of an array of objects may be a number of NumPy's."""
    return label.item() if isinstance(label, np.generic) else label


def _refusals(node: Node, table: Table, outputs: list[tuple[str, Operand]]) -> tuple[str, ...]:
    """The reasons for which rows are refused; an output with their numbers, the first that holds, is added."""
    session = node.session
    texts = {position for position, vocabulary in enumerate(session.vocabularies) if vocabulary.as_texts}
    for checking, checked, accepts_nan in session.checks:
        checking.check_computed(checked, accepts_nan=accepts_nan)
    conditions = list(session.conditions)
    for reason, columns in (("NaN", session.no_nan), ("an infinity", session.no_infinity)):
        chosen = sorted(columns - texts)
        if chosen:
            found = table.select(chosen).passed(node, np.arange(len(chosen)))
            misfit = found.is_nan() if reason == "NaN" else found.abs().equals(np.inf)
            conditions.insert(0, (f"{reason} in a feature, which the estimator does not take", misfit.any()))
    if not conditions:
        return ()
    number: Tensor = node.constant_tensor(0, DType.INT64)
    for place, (_, condition) in reversed(list(enumerate(conditions))):
        holds = Tensor(node, condition.operand)
        number = holds.choose(node.constant_tensor(place + 1, DType.INT64), number)
    outputs.append((REFUSED, number.operand))
    return tuple(reason for reason, _ in conditions)


def _columns(estimator: Any, session: Session, table: Table) -> tuple[InputColumn, ...]:
    names = names_of(estimator) or range(table.width)
    both = [str(name) for name, v in zip(names, session.vocabularies, strict=True) if v.as_texts and v.as_numbers]
    if both:
        raise UnsupportedEstimatorsError(
            [(session.name, f"column '{name}'", "it is read as texts and as numbers") for name in both]
        )
    return tuple(
        InputColumn(
            name=str(name),
            texts=tuple(vocabulary.codes) if vocabulary.as_texts else None,
            used=position in table.asked,
        )
        for position, (name, vocabulary) in enumerate(zip(names, session.vocabularies, strict=True))
    )


def _steps(session: Session) -> tuple[Step, ...]:
    return tuple(
        Step(
            place=place,
            width=tables[0].width,
            computed=len(set().union(*(table.asked for table in tables))),
        )
        for place, tables in session.transformers.items()
    )
