"""What the library of a module's tensors does for calls; the front end that reads its modules provides it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rammer.ir.calling import Nest
from rammer.ir.types import DType
from rammer.runtime.signature import Signature

Refuse = Callable[[int, DType, tuple[int, ...]], None]
"""Raises the error for an input of another element type or shape, by its position."""

RunAt = Callable[[Sequence[int], int | None], None]
"""Runs a model on the addresses of its inputs, then its outputs; on a GPU, on a stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addressed:
    """A model as it is run on arrays by their addresses.

    Attributes:
        run: on the addresses of inputs, then outputs.
        on_gpu: whether they lie in a GPU's memory.
        alignment_bytes: what they are multiples of.
    """

    run: RunAt
    on_gpu: bool
    alignment_bytes: int


class TensorLibrary(Protocol):
    """What a library does for calls with its tensors and for results in classes that it knows."""

    def calls(self, signature: Signature, model: Addressed, refuse: Refuse) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """A function from tensors in the order of the inputs to fresh ones for the outputs."""
        ...

    def make(self, nest: Nest, parts: Sequence[object]) -> object:
        """An object of the class that a container names, a dictionary where the class is not known here."""
        ...

    def padded(self, tensor: Any, shape: tuple[int, ...]) -> Any:  # noqa: ANN401 - the library's tensor
        """A tensor of a shape that begins with a given one, and is 0 elsewhere."""
        ...


FindLibrary = Callable[[type], TensorLibrary | None]
"""The library whose tensors are of a class, None where it is no class of tensors that modules take."""
