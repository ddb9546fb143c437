"""The compiler of this machine in the place of NVRTC: from a translation unit of devices/cuda to a library."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent
_SOURCES = tuple(_FOLDER / name for name in ("scheduler.cpp", "threads.cpp"))
_HEADERS = tuple(_FOLDER / name for name in ("intrinsics.h", "intrinsics_sm90.h", "scheduler.h", "fibres.h"))
# As on GPUs, nothing follows from the types of pointers; frames that longjmp leaves are those of other threads. Vectors
# that are not aligned, and elements beyond an array of registers, end the launch.
_FLAGS = (
    *("-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti", "-fno-strict-aliasing"),
    *("-fwrapv", "-fno-math-errno", "-fno-stack-protector", "-fstack-clash-protection", "-U_FORTIFY_SOURCE", "-w"),
    "-fsanitize=alignment,bounds",
)
ZIG = (sys.executable, "-m", "ziglang", "c++", "-nostdlib++", "-fno-sanitize=all", "-fsanitize-trap=alignment,bounds")
GCC_FLAGS = ("-fsanitize-undefined-trap-on-error",)
ENTRY = "rammer_run"


@functools.cache
def compiler() -> tuple[str, ...] | None:
    """The command of a compiler for C++17: g++, else the clang of the package ziglang; None if there is neither."""
    found = shutil.which("g++")
    if found is not None:
        return (found, *GCC_FLAGS)
    return ZIG if importlib.util.find_spec("ziglang") else None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostToolchain:
    """What `rammer.devices.cuda.toolchain.Toolchain` is for GPUs.

    `command` calls the compiler; `entry` names the kernel in the text. What all libraries share is kept in `folder`.
    """

    folder: Path
    command: tuple[str, ...]
    entry: str = ENTRY

    @property
    def version(self) -> str:
        """Of everything but the text that a library is made of."""
        parts = [*self.command, *_FLAGS, self.entry, *(path.read_text() for path in (*_SOURCES, *_HEADERS))]
        return "host-" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]

    def cubin(
        self,
        text: str,
        architecture: str,
        macros: Sequence[str] = (),
        *,
        relocatable: bool = False,
        instead: str | None = None,
    ) -> bytes:
        """A library with the kernel of a text, compiled now or before; all code is relocatable, one way will do.

        Raises:
            AssertionError: the compiler refuses the text.
        """
        whole = f'#line 1 "program.cu"\n{text}\nHOST_CUDA_KERNEL({self.entry})\n'
        capability = architecture.removeprefix("sm_")
        defined = [f"-D{macro}=1" for macro in macros] + [f"-D__CUDA_ARCH__={capability}0"]
        key = hashlib.sha256("\0".join([self.version, *defined, whole]).encode()).hexdigest()[:20]
        kept = self.folder / f"{key}.so"
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                source, library = Path(folder) / "program.cpp", Path(folder) / "program.so"
                source.write_text(whole)
                begin = ["-include", str(self._header(defined))]
                self._call([*defined, *begin, "-shared", str(source), *self._scheduler(), "-o", str(library)])
                library.replace(kept)
        return kept.read_bytes()

    def _header(self, defined: Sequence[str]) -> Path:
        """What all texts begin with, which g++ parsed now or before: a third of the time of a short text."""
        key = hashlib.sha256("\0".join([self.version, *defined]).encode()).hexdigest()[:20]
        header = self.folder / f"{key}.h"
        if not header.exists():
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                made = Path(folder) / header.name
                made.write_text(f'#include "{_HEADERS[0]}"\n')
                if self.command[0] != ZIG[0]:
                    parsed = made.with_suffix(".h.gch")
                    self._call([*defined, "-x", "c++-header", str(made), "-o", str(parsed)])
                    parsed.replace(header.with_suffix(".h.gch"))
                made.replace(header)
        return header

    def _scheduler(self) -> list[str]:
        """What all libraries share, compiled now or before."""
        found = []
        for source in _SOURCES:
            compiled = self.folder / f"{self.version}-{source.stem}.o"
            if not compiled.exists():
                with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                    made = Path(folder) / "made.o"
                    self._call(["-O2", "-c", str(source), "-o", str(made)])
                    made.replace(compiled)
            found.append(str(compiled))
        return found

    def _call(self, arguments: Sequence[str]) -> None:
        command = [*self.command, *_FLAGS, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:8000]
