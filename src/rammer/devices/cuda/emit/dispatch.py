"""The jump from a record to the function of its rKernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rammer.devices.codegen.writer import Writer

_DONE = "done"


def emit_dispatch(symbols: Mapping[int, str], count: int) -> str:
    """The function that calls `symbols[kernel]`, and does nothing for other numbers below `count`.

        void rammer_execute(uint32_t kernel, const rammer_record *record)

    It is in PTX, whose table of labels takes one jump. Of a switch over a hundred rKernels the compiler makes a tree of
    comparisons; behind a table of pointers it would save registers for functions that it does not know.

    Args:
        symbols: functions `void symbol(const rammer_record *record)` with C linkage, by number.
        count: of all rKernels.
    """
    writer = Writer()
    head = "static __device__ __forceinline__ void rammer_execute(uint32_t kernel, const rammer_record *record)"
    with writer.block(head):
        if symbols:
            writer.line("asm volatile(")
            for line in ["{", *_jump(symbols, count), f"{_DONE}:", "}"]:
                writer.line(f'    "{line}\\n"')
            writer.line('    : : "r"(kernel), "l"(record) : "memory");')
    return writer.text()


def _jump(symbols: Mapping[int, str], count: int) -> Iterator[str]:
    yield f"targets: .branchtargets {', '.join(_label(number, symbols) for number in range(count))};"
    yield "brx.idx %0, targets;"
    for number, symbol in symbols.items():
        call = f".param .b64 at; st.param.b64 [at], %1; call {symbol}, (at); bra {_DONE};"
        yield f"{_label(number, symbols)}: {{ {call} }}"


def _label(number: int, symbols: Mapping[int, str]) -> str:
    return f"kernel{number}" if number in symbols else _DONE
