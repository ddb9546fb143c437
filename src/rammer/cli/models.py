"""Models that commands are given: compiled while a line says how far it is, or loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rammer.cli.arguments import FLAGS, SAVED, given_flags
from rammer.cli.output import errors
from rammer.errors import OptionError
from rammer.options import CompileOptions

if TYPE_CHECKING:
    from rammer.ir.dimensions import GivenDynamic
    from rammer.runtime.dynamic import DynamicModel
    from rammer.runtime.estimator import CompiledEstimator
    from rammer.runtime.executable import Executable
    from rammer.runtime.programs import ProgramSet

    Model = Executable | DynamicModel | CompiledEstimator | ProgramSet

_STAGES = {
    "read": ("reading the model", 0),
    "passes": ("rewriting the graph", 5),
    "lower": ("choosing tiles", 25),
    "measure": ("measuring kernels", 40),
    "schedule": ("scheduling", 60),
    "build": ("compiling kernels", 70),
}
"""Each stage of a compilation in words, and how much of a usual one is done when it begins, in per cent."""


def open_model(path: Path, options: CompileOptions) -> Model:
    """Load a compiled model, or compile an ONNX file.

    Of the options, a compiled model takes `--veus`, and one of several programs `--shape`, which chooses among them.

    Raises:
        OptionError: other options are given for a compiled model.
        RammerError: it cannot be compiled or loaded.
    """
    if path.suffix != SAVED:
        return compile_model(path, options)
    from rammer.pipelines.loading import load
    from rammer.runtime.executable import Executable

    given = [flag for flag in given_flags(options) if flag != FLAGS["veus"]]
    if set(given) <= {FLAGS["input_shapes"]}:
        found: Model = load(path, options)
        if not given or not isinstance(found, Executable):
            return found
    raise OptionError(f"{', '.join(given)} for {path}, which is compiled", hint="compile the ONNX file again")


def compile_model(path: Path, options: CompileOptions) -> Executable:
    """Compile an ONNX file.

    Raises:
        RammerError: it cannot be compiled.
    """
    from rammer.pipelines.kinds import compile_with

    with progress_line() as told:
        return compile_with(path, options, told)


def compile_models(
    paths: Sequence[Path], options: CompileOptions, priorities: str | None, dynamic: GivenDynamic
) -> Executable | DynamicModel:
    """Compile an ONNX file, for several shapes where dimensions are dynamic, or several files into one program.

    Args:
        paths: the files.
        options: for all of them.
        priorities: of several, numbers with commas between them; None counts all alike.
        dynamic: dimensions of a model's inputs that calls choose.

    Raises:
        RammerError: they cannot be compiled.
    """
    if dynamic:
        if len(paths) > 1 or priorities is not None:
            raise OptionError("--dynamic for several models", hint="compile those by themselves")
        return _compile_dynamic(paths[0], options, dynamic)
    if len(paths) == 1 and priorities is None:
        return compile_model(paths[0], options)
    from rammer.pipelines.group import examples_of, priorities_of
    from rammer.pipelines.kinds import compile_group

    try:
        numbers = None if priorities is None else [float(text) for text in priorities.split(",")]
    except ValueError as error:
        raise OptionError(f"--priorities {priorities}", hint="write it as --priorities 2,1") from error
    counted = priorities_of(len(paths), numbers)
    with progress_line() as told:
        return compile_group(paths, options, examples_of(len(paths), (), None), counted, told)


def _compile_dynamic(path: Path, options: CompileOptions, dynamic: GivenDynamic) -> DynamicModel:
    from rammer.frontends.dispatch import Example, open_dimensions
    from rammer.ir.dimensions import dynamic_dimensions
    from rammer.pipelines.kinds import compile_dynamic

    dimensions = dynamic_dimensions(dynamic, lambda: open_dimensions(path))
    return compile_dynamic(path, options, Example(), dimensions, "ahead")


@contextmanager
def progress_line() -> Iterator[Callable[[str, int, int], None]]:
    """A line on stderr that says what is being done and how much of all is, only where a person watches."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    ends = dict(zip(_STAGES, [share for _, share in list(_STAGES.values())[1:]] + [100], strict=True))
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        bar = progress.add_task(_STAGES["read"][0], total=100)

        def told(stage: str, done: int, total: int) -> None:
            words, begin = _STAGES[stage]
            share = begin + (ends[stage] - begin) * done / max(total, 1)
            counted = f"{words}, {done} of {total}" if total > 1 else words
            progress.update(bar, description=counted, completed=share)

        yield told
