"""A plan as one translation unit, tables and constants. No path, time or machine gets in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files

from rammer.devices.base import Source
from rammer.devices.codegen.source import assemble
from rammer.devices.cuda.describe import KIND, THREADS
from rammer.devices.cuda.emit.kernel import emit_kernel
from rammer.ir.program import Plan
from rammer.ir.task import RKernel

ABI = 1
CODE = "program.cu"
LAUNCH = "launch.json"
_BEFORE_KERNELS = (
    ("rammer.devices.cuda", "runtime/tables.cuh"),
    ("rammer.devices.cuda", "kernels/rammer_kernel.cuh"),
    ("rammer.devices.cuda", "kernels/rammer_contract.cuh"),
    ("rammer.devices.codegen", "rammer_scalars.h"),
)
_INTERPRETER = ("rammer.devices.cuda", "runtime/interpreter.cuh")


def source_of(plan: Plan, alignment_bytes: int) -> Source:
    """The source of a plan.

    Args:
        plan: the plan.
        alignment_bytes: of the constants.
    """
    scratch_bytes = 0

    def emit(kernel: RKernel, symbol: str) -> str:
        nonlocal scratch_bytes
        emitted = emit_kernel(kernel, symbol)
        scratch_bytes = max(scratch_bytes, emitted.scratch_bytes)
        return emitted.text

    assembly = assemble(plan, emit, alignment_bytes, ABI)
    graph = plan.graph
    launch = {
        "threads": THREADS,
        "scratch_bytes": scratch_bytes,
        "input_bytes": [graph.tensors[i].nbytes for i in graph.inputs],
        "output_bytes": [graph.tensors[i].nbytes for i in graph.outputs],
    }
    data = {**assembly.data, LAUNCH: json.dumps(launch, indent=1).encode()}
    return Source(device=KIND, files={**data, CODE: translation_unit(assembly.functions).encode()})


def translation_unit(functions: Mapping[str, str]) -> str:
    """Headers, device functions, the dispatch over them, and the interpreter, as one text."""
    cases = "".join(
        f"    case {number}: {symbol}(pointers, tile, scratch); break;\n" for number, symbol in enumerate(functions)
    )
    dispatch = (
        "static __device__ __forceinline__ void rammer_execute("
        "uint32_t kernel, char *const *pointers, uint32_t tile, char *scratch) {\n"
        f"    switch (kernel) {{\n{cases}    }}\n}}\n"
    )
    headers = (_text(*name) for name in _BEFORE_KERNELS)
    threads = f"#define RAMMER_THREADS {THREADS}\n"
    return "\n".join([threads, *headers, *functions.values(), dispatch, _text(*_INTERPRETER)])


def _text(package: str, path: str) -> str:
    return files(package).joinpath(path).read_text()
