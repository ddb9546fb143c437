"""The walk of a vEU along runs of resident rKernels.

A run may change between rKernels that have the same weights, as the first and the last cell of a recurrent layer have
with those in between: such a *family* has one walk.
"""

from __future__ import annotations

from collections.abc import Mapping

from rammer.devices.codegen.writer import Writer
from rammer.devices.cuda.emit.dispatch import CALLED
from rammer.tiling.persistent_rnn import Family


def emit_runs(symbol: str, family: Family, members: Mapping[int, str]) -> str:
    """The function that walks runs of a family that join, from the record at `position` on.

    It returns the position of the last of them, which its caller ends, or of the first that waited in vain.

        uint32_t symbol(uint32_t position)

    Args:
        symbol: the function's name.
        family: whose runs.
        members: its rKernels' symbols by number.
    """
    writer, pointers = Writer(), "rammer_operands(rammer_at(position))"
    with writer.block(f"{CALLED} uint32_t {symbol}(uint32_t position)"):
        writer.let("uint32_t", "tile", "rammer_at(position)->tile")
        writer.line("float *shared = (float *)rammer_scratch;")
        # Values that no path leaves open: the compiler would keep their registers for the whole program.
        writer.line(f"float weights[{family.registers}] = {{}};")
        with writer.block("switch (rammer_at(position)->kernel)"):
            for number, member in members.items():
                writer.line(f"case {number}: {member}_bring({pointers}, tile, weights); break;")
        with writer.block(f"for (uint32_t i = threadIdx.x; i < {family.vectors}u; i += RAMMER_THREADS)"):
            writer.line("shared[i] = 0.0f;")  # elements beyond the end of a slice are multiplied, too
        writer.line("__syncthreads();")
        with writer.block("for (;; rammer_reach(++position))"):
            writer.let("uint32_t", "last", "position + rammer_at(position)->run - 1")
            writer.let("bool", "busy", "rammer_is_busy(position)")
            with writer.block("switch (rammer_at(position)->kernel)"):
                for number, member in members.items():
                    writer.line(f"case {number}:")
                    writer.line(f"{member}_keep({pointers}, tile, shared);")
                    with writer.block("for (;; rammer_reach(++position))"):
                        writer.line("if (busy && !rammer_begin(rammer_at(position)))")
                        writer.line("    return position;")
                        writer.line(f"{member}_step({pointers}, tile, position, shared, weights);")
                        writer.line("if (position == last)")
                        writer.line("    break;")
                        writer.line("if (busy)")
                        writer.line("    rammer_end_early(rammer_at(position));")
                    writer.line("break;")
            writer.line("if (rammer_at(position)->joins == 0)")
            writer.line("    return position;")
            writer.line("if (busy)")
            writer.line("    rammer_end_early(rammer_at(position));")
    return writer.text()
