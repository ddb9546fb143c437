"""Models of several programs (a dynamic model, an estimator, a plain set): which program a command is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rammer.errors import OptionError
from rammer.inspection.report import check_reports
from rammer.ir.estimator import ROWS, EstimatorForm
from rammer.ir.schema import SchemaError
from rammer.printable import listing, printable
from rammer.runtime.arrays import random_inputs
from rammer.runtime.container import corrupt
from rammer.runtime.dynamic import DynamicModel
from rammer.runtime.estimator import CompiledEstimator
from rammer.runtime.executable import Executable
from rammer.runtime.programs import Key, ProgramSet, shapes_of
from rammer.runtime.signature import Signature

if TYPE_CHECKING:
    from rammer.cli.models import Model
    from rammer.inspection.timeline import Report
    from rammer.ir.graph import Array

Arrays = Mapping[str, "Array"]
Asked = Mapping[str, tuple[int, ...]]
"""Shapes that were asked for, by input or by dimension."""

_NOTHING: Arrays = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What a command is about.

    Attributes:
        program: the one that computes; of many rows of an estimator, the first rows.
        run: the whole call: arrays of any shape that the model takes, padded or in pieces as from Python.
        random: inputs of the shapes that were asked for.
    """

    program: Executable
    run: Callable[[Arrays], Arrays]
    random: Callable[[], Arrays]


def programs_of(model: Model) -> Mapping[Key, Executable]:
    """The programs of a model."""
    if isinstance(model, Executable):
        return {Key("", shapes_of(model)): model}
    return (model if isinstance(model, ProgramSet) else model.programs).programs


def report_of(program: Executable) -> Report:
    """The report of a compiled model, which may come from a file of somebody else's.

    Raises:
        ArtifactCorruptError: it is none.
    """
    report = program.report
    try:
        check_reports(report)
    except SchemaError as error:
        raise corrupt(program.name, str(error)) from error
    return report


def set_report(model: DynamicModel | CompiledEstimator | ProgramSet) -> Report:
    """The programs of a model as JSON data, beside what is padded or which columns are read.

    Raises:
        ArtifactCorruptError: the report of a program is none.
    """
    programs = [
        {
            "entry": key.entry,
            "signature": program.signature.to_json(),
            "bytes": sum(memoryview(content).nbytes for content in program.content()[0].values()),
            "report": report_of(program),
        }
        for key, program in programs_of(model).items()
    ]
    found: dict[str, Any] = {"programs": programs, "dimensions": [], "estimator": None}
    if isinstance(model, DynamicModel):
        padded = model.plan.padded
        found["dimensions"] = [
            {"name": dim.name, "low": dim.low, "high": dim.high, "padded": dim.name in padded}
            for dim in model.plan.dimensions
        ]
    elif isinstance(model, CompiledEstimator):
        found["estimator"] = {
            "class": model.form.estimator,
            "methods": [method.name for method in model.form.methods],
            "columns": [{"name": column.name, "read": column.used} for column in model.form.columns],
            "steps": [asdict(step) for step in model.form.steps],
            "refusals": list(model.form.refusals),
        }
    return found


def any_signature(model: Model) -> Signature:
    """The names and types of inputs; their shapes are those of some program.

    Raises:
        OptionError: there are no programs.
    """
    for program in programs_of(model).values():
        return program.signature
    raise OptionError("the file holds no programs", hint="compile and save the model again")


def choose(model: Model, entry: str | None, shapes: Asked, given: Arrays = _NOTHING) -> Chosen:
    """What of a model is called for an entry, shapes and inputs.

    Args:
        model: one program, or several.
        entry: which of its functions; None is an estimator's first method, or the only entry there is.
        shapes: by input or dimension; one that nobody asks for is the smallest program's.
        given: inputs, whose shapes count likewise.

    Raises:
        OptionError: there is no such entry, dimension or program, or there are several programs.
        CallError: the model does not take such shapes.
    """
    any_signature(model)
    named = _entry(model, entry)
    asked = {**shapes, **{name: array.shape for name, array in given.items()}}
    if not isinstance(model, Executable) and (other := [name for name in shapes if asked[name] != shapes[name]]):
        raise OptionError(
            f"{_option(other[0], shapes[other[0]])}, and a file of shape {list(asked[other[0]])}", hint="leave one out"
        )
    if isinstance(model, CompiledEstimator):
        return _of_estimator(model, named, asked)
    if isinstance(model, DynamicModel):
        return _of_dynamic(model, asked)
    program = model if isinstance(model, Executable) else _of_set(model, named, asked)
    return Chosen(program=program, run=program.run, random=lambda: random_inputs(program.signature))


def _entry(model: Model, asked: str | None) -> str:
    if isinstance(model, CompiledEstimator):
        there = [method.name for method in model.form.methods]
    else:
        there = list(dict.fromkeys(key.entry for key in programs_of(model)))
    if asked is None and (len(there) == 1 or isinstance(model, CompiledEstimator)):
        return there[0]
    if asked is None or asked not in there:
        told = "several entries" if asked is None else f"no entry '{asked}'"
        listed = ", ".join(f"--entry {printable(name)}" for name in there if name)
        raise OptionError(f"the model has {told}", hint=f"give {listed}" if listed else "leave --entry out")
    return asked


def _of_set(programs: ProgramSet, entry: str, asked: Asked) -> Executable:
    there = [program for key, program in programs.programs.items() if key.entry == entry]
    _check_names(asked, [port.name for program in there for port in program.signature.inputs])
    fitting = [
        program
        for program in there
        if all(asked.get(port.name, port.type.shape) == port.type.shape for port in program.signature.inputs)
    ]
    if len(fitting) == 1:
        return fitting[0]
    listed = " or ".join(
        " ".join(_option(port.name, port.type.shape) for port in program.signature.inputs)
        for program in fitting or there
    )
    told = "there are several programs" if fitting else "there is no program for these shapes"
    raise OptionError(told, hint=f"choose {printable(listed)}")


def _of_dynamic(model: DynamicModel, asked: Asked) -> Chosen:
    signature = _dynamic_signature(model, asked)

    def run(inputs: Arrays) -> Arrays:
        results = model.call_arrays(signature.arrange((), inputs))
        return dict(zip([port.name for port in signature.outputs], results, strict=True))

    program = model.program_for(tuple(port.type.shape for port in signature.inputs))
    return Chosen(program=program, run=run, random=lambda: random_inputs(signature))


def _dynamic_signature(model: DynamicModel, asked: Asked) -> Signature:
    """The signature for the shapes that were asked for."""
    plan, smallest = model.plan, any_signature(model)
    _check_names(asked, [*(port.name for port in smallest.inputs), *(dim.name for dim in plan.dimensions)])
    given = [(name, shape[0]) for name, shape in asked.items() if name in {dim.name for dim in plan.dimensions}]
    known: dict[str, int] = {}
    for port, places in zip(smallest.inputs, plan.inputs, strict=True):
        shape = asked.get(port.name, ())
        given += [(name, shape[axis]) for axis, name in places if axis < len(shape)]
        known |= {name: port.type.shape[axis] for axis, name in places}
    extents = dict(given)
    if different := [name for name, extent in given if extents[name] != extent]:
        raise OptionError(f"several extents for '{different[0]}'", hint="give one, with --shape or with the inputs")
    shapes = plan.shapes_for(known | extents)
    ports = [
        replace(port, type=replace(port.type, shape=asked.get(port.name, shape)))
        for port, shape in zip(smallest.inputs, shapes, strict=True)
    ]
    return replace(smallest, inputs=tuple(ports))


def _of_estimator(model: CompiledEstimator, method: str, asked: Asked) -> Chosen:
    _check_names(asked, [ROWS])
    shape = asked.get(ROWS, (1, len(model.form.columns)))

    def run(inputs: Arrays) -> Arrays:
        (features,) = any_signature(model).arrange((), inputs)
        return _named(method, getattr(model, method)(features))

    return Chosen(
        program=model.program_for(shape[0] if shape else 1, method),
        run=run,
        random=lambda: {ROWS: _random_features(model.form, shape)},
    )


def _named(method: str, result: Any) -> Arrays:  # noqa: ANN401 - an array, or a list of arrays
    """The results of a method by name; labels in an array of objects as what they are."""
    parts = {f"{method}.{i}": part for i, part in enumerate(result)} if isinstance(result, list) else {method: result}
    return {name: np.array(part.tolist()) if part.dtype == object else part for name, part in parts.items()}


def _random_features(form: EstimatorForm, shape: tuple[int, ...]) -> Array:
    """Normal numbers; where a column holds texts, those that the estimator was fitted with."""
    rng = np.random.default_rng(0)
    features: Array = np.asarray(rng.standard_normal(shape))
    texts = {position: column.texts for position, column in enumerate(form.columns) if column.texts}
    if not texts or features.ndim != 2 or features.shape[1] != len(form.columns):
        return features
    features = features.astype(object)
    for position, values in texts.items():
        features[:, position] = [values[place] for place in rng.integers(len(values), size=len(features))]
    return features


def _check_names(asked: Asked, there: Sequence[str]) -> None:
    for name in asked:
        if name not in there:
            known = listing(list(dict.fromkeys(map(printable, there))))
            raise OptionError(f"there is no input or dimension '{name}' in the model", hint=f"there are {known}")


def _option(name: str, shape: Sequence[int]) -> str:
    return f"--shape {name}={','.join(map(str, shape))}"
