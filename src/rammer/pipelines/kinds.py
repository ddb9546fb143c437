"""What each kind of model is compiled into."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

from rammer.errors import OptionError
from rammer.frontends.dispatch import (
    Example,
    Imported,
    load_estimator,
    load_family,
    load_model,
    load_step,
)
from rammer.frontends.randomness import with_seed
from rammer.ir.dimensions import Dynamic
from rammer.ir.graph import Graph
from rammer.options import CompileOptions
from rammer.pipelines.chaining import compile_model
from rammer.pipelines.compiler import signature_of
from rammer.pipelines.group import load_group
from rammer.pipelines.guarded import guarded
from rammer.pipelines.planning import Progress, silent
from rammer.pipelines.saved import library_of, may_be_pickled
from rammer.pipelines.shapes import check_rows, plan_shapes
from rammer.pipelines.together import compile_together
from rammer.runtime.dynamic import KEPT, MOST_AHEAD, DynamicModel
from rammer.runtime.estimator import CompiledEstimator
from rammer.runtime.executable import Executable
from rammer.runtime.module import CompiledModule
from rammer.runtime.programs import ProgramSet, Shapes
from rammer.runtime.step import CompiledStep
from rammer.runtime.structure import arrays_of
from rammer.timings import timed

for _kind in (DynamicModel, CompiledEstimator):
    may_be_pickled(_kind)


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
    graph, kind = read_with(model, options, example)
    return compile_model(graph, options, progress, kind)


def read_with(
    model: object, options: CompileOptions, example: Example | None = None
) -> tuple[Graph, Callable[..., Executable]]:
    """A model as a graph, and what makes the executable of it.

    Raises:
        ModelError: the model cannot be used.
        OptionError: an option cannot be used.
    """
    with timed("read"):
        imported = load_model(model, example or Example(), options.given)
    graph = with_seed(_named(imported.graph, model), options.seed)
    kind: Callable[..., Executable] = Executable
    if imported.form is not None:
        again = partial(compile_with, options=options, example=example)
        kind = partial(CompiledModule, form=imported.form, find_library=library_of, compile_again=again)
    return graph, kind


def _named(graph: Graph, model: object) -> Graph:
    """A graph of a file by the file's name: exporters call their graphs alike."""
    return replace(graph, name=Path(model).stem) if isinstance(model, str | os.PathLike) else graph


@guarded("compiled")
def compile_captured(imported: Imported, options: CompileOptions) -> CompiledModule:
    """A module that its front end has captured, for `torch.compile`, which says itself what is captured.

    Raises:
        ModelError: it cannot be used.
        OptionError: an option cannot be used.
        DeviceError: the machine cannot do what was asked.
    """
    assert imported.form is not None
    kind = partial(CompiledModule, form=imported.form, find_library=library_of)
    return cast(CompiledModule, compile_model(with_seed(imported.graph, options.seed), options, kind=kind))


@guarded("compiled")
def compile_estimator(model: object, options: CompileOptions, example: Example) -> CompiledEstimator:
    """A fitted estimator with a program for each method and some numbers of rows, compiled when they are first called.

    Raises:
        ModelError: the estimator cannot be used.
        OptionError: an option cannot be used.
    """
    imported = load_estimator(model, example, options.given)

    @guarded("compiled")
    def build(shapes: Shapes, method: str) -> Executable:
        return compile_model(imported.graph_of(shapes[0][0], method), options)

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
        members, form = load_group(models, examples, options.given, priorities)

    def again(fresh: object) -> Executable:
        if not isinstance(fresh, list | tuple):
            raise OptionError(f"a {type(fresh).__name__} for {len(models)} models", hint="give a list of them")
        return compile_group(fresh, options, examples, priorities)

    seeds = (with_seed(member.graph, (options.seed + i) % 2**64) for i, member in enumerate(members))
    initial = [state.initial for graph in seeds for state in graph.states]
    kind = partial(
        CompiledModule,
        initial=initial,
        form=form,
        find_library=library_of,
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
    family = load_family(model, example, options.given, dynamic)
    plan, base = plan_shapes(family, dynamic)
    spread = signature_of(base.graph).arrange if base.form is None else partial(arrays_of, base.form)

    @guarded("compiled")
    def build(shapes: Shapes, entry: str) -> Executable:
        imported = family.at(shapes)
        check_rows(family, plan, shapes, imported)
        kind: Callable[..., Executable] = Executable
        if imported.form is not None:
            kind = partial(CompiledModule, form=imported.form, find_library=library_of)
        return compile_model(_named(imported.graph, model), options, kind=kind)

    limit = MOST_AHEAD if mode == "ahead" else KEPT
    return DynamicModel(plan, ProgramSet(build, limit=limit), spread, library_of, mode=mode)


@guarded("compiled")
def compile_training(
    fn: Callable[..., object],
    module: object,
    optimizer: object,
    options: CompileOptions,
    example: Example,
) -> CompiledStep:
    """A training step, whose arguments `compile_step` describes.

    Raises:
        ModelError: the step cannot be captured, or uses what Rammer does not have.
        OptionError: an option cannot be used.
        DeviceError: the machine cannot do what was asked.
    """
    imported = load_step(fn, module, optimizer, example)
    assert imported.owner is not None
    kind = partial(CompiledStep, owner=imported.owner, form=imported.form, find_library=library_of)
    return cast(CompiledStep, compile_model(with_seed(imported.graph, options.seed), options, kind=kind))
