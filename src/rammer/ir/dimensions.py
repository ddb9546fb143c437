"""Dimensions of inputs that may have several extents, and for which extents there are to be programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rammer.errors import OptionError

GivenDynamic = Mapping[str, "Mapping[int, Dim | Sequence[int]] | Dim | Sequence[int]"]
"""As users give them: by an input's name and the axis, or by the name that a model has for an open dimension."""

Places = Mapping[str, Sequence[tuple[str, int]]]
"""Where open dimensions are, by their names: inputs and axes."""

Dynamic = Mapping[str, Mapping[int, "Dim"]]
"""The dynamic dimensions of inputs: by name, then by axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dim:
    """A dimension whose extent a call chooses. Where several inputs have it, they have the same extent.

    Attributes:
        name: what messages call it.
        low: the least extent.
        high: the greatest one.
        buckets: extents that there are programs for, in ascending order; other calls are padded to the next one. None
            takes `low`, the powers of two, and `high`. They are for batches whose rows are independent, and for
            dimensions with a mask; any other dimension has a program for each extent.
        mask: an input along the dimension that is 0 (or false) where nothing is; the model has to leave out, by it,
            what padding adds. None for a batch: its rows have to be independent, which is proved.

    Raises:
        OptionError: the extents do not fit together.
    """

    name: str
    low: int
    high: int
    buckets: tuple[int, ...] | None = None
    mask: str | None = None

    def __post_init__(self) -> None:
        fits = 1 <= self.low <= self.high
        if fits and self.buckets is not None:
            ascending = list(self.buckets) == sorted(set(self.buckets))
            fits = bool(self.buckets) and ascending and self.buckets[0] >= 1 and self.buckets[-1] == self.high
        if not fits:
            raise OptionError(
                f"dimension '{self.name}' from {self.low} to {self.high} with buckets {self.buckets}",
                hint="1 <= low <= high; buckets ascend, and the last one is high",
            )

    def padded_extents(self) -> tuple[int, ...]:
        """The extents of programs where a call may be padded."""
        if self.buckets is not None:
            return self.buckets
        powers = (2**exponent for exponent in range(self.high.bit_length()))
        return tuple(sorted({self.low, *(power for power in powers if self.low < power < self.high), self.high}))


def dynamic_dimensions(given: GivenDynamic, places: Callable[[], Places]) -> Dynamic:
    """What a user gave, pairs of extents as dimensions of their own.

    Args:
        given: by inputs and axes, or by names of open dimensions.
        places: where the model's open dimensions are; asked for where one is named.

    Raises:
        OptionError: a dimension is neither a `Dim` nor a pair of extents, the model has none of that name, or two
            dimensions share a name.
    """
    by_input: dict[str, dict[int, Dim | Sequence[int]]] = {}
    for name, extents in given.items():
        if isinstance(extents, Mapping):
            by_input.setdefault(name, {}).update(extents)
            continue
        open_dimensions = places()
        if name not in open_dimensions:
            raise OptionError(
                f"dynamic= names '{name}', no open dimension of the model",
                hint=f"there are {', '.join(open_dimensions) or 'none with names'}; or name an input and its axis",
            )
        for place, axis in open_dimensions[name]:
            by_input.setdefault(place, {})[axis] = _dimension(name, extents)
    found: dict[str, dict[int, Dim]] = {}
    named: dict[str, Dim] = {}
    for name, axes in by_input.items():
        found[name] = {}
        for axis, extents in axes.items():
            dim = _dimension(f"{name}.{axis}", extents)
            if named.setdefault(dim.name, dim) != dim:
                raise OptionError(f"two dimensions are called '{dim.name}'", hint="use one Dim for both")
            found[name][axis] = dim
    return found


def _dimension(name: str, extents: Dim | Sequence[int]) -> Dim:
    """A dimension as it was given; a pair of extents makes one of that name."""
    if isinstance(extents, Dim):
        return extents
    if len(extents) != 2:
        raise OptionError(f"dynamic= of '{name}': {extents!r}", hint="give a rammer.Dim, or (low, high)")
    return Dim(name=name, low=extents[0], high=extents[1])
