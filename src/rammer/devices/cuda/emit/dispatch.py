"""The jump from a record to the function of its rKernel."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from rammer.devices.codegen.writer import Writer

_DONE = "done"
_APART = "apart"


def emit_dispatch(symbols: Mapping[int, str], count: int, apart: Collection[int] = ()) -> str:
    """The function that calls `symbols[kernel]`, and does nothing for other numbers below `count`.

        void rammer_execute(uint32_t kernel, const rammer_record *record)

    It is in PTX, whose table of labels takes one jump. Of a switch over a hundred rKernels the compiler makes a tree of
    comparisons; behind a table of pointers it would save registers for functions that it does not know.

    The number comes from memory. Only where the compiler knows that all lanes of a warp have the same one does it keep
    what a warp has once in the registers for that; else it moves it there before each access to memory (ADR 0032).

    Args:
        symbols: functions `void symbol(const rammer_record *record)` with C linkage, by number.
        count: of all rKernels.
        apart: numbers of functions in which lanes may come apart; the compiler is not to believe that a warp is whole.
    """
    writer = Writer()
    head = "static __device__ __forceinline__ void rammer_execute(uint32_t kernel, const rammer_record *record)"
    with writer.block(head):
        if symbols:
            writer.line("const uint32_t alike = __reduce_max_sync(RAMMER_ALL, kernel);")
            writer.line("asm volatile(")
            for line in ["{", *_jumps(symbols, count, apart), f"{_DONE}:", "}"]:
                writer.line(f'    "{line}\\n"')
            writer.line('    : : "r"(alike), "r"(kernel), "l"(record) : "memory");')
    return writer.text()


def _jumps(symbols: Mapping[int, str], count: int, apart: Collection[int]) -> Iterator[str]:
    labels = {number: f"kernel{number}" for number in symbols}
    yield from _jump("targets", "%0", labels | dict.fromkeys(apart, _APART), count)
    if apart:
        yield f"{_APART}:"
        yield from _jump("targets_apart", "%1", {number: labels[number] for number in apart}, count)
    for number, symbol in symbols.items():
        call = f".param .b64 at; st.param.b64 [at], %2; call {symbol}, (at); bra {_DONE};"
        yield f"{labels[number]}: {{ {call} }}"


def _jump(table: str, index: str, labels: Mapping[int, str], count: int) -> Iterator[str]:
    yield f"{table}: .branchtargets {', '.join(labels.get(number, _DONE) for number in range(count))};"
    yield f"brx.idx {index}, {table};"
