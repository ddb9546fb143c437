"""NVIDIA's run-time compiler: from one text to the machine code of one architecture. It needs no GPU and no driver."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rammer.devices.cuda.architecture import target_of
from rammer.errors import CompilerFailedError, CompilerNotFoundError

_INSTALL = "run: pip install 'rammer-compiler[cuda]'"
_STANDARD = "c++17"
_REGISTERS = 128  # of a thread, which a function compiled without its kernel has to be told (describe.py)
_SPILLED = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")  # of a function, as ptxas reports it
_MANY_BYTES = 512  # spilled by all functions: AlexNet's 500 are of large functions, NASNet's 1,420 of all its products


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """The compiler: its version, the module of cuda.bindings that calls it, that of its linker where there is one."""

    version: str
    nvrtc: Any
    linker: Any

    def cubin(
        self,
        text: str,
        architecture: str,
        macros: Sequence[str] = (),
        *,
        relocatable: bool = False,
        instead: str | None = None,
    ) -> bytes:
        """Machine code.

        Args:
            text: CUDA C++ that includes nothing.
            architecture: "sm_90".
            macros: defined as 1.
            relocatable: whether functions are compiled one by one and linked, if there is a linker: the time of the
                translation to machine code grows with their number then, not with its cube, for a fifth more
                instructions.
            instead: a macro by which the text says the same in another way, to be tried where the compiler spills many
                registers, and taken where it then spills fewer.

        Raises:
            CompilerFailedError: the compiler refuses the text.
        """
        target = target_of(architecture)
        links = relocatable and self.linker is not None
        options = [
            f"-arch={target}",
            f"-std={_STANDARD}",
            "-split-compile=0",  # as many threads as there are cores
            "-w",
            "-Xptxas=-v",
        ]
        options += [f"-D{macro}" for macro in macros]
        if links:
            options += ["-rdc=true", f"-maxrregcount={_REGISTERS}"]
        try:
            code, spilled_bytes = self._compiled(text, options)
            if instead is not None and spilled_bytes >= _MANY_BYTES:
                other, others_bytes = self._compiled(text, [*options, f"-D{instead}"])
                code = other if others_bytes < spilled_bytes else code
            return self._linked(code, target) if links else code
        except _RefusedError as error:
            raise CompilerFailedError(
                f"NVRTC {self.version} does not compile for {architecture}",
                log=str(error).strip(),
                hint="this is a defect of Rammer; please report it with the model",
            ) from error

    def _compiled(self, text: str, options: Sequence[str]) -> tuple[bytes, int]:
        """What NVRTC makes of a text, without Python's lock, and how many bytes its functions spill and reload."""
        program = self._call("nvrtcCreateProgram", text.encode(), b"rammer", 0, [], [])
        try:
            (status,) = self.nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
            read = bytearray(self._call("nvrtcGetProgramLogSize", program))
            self._call("nvrtcGetProgramLog", program, read)
            log = read.rstrip(b"\0").decode(errors="replace")
            if int(status) != 0:
                raise _RefusedError(log or f"error {int(status)}")
            code = bytearray(self._call("nvrtcGetCUBINSize", program))
            self._call("nvrtcGetCUBIN", program, code)
        finally:
            self._call("nvrtcDestroyProgram", program)
        return bytes(code), sum(int(stored) + int(loaded) for stored, loaded in _SPILLED.findall(log))

    def _call(self, name: str, *arguments: Any) -> Any:  # noqa: ANN401 - of many functions
        """The result of a function of NVRTC, None where it has none."""
        status, *results = getattr(self.nvrtc, name)(*arguments)
        if int(status) != 0:
            raise _RefusedError(f"{name}: error {int(status)}")
        return results[0] if results else None

    def _linked(self, code: bytes, target: str) -> bytes:
        """Relocatable machine code as a program."""
        link = self.linker.create(1, [f"-arch={target}"])
        try:
            self.linker.add_data(link, self.linker.InputType.CUBIN, code, len(code), "rammer")
            self.linker.complete(link)
            linked = bytearray(self.linker.get_linked_cubin_size(link))
            self.linker.get_linked_cubin(link, linked)
        except self.linker.nvJitLinkError as error:
            raise _RefusedError(str(error)) from error
        finally:
            self.linker.destroy(link)
        return bytes(linked)


class _RefusedError(Exception):
    """What the compiler or the linker says."""


def find_toolchain() -> Toolchain:
    """NVRTC, as the package cuda-bindings finds it.

    cuda-core would call it, too, but takes a tenth of a second to import, which every compilation would wait for.

    Raises:
        CompilerNotFoundError: a package is missing, or its library does not load.
    """
    try:
        from cuda.bindings import nvjitlink, nvrtc

        status, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError, OSError) as error:
        raise CompilerNotFoundError(f"NVIDIA's compiler NVRTC cannot be used: {error}", hint=_INSTALL) from error
    if int(status) != 0:
        raise CompilerNotFoundError(f"NVRTC does not tell its version (error {int(status)})", hint=_INSTALL)
    return Toolchain(
        version=f"{major}.{minor}", nvrtc=nvrtc, linker=nvjitlink if _links(nvjitlink, (major, minor)) else None
    )


def _links(nvjitlink: Any, compiler: tuple[int, int]) -> bool:  # noqa: ANN401 - a module of cuda.bindings
    """Whether there is an nvJitLink that links what a version of the compiler makes."""
    try:
        version: tuple[int, int] = nvjitlink.version()
    except RuntimeError:  # the library is missing
        return False
    return version >= compiler
