"""Complex numbers: their parts are two real operands, and a call of an operator is one or several of real ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from rammer.frontends.builder import Operand
from rammer.frontends.fourier import Complex, mirrored, transform
from rammer.frontends.moves import concatenated, expanded, part, reshaped, transposed
from rammer.frontends.torch.converters import creation, indexing, movement, parts
from rammer.frontends.torch.converters.arithmetic import angle_of, length_of
from rammer.frontends.torch.node import Converter, Node, Result

_EACH = frozenset(
    {
        *(*movement.CONVERTERS, *parts.CONVERTERS, *indexing.CONVERTERS, *creation.CONVERTERS),
        *("_to_copy", "add", "cumsum", "index_add", "index_copy", "index_put", "masked_fill", "mean", "neg", "rsub"),
        *("scatter", "scatter_add", "sub", "sum", "where"),
    }
)
"""Operators that treat both parts alike."""

_PRODUCTS: Mapping[str, tuple[str, str]] = {
    "bmm": ("self", "mat2"),
    "dot": ("self", "tensor"),
    "matmul": ("self", "other"),
    "mm": ("self", "mat2"),
    "mul": ("self", "other"),
    "mv": ("self", "vec"),
    "outer": ("self", "vec2"),
}
"""Operators that are linear in two arguments, and these."""

_ELEMENTS = ("fill_value", "other", "s", "self", "source", "src", "tensors", "value", "values")
"""Arguments whose numbers and tensors are elements, of integers, too: not positions, masks or extents."""


def of_complex(node: Node, convert: Converter, *, gives_complex: bool) -> Result:
    """What a call with complex operands or results stands for.

    Args:
        node: the call; complex operands are `Complex`, the types of complex results those of their parts.
        convert: the converter for real operands.
        gives_complex: whether results are complex.

    Raises:
        UnsupportedFeatureError: the operator has no such form.
    """
    if node.operator in _EACH:
        return _each(node, convert, gives_complex=gives_complex)
    if node.operator in _PRODUCTS:
        return _product(node, convert, _PRODUCTS[node.operator])
    if node.operator == "einsum":
        return _einsum(node, convert)
    if node.operator in _OWN:
        return _OWN[node.operator](node)
    raise node.unsupported(
        f"{node.operator} of complex numbers", "compute with real and imaginary parts: torch.view_as_real(x)"
    )


def _each(node: Node, convert: Converter, *, gives_complex: bool) -> Result:
    """The operator of the real parts, and of the imaginary ones."""
    split = {name: _split(node, name, value) for name, value in node.arguments.items()}
    real = _of_real(node, convert, {name: pair[0] for name, pair in split.items()})
    if not gives_complex:
        return real
    imaginary = _of_real(node, convert, {name: pair[1] for name, pair in split.items()})
    if isinstance(real, Operand) and isinstance(imaginary, Operand):
        return Complex(real, imaginary)
    return [Complex(*pair) for pair in zip(_listed(real), _listed(imaginary), strict=True)]


def _split(node: Node, name: str, value: object) -> tuple[object, object]:
    """An argument for the real and for the imaginary parts; positions, masks and extents are the same for both."""
    if isinstance(value, list):
        pairs = [_split(node, name, element) for element in value]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if isinstance(value, Complex):
        return value.real, value.imaginary
    if isinstance(value, Operand) and (value.dtype.is_float or name in _ELEMENTS):
        return value, _zero(node, value)
    if isinstance(value, complex) or (name in _ELEMENTS and isinstance(value, int | float)):
        return value.real, value.imag
    return value, value


def _product(node: Node, convert: Converter, names: tuple[str, str]) -> Complex:
    """`(a + bi) (c + di)`; what is real takes no part."""
    given = node.arguments
    first, second = (given[name] for name in names)
    return _multiplied(node, first, second, lambda a, c: _of_real(node, convert, {**given, names[0]: a, names[1]: c}))


def _einsum(node: Node, convert: Converter) -> Complex:
    """Of two operands."""
    given = node.arguments
    tensors = given["tensors"]
    if not isinstance(tensors, list) or len(tensors) != 2:
        raise node.unsupported("einsum of complex numbers that are not two tensors", "multiply two at a time")
    first, second = tensors
    return _multiplied(node, first, second, lambda a, c: _of_real(node, convert, {**given, "tensors": [a, c]}))


def _multiplied(node: Node, first: object, second: object, product: Callable[[object, object], Result]) -> Complex:
    """The complex product of two arguments by products of their parts."""

    def times(a: object, c: object) -> Operand:
        found = product(a, c)
        assert isinstance(found, Operand)
        return found

    (a, *b), (c, *d) = _factors(first), _factors(second)
    imaginary = [*(times(a, each) for each in d), *(times(each, c) for each in b)]
    if len(imaginary) == 1:
        return Complex(times(a, c), imaginary[0])
    return Complex(node.add("Sub", times(a, c), times(b[0], d[0])), node.add("Add", *imaginary))


def _factors(value: object) -> tuple[object, ...]:
    """The real part, and the imaginary one if there is one."""
    if isinstance(value, Complex):
        return value.real, value.imaginary
    return (value.real, value.imag) if isinstance(value, complex) else (value,)


def _of_real(node: Node, convert: Converter, arguments: Mapping[str, object]) -> Result:
    """The call with real arguments in place of its own."""
    own = node.arguments, node.captured
    node.arguments = arguments
    node.captured = {name: _captured_part(value) for name, value in own[1].items()}
    try:
        return convert(node)
    finally:
        node.arguments, node.captured = own


def _captured_part(value: object) -> object:
    if isinstance(value, torch.Tensor) and value.is_complex():
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype.to_real(), device="meta")
    return value


def _listed(result: Result) -> list[Operand]:
    return [element for element in result if isinstance(element, Operand)] if isinstance(result, Sequence) else []


def _zero(node: Node, like: Operand) -> Operand:
    return expanded(node, node.scalar(0, like.dtype), like.shape)


def _complex(node: Node, name: str) -> tuple[Operand, Operand]:
    """The parts of an argument, which may be real."""
    value = node.arguments[name]
    if isinstance(value, Complex) and value.imaginary is not None:
        return value.real, value.imaginary
    real = node.typed(name)
    return real, _zero(node, real)


def _size(node: Node) -> Result:
    return length_of(node, *_complex(node, "self"))


def _angle(node: Node) -> Result:
    """That of a negative real number is pi, that of NaN NaN."""
    real, imaginary = _complex(node, "self")
    if isinstance(node.arguments["self"], Complex):
        return angle_of(node, imaginary, real)
    zero, pi = node.scalar(0, real.dtype), node.scalar(math.pi, real.dtype)
    side = node.add("Where", node.add("Less", real, zero), pi, zero)
    return node.add("Where", node.add("IsNaN", real), real, side)


def _exponential(node: Node) -> Result:
    real, imaginary = _complex(node, "self")
    return _of_polar(node, node.add("Exp", real), imaginary)


def _polar(node: Node) -> Result:
    return _of_polar(node, node.typed("abs"), node.typed("angle"))


def _of_polar(node: Node, size: Operand, angle: Operand) -> Complex:
    return Complex(*(node.add("Mul", size, node.add(kind, angle)) for kind in ("Cos", "Sin")))


def _quotient(node: Node) -> Result:
    if node.has("rounding_mode"):
        raise node.unsupported("a rounded quotient of complex numbers")
    a, b = _complex(node, "self")
    if not isinstance(node.arguments["other"], Complex | complex):
        divisor = node.typed("other", a.dtype)
        return Complex(node.add("Div", a, divisor), node.add("Div", b, divisor))
    c, d = (
        x if isinstance(x, Operand) else node.constant(np.array(x, a.dtype.numpy))
        for x in _factors(node.arguments["other"])
    )
    return _divided(node, Complex(a, b), c, d)


def _reciprocal(node: Node) -> Result:
    c, d = _complex(node, "self")
    return _divided(node, Complex(node.scalar(1, c.dtype), node.scalar(0, c.dtype)), c, d)


def _divided(node: Node, x: Complex, c: Operand, d: Operand) -> Complex:
    """`x / (c + di)`; the divisor is scaled, so that squares of its parts neither overflow nor vanish."""
    a, b = x.real, x.imaginary
    assert b is not None
    scale = node.add("Max", node.add("Abs", c), node.add("Abs", d))
    c, d = node.add("Div", c, scale), node.add("Div", d, scale)
    square = node.add("Mul", scale, node.add("Add", node.add("Mul", c, c), node.add("Mul", d, d)))
    real = node.add("Add", node.add("Mul", a, c), node.add("Mul", b, d))
    imaginary = node.add("Sub", node.add("Mul", b, c), node.add("Mul", a, d))
    return Complex(node.add("Div", real, square), node.add("Div", imaginary, square))


def _conjugate(node: Node) -> Result:
    if not isinstance(node.arguments["self"], Complex):
        return node.operand("self")
    real, imaginary = _complex(node, "self")
    return Complex(real, node.add("Neg", imaginary))


def _negative(node: Node) -> Result:
    if not isinstance(node.arguments["self"], Complex):
        return node.add("Neg", node.operand("self"))
    return Complex(*(node.add("Neg", x) for x in _complex(node, "self")))


def _resolved(node: Node) -> Result:
    """A tensor whose memory holds what it means: memory is the compiler's affair."""
    value = node.arguments["self"]
    return value if isinstance(value, Complex) else node.operand("self")


def _put_together(node: Node) -> Result:
    return Complex(*(expanded(node, node.typed(name), node.shape) for name in ("real", "imag")))


def _as_complex(node: Node) -> Result:
    """The last dimension holds the parts."""
    x = node.operand("self")
    return Complex(*(reshaped(node, part(node, x, x.rank - 1, side, 1), x.shape[:-1]) for side in (0, 1)))


def _as_real(node: Node) -> Result:
    columns = [reshaped(node, x, (*x.shape, 1)) for x in _complex(node, "self")]
    return concatenated(node, columns, columns[0].rank - 1)


def _of_complex_lines(node: Node) -> Result:
    """`_fft_c2c`."""
    x = Complex(*_complex(node, "self"))
    dims = node.axes(node.integers("dim"), x.real.rank)
    count = math.prod(x.real.shape[dim] for dim in dims)
    for dim in dims:
        x = _along(node, x, dim, inverse=not node.flag("forward"))
    return _scaled(node, x, count)


def _of_real_lines(node: Node) -> Result:
    """`_fft_r2c`: of real numbers half of the frequencies along the last dimension say all."""
    real = node.typed("self")
    x, dims = Complex(real, None), node.axes(node.integers("dim"), real.rank)
    count = math.prod(real.shape[dim] for dim in dims)
    for dim in reversed(dims):
        x = _along(node, x, dim, inverse=False)
        if dim == dims[-1] and node.flag("onesided"):
            x = _mapped(x, lambda side: part(node, side, dims[-1], 0, real.shape[dims[-1]] // 2 + 1))
    return _scaled(node, x, count)


def _to_real_lines(node: Node) -> Result:
    """`_fft_c2r`: the other half of the frequencies are the conjugates of those that are given."""
    x = Complex(*_complex(node, "self"))
    *others, last = node.axes(node.integers("dim"), x.real.rank)
    length = node.integer("last_dim_size")
    count = length * math.prod(x.real.shape[dim] for dim in others)
    for dim in others:
        x = _along(node, x, dim, inverse=True)
    x = _along(node, x, last, inverse=True, length=length)
    return _scaled(node, x, count).real


def _along(node: Node, x: Complex, axis: int, *, inverse: bool, length: int = 0) -> Complex:
    """The transform along a dimension; with a length, of as many frequencies, of which half are given."""
    order = [*(dim for dim in range(x.real.rank) if dim != axis), axis]
    outer = tuple(x.real.shape[dim] for dim in order[:-1])
    back = sorted(range(len(order)), key=order.__getitem__)
    lines = _mapped(x, lambda side: reshaped(node, transposed(node, side, order), (math.prod(outer), side.shape[axis])))
    lines = mirrored(node, lines, length) if length else lines
    found = transform(node, lines, inverse=inverse)
    return _mapped(found, lambda side: transposed(node, reshaped(node, side, (*outer, side.shape[1])), back))


def _scaled(node: Node, x: Complex, count: int) -> Complex:
    """By nothing (0), by the root of the number of elements (1), or by that (2), as PyTorch numbers it."""
    power = node.integer("normalization") / 2
    if power == 0:
        return x
    factor = node.constant(np.array(count**-power, x.real.dtype.numpy))
    return _mapped(x, lambda side: node.add("Mul", side, factor))


def _mapped(x: Complex, change: Callable[[Operand], Operand]) -> Complex:
    return Complex(change(x.real), None if x.imaginary is None else change(x.imaginary))


_OWN: Mapping[str, Converter] = {"abs": _size, "div": _quotient, "exp": _exponential, "reciprocal": _reciprocal}
"""Operators that have a converter for real operands, too."""

CONVERTERS: Mapping[str, Converter] = {
    **dict.fromkeys(("_conj", "_conj_physical", "conj_physical"), _conjugate),
    **dict.fromkeys(("resolve_conj", "resolve_neg"), _resolved),
    "_fft_c2c": _of_complex_lines,
    "_fft_c2r": _to_real_lines,
    "_fft_r2c": _of_real_lines,
    "_neg_view": _negative,
    "angle": _angle,
    "complex": _put_together,
    "polar": _polar,
    "view_as_complex": _as_complex,
    "view_as_real": _as_real,
}
