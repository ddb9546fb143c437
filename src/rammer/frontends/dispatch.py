"""Which front end reads a model follows from what the model is; its library is imported only then."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol, cast

from rammer.errors import NotAModelError, OptionError
from rammer.ir.calling import CallForm, StateOwner
from rammer.ir.dimensions import Dynamic, Places
from rammer.ir.estimator import EstimatorForm
from rammer.ir.graph import Graph
from rammer.ir.survey import Contents
from rammer.ir.types import TensorType
from rammer.options import GivenInputs

_LIBRARIES: Mapping[str, str] = {
    "onnx": "rammer.frontends.onnx",
    "torch": "rammer.frontends.torch",
}
"""The front end for models whose classes come from a library, by the library's package."""

_ESTIMATORS: Mapping[str, str] = dict.fromkeys(
    ("catboost", "lightgbm", "sklearn", "xgboost"), "rammer.frontends.sklearn"
)
"""The front end for estimators, in the same way."""


Shapes = tuple[tuple[int, ...], ...]
"""The shapes of all inputs, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Arguments that a module is captured with."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A model as a graph, with the form of its calls where they are those of a module.

    Attributes:
        graph: the model.
        form: how a module's arguments and results nest.
        owner: what the states of a training step were taken from.
    """

    graph: Graph
    form: CallForm | None = None
    owner: StateOwner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedEstimator:
    """An estimator as graphs: `graph_of(rows, method)` computes one of the form's methods for so many rows."""

    form: EstimatorForm
    graph_of: Callable[[int, str], Graph]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a module is made of: `str` is a page to read.

    Attributes:
        model: the module's class.
        operators: PyTorch's operators, each with how often it is called.
        missing: those that Rammer does not have, each call with its place.
        inputs: names and types of the tensors among the arguments.
        outputs: those among the results, by the names of the calls that make them; as large as they can be.
        states: buffers that the module writes to.
    """

    model: str
    operators: tuple[tuple[str, int], ...]
    missing: tuple[tuple[str, str], ...]
    inputs: tuple[tuple[str, TensorType], ...]
    outputs: tuple[tuple[str, TensorType], ...]
    states: tuple[tuple[str, TensorType], ...]

    def __str__(self) -> str:
        sections = [
            (f"{self.model} takes", [f"{name}: {type_}" for name, type_ in self.inputs]),
            ("gives", [f"{name}: {type_}" for name, type_ in self.outputs]),
            ("keeps as state", [f"{name}: {type_}" for name, type_ in self.states]),
            ("calls", [f"{name} x {count}" for name, count in self.operators]),
            ("lacks in Rammer", [f"{name} in {place}" for name, place in self.missing]),
        ]
        return "\n".join("\n  ".join([f"{title}:", *(lines or ["nothing"])]) for title, lines in sections)


class FrontEnd(Protocol):
    """What reads the models of one library."""

    def load_model(
        self,
        model: Any,  # noqa: ANN401 - of whatever class its library has
        example: Example,
        given: GivenInputs,
    ) -> Imported:
        """The model as a graph.

        Raises:
            ModelError: it cannot be used.
            OptionError: the example, or what is said of inputs, does not fit it.
        """
        ...


def load_model(model: object, example: Example, given: GivenInputs) -> Imported:
    """Read a model: an ONNX file's path, its bytes or message, or a PyTorch module or exported program.

    Args:
        model: what to read.
        example: the arguments that a module is captured with.
        given: what is said of its inputs.

    Raises:
        ModelError: it cannot be used, or is no model.
        OptionError: the example, or what is said of inputs, does not fit it.
    """
    model = _read_model(model)
    library = "onnx" if isinstance(model, str | os.PathLike | bytes) else library_of(type(model))
    if library is None:
        if callable(model) and type(model).__module__.startswith("rammer."):
            raise NotAModelError(f"an object of class {type(model).__name__} is compiled already", hint="call it")
        raise NotAModelError(
            f"an object of class {type(model).__name__} is no model",
            hint="give an ONNX file, its bytes, an onnx.ModelProto, a PyTorch module with args=, or a fitted estimator",
        )
    front_end = cast(FrontEnd, import_module(_LIBRARIES[library]))
    return front_end.load_model(model, example, given)


def _read_model(model: object) -> object:
    """The message of an `ONNXProgram`, which `torch.onnx.export` returns; other models as they are."""
    return getattr(model, "model_proto", model) if type(model).__name__ == "ONNXProgram" else model


def is_estimator(model: object) -> bool:
    """Whether a model is an estimator, whose methods take any number of rows."""
    return library_of(type(model)) in _ESTIMATORS


def load_estimator(model: object, example: Example, given: GivenInputs) -> ImportedEstimator:
    """Read a fitted estimator.

    Args:
        model: what to read; `is_estimator`.
        example: none is taken.
        given: nothing is.

    Raises:
        ModelError: it cannot be used.
        OptionError: it has no use for what is given.
    """
    for option in (["args= or kwargs="] if example.args or example.kwargs else []) + given.options:
        raise OptionError(f"{option} for an estimator", hint="leave it out: any number of rows can be given")
    imported: ImportedEstimator = import_module(_ESTIMATORS[str(library_of(type(model)))]).load_estimator(model)
    return imported


class Family(Protocol):
    """A model as graphs for many shapes.

    Attributes:
        names: the inputs' names, in order.
        shapes: those of the example.
        uniform: whether the same is computed for all shapes, and nothing is chosen by them.
    """

    names: tuple[str, ...]
    shapes: Shapes
    uniform: bool

    def at(self, shapes: Shapes) -> Imported:
        """The graph for the shapes of all inputs.

        Raises:
            ModelError: the model cannot be used with them.
        """
        ...


def load_family(model: object, example: Example, given: GivenInputs, dynamic: Dynamic) -> Family:
    """Read a model whose inputs have several shapes.

    Args:
        model: what to read.
        example: the arguments that a module is captured with.
        given: inputs that are constants; nothing else is taken.
        dynamic: the dimensions that have several extents.

    Raises:
        ModelError: it cannot be used, or is no model.
        OptionError: it has no such dimensions, or has no use for what is given.
    """
    if given.shapes or given.states:
        raise OptionError("dynamic= with input_shapes= or state=", hint="leave them out")
    model = _read_model(model)
    library = "onnx" if isinstance(model, str | os.PathLike | bytes) else library_of(type(model))
    if library is None or library not in _LIBRARIES:
        raise NotAModelError(
            f"dynamic= for an object of class {type(model).__name__}", hint="give an ONNX model or a PyTorch module"
        )
    family: Family = import_module(_LIBRARIES[library]).load_family(model, example, given, dynamic)
    return family


def open_dimensions(model: object) -> Places:
    """Where an ONNX model has dimensions that it leaves open and has names for; others have none.

    Raises:
        ModelError: the model cannot be used.
    """
    if not isinstance(model, str | os.PathLike | bytes) and library_of(type(model)) != "onnx":
        return {}
    found: Places = import_module(_LIBRARIES["onnx"]).open_dimensions(model)
    return found


def load_step(function: object, module: object, optimizer: object, example: Example) -> Imported:
    """A training step of a PyTorch module as a graph; see `frontends.torch.step`.

    Raises:
        ModelError: it cannot be captured, or `module` is no module.
        OptionError: `function` cannot be called.
    """
    if library_of(type(module)) != "torch":
        raise NotAModelError(f"an object of class {type(module).__name__} is no module", hint="give a PyTorch module")
    if not callable(function):
        raise OptionError(f"fn = {function!r}", hint="give a function of the module and args= that returns the loss")
    imported: Imported = import_module(_LIBRARIES["torch"]).load_step(function, module, optimizer, example)
    return imported


def explain_model(model: object, example: Example) -> Explanation:
    """What a PyTorch module is made of, and what Rammer lacks for it; nothing is compiled.

    Raises:
        ModelError: it cannot be captured, or is no module.
        OptionError: the example does not fit it.
    """
    if library_of(type(model)) != "torch":
        raise NotAModelError(f"an object of class {type(model).__name__} is no module", hint="give a PyTorch module")
    explanation: Explanation = import_module(_LIBRARIES["torch"]).explain_model(model, example)
    return explanation


def read_contents(model: str | os.PathLike[str]) -> Contents:
    """What an ONNX file holds; nothing is converted.

    Raises:
        ModelError: it cannot be read.
    """
    contents: Contents = import_module(_LIBRARIES["onnx"]).read_contents(model)
    return contents


def library_of(owner: type) -> str | None:
    """The library that a class, or one that it derives from, comes from; None where no front end knows it."""
    roots = (base.__module__.partition(".")[0] for base in owner.__mro__)
    return next((root for root in roots if root in _LIBRARIES or root in _ESTIMATORS), None)


def tensor_library(owner: type) -> ModuleType | None:
    """What handles calls with tensors of a class; None where no front end knows it. See `runtime.tensors`."""
    return import_module("rammer.frontends.torch.calls") if library_of(owner) == "torch" else None
