"""Productions of random models over integers and truth values, and between them and floats.

Floats become truth values by comparison with random numbers, which rounding leaves alone; never integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.support.model_maker import ModelMaker, Tensor
from tests.support.random_movement import Rule
from tests.support.random_rules import broadcast_shape

INTEGERS = ("int32", "int64")


def arithmetic(m: ModelMaker, x: Tensor) -> Tensor:
    others = m.like(x)
    other = m.any(others) if others and m.flip(0.5) else m.weight(broadcast_shape(m, x), dtype=x.dtype)
    return m.node(m.any(("Add", "Sub", "Mul", "Max", "Min")), [x, other], x.shape)


def sign(m: ModelMaker, x: Tensor) -> Tensor:
    return m.node(m.any(("Abs", "Neg", "Sign")), [x], x.shape)


def total(m: ModelMaker, x: Tensor) -> Tensor:
    axis, keepdims = m.draw(0, x.rank - 1), int(m.flip(0.5))
    shape = (*x.shape[:axis], *[1] * keepdims, *x.shape[axis + 1 :])
    return m.node(m.any(("ReduceSum", "ReduceMax", "ReduceMin")), [x, m.indices([axis])], shape, keepdims=keepdims)


def computed_gather(m: ModelMaker, x: Tensor) -> Tensor:
    """Rows of another value at positions that are computed: the remainder by the divisor's sign is never negative."""
    source = m.any([tensor for tensor in m.tensors if tensor.rank <= 4])
    axis = m.draw(0, source.rank - 1)
    positions = m.node("Mod", [x, m.number(source.shape[axis], x.dtype)], x.shape)
    shape = (*source.shape[:axis], *x.shape, *source.shape[axis + 1 :])
    return m.node("Gather", [source, positions], shape, axis=axis)


def compared(m: ModelMaker, x: Tensor) -> Tensor:
    op_type = m.any(("Less", "Greater") if "float" in x.dtype else ("Less", "Greater", "Equal", "GreaterOrEqual"))
    return m.node(op_type, [x, m.weight(broadcast_shape(m, x), dtype=x.dtype)], x.shape, dtype="bool")


def bounded_cast(m: ModelMaker, x: Tensor) -> Tensor:
    """Integers to numbers between -2 and 2, or to other integers."""
    if m.flip(0.3):
        return m.node("Cast", [x], x.shape, dtype="int64", to=_type("int64"))
    bounds = [m.number(0 if x.dtype == "uint8" else -8, x.dtype), m.number(8, x.dtype)]
    small = m.node("Clip", [x, *bounds], x.shape)
    number = m.node("Cast", [small], x.shape, dtype="float32", to=_type("float32"))
    return m.node("Mul", [number, m.number(0.25)], x.shape)


def logic(m: ModelMaker, x: Tensor) -> Tensor:
    if m.flip(0.3):
        return m.node("Not", [x], x.shape)
    others = m.like(x)
    other = m.any(others) if others and m.flip(0.5) else m.weight(broadcast_shape(m, x), dtype="bool")
    return m.node(m.any(("And", "Or", "Xor")), [x, other], x.shape)


def chosen(m: ModelMaker, x: Tensor) -> Tensor:
    """Where: one value or another, element by element."""
    dtype = m.any(("float32", "float32", *INTEGERS, "uint8"))
    fitting = [tensor for tensor in m.tensors if tensor.shape == x.shape and tensor.dtype == dtype]
    first, second = (
        m.any(fitting) if fitting and m.flip(0.7) else m.weight(broadcast_shape(m, x), dtype=dtype) for _ in range(2)
    )
    return m.node("Where", [x, first, second], x.shape, dtype=dtype)


def truth_cast(m: ModelMaker, x: Tensor) -> Tensor:
    dtype = m.any(("float32", "float32", *INTEGERS, "uint8"))
    return m.node("Cast", [x], x.shape, dtype=dtype, to=_type(dtype))


def narrowed(m: ModelMaker, x: Tensor) -> Tensor:
    return m.node("Cast", [x], x.shape, dtype="float16", to=_type("float16"))


def widened(m: ModelMaker, x: Tensor) -> Tensor:
    return m.node("Cast", [x], x.shape, dtype="float32", to=_type("float32"))


def _type(dtype: str) -> int:
    numbers: Mapping[str, int] = {"float32": 1, "uint8": 2, "int32": 6, "int64": 7, "float16": 10}
    return numbers[dtype]


_ANY = range(1, 6)
DISCRETE_RULES: Mapping[Rule, tuple[Sequence[int], Sequence[str]]] = {
    arithmetic: (_ANY, INTEGERS),
    sign: (_ANY, INTEGERS),
    total: (range(2, 6), INTEGERS),
    computed_gather: (range(1, 4), INTEGERS),
    compared: (_ANY, ("float32", *INTEGERS)),
    bounded_cast: (_ANY, (*INTEGERS, "uint8")),
    logic: (_ANY, ("bool",)),
    chosen: (_ANY, ("bool",)),
    truth_cast: (_ANY, ("bool",)),
    narrowed: (_ANY, ("float32",)),
    widened: (_ANY, ("float16",)),
}
"""Rule to the ranks and types that it takes."""
