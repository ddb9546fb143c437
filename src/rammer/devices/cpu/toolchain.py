"""The C compiler: which one, what it is, and how it is called."""

from __future__ import annotations

import errno
import functools
import importlib.util
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rammer.devices.cpu.machine import WIDE
from rammer.errors import CompilerFailedError, CompilerNotFoundError

_CANDIDATES = ("cc", "gcc", "clang")
_VERSION_TIMEOUT_S = 60.0
_FULL = ("No space left on device", "Disk quota exceeded")
_LEAST_ROOM_BYTES = 1 << 20
_INSTALL = "install gcc or clang, or run: pip install 'rammer-compiler[cc]'; or name a compiler with CC"

# What every file is compiled with. Sums may be contracted to multiply-adds, which rounds once instead of twice; values
# are otherwise those of IEEE arithmetic: NaN and infinity pass, so there is no -ffast-math. Nobody reads errno or the
# exception flags. Integers wrap, as in NumPy. Memory that the code does not write is not written back either, for it
# may be another thread's: gcc does so where it carries values from iteration to iteration.
_COMMON_FLAGS = ("-std=gnu11", "-fPIC", "-w")
KERNEL_FLAGS = (
    *_COMMON_FLAGS,
    "-O3",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fwrapv",
    "-fno-strict-aliasing",
)
QUICK_FLAGS = (
    *(flag for flag in KERNEL_FLAGS if flag != "-O3"),
    "-O1",
    "-ftree-vectorize",
    "-fexpensive-optimizations",
)
"""For a great many kernels: half the compiler's time, for code as quick in what was measured (docs/experiments)."""

RUNTIME_FLAGS = (
    *_COMMON_FLAGS,
    "-O3",
    "-ffp-contract=off",  # constants are the same bits on every machine
    "-fno-math-errno",
    "-fno-trapping-math",
    "-pthread",
)
LINK_FLAGS = ("-shared", "-fPIC", "-pthread", "-lm")
_NATIVE_FLAGS = {"x86_64": "-march=native", "aarch64": "-mcpu=native", "arm64": "-mcpu=native"}


def native_flags(features: Collection[str] = ()) -> tuple[str, ...]:
    """Flags for code that uses all instructions of this machine, and need not run on another.

    Compilers look at the processor alone: of tiles they are told by `features` whether the system grants them. For
    Intel's processors they halve vectors of loops over lanes, though what is behind the loop loads whole ones: that
    waits until both halves have been written.
    """
    flag = _NATIVE_FLAGS.get(platform.machine())
    granted = ("-DRAMMER_TILES_GRANTED",) if "amx_int8" in features else ()
    whole = ("-mprefer-vector-width=512",) if WIDE.issubset(features) else ()
    return (*(() if flag is None else (flag,)), *granted, *whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """A compiler: the command that calls it and what it says about itself."""

    command: tuple[str, ...]
    version: str

    def run(self, arguments: Sequence[str], *, folder: Path, timeout_s: float, where: str = "") -> None:
        """Call the compiler in a folder.

        Args:
            arguments: flags and files, relative to the folder so that no path gets into the output.
            folder: the working folder.
            timeout_s: after which the compiler counts as hung and is ended, with all processes it started.
            where: the place in the user's model, for messages.

        Raises:
            CompilerFailedError: it ended with an error, or did not end.
            CompilerNotFoundError: the command is gone or no program.
            OSError: the folder's disk is full (ENOSPC).
        """
        code, log = _call((*self.command, *arguments), folder, timeout_s)
        if code is None:
            raise CompilerFailedError(
                f"the C compiler '{shlex.join(self.command)}' did not end within {timeout_s:g} s",
                log=log,
                where=where,
                hint="allow more with RAMMER_COMPILE_TIMEOUT_S, or name another compiler with CC",
            )
        if code != 0 and _is_full(folder, log):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
        if code != 0:
            raise CompilerFailedError(
                f"the C compiler '{shlex.join(self.command)}' ended with code {code}",
                log=log,
                where=where,
                hint="check CC; another compiler (gcc, clang, the ziglang package) may do",
            )


def find_toolchain(cc: str | None) -> Toolchain:
    """The compiler to use: `cc` if given, else cc, gcc or clang, else the `ziglang` package.

    Raises:
        CompilerNotFoundError: there is none, or the one given cannot be run.
        CompilerFailedError: it cannot tell its version.
    """
    if cc is not None:
        command = _resolve(cc)
        if command is None:
            raise CompilerNotFoundError(f"no C compiler '{cc}'", hint=f"correct or unset CC; {_INSTALL}")
        return _identify(command)
    for name in _CANDIDATES:
        command = _resolve(name)
        if command is not None:
            return _identify(command)
    if importlib.util.find_spec("ziglang") is not None:
        return _identify((sys.executable, "-m", "ziglang", "cc"))
    raise CompilerNotFoundError("no C compiler", hint=_INSTALL)


def _resolve(cc: str) -> tuple[str, ...] | None:
    """The command with its program's full path: it is called from another folder."""
    try:
        name, *arguments = shlex.split(cc)
    except ValueError:  # nothing, or an open quote
        return None
    path = shutil.which(name)
    return None if path is None else (str(Path(path).absolute()), *arguments)


@functools.cache
def _identify(command: tuple[str, ...]) -> Toolchain:
    code, version = _call((*command, "--version"), Path("/"), _VERSION_TIMEOUT_S)
    if code != 0:
        raise CompilerFailedError(
            f"'{shlex.join(command)} --version' did not work", log=version, hint="is it a C compiler? check CC"
        )
    return Toolchain(command=command, version=version)


def _call(command: Sequence[str], folder: Path, timeout_s: float) -> tuple[int | None, str]:
    """Exit code, None for a command that was ended, and what it printed."""
    # Messages that are known, and files in one place.
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(folder)}  # noqa: TID251 - passed on, not read
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise CompilerNotFoundError(f"cannot run '{command[0]}': {error.strerror}", hint=_INSTALL) from error
    with process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except BaseException as error:  # whatever ends the wait, the compiler does not outlive it
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return None, output.strip()
    return process.returncode, output.strip()


def _is_full(folder: Path, log: str) -> bool:
    """Whether a compiler that failed in a folder had no room there: it says so, or died of it and little is left."""
    return any(text in log for text in _FULL) or shutil.disk_usage(folder).free < _LEAST_ROOM_BYTES
