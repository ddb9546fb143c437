"""The command line as a whole: its commands, and how errors end it.

Exit codes: 0 done, 2 a wrong command line or option, 3 the model, 4 the inputs of a call, 5 a saved model, 6 the
device or its compiler, 70 a defect of Rammer.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

import rammer
from rammer.cli import bench, cache, compile, devices, doctor, inspect, run
from rammer.cli.output import notes_shown, print_error
from rammer.errors import ArtifactError, CallError, DeviceError, ModelError, OptionError, RammerError

_EXIT_CODES: tuple[tuple[type[RammerError], int], ...] = (
    (OptionError, 2),
    (ModelError, 3),
    (CallError, 4),
    (ArtifactError, 5),
    (DeviceError, 6),
)

# Of click's, or of typer's own copy of click.
_UsageError: Any = typer.BadParameter.__base__

app = typer.Typer(
    help="Compile a deep-learning model into one static program of tile-sized tasks, and run it.",
    epilog="Start with: rammer compile model.onnx -o model.rammer && rammer bench model.rammer",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("compile")(compile.compile_command)
app.command("run")(run.run_command)
app.command("bench")(bench.bench_command)
app.command("inspect")(inspect.inspect_command)
app.command("devices")(devices.devices_command)
app.command("cache")(cache.cache_command)
app.command("doctor")(doctor.doctor_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rammer {rammer.__version__}")
        raise typer.Exit


@app.callback()
def _whole(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """The options of no command in particular."""


def main() -> None:
    """Run the command line; errors of Rammer end it with their message and exit code."""
    as_json = "--json" in sys.argv[1:]
    with notes_shown():
        try:
            sys.exit(app(standalone_mode=not as_json))
        except RammerError as error:
            print_error(error, as_json=as_json)
            sys.exit(exit_code(error))
        except _UsageError as error:  # which --json keeps from printing itself
            wrong = OptionError(error.format_message(), hint="rammer --help lists the options")
            print_error(wrong, as_json=True)
            sys.exit(exit_code(wrong))


def exit_code(error: RammerError) -> int:
    """The process exit code of an error."""
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), 70)
