"""What of an estimator can be converted: found by walking it, before anything is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rammer.errors import NotFittedError, UnsupportedEstimatorsError
from rammer.frontends.sklearn.converters import ENTRIES
from rammer.frontends.sklearn.node import Entry
from rammer.ir.estimator import METHODS

_LIBRARIES = ("sklearn", "xgboost", "lightgbm", "catboost")
"""Packages whose classes are meant by the names of entries."""


def entry_of(estimator: Any) -> Entry:
    """How an estimator is converted, once `check` has found that it can be."""
    return ENTRIES[_key(type(estimator))]


def is_fittable(model: Any) -> bool:
    """Whether an object is an estimator, fitted or not, or a booster, which is what fitting one makes."""
    return not isinstance(model, type) and (hasattr(model, "fit") or _key(type(model)) in ENTRIES)


def _key(kind: type) -> str:
    """The name of a class in `ENTRIES`: two libraries have a class `Booster`."""
    name = kind.__name__
    return f"{kind.__module__.partition('.')[0]}.{name}" if name == "Booster" else name


def check(estimator: Any, place: str) -> None:
    """See whether an estimator and all inside it can be converted.

    Raises:
        NotFittedError: it is not fitted.
        UnsupportedEstimatorsError: something cannot; everything that cannot is listed.
    """
    _check_fitted(estimator, place)
    refused = list(_refused(estimator, place))
    if refused:
        raise UnsupportedEstimatorsError(refused, where=place)


def methods_of(estimator: Any) -> tuple[str, ...]:
    """The methods of an estimator that can be converted, in the order of `METHODS`."""
    entry = entry_of(estimator)
    inner = entry.stands_for(estimator)
    if inner is None:
        return ("transform",)
    known = set(entry.methods if inner is estimator else methods_of(inner))
    if "predict_proba" in known:
        known.add("predict_log_proba")
    known.difference_update(entry.lacks(estimator))
    return tuple(method for method in METHODS if method in known and hasattr(estimator, method))


def width_of(estimator: Any, place: str) -> int:
    """The number of features that an estimator takes.

    Raises:
        UnsupportedEstimatorsError: neither it nor what begins it knows.
    """
    width = entry_of(estimator).features(estimator)
    if width:
        return int(width)
    # Steps that pass everything through know of no features; the first one that does reads the same.
    for name, part in entry_of(estimator).parts(estimator):
        return width_of(part, f"{place}.{name}")
    raise UnsupportedEstimatorsError(
        [(type(estimator).__name__, place, "it does not know how many features it was fitted with")],
        hint="fit it as a step of a pipeline that begins with another estimator",
    )


def names_of(estimator: Any) -> Sequence[str] | None:
    """The names of the columns that an estimator was fitted with; None where they had none.

    Some estimators hand a DataFrame on and only those inside them know its names.
    """
    entry = entry_of(estimator)
    names = entry.names(estimator)
    first = next((part for _, part in entry.parts(estimator)), None)
    if names is None and first is not None and entry_of(first).features(first) == entry.features(estimator):
        return names_of(first)
    return names


def _check_fitted(estimator: Any, place: str) -> None:
    if not hasattr(estimator, "fit"):
        return
    from sklearn.exceptions import NotFittedError as Unfitted  # noqa: PLC0415
    from sklearn.utils.validation import check_is_fitted  # noqa: PLC0415

    try:
        check_is_fitted(estimator)
    except TypeError:  # what some versions raise for a pipeline that ends with a step that does nothing
        return
    except Unfitted as error:
        raise NotFittedError(str(error), where=place, hint="call fit() before compiling it") from error


def _refused(estimator: Any, place: str) -> Iterator[tuple[str, str, str]]:
    """Class, place and reason of all that cannot be converted."""
    kind = type(estimator)
    if kind.__module__.partition(".")[0] not in _LIBRARIES or _key(kind) not in ENTRIES:
        yield kind.__name__, place, "the class is not supported"
        return
    entry = ENTRIES[_key(kind)]
    for reason in entry.refusals(estimator):
        yield kind.__name__, place, reason
    for name, part in entry.parts(estimator):
        yield from _refused(part, f"{place}.{name}")
    labels = getattr(estimator, "classes_", None)
    for classes in labels if isinstance(labels, list) else [labels]:
        if classes is not None and not _are_kept(np.asarray(classes)):
            yield kind.__name__, place, f"labels of dtype {np.asarray(classes).dtype}"


def _are_kept(classes: np.ndarray[Any, Any]) -> bool:
    """Whether a file has room for labels: numbers, texts, and bytes that are ASCII."""
    return classes.dtype.kind in "biufUO" or (classes.dtype.kind == "S" and bool((classes.view(np.uint8) < 0x80).all()))
