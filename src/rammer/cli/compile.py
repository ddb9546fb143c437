"""`rammer compile`."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from rammer.cli.arguments import (
    SAVED,
    DumpOption,
    JsonOption,
    TimingsOption,
    check_new_folder,
    dimensions,
    with_compile_options,
)
from rammer.cli.models import compile_models
from rammer.cli.output import output as console
from rammer.cli.output import print_json, say
from rammer.errors import ArtifactWriteError, OptionError
from rammer.options import CompileOptions


@with_compile_options
def compile_command(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL...", help="An ONNX file; several become one program, in one call.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write; its name ends in .rammer.")],
    options: CompileOptions,
    priorities: Annotated[
        str | None, typer.Option(help="How much the end of each of several models counts: --priorities 2,1.")
    ] = None,
    dynamic: Annotated[
        list[str] | None,
        typer.Option(
            help="A dimension that calls choose, --dynamic batch=1:16 or, of an input, x.0=1:16; with the sizes of "
            "programs, and the input that masks what is padded: length=2:128:32,128:mask."
        ),
    ] = None,
    dump_dir: DumpOption = None,
    timings: TimingsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compile ONNX models and save them: one file that loads without the models and without a compiler.

    Example: rammer compile model.onnx -o model.rammer --shape batch=8
    """
    for model in models:
        if model.suffix == SAVED:
            raise OptionError(f"{model} is compiled", hint="give the ONNX file that it was compiled from")
    if output.suffix != SAVED:
        raise OptionError(f"--output {output}", hint=f"end its name in {SAVED}, so that it is known for what it is")
    if not output.parent.is_dir():
        raise ArtifactWriteError(f"cannot write {output}: there is no folder {output.parent}", hint="make it first")
    if dump_dir is not None:
        check_new_folder("--dump-dir", dump_dir)
    from rammer.cli.sets import programs_of
    from rammer.inspection import tables
    from rammer.inspection.timings import timings_shown
    from rammer.ir.sizes import size_text
    from rammer.runtime.executable import Executable

    start = time.perf_counter()
    with timings_shown(wanted=timings):
        compiled = compile_models(models, replace(options, dump_dir=dump_dir), priorities, dimensions(dynamic))
    compiled.save(output)
    seconds = time.perf_counter() - start
    if as_json:
        signatures = [program.signature.to_json() for program in programs_of(compiled).values()]
        found = {"signature": signatures[0]} if isinstance(compiled, Executable) else {"programs": signatures}
        print_json({"output": str(output), "seconds": seconds, **found})
    else:
        console.print(tables.summary(compiled.report) if isinstance(compiled, Executable) else str(compiled))
        say(f"wrote {output} ({size_text(output.stat().st_size)}) in {seconds:.1f} s")
