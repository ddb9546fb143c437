"""Models that are given as a list: their names, what belongs to each, and the form of a call of them all."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

from rammer.errors import OptionError
from rammer.frontends.dispatch import Example, Imported, is_estimator, load_model
from rammer.ir.calling import CallForm, Counted, Leaf, Nest, Number, Structure
from rammer.lowering.join import named
from rammer.options import GivenInputs
from rammer.pipelines.compiler import signature_of
from rammer.pipelines.together import Model
from rammer.runtime.signature import Port

T = TypeVar("T")


def load_group(
    models: Sequence[object],
    examples: Sequence[Example],
    given: GivenInputs,
    priorities: Sequence[float],
) -> tuple[list[Model], CallForm]:
    """Read several models, each once; `load_model` says how.

    The call takes an argument for each model, named after it: the array of a model that takes one, else a tuple of a
    module's arguments by position, or a dictionary by name. It gives a tuple of what each model gives.

    Args:
        models: what to read.
        examples: one for each.
        given: what is said of inputs, by the names of the group's.
        priorities: one for each.

    Raises:
        ModelError: a model cannot be used.
        OptionError: the models cannot be grouped, or something is given for none of them.
    """
    if not models:
        raise OptionError("a list without a model", hint="give one model or more")
    names = _names(models)
    shapes_of = _by_model(given.shapes, names, "input_shapes")
    constants_of = _by_model(given.constants, names, "constants")
    states_of = _by_model(given.states, names, "state")
    known: dict[object, Imported] = {}
    found: list[Model] = []
    positional: list[tuple[str, Structure]] = []
    results: list[Structure] = []
    for name, model, example, priority in zip(names, models, examples, priorities, strict=True):
        if is_estimator(model):
            raise OptionError(f"an estimator ({type(model).__name__}) among models", hint="compile it by itself")
        shapes, constants = shapes_of[name], constants_of[name]
        kept = {read: _own(written, name, "state") for read, written in states_of[name].items()}
        values = tuple((own, value.dtype, value.shape, value.tobytes()) for own, value in constants.items())
        key = (_identity(model, example), tuple(shapes.items()), values, tuple(kept.items()))
        if key not in known:
            known[key] = load_model(model, example, GivenInputs(shapes=shapes, constants=constants, states=kept))
        imported = known[key]
        found.append(Model(name=name, graph=imported.graph, priority=priority))
        takes, gives = _forms(imported)
        positional.append((name, _renamed(takes, name)))
        results.append(_renamed(gives, name))
    form = CallForm(positional=tuple(positional), named=(), result=Nest(kind="tuple", keys=(), parts=tuple(results)))
    return found, form


def check_common(**options: object) -> None:
    """See whether options that several models share are one value each.

    Raises:
        OptionError: there is one for each model.
    """
    for name, value in options.items():
        if isinstance(value, list | tuple):
            raise OptionError(
                f"{name}={value!r} for several models", hint=f"one program has one {name}; compile others by themselves"
            )


def examples_of(count: int, args: Sequence[object], kwargs: object) -> list[Example]:
    """The examples of several models, from `args` and `kwargs` with an entry for each, or none at all.

    Raises:
        OptionError: there is not one for each.
    """
    given: Sequence[object] = args or [()] * count
    named: object = kwargs or [{}] * count
    if len(given) != count or not all(isinstance(each, list | tuple) for each in given):
        raise OptionError(f"args= for {count} models", hint="give a tuple of arguments for each: args=[(x,), (y, z)]")
    if not isinstance(named, list | tuple) or len(named) != count or not all(isinstance(e, Mapping) for e in named):
        raise OptionError(f"kwargs= for {count} models", hint="give a dictionary for each: kwargs=[{}, {'mask': m}]")
    pairs = zip(cast(Sequence[Sequence[object]], given), named, strict=True)
    return [Example(args=tuple(own), kwargs=dict(by_name)) for own, by_name in pairs]


def priorities_of(count: int, priorities: Sequence[float] | None) -> tuple[float, ...]:
    """How much the end of each of several models counts; without `priorities`, all alike.

    Raises:
        OptionError: there is not a positive number for each.
    """
    found = tuple(map(float, priorities or [1.0] * count))
    if len(found) != count or not all(0 < priority < math.inf for priority in found):
        raise OptionError(f"priorities={list(found)} for {count} models", hint="give a positive number for each")
    return found


def _names(models: Sequence[object]) -> list[str]:
    """A name for each model that can be an argument's: of its file, else its class; numbered where they are alike."""
    names: list[str] = []
    for model in models:
        given = Path(model).stem if isinstance(model, str | os.PathLike) else _title(model)
        name = base = re.sub(r"\W", "_", given) or "model"
        number = 1
        while name in names:
            number += 1
            name = f"{base}_{number}"
        names.append(name)
    return names


def _title(model: object) -> str:
    """What a model that is no file calls itself: an ONNX message its graph's name, all else its class."""
    graph = getattr(model, "graph", None)
    name = getattr(graph, "name", None)
    return name if isinstance(name, str) and name else type(model).__name__


def _identity(model: object, example: Example) -> object:
    """Equal for models that are read alike."""
    arguments = (*example.args, *example.kwargs.values())
    return (
        os.fspath(model) if isinstance(model, str | os.PathLike) else id(model),
        tuple(example.kwargs),
        tuple(map(id, arguments)),
    )


def _by_model(given: Mapping[str, T], names: Sequence[str], option: str) -> dict[str, dict[str, T]]:
    """What is given by the group's names, for each model by its own.

    Raises:
        OptionError: a name begins with that of no model.
    """
    found: dict[str, dict[str, T]] = {name: {} for name in names}
    for name, value in given.items():
        model, _, own = name.partition(":")
        if model not in found or not own:
            raise OptionError(
                f"{option} for '{name}'", hint=f"name it as one of {', '.join(names)}, a colon and its own name"
            )
        found[model][own] = value
    return found


def _own(name: str, model: str, option: str) -> str:
    """What a model itself calls one of the group's names.

    Raises:
        OptionError: it is another model's.
    """
    if not name.startswith(f"{model}:"):
        raise OptionError(f"{option} '{name}' for {model}", hint=f"name an output of the same model: {model}:...")
    return name.removeprefix(f"{model}:")


def _forms(imported: Imported) -> tuple[Structure, Structure]:
    """What a call has for a model, and what it gives for it."""
    if imported.form is None:
        signature = signature_of(imported.graph)
        return _by_name(signature.inputs), _by_name(signature.outputs)
    arguments = imported.form.arguments
    if len(arguments) == 1:
        return arguments[0][1], imported.form.result
    by_position = not imported.form.named
    keys = () if by_position else tuple(name for name, _ in arguments)
    parts = tuple(part for _, part in arguments)
    return Nest(kind="tuple" if by_position else "dict", keys=keys, parts=parts), imported.form.result


def _by_name(ports: Sequence[Port]) -> Structure:
    """The array itself where there is one, else arrays by name."""
    leaves = tuple(Leaf(port.name) for port in ports)
    return leaves[0] if len(leaves) == 1 else Nest(kind="dict", keys=tuple(leaf.name for leaf in leaves), parts=leaves)


def _renamed(structure: Structure, model: str) -> Structure:
    """A structure whose arrays have the model's name in front."""
    match structure:
        case Leaf(name) | Number(name):
            return replace(structure, name=named(model, name))
        case Counted(name, axis, count):
            return Counted(named(model, name), axis, named(model, count))
        case Nest():
            return replace(structure, parts=tuple(_renamed(part, model) for part in structure.parts))
    return structure
