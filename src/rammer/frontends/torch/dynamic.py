"""A module captured once for many shapes: with symbols, which are replaced by numbers for each shape that is wanted."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from rammer.errors import CaptureError, OptionError
from rammer.frontends.dispatch import Example, Imported, Shapes
from rammer.frontends.torch.capture import capture, functional
from rammer.frontends.torch.forms import positional_names
from rammer.frontends.torch.private import flattened, nested, specialise
from rammer.frontends.torch.program import import_program
from rammer.ir.dimensions import Dynamic
from rammer.printable import listing

_LEAST_SYMBOLIC = 2
"""PyTorch captures extents of 1 apart from others: they may broadcast."""


class ModuleFamily:
    """A module as a graph for any of its shapes.

    Attributes:
        names: the inputs' names.
        shapes: the example's.
        uniform: whether it was captured once for all shapes of 2 and more.
    """

    def __init__(self, module: torch.nn.Module, example: Example, dynamic: Dynamic) -> None:
        self._module = module
        self._name = type(module).__name__
        self._leaves, paths, self._spec = flattened((tuple(example.args), dict(example.kwargs)))
        names = positional_names(module.forward, len(example.args))
        tensors = [
            (".".join(map(str, (first if named else names[int(str(first))], *rest))), leaf)
            for leaf, (named, first, *rest) in zip(self._leaves, paths, strict=True)
            if isinstance(leaf, torch.Tensor)
        ]
        self.names = tuple(name for name, _ in tensors)
        self.shapes: Shapes = tuple(tuple(leaf.shape) for _, leaf in tensors)
        for name, axes in dynamic.items():
            rank = len(self.shapes[self.names.index(name)]) if name in self.names else 0
            if name not in self.names or not all(0 <= axis < rank for axis in axes):
                raise OptionError(
                    f"dynamic= names dimensions {sorted(axes)} of '{name}'",
                    hint="the inputs are " + listing([f"{name}{list(shape)}" for name, shape in self._inputs()]),
                )
        self._axes = [dynamic.get(name, {}) for name in self.names]
        self._lock = threading.Lock()  # of the program, which is changed for each shape
        self._program = self._captured()
        self.uniform = self._program is not None

    def at(self, shapes: Shapes) -> Imported:
        """The graph for the shapes of all inputs, and the form of its calls.

        Raises:
            ModelError: it cannot be captured, or uses what Rammer does not have.
        """
        symbolic = [shape[axis] for shape, axes in zip(shapes, self._axes, strict=True) for axis in axes]
        if self._program is not None and min(symbolic, default=0) >= _LEAST_SYMBOLIC:
            with self._lock:
                specialise(self._program, shapes)
                return import_program(self._program, self._name, self._module.forward)
        args, kwargs = self._arguments(shapes)
        program = functional(capture(self._module, args, kwargs, self._name), self._name)
        return import_program(program, self._name, self._module.forward)

    def _inputs(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        return zip(self.names, self.shapes, strict=True)

    def _captured(self) -> Any:
        """The program with symbols; None where PyTorch cannot capture it so: then each shape is captured by itself."""
        symbols = {
            dim.name: torch.export.Dim(f"d{i}", min=dim.low, max=max(dim.high, _LEAST_SYMBOLIC))
            for i, dim in enumerate({d.name: d for axes in self._axes for d in axes.values()}.values())
        }
        shapes = [
            tuple(
                min(max(extent, _LEAST_SYMBOLIC), max(axes[axis].high, _LEAST_SYMBOLIC)) if axis in axes else extent
                for axis, extent in enumerate(shape)
            )
            for shape, axes in zip(self.shapes, self._axes, strict=True)
        ]
        wanted = iter(self._axes)
        marks = [
            {axis: symbols[dim.name] for axis, dim in next(wanted).items()} if isinstance(leaf, torch.Tensor) else None
            for leaf in self._leaves
        ]
        args, kwargs = self._arguments(shapes)
        try:
            return functional(
                capture(self._module, args, kwargs, self._name, dynamic_shapes=nested(marks, self._spec)), self._name
            )
        except CaptureError:
            return None

    def _arguments(self, shapes: Sequence[Sequence[int]]) -> Any:
        """Arguments like the example's with other shapes; capturing does not look at their elements."""
        wanted = iter(shapes)
        leaves = [
            leaf.new_zeros(tuple(next(wanted))) if isinstance(leaf, torch.Tensor) else leaf for leaf in self._leaves
        ]
        return nested(leaves, self._spec)
