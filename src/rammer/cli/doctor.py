"""`rammer doctor`: whether everything is there that Rammer needs here, and what to do about what is not."""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import typer
from rich.text import Text

import rammer
from rammer.cli.arguments import JsonOption
from rammer.cli.output import print_json, say_beside
from rammer.errors import DeviceError
from rammer.options import CompileOptions

_PACKAGES = ("numpy", "onnx", "torch", "scikit-learn", "onnxruntime", "cuda-bindings", "ziglang")
_STYLES = {"ok": "green", "missing": "yellow", "broken": "red"}
_PROGRAM = "int rammer_doctor(int x) { return x + 1; }\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: of the thing.
        state: "ok"; "missing" where Rammer works without it; "broken" where it does not.
        text: what was found.
        to_do: what to do about it, empty where nothing is.
    """

    name: str
    state: str
    text: str
    to_do: str = ""


def doctor_command(as_json: JsonOption = False) -> None:
    """Look whether the compiler, the cache and the GPU work here, and say what to do about what does not.

    The exit code is 6 where something that is needed is broken.
    """
    options = CompileOptions()
    findings = list(_findings(options))
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            state = Text(f"{finding.state:<8}", _STYLES[finding.state])
            say_beside(Text.assemble(state, f"{finding.name:<11}"), finding.text)
            if finding.to_do:
                say_beside(f"{'':19}to do: ", finding.to_do)
    if any(finding.state == "broken" for finding in findings):
        raise typer.Exit(6)


def _findings(options: CompileOptions) -> Iterator[Finding]:
    python = f"{platform.python_version()} in {Path(sys.prefix)}"
    yield Finding(name="rammer", state="ok", text=f"{rammer.__version__}, Python {python}")
    yield Finding(name="packages", state="ok", text=", ".join(_versions()))
    yield _processor()
    yield _tried("compiler", "broken", lambda: _compiler(options))
    yield _cache(options)
    yield _tried("gpu", "missing", _gpu)


def _versions() -> Iterator[str]:
    from importlib.metadata import PackageNotFoundError, version

    for package in _PACKAGES:
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:
            yield f"no {package}"


def _tried(name: str, otherwise: str, find: Callable[[], str]) -> Finding:
    try:
        return Finding(name=name, state="ok", text=find())
    except DeviceError as error:
        return Finding(name=name, state=otherwise, text=error.message, to_do=error.hint)


def _processor() -> Finding:
    from rammer.devices.cpu.machine import read_machine

    machine = read_machine()
    text = f"{machine.name}, {machine.architecture}, {machine.computing_cores} threads, {machine.usable_cores} cores"
    return Finding(name="processor", state="ok", text=text)


def _compiler(options: CompileOptions) -> str:
    """The compiler, which is called for a function of one line.

    Raises:
        DeviceError: there is none, or it does not work.
    """
    from rammer.devices.cache import in_scratch_folder
    from rammer.devices.cpu.toolchain import KERNEL_FLAGS, LINK_FLAGS, find_toolchain, native_flags

    toolchain = find_toolchain(options.cc)

    def build(folder: Path) -> None:
        (folder / "doctor.c").write_text(_PROGRAM)
        flags = [*KERNEL_FLAGS, *native_flags(), "doctor.c", *LINK_FLAGS, "-o", "doctor.so"]
        toolchain.run(flags, folder=folder, timeout_s=options.compile_timeout_s)

    in_scratch_folder(options.cache_dir, build)
    return f"{shlex.join(toolchain.command)}: {toolchain.version.partition(chr(10))[0]}"


def _cache(options: CompileOptions) -> Finding:
    from rammer.devices.cache import contents, trouble
    from rammer.ir.sizes import size_text

    folder = options.cache_dir
    size = size_text(sum(part.size_bytes for part in contents(folder)))
    if (reason := trouble(folder)) is not None:
        hint = "set RAMMER_CACHE_DIR to a folder that can be written; without one every compilation begins anew"
        return Finding(name="cache", state="missing", text=f"{folder}: {reason}", to_do=hint)
    limit = size_text(options.cache_bytes)
    return Finding(name="cache", state="ok", text=f"{folder}: {size}, at most {limit} of code")


def _gpu() -> str:
    """The GPU and its driver.

    Raises:
        DeviceError: there is none, or no driver.
    """
    from rammer.devices.cuda.driver import find_driver, read_gpu

    gpu = read_gpu(find_driver())
    return f"{gpu.name}, {gpu.provenance}"
