"""What each kind of model is compiled into, and what a saved one becomes again."""

from __future__ import annotations

import copyreg
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from rammer.compiler import Progress, compile_graph, signature_of, silent
from rammer.devices.registry import find_device
from rammer.errors import OptionError
from rammer.frontends.dispatch import (
    Example,
    Imported,
    load_estimator,
    load_family,
    load_model,
    load_step,
    tensor_library,
)
from rammer.group import load_group
from rammer.guarded import guarded
from rammer.ir.dimensions import Dynamic
from rammer.ir.graph import Array
from rammer.ir.schema import SchemaError
from rammer.options import CompileOptions
from rammer.runtime.artifact import load_artifact
from rammer.runtime.dynamic import KEPT, MOST_AHEAD, DynamicModel, read_dynamic
from rammer.runtime.estimator import CompiledEstimator, read_estimator
from rammer.runtime.executable import Executable
from rammer.runtime.module import CompiledModule
from rammer.runtime.programs import ProgramSet, SetReader, Shapes
from rammer.runtime.step import CompiledStep
from rammer.runtime.structure import arrays_of
from rammer.runtime.tensors import TensorLibrary
from rammer.shapes import check_rows, plan_shapes
from rammer.timings import timed
from rammer.together import compile_together, joined_signature


@guarded("compiled")
def compile_with(
    model: object, options: CompileOptions, progress: Progress = silent, example: Example | None = None
) -> Executable:
    """`compile` with every option, and with progress.

    Args:
        model: as for `compile`.
        options: how to compile and run it.
        progress: told (stage, units done, units in all) as work goes on, from any thread.
        example: the arguments that a module is captured with.

    Raises:
        ModelError: the model cannot be used.
        OptionError: an option cannot be used.
        DeviceError: the machine cannot do what was asked.
    """
    progress("read", 0, 1)
    with timed("read"):
        imported = load_model(model, example or Example(), options.input_shapes, options.states)
    graph = imported.graph
    if isinstance(model, str | os.PathLike):  # exporters call their graphs alike
        graph = replace(graph, name=Path(model).stem)
    kind: Callable[..., Executable] = Executable
    if imported.form is not None:
        again = partial(compile_with, options=options, example=example)
        kind = partial(CompiledModule, form=imported.form, find_library=_library, compile_again=again)
    return compile_graph(graph, options, progress, kind)


@guarded("compiled")
def compile_captured(imported: Imported, options: CompileOptions) -> Executable:
    """A module that its front end has captured: for `torch.compile`, which says itself what is captured.

    Raises:
        ModelError: it cannot be used.
        OptionError: an option cannot be used.
        DeviceError: the machine cannot do what was asked.
    """
    assert imported.form is not None
    return compile_graph(
        imported.graph, options, kind=partial(CompiledModule, form=imported.form, find_library=_library)
    )


@guarded("compiled")
def compile_estimator(model: object, options: CompileOptions, example: Example) -> CompiledEstimator:
    """A fitted estimator with a program for each method and some numbers of rows, compiled when they are first called.

    Raises:
        ModelError: the estimator cannot be used.
        OptionError: an option cannot be used.
    """
    imported = load_estimator(model, example, options.input_shapes, options.states)

    @guarded("compiled")
    def build(shapes: Shapes, method: str) -> Executable:
        return compile_graph(imported.graph_of(shapes[0][0], method), options)

    return CompiledEstimator(imported.form, ProgramSet(build))


@guarded("compiled")
def compile_group(
    models: Sequence[object],
    options: CompileOptions,
    examples: Sequence[Example],
    priorities: Sequence[float],
    progress: Progress = silent,
) -> CompiledModule:
    """Several models as one program.

    Args:
        models: as for `compile`.
        options: how to compile and run them; names of inputs and outputs have the model's name in front.
        examples: what each is captured with.
        priorities: one for each.
        progress: as for `compile_with`.

    Raises:
        ModelError: a model cannot be used.
        OptionError: an option cannot be used, or the models cannot be grouped.
        DeviceError: the machine cannot do what was asked.
    """
    progress("read", 0, 1)
    with timed("read"):
        members, form = load_group(models, examples, options.input_shapes, options.states, priorities)

    def again(fresh: object) -> Executable:
        if not isinstance(fresh, list | tuple):
            raise OptionError(f"a {type(fresh).__name__} for {len(models)} models", hint="give a list of them")
        return compile_group(fresh, options, examples, priorities)

    initial = [state.initial for member in members for state in member.graph.states]
    kind = partial(
        CompiledModule,
        signature=joined_signature(members),
        initial=initial,
        form=form,
        find_library=_library,
        compile_again=again,
    )
    return cast(CompiledModule, compile_together(members, options, progress, kind))


@guarded("compiled")
def compile_dynamic(
    model: object, options: CompileOptions, example: Example, dynamic: Dynamic, mode: str
) -> DynamicModel:
    """A model with a program for each of the shapes that calls need.

    Raises:
        ModelError: the model cannot be used.
        OptionError: an option cannot be used.
        DeviceError: the machine cannot do what was asked.
    """
    if options.input_shapes or options.states:
        raise OptionError("dynamic= with input_shapes= or state=", hint="leave them out")
    family = load_family(model, example, dynamic)
    plan, base = plan_shapes(family, dynamic)
    spread = signature_of(base.graph).arrange if base.form is None else partial(arrays_of, base.form)

    @guarded("compiled")
    def build(shapes: Shapes, entry: str) -> Executable:
        imported = family.at(shapes)
        check_rows(family, plan, shapes, imported)
        kind: Callable[..., Executable] = Executable
        if imported.form is not None:
            kind = partial(CompiledModule, form=imported.form, find_library=_library)
        return compile_graph(imported.graph, options, kind=kind)

    limit = MOST_AHEAD if mode == "ahead" else KEPT
    return DynamicModel(plan, ProgramSet(build, limit=limit), spread, _library, mode=mode)


@guarded("compiled")
def compile_training(
    fn: Callable[..., object],
    module: object,
    optimizer: object,
    options: CompileOptions,
    example: Example,
    seed: int,
) -> CompiledStep:
    """A training step, whose arguments `compile_step` describes.

    Raises:
        ModelError: the step cannot be captured, or uses what Rammer does not have.
        OptionError: an option cannot be used.
        DeviceError: the machine cannot do what was asked.
    """
    imported = load_step(fn, module, optimizer, example, seed)
    assert imported.owner is not None
    kind = partial(CompiledStep, owner=imported.owner, form=imported.form, find_library=_library)
    return cast(CompiledStep, compile_graph(imported.graph, options, kind=kind))


# What makes a model of a saved set of programs, by the kind that it was saved with.
SET_READERS: Mapping[str, SetReader] = {
    "": lambda programs, about: programs,
    "dynamic": lambda programs, about: read_dynamic(programs, about, _library),
    "estimator": read_estimator,
}


def read_saved(file: str | os.PathLike[str] | bytes, options: CompileOptions) -> Any:  # noqa: ANN401 - what was saved
    """What was saved to a file, or to its content, as `load` describes it."""
    with guarded("loaded"):
        return load_artifact(file, options, find_device, _library, _reader)


def _pickled(model: Executable) -> tuple[Callable[..., Executable], tuple[object, ...]]:
    """How pickle keeps a model: by the content of its file, and its state as it is now."""
    return _unpickled, (model.to_bytes(), dict(model.state))


def _unpickled(content: bytes, state: Mapping[str, Array]) -> Executable:
    model: Executable = read_saved(content, CompileOptions())
    for name, value in state.items():
        model.state[name] = value
    return model


for _kind in (Executable, CompiledModule):
    copyreg.pickle(_kind, _pickled)


def _reader(kind: str) -> SetReader:
    """What reads a kind of sets.

    Raises:
        SchemaError: there is none.
    """
    if kind not in SET_READERS:
        raise SchemaError(f"its programs are of the kind '{kind}', which this Rammer does not have")
    return SET_READERS[kind]


def _library(owner: type) -> TensorLibrary | None:
    return cast(TensorLibrary | None, tensor_library(owner))
