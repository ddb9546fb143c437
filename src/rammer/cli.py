"""The `rammer` command.

Exit codes: 0 done, 2 a wrong command line or option, 3 the model, 4 the inputs of a call, 5 a saved model, 6 the
device or its compiler, 70 a defect of Rammer.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from rammer.compiler import compile_with, load
from rammer.devices.registry import DEVICES
from rammer.errors import (
    ArtifactError,
    CallError,
    DeviceError,
    InputNameError,
    ModelError,
    OptionError,
    RammerError,
)
from rammer.inspection import tables
from rammer.inspection.timeline import to_chrome_trace, to_html
from rammer.ir.graph import Array
from rammer.options import CompileOptions
from rammer.runtime.executable import Executable
from rammer.runtime.signature import Signature
from rammer.schedule.policies import POLICIES

app = typer.Typer(
    help="Compile a deep-learning model into one static program of tile-sized tasks, and run it.",
    epilog="Start with: rammer compile model.onnx -o model.rammer && rammer bench model.rammer",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)
_EXIT_CODES: tuple[tuple[type[RammerError], int], ...] = (
    (OptionError, 2),
    (ModelError, 3),
    (CallError, 4),
    (ArtifactError, 5),
    (DeviceError, 6),
)
_errors = Console(stderr=True)
_output = Console()

ModelPath = Annotated[Path, typer.Argument(help="An ONNX file, or a .rammer file that `rammer compile` wrote.")]
DeviceOption = Annotated[str | None, typer.Option(help="Where it runs; `rammer devices` lists them.")]
PolicyOption = Annotated[str, typer.Option(help=f"Scheduling policy: {', '.join(POLICIES)}.")]
PrecisionOption = Annotated[str, typer.Option(help="Arithmetic of float32 models: fp32 is IEEE float32.")]
VeusOption = Annotated[int | None, typer.Option(help="Execution units to use; all there are by default.")]
ShapeOption = Annotated[
    list[str] | None, typer.Option(help="Shape of an input with symbolic dimensions: --shape x=1,3,224,224.")
]
DumpOption = Annotated[Path | None, typer.Option(help="Write every intermediate form into this folder.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a script to read.")]


def main() -> None:
    """Run the command line; errors of Rammer end it with their message and exit code."""
    try:
        app()
    except RammerError as error:
        _errors.print(str(error), style="red", markup=False, highlight=False)
        sys.exit(exit_code(error))


def exit_code(error: RammerError) -> int:
    """The process exit code of an error."""
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), 70)


@app.command("compile")
def compile_command(
    model: Annotated[Path, typer.Argument(help="An ONNX file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write, usually MODEL.rammer.")],
    device: DeviceOption = None,
    policy: PolicyOption = "wavefront",
    precision: PrecisionOption = "fp32",
    veus: VeusOption = None,
    shape: ShapeOption = None,
    dump_dir: DumpOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compile an ONNX model and save it: one file that loads without the model and without a compiler."""
    options = _options(device, policy, precision, veus, shape, dump_dir)
    start = time.perf_counter()
    executable = _compile(model, options)
    executable.save(output)
    seconds = time.perf_counter() - start
    if as_json:
        _print_json({"output": str(output), "seconds": seconds, "signature": executable.signature.to_json()})
    else:
        _output.print(tables.summary(executable.report))
        _output.print(f"wrote {output} ({output.stat().st_size / 1e6:.2f} MB) in {seconds:.1f} s")


@app.command()
def run(
    model: ModelPath,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", "-i", help="A .npy file for an input: --input x=x.npy.")
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", "-o", help="Write each output as NAME.npy here.")
    ] = None,
    random: Annotated[
        bool, typer.Option("--random", help="Fill inputs that are not given with random numbers.")
    ] = False,
    device: DeviceOption = None,
    policy: PolicyOption = "wavefront",
    precision: PrecisionOption = "fp32",
    veus: VeusOption = None,
    shape: ShapeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a model once on arrays from files."""
    executable = _open(model, _options(device, policy, precision, veus, shape, None))
    given = {name: _read_array(name, path) for name, path in _pairs(inputs, "--input", "x=x.npy")}
    if random:
        given = _random_inputs(executable.signature) | given
    results = executable.run(given)
    if output_dir is not None:
        _write_arrays(output_dir, results)
    if as_json:
        _print_json({name: {"shape": list(a.shape), "values": a.reshape(-1).tolist()} for name, a in results.items()})
        return
    for name, array in results.items():
        _output.print(f"[bold]{name}[/bold] {array.dtype}{list(array.shape)}")
        _output.print(np.array2string(array, threshold=40, precision=5), markup=False, highlight=False)


@app.command()
def bench(
    model: ModelPath,
    repeat: Annotated[int, typer.Option(min=1, help="Timed runs.")] = 100,
    warmup: Annotated[int, typer.Option(min=0, help="Runs before them.")] = 10,
    device: DeviceOption = None,
    policy: PolicyOption = "wavefront",
    precision: PrecisionOption = "fp32",
    veus: VeusOption = None,
    shape: ShapeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure the latency of a model on random inputs: the whole call, NumPy in, NumPy out."""
    executable = _open(model, _options(device, policy, precision, veus, shape, None))
    inputs = _random_inputs(executable.signature)
    for _ in range(warmup):
        executable.run(inputs)
    times_us = []
    for _ in range(repeat):
        start = time.perf_counter_ns()
        executable.run(inputs)
        times_us.append((time.perf_counter_ns() - start) / 1e3)
    times_us.sort()
    figures = {
        "median_us": statistics.median(times_us),
        "p10_us": times_us[len(times_us) // 10],
        "p90_us": times_us[len(times_us) * 9 // 10],
        "runs": repeat,
    }
    if as_json:
        _print_json({"model": str(model), "device": executable.device, **figures})
    else:
        spread = f"{figures['p10_us']:,.1f} to {figures['p90_us']:,.1f} us for 80 % of {repeat} runs"
        _output.print(f"{executable.name} on {executable.device}: median {figures['median_us']:,.1f} us ({spread})")


@app.command()
def inspect(
    model: ModelPath,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="List every candidate rKernel, not just the chosen.")
    ] = False,
    timeline: Annotated[
        Path | None, typer.Option(help="Run once, traced, and write the timeline: a page (.html) or a trace (.json).")
    ] = None,
    device: DeviceOption = None,
    policy: PolicyOption = "wavefront",
    precision: PrecisionOption = "fp32",
    veus: VeusOption = None,
    shape: ShapeOption = None,
    dump_dir: DumpOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a compiled model runs where, and why."""
    executable = _open(model, _options(device, policy, precision, veus, shape, dump_dir))
    report = executable.report
    if timeline is not None:
        write_timeline(executable, _random_inputs(executable.signature), timeline)
    if as_json:
        _print_json(report)
        return
    _output.print(tables.summary(report))
    _output.print(str(executable.signature), markup=False, highlight=False)
    _output.print(tables.candidates(report) if kernels else tables.operators(report))
    if timeline is not None:
        _output.print(f"wrote {timeline}")


@app.command()
def devices(as_json: JsonOption = False) -> None:
    """List the devices and what is known of them here."""
    options = CompileOptions()
    found: dict[str, dict[str, Any]] = {}
    for name, device in DEVICES.items():
        try:
            found[name] = {key: _plain(value) for key, value in asdict(device.describe(options)).items()}
        except DeviceError as error:
            found[name] = {"unavailable": error.message}
    if as_json:
        _print_json(found)
        return
    for name, description in found.items():
        if "unavailable" in description:
            _output.print(f"[bold]{name}[/bold]: not available: {description['unavailable']}")
        else:
            units = len(description["veus"])
            _output.print(f"[bold]{name}[/bold]: {description['name']}, {units} execution units")


def write_timeline(executable: Executable, inputs: Mapping[str, Array], path: Path) -> None:
    """Trace one run (after a warm-up) and write it as a page (.html) or in the trace event format (.json).

    Raises:
        OptionError: another suffix, or the file cannot be written.
    """
    writers: Mapping[str, Callable[[Mapping[str, Any], Any], str]] = {
        ".html": lambda report, spans: to_html(report, spans, f"{executable.name} on {executable.device}"),
        ".json": to_chrome_trace,
    }
    if path.suffix not in writers:
        raise OptionError(f"timeline file '{path}'", hint="end its name in .html (a page) or .json (a trace)")
    executable.run(inputs)
    spans = executable.trace(inputs).spans_ns
    try:
        path.write_text(writers[path.suffix](executable.report, spans), encoding="utf-8")
    except OSError as error:
        raise OptionError(f"cannot write {path}: {error.strerror}", hint="name another file") from error


def _options(
    device: str | None,
    policy: str,
    precision: str,
    veus: int | None,
    shapes: Sequence[str] | None,
    dump_dir: Path | None,
) -> CompileOptions:
    given = {name: _shape(name, text) for name, text in _pairs(shapes, "--shape", "x=1,3,224,224")}
    options = CompileOptions(policy=policy, precision=precision, input_shapes=given, dump_dir=dump_dir)
    if device is not None:
        options = replace(options, device=device)
    return options if veus is None else replace(options, veus=veus)


def _pairs(items: Sequence[str] | None, option: str, example: str) -> Iterator[tuple[str, str]]:
    for item in items or ():
        name, equals, text = item.partition("=")
        if not (name and equals and text):
            raise OptionError(f"{option} {item}", hint=f"write it as {option} {example}")
        yield name, text


def _shape(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise OptionError(f"--shape {name}={text}", hint="write it as --shape x=1,3,224,224") from error


def _open(path: Path, options: CompileOptions) -> Executable:
    return load(path, options) if path.suffix == ".rammer" else _compile(path, options)


def _compile(path: Path, options: CompileOptions) -> Executable:
    with _progress() as told:
        return compile_with(path, options, told)


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A progress line on stderr, only where a person watches."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=_errors, transient=True, disable=not _errors.is_terminal) as progress:
        bar = progress.add_task("read", total=None)
        yield lambda stage, done, total: progress.update(bar, description=stage, completed=done, total=total)


def _read_array(name: str, path: str) -> Array:
    try:
        array: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputNameError(f"cannot read input '{name}' from {path}: {error}", hint="give a .npy file") from error
    return array


def _write_arrays(folder: Path, arrays: Mapping[str, Array]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in arrays.items():
            np.save(folder / f"{name.replace('/', '_')}.npy", array, allow_pickle=False)
    except OSError as error:
        raise OptionError(f"cannot write into {folder}: {error.strerror}", hint="name another folder") from error


def _random_inputs(signature: Signature) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    inputs: dict[str, Array] = {}
    for port in signature.inputs:
        normal = rng.standard_normal(port.type.shape)
        inputs[port.name] = (normal if port.type.dtype.is_float else normal > 0).astype(port.type.dtype.numpy)
    return inputs


def _plain(value: object) -> object:
    """Dataclass fields as JSON data: enum keys by their value, tuples as lists."""
    if isinstance(value, Mapping):
        return {getattr(key, "value", key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _print_json(data: object) -> None:
    print(json.dumps(data, sort_keys=True))
