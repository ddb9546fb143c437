"""The jump from a record to the function of its rKernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rammer.devices.codegen.writer import Writer

_DONE = "done"
_APART = "apart"


@dataclass(frozen=True, slots=True)
class Target:
    """A function with C linkage that runs rTasks, and whose code the compiler does not inline.

    One that `walks` goes along a queue: `uint32_t symbol(uint32_t position)` returns the position that it came to.
    Others run the rTask of one record: `void symbol(const rammer_record *record)`. `apart` says whether lanes of a warp
    may come apart in it; the compiler is not to believe that a warp is whole there.
    """

    symbol: str
    walks: bool = False
    apart: bool = False


def emit_dispatch(targets: Sequence[Target]) -> str:
    """The function that runs the record at a position, and returns that, or the position that a walk came to.

        uint32_t rammer_execute(uint32_t kernel, const rammer_record *record, uint32_t position)

    It is in PTX, whose table of labels takes one jump. Of a switch over a hundred rKernels the compiler makes a tree of
    comparisons; behind a table of pointers it would save registers for functions that it does not know. A build that
    has no PTX gets the switch.

    The number comes from memory. Only where the compiler knows that all lanes of a warp have the same one does it keep
    what a warp has once in the registers for that; else it moves it there before each access to memory (ADR 0015).

    Args:
        targets: by the number of the rKernel, which several may share.
    """
    writer = Writer()
    parameters = "uint32_t kernel, const rammer_record *record, uint32_t position"
    with writer.block(f"static __device__ __forceinline__ uint32_t rammer_execute({parameters})"):
        if targets:
            writer.line("#ifdef RAMMER_PTX")
            writer.line("const uint32_t alike = __reduce_max_sync(RAMMER_ALL, kernel);")
            writer.line("asm volatile(")
            for line in ["{", *_jumps(targets), f"{_DONE}:", "}"]:
                writer.line(f'    "{line}\\n"')
            writer.line('    : "+r"(position) : "r"(alike), "r"(kernel), "l"(record) : "memory");')
            writer.line("#else")
            with writer.block("switch (kernel)"):
                for number, target in enumerate(targets):
                    writer.line(f"case {number}: {_call(target)} break;")
            writer.line("#endif")
        writer.line("return position;")
    return writer.text()


def _call(target: Target) -> str:
    return f"position = {target.symbol}(position);" if target.walks else f"{target.symbol}(record);"


def _jumps(targets: Sequence[Target]) -> Iterator[str]:
    yield from _jump("targets", "%1", [_APART if target.apart else _label(target) for target in targets])
    if any(target.apart for target in targets):
        yield f"{_APART}:"
        yield from _jump("targets_apart", "%2", [_label(target) if target.apart else _DONE for target in targets])
    for target in dict.fromkeys(targets):
        yield f"{_label(target)}: {{ {_ptx_call(target)} bra {_DONE}; }}"


def _jump(table: str, index: str, labels: Sequence[str]) -> Iterator[str]:
    yield f"{table}: .branchtargets {', '.join(labels)};"
    yield f"brx.idx {index}, {table};"


def _label(target: Target) -> str:
    return f"call_{target.symbol}"


def _ptx_call(target: Target) -> str:
    if target.walks:
        passed = ".param .b32 from; .param .b32 to; st.param.b32 [from], %0;"
        return f"{passed} call (to), {target.symbol}, (from); ld.param.b32 %0, [to];"
    return f".param .b64 at; st.param.b64 [at], %3; call {target.symbol}, (at);"
