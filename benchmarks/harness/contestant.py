"""Who takes part in a comparison. A contestant is a small class in a file of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Protocol

import numpy.typing as npt

from benchmarks.harness.cases import Case

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A model that is ready to run on its inputs.

    Attributes:
        run: the timed region, once.
        outputs: runs once and gives the model's outputs as NumPy arrays, in the model's order.
    """

    run: Callable[[], object]
    outputs: Callable[[], list[Array]]


class Contestant(Protocol):
    """A runtime in one configuration."""

    @property
    def name(self) -> str:
        """What the table calls it."""
        ...

    def version(self) -> str | None:
        """Its version, or None where it is not installed."""
        ...

    def prepare(self, case: Case) -> Prepared:
        """Load and compile; nothing of this is timed."""
        ...


def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
