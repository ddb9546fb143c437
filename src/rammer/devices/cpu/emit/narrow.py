"""Bytes that the lanes of a vector load and store, as int32 in the loop over them.

gcc gives all values of a loop vectors of as many bytes, so that one byte among values of four makes it compute with a
quarter of each vector. Bytes whose lanes lie side by side are therefore widened before the loop and narrowed behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rammer.devices.codegen.scalar import convert
from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.cpu.emit.micro import BYTE_NAMES
from rammer.ir.expr import Axis, Cast, Expr, Load
from rammer.ir.types import DType
from rammer.tiling.pattern import lies_side_by_side, stride_along

_WIDE_BYTES = 4
WIDTHS = (4, 8, 16)
"""So many lanes there are instructions for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bytes:
    """What a loop over the lanes of a vector finds and leaves beside it.

    `loaded` has the text of each load in the loop, `stored` the array that takes an output's elements.
    """

    loaded: Mapping[Expr, str]
    stored: Mapping[int, str]


NONE = Bytes(loaded={}, stored={})
"""No bytes are handled apart."""


def widen(scope: Scope, lane: Axis, at_first: Position, lanes: int) -> Bytes:
    """Write vectors of bytes that the lanes of a vector load, widened, and room for what they store.

    Args:
        scope: before the loop over lanes.
        lane: the axis along which they lie.
        at_first: where the first one is.
        lanes: of the vector, all of which are there.
    """
    operands, writer = scope.operands, scope.writer
    first = scope.enter({lane: at_first})
    loaded: dict[Expr, str] = {}
    for load in operands.outer_loads():
        if load.type in BYTE_NAMES and lies_side_by_side(load, lane, operands.layouts) and not first.open_checks(load):
            name = writer.name("bytes")
            address = f"in{load.slot} + {first.address(operands.loads[load])}"
            widened = f"RAMMER_WIDEN({lanes}, {BYTE_NAMES[load.type]}, {address})"
            writer.line(f"RAMMER_BY_LANE(rammer_i32x{lanes}, {name}, {widened});")
            loaded[load] = f"{name}[i]"
    stored: dict[int, str] = {}
    for number, output in enumerate(operands.expr.outputs):
        layout = operands.layouts[len(operands.expr.inputs) + number]
        if _is_narrowed(output.body) and layout.panel is None and stride_along(output.indices, layout, lane) == 1:
            stored[number] = writer.name("wide")
            writer.line(f"int32_t {stored[number]}[{lanes}] __attribute__((aligned({_WIDE_BYTES * lanes})));")
    return Bytes(loaded=loaded, stored=stored)


def store_lane(scope: Scope, apart: Bytes) -> None:
    """Compute all outputs at one lane, those that are bytes into their arrays."""
    for load, text in apart.loaded.items():
        scope.bind(load, text)
    for number, output in enumerate(scope.operands.expr.outputs):
        if number not in apart.stored:
            scope.store(number)
            continue
        assert isinstance(output.body, Cast)  # so are those that are narrowed
        arg = output.body.arg
        scope.writer.line(f"{apart.stored[number]}[i] = {convert(scope.value(arg), arg.dtype, DType.INT32)};")


def narrow(scope: Scope, lane: Axis, at_first: Position, lanes: int, apart: Bytes) -> None:
    """Write the stores of what a loop over lanes has left."""
    first = scope.enter({lane: at_first})
    for number, array in apart.stored.items():
        dtype = scope.operands.expr.outputs[number].type.dtype
        address = f"out{number} + {first.address(scope.operands.stores[number])}"
        value = f"RAMMER_LOAD(rammer_i32x{lanes}, {array})"
        scope.writer.line(f"RAMMER_NARROW({lanes}, {BYTE_NAMES[dtype]}, {address}, {value});")


def _is_narrowed(body: Expr) -> bool:
    """Whether a result is made a byte at last, of what is computed with four bytes."""
    match body:
        case Cast(DType.UINT8 | DType.INT8, arg):
            return not isinstance(arg, Load) and arg.dtype in (DType.FLOAT32, DType.INT32)
    return False
