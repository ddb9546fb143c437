"""NVIDIA's run-time compiler: from one text to the machine code of one architecture. It needs no GPU and no driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rammer.devices.cuda.architecture import target_of
from rammer.errors import CompilerFailedError, CompilerNotFoundError

_INSTALL = "run: pip install 'rammer-compiler[cuda]'"
_STANDARD = "c++17"
_REGISTERS = 128  # of a thread, which a function compiled without its kernel has to be told (describe.py)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """The compiler: its version, cuda.core's classes that call it, and its linker where nvJitLink is installed."""

    version: str
    program: Any
    options: Any
    error: type[Exception]
    linker: Any
    linker_options: Any

    def cubin(self, text: str, architecture: str, macros: Sequence[str] = (), *, relocatable: bool = False) -> bytes:
        """Machine code.

        Args:
            text: CUDA C++ that includes nothing.
            architecture: "sm_90".
            macros: defined as 1.
            relocatable: whether functions are compiled one by one and linked, if there is a linker: the time of the
                translation to machine code grows with their number then, not with its cube, for a fifth more
                instructions.

        Raises:
            CompilerFailedError: the compiler refuses the text.
        """
        relocatable = relocatable and self.linker is not None
        options = self.options(
            name="rammer",
            arch=target_of(architecture),
            std=_STANDARD,
            define_macro=list(macros) or None,
            split_compile=0,  # as many threads as the machine has
            disable_warnings=True,
            relocatable_device_code=relocatable or None,
            max_register_count=_REGISTERS if relocatable else None,
        )
        try:
            compiled = self.program(text, "c++", options).compile("cubin")
            if relocatable:
                compiled = self.linker(compiled, options=self.linker_options(arch=target_of(architecture))).link(
                    "cubin"
                )
        except self.error as error:
            raise CompilerFailedError(
                f"NVRTC {self.version} does not compile for {architecture}",
                log=str(error).strip(),
                hint="this is a defect of Rammer; please report it with the model",
            ) from error
        code: bytes = compiled.code
        return code


def find_toolchain() -> Toolchain:
    """NVRTC, as the package cuda-core finds it.

    Raises:
        CompilerNotFoundError: a package is missing, or its library does not load.
    """
    try:
        from cuda.bindings import nvjitlink, nvrtc
        from cuda.core import Linker, LinkerOptions, Program, ProgramOptions
        from cuda.core._utils.cuda_utils import CUDAError

        status, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError, OSError) as error:
        raise CompilerNotFoundError(f"NVIDIA's compiler NVRTC cannot be used: {error}", hint=_INSTALL) from error
    if int(status) != 0:
        raise CompilerNotFoundError(f"NVRTC does not tell its version (error {int(status)})", hint=_INSTALL)
    return Toolchain(
        version=f"{major}.{minor}",
        program=Program,
        options=ProgramOptions,
        error=CUDAError,
        linker=Linker if _links(nvjitlink, (major, minor)) else None,
        linker_options=LinkerOptions,
    )


def _links(nvjitlink: Any, compiler: tuple[int, int]) -> bool:  # noqa: ANN401 - a module of cuda.bindings
    """Whether there is an nvJitLink that links what a version of the compiler makes."""
    try:
        version: tuple[int, int] = nvjitlink.version()
    except RuntimeError:  # the library is missing
        return False
    return version >= compiler
