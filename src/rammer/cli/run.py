"""`rammer run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from rammer.cli.arguments import (
    EntryOption,
    JsonOption,
    ModelPath,
    check_files,
    check_new_folder,
    pairs,
    with_compile_options,
)
from rammer.cli.models import open_model
from rammer.cli.output import output, print_json, say
from rammer.errors import InputNameError
from rammer.options import CompileOptions
from rammer.printable import printable


@with_compile_options
def run_command(
    model: ModelPath,
    options: CompileOptions,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", "-i", help="A .npy file for an input: --input x=x.npy.")
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", "-o", help="Write each output as NAME.npy here.")
    ] = None,
    random: Annotated[
        bool, typer.Option("--random", help="Fill inputs that are not given with random numbers.")
    ] = False,
    entry: EntryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a model once on arrays from files.

    Example: rammer run model.rammer --input x=x.npy --output-dir results
    """
    files = pairs(inputs, "--input", "x=x.npy")
    if output_dir is not None:
        check_new_folder("--output-dir", output_dir)
    check_files(files)
    import numpy as np

    from rammer.cli.sets import any_signature, choose
    from rammer.runtime.arrays import json_array, read_arrays, write_arrays

    opened = open_model(model, options)
    given = read_arrays(files, any_signature(opened))
    chosen = choose(opened, entry, options.input_shapes, given)
    try:
        results = chosen.run({**chosen.random(), **given} if random else given)
    except InputNameError as error:
        hint = f"{error.hint}: give each as --input NAME=FILE.npy, or fill them with --random"
        raise InputNameError(error.message, hint=hint) from error
    if output_dir is not None:
        write_arrays(output_dir, results)
    if as_json:
        print_json({name: json_array(array) for name, array in results.items()})
        return
    for name, array in results.items():
        output.print(Text.assemble((printable(name), "bold"), f" {array.dtype}{list(array.shape)}"))
        say(np.array2string(array, threshold=40, precision=5))
