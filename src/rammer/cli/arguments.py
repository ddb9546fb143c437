"""Arguments that several commands take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rammer.errors import OptionError
from rammer.ir.dimensions import Dim, GivenDynamic
from rammer.options import NUMERICS, POLICY_NAMES, TREES, TUNINGS, CompileOptions

if TYPE_CHECKING:
    import numpy.typing as npt

_DYNAMIC = "batch=1:16, or with sizes of programs, batch=1:16:4,16"

SAVED = ".rammer"
"""How the names of compiled models end."""

ModelPath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="An ONNX file, or a .rammer file that `rammer compile` wrote.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a script to read, errors too.")]
TimingsOption = Annotated[bool, typer.Option("--timings", help="Print how long each step of compiling took.")]
EntryOption = Annotated[
    str | None,
    typer.Option("--entry", help="Which of a saved model's functions: an estimator's method, --entry predict_proba."),
]
_SHAPES = "batch=8 or --shape x=1,3,224,224"
_CONSTANTS = "rate=16000, or as a vector, --constant scale=0.5,2 or --constant size=3, or --constant x=x.npy"
DumpOption = Annotated[Path | None, typer.Option(help="Write every intermediate form into this folder.")]


def _compile_options(
    device: Annotated[str | None, typer.Option(help="Where it runs; `rammer devices` lists them.")] = None,
    policy: Annotated[str, typer.Option(help=f"Scheduling policy: {', '.join(POLICY_NAMES)}.")] = "wavefront",
    precision: Annotated[str, typer.Option(help="Arithmetic: fp32 (IEEE float32); on GPUs tf32, bf16, fp16.")] = "fp32",
    numerics: Annotated[
        str,
        typer.Option(help=f"Whether sums may be computed otherwise than the model writes them: {', '.join(NUMERICS)}."),
    ] = "default",
    trees: Annotated[str, typer.Option(help=f"How decision trees find leaves: {', '.join(TREES)}.")] = "auto",
    tune: Annotated[
        str,
        typer.Option(help=f"What is measured, not predicted (programs: whole ones alone): {', '.join(TUNINGS)}."),
    ] = "none",
    seed: Annotated[int, typer.Option(help="Of the model's random numbers.")] = 0,
    veus: Annotated[
        int | None,
        typer.Option(help="Execution units; by default one for each core or multiprocessor (GPUs: up to two)."),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            help="A symbolic dimension, --shape batch=2, or an input, --shape x=1,3,224,224; chooses a saved program."
        ),
    ] = None,
    constant: Annotated[
        list[str] | None,
        typer.Option(help="An input that is the same in every call: --constant rate=16000, --constant x=x.npy."),
    ] = None,
) -> CompileOptions:
    """The options of a compilation from the command line."""
    given = {name: _shape(name, text) for name, text in pairs(shape, "--shape", _SHAPES).items()}
    constants = {name: _constant(name, text) for name, text in pairs(constant, "--constant", _CONSTANTS).items()}
    options = CompileOptions(
        policy=policy,
        precision=precision,
        numerics=numerics,
        trees=trees,
        tune=tune,
        seed=seed,
        input_shapes=given,
        constants=constants,
    )
    if device is not None:
        options = replace(options, device=device)
    return options if veus is None else replace(options, veus=veus)


FLAGS = {
    "device": "--device",
    "policy": "--policy",
    "precision": "--precision",
    "numerics": "--numerics",
    "trees": "--trees",
    "tune": "--tune",
    "seed": "--seed",
    "veus": "--veus",
    "input_shapes": "--shape",
    "constants": "--constant",
    "dump_dir": "--dump-dir",
}
"""The options of a compilation on the command line, by their fields."""


def with_compile_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `options` stands for those of `_compile_options`."""
    ours = inspect.signature(_compile_options, eval_str=True).parameters
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        parameters += ours.values() if parameter.name == "options" else [parameter]

    @functools.wraps(command)
    def call(**given: Any) -> None:  # noqa: ANN401 - whatever the command takes
        chosen = {name: given.pop(name) for name in ours}
        command(options=_compile_options(**chosen), **given)

    ordered = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    call.__signature__ = signature.replace(parameters=ordered)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def pairs(items: Sequence[str] | None, option: str, example: str) -> dict[str, str]:
    """Texts by name from options like `--shape x=1,3,224,224`."""
    found: dict[str, str] = {}
    for item in items or ():
        name, equals, text = item.partition("=")
        if not (name and equals and text):
            raise OptionError(f"{option} {item}", hint=f"write it as {option} {example}")
        if name in found:
            raise OptionError(f"{option} {item}: '{name}' is given twice", hint="leave one out")
        found[name] = text
    return found


def dimensions(items: Sequence[str] | None) -> GivenDynamic:
    """Dimensions by name from options like `--dynamic batch=1:16`; an axis of an input is written as `x.0`.

    Raises:
        OptionError: one is written in another way.
    """
    found: dict[str, Any] = {}
    for name, text in pairs(items, "--dynamic", _DYNAMIC).items():
        low, _, rest = text.partition(":")
        high, _, rest = rest.partition(":")
        sizes, _, mask = rest.partition(":")
        try:
            buckets = tuple(map(int, sizes.split(","))) if sizes else None
            dim = Dim(name=name, low=int(low), high=int(high), buckets=buckets, mask=mask or None)
        except ValueError as error:
            raise OptionError(f"--dynamic {name}={text}", hint=f"write it as --dynamic {_DYNAMIC}") from error
        place, dot, axis = name.rpartition(".")
        if dot and axis.isdecimal():
            found.setdefault(place, {})[int(axis)] = dim
        else:
            found[name] = dim
    return found


def given_flags(options: CompileOptions) -> Sequence[str]:
    """The flags of options that are not the usual ones."""
    usual = CompileOptions()
    return [flag for name, flag in FLAGS.items() if getattr(options, name) != getattr(usual, name)]


def check_folder(option: str, path: Path) -> None:
    """See whether a file may be written, before work that is done for it.

    Raises:
        OptionError: there is no such folder.
    """
    if not path.parent.is_dir():
        raise OptionError(
            f"{option} {path}: cannot write it, there is no folder {path.parent}", hint="make the folder first"
        )


def check_new_folder(option: str, folder: Path) -> None:
    """See whether files may be written into a folder that is made for them, before work that is done for it.

    Raises:
        OptionError: it is a file, or lies in one.
    """
    above = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    if not above.is_dir():
        raise OptionError(f"{option} {folder}: cannot write into {above}, which is a file", hint="name another folder")


def check_model(option: str, path: Path) -> None:
    """See whether a model's file is there, before work that is done beside it.

    Raises:
        OptionError: it is not.
    """
    if not path.exists():
        raise OptionError(f"{option} {path}: there is no such file", hint="check the path")


def check_files(files: Mapping[str, str]) -> None:
    """See whether the files of inputs are there, before work that is done for them.

    Raises:
        InputNameError: one is not.
    """
    from rammer.errors import InputNameError
    from rammer.files import open_file

    for name, file in files.items():
        try:
            open_file(Path(file)).close()
        except OSError as error:
            raise InputNameError(
                f"cannot read {file} for input '{name}': {error.strerror}", hint="check the path"
            ) from error


def _shape(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise OptionError(f"--shape {name}={text}", hint=f"write it as --shape {_SHAPES}") from error


def _constant(name: str, text: str) -> npt.NDArray[Any]:
    """A number, numbers with commas as a vector, or an array from a file."""
    import numpy as np

    from rammer.runtime.arrays import read_array

    if text.endswith(".npy"):
        return read_array(name, Path(text))
    numbers = [_number(name, text, each.strip()) for each in text.removesuffix(",").split(",")]
    return np.array(numbers if "," in text else numbers[0])


def _number(name: str, text: str, number: str) -> bool | int | float:
    if number in ("true", "false"):
        return number == "true"
    try:
        return float(number) if set(number) & set(".eEn") else int(number)
    except ValueError as error:
        raise OptionError(f"--constant {name}={text}", hint=f"write it as --constant {_CONSTANTS}") from error
