"""Objects that are equal only if they are the same: what compares and hashes by address, however deep it is."""

from __future__ import annotations

import copyreg
import threading
import weakref
from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar


class Interned(type):
    """Metaclass that returns the existing object where an equal one is alive.

    A class of it is immutable, compares by identity, can be referred to weakly, and has a method `_key` that returns
    what makes two of its objects equal.
    """

    _alive: ClassVar[weakref.WeakValueDictionary[tuple[object, ...], Any]] = weakref.WeakValueDictionary()
    _lock = threading.Lock()

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> None:
        super().__init__(name, bases, namespace)
        copyreg.pickle(cls, _parts)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """The object that these arguments make, or the one that is there."""
        made = super().__call__(*args, **kwargs)
        key = (cls, *made._key())
        with Interned._lock:
            return Interned._alive.setdefault(key, made)


def _parts(made: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """How pickle makes an object again: by its class, which knows whether there is one."""
    return _made, (type(made), {field.name: getattr(made, field.name) for field in fields(made) if field.init})


def _made(cls: type, parts: dict[str, Any]) -> Any:
    return cls(**parts)
