"""NVIDIA's run-time compiler: from one text to the machine code of one architecture. It needs no GPU and no driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rammer.devices.cuda.architecture import target_of
from rammer.errors import CompilerFailedError, CompilerNotFoundError

_INSTALL = "run: pip install 'rammer-compiler[cuda]'"
_STANDARD = "c++17"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """The compiler: its version, and cuda.core's classes that call it."""

    version: str
    program: Any
    options: Any
    error: type[Exception]

    def cubin(self, text: str, architecture: str, macros: Sequence[str] = ()) -> bytes:
        """Machine code.

        Args:
            text: CUDA C++ that includes nothing.
            architecture: "sm_90".
            macros: defined as 1.

        Raises:
            CompilerFailedError: the compiler refuses the text.
        """
        options = self.options(
            name="rammer",
            arch=target_of(architecture),
            std=_STANDARD,
            define_macro=list(macros) or None,
            split_compile=0,  # as many threads as the machine has
            disable_warnings=True,
        )
        try:
            compiled = self.program(text, "c++", options).compile("cubin")
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
        from cuda.bindings import nvrtc
        from cuda.core import Program, ProgramOptions
        from cuda.core._utils.cuda_utils import CUDAError

        status, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError, OSError) as error:
        raise CompilerNotFoundError(f"NVIDIA's compiler NVRTC cannot be used: {error}", hint=_INSTALL) from error
    if int(status) != 0:
        raise CompilerNotFoundError(f"NVRTC does not tell its version (error {int(status)})", hint=_INSTALL)
    return Toolchain(version=f"{major}.{minor}", program=Program, options=ProgramOptions, error=CUDAError)
