"""A compiled estimator: it has the methods of the fitted one that it was compiled from, for any number of rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rammer.errors import InputValueError, MethodError
from rammer.ir.estimator import REFUSED, ROWS, ClassLabels, EstimatorForm, Method, Part
from rammer.printable import printable
from rammer.runtime.container import Json
from rammer.runtime.estimator_form import check_fits, estimator_from_json, estimator_to_json
from rammer.runtime.executable import Executable
from rammer.runtime.features import Features
from rammer.runtime.programs import ProgramSet

if TYPE_CHECKING:
    from rammer.ir.graph import Array

ROW_COUNTS = (1, 16, 128, 1024)
"""The numbers of rows that there are programs for."""


class CompiledEstimator:
    """An estimator compiled for a device.

    Methods take a matrix `[rows, features]` of numbers, or of objects where columns hold texts, or a DataFrame, whose
    columns are found by name. They give NumPy arrays as the estimator's own methods do, in float64 where the features
    are; what an encoder gives as a sparse matrix is a dense one here.

    A method's programs are for a few numbers of rows, and compiled when they are first called. More rows are taken in
    pieces, fewer are padded. Calls from several threads are safe.

    Attributes:
        form: columns, methods, labels.
        programs: by method and number of rows.
    """

    def __init__(self, form: EstimatorForm, programs: ProgramSet) -> None:
        self.form = form
        self.programs = programs
        self._features = Features(form)
        self._methods = {method.name: method for method in form.methods}
        self._labels = {
            part.output: _labels_of(part.labels) for method in form.methods for part in method.parts if part.labels
        }

    def __call__(self, features: object) -> Any:  # noqa: ANN401 - an array, or a list of arrays
        """The estimator's prediction, or what it transforms to where it predicts nothing.

        Raises:
            CallError: the features are not those that the estimator was fitted for.
            RunTimeoutError: a run stopped making progress.
        """
        return self._result(self.form.methods[0].name, features)

    def predict(self, features: object) -> Any:  # noqa: ANN401
        """Labels or values, `[rows]` or `[rows, targets]`; raises as a call does, or `MethodError`."""
        return self._result("predict", features)

    def predict_proba(self, features: object) -> Any:  # noqa: ANN401
        """Probabilities of the classes, `[rows, classes]`; raises as a call does, or `MethodError`."""
        return self._result("predict_proba", features)

    def predict_log_proba(self, features: object) -> Any:  # noqa: ANN401
        """Logarithms of the probabilities, `[rows, classes]`; raises as a call does, or `MethodError`."""
        return self._result("predict_log_proba", features)

    def decision_function(self, features: object) -> Any:  # noqa: ANN401
        """Scores of the classes, `[rows]` or `[rows, classes]`; raises as a call does, or `MethodError`."""
        return self._result("decision_function", features)

    def transform(self, features: object) -> Any:  # noqa: ANN401
        """The features transformed, `[rows, columns]`; raises as a call does, or `MethodError`."""
        return self._result("transform", features)

    def score_samples(self, features: object) -> Any:  # noqa: ANN401
        """The score of each sample, `[rows]`; raises as a call does, or `MethodError`."""
        return self._result("score_samples", features)

    def _result(self, name: str, features: object) -> Any:  # noqa: ANN401
        method = self._methods.get(name)
        if method is None:
            raise MethodError(
                f"{self.form.estimator} was compiled without {name}", hint=f"it has {', '.join(self._methods)}"
            )
        matrix = self._features.matrix(features)
        found: dict[str, Array] = {}
        begin = 0
        for rows in pieces(len(matrix)):
            program = self.programs.select(((rows, matrix.shape[1]),), name)
            end = min(begin + rows, len(matrix))
            piece = matrix[begin:end] if end - begin == rows else _padded(matrix[begin:], rows)
            for output, array in program.run({ROWS: piece}).items():
                if output not in found:
                    found[output] = np.empty((len(matrix), *array.shape[1:]), array.dtype)
                found[output][begin:end] = array[: end - begin]
            begin = end
        if self.form.refusals:
            self._check_refused(found[REFUSED])
        return _joined(method, [self._labelled(part, found[part.output]) for part in method.parts])

    def _labelled(self, part: Part, array: Array) -> Array:
        return array if part.labels is None else self._labels[part.output][array.astype(np.intp)]

    def _check_refused(self, reasons: Array) -> None:
        refused = np.flatnonzero(reasons)
        if refused.size:
            first = int(refused[0])
            raise InputValueError(
                f"row {first}: {self.form.refusals[int(reasons[first]) - 1]}"
                + (f" (and {refused.size - 1} more rows)" if refused.size > 1 else ""),
                hint="the fitted estimator refuses it, too: impute or encode such values before it",
            )

    def program_for(self, rows: int, method: str) -> Executable:
        """The program that a method gives so many rows to, or the first of them.

        Raises:
            RammerError: what compiling it raises, if there is none yet.
        """
        return self.programs.select(((next(pieces(rows)), len(self.form.columns)),), method)

    def clone(self) -> Self:
        """The same estimator once more, whose programs are clones; see `Executable.clone`.

        `copy.copy` and `copy.deepcopy` make clones.
        """
        return type(self)(self.form, self.programs.clone())

    def __copy__(self) -> Self:
        return self.clone()

    def __deepcopy__(self, memo: object) -> Self:
        return self.clone()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the programs of all methods, compiled now if need be, to one file that `rammer.load` reads.

        Raises:
            ArtifactWriteError: the file cannot be written, or the device's programs live in memory only.
        """
        self._complete().save(path, kind="estimator", about=estimator_to_json(self.form))

    def to_bytes(self) -> bytes:
        """The content of the file that `save` writes; `rammer.load` takes it, too.

        Raises:
            ArtifactWriteError: the device's programs live in memory only.
        """
        return self._complete().to_bytes(kind="estimator", about=estimator_to_json(self.form))

    def _complete(self) -> ProgramSet:
        """The programs, with those of all methods."""
        for method in self.form.methods:
            for rows in ROW_COUNTS:
                self.programs.select(((rows, len(self.form.columns)),), method.name)
        return self.programs

    def __repr__(self) -> str:
        return f"<rammer.CompiledEstimator {printable(self.form.estimator)}: {', '.join(self._methods)}>"


def read_estimator(programs: ProgramSet, about: Json) -> CompiledEstimator:
    """The estimator whose programs were saved.

    Raises:
        SchemaError: the form that it was saved with is none, or does not fit the programs.
    """
    form = estimator_from_json(about)
    for method in form.methods:
        for rows in ROW_COUNTS:
            check_fits(form, method, programs.select(((rows, len(form.columns)),), method.name).signature)
    return CompiledEstimator(form, programs)


def pieces(count: int) -> Iterator[int]:
    """The sizes of the programs that a number of rows is given to; the last may be larger than what is left.

    No rows are given to one, for the shapes of the results. One padded run costs less than several, up to about four
    times the rows that are needed.
    """
    if not count:
        yield ROW_COUNTS[0]
    while count > 0:
        enough = [rows for rows in ROW_COUNTS if count <= rows < 4 * count]
        yield (rows := enough[0] if enough else max(rows for rows in ROW_COUNTS if rows <= count))
        count -= rows


def _padded(piece: Array, rows: int) -> Array:
    """A piece with rows of zeros below; what comes of them is not read."""
    whole = np.zeros((rows, piece.shape[1]), piece.dtype)
    whole[: len(piece)] = piece
    return whole


def _labels_of(labels: ClassLabels) -> Array:
    return np.array(labels.values, np.dtype(labels.dtype))


def _joined(method: Method, arrays: list[Array]) -> Any:  # noqa: ANN401 - an array, or a list of arrays
    match method.joined:
        case "alone":
            return arrays[0]
        case "columns":
            return np.stack(arrays, axis=1)
    return arrays
