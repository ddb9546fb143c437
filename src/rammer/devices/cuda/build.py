"""From a source to machine code for one architecture, kept in the cache."""

from __future__ import annotations

from rammer.devices.base import Binary, Progress, Source
from rammer.devices.cache import CodeCache, content_key
from rammer.devices.cuda.architecture import KIND
from rammer.devices.cuda.source_files import CALLED, CODE
from rammer.devices.cuda.toolchain import find_toolchain
from rammer.ir.schema import SchemaError, check_schema
from rammer.options import CompileOptions

CUBIN, TRACED = "program.cubin", "traced.cubin"
TRACE_MACRO = "RAMMER_TRACE"
DELAYS_MACRO = "RAMMER_DELAYS"
_BY_ADDRESS_MACRO = "RAMMER_STAGES_BY_ADDRESS"
_MOST_TOGETHER = 160  # functions of rKernels that are translated with the interpreter: more take long (ADR 0015)
_FEW_KEPT = f"#ifdef __CUDACC_RDC__\n#pragma nv_abi preserve_n_data(8)\n#endif\n{CALLED}"
"""The same in relocatable code: of the caller's registers, a function keeps as few as can be asked for."""


def build(source: Source, architecture: str, options: CompileOptions, progress: Progress) -> Binary:
    """The machine code of a source; see `Device.build`."""
    code = compile_source(source, architecture, options, trace=False)
    progress(1, 1)
    return Binary(device=KIND, machine=requirements(architecture), files={CUBIN: code})


def build_traced(source: Source, architecture: str, options: CompileOptions) -> Binary:
    """Machine code of a source that always writes times: what is loaded of it is traced without a compiler."""
    code = compile_source(source, architecture, options, trace=True)
    return Binary(device=KIND, machine=requirements(architecture), files={CUBIN: code, TRACED: code})


def compile_source(source: Source, architecture: str, options: CompileOptions, *, trace: bool) -> bytes:
    """Machine code, compiled now or before; with `trace` it writes the times of all records.

    Raises:
        CompilerNotFoundError: no NVRTC.
        CompilerFailedError: it refuses the source.
    """
    toolchain = find_toolchain()
    cache = CodeCache(options.cache_dir, options.cache_bytes)
    macros = [macro for macro, is_wanted in ((TRACE_MACRO, trace), (DELAYS_MACRO, options.delays)) if is_wanted]
    text = bytes(source.files[CODE]).decode()
    key = content_key(toolchain.version, architecture, *macros, text.encode())
    code = cache.get(key)
    if code is None:
        many = text.count(f"\n{CALLED} void ") > _MOST_TOGETHER
        text = text.replace(CALLED, _FEW_KEPT) if many else text
        code = toolchain.cubin(text, architecture, macros, relocatable=many, instead=_BY_ADDRESS_MACRO)
        cache.put(key, code)
    return code


def requirements(architecture: str) -> dict[str, str]:
    """What machine code needs, as an artifact keeps it."""
    return {"architecture": architecture}


def mismatch(binary: Binary, architecture: str) -> str | None:
    """Why a GPU of `architecture` cannot run `binary`, or None if it can.

    Machine code runs on GPUs of the same major capability, from its own minor one on.
    """
    check_schema(dict(binary.machine), {"architecture": str}, "its machine")
    needed = binary.machine["architecture"]
    if not needed.removeprefix("sm_").isdecimal():
        raise SchemaError(f"its machine is '{needed}'")
    built, here = (int(name.removeprefix("sm_")) for name in (needed, architecture))
    if built // 10 != here // 10 or built > here:
        return f"it was built for {needed}, this is {architecture}"
    return None
