"""Orthogonal polynomials whose number is known: each from the two before it (Abramowitz & Stegun 22.7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rammer.frontends.builder import Operand
from rammer.frontends.moves import expanded
from rammer.frontends.torch.converters.special import of_numbers, plus, times
from rammer.frontends.torch.node import Converter, Node, Result

_Step = Callable[[int], tuple[float, float, float]]
"""The a, b and c with which polynomial k + 1 is `(a * x + b)` times polynomial k, less c times the one before."""

_MOST = 64
"""The greatest number: each takes some operators, and coefficients leave the range of float32."""


def _chebyshev(_: int) -> tuple[float, float, float]:
    return 2, 0, 1


_FAMILIES: Mapping[str, tuple[float, float, _Step]] = {
    "chebyshev_polynomial_t": (1, 0, _chebyshev),
    "chebyshev_polynomial_u": (2, 0, _chebyshev),
    "chebyshev_polynomial_v": (2, -1, _chebyshev),
    "chebyshev_polynomial_w": (2, 1, _chebyshev),
    "hermite_polynomial_h": (2, 0, lambda k: (2, 0, 2 * k)),
    "hermite_polynomial_he": (1, 0, lambda k: (1, 0, k)),
    "laguerre_polynomial_l": (-1, 1, lambda k: (-1 / (k + 1), (2 * k + 1) / (k + 1), k / (k + 1))),
    "legendre_polynomial_p": (1, 0, lambda k: ((2 * k + 1) / (k + 1), 0, k / (k + 1))),
}
"""Polynomial 1 as a factor and a summand, and the steps from there; polynomial 0 is 1."""


def _polynomial(family: str, *, shifted: bool) -> Converter:
    factor, summand, step = _FAMILIES[family]

    def convert(node: Node) -> Result:
        if isinstance(node.arguments["n"], Operand):
            raise node.unsupported(f"{node.operator} whose number is a tensor", "give a number of Python")
        count = int(node.number("n"))
        if count > _MOST:
            raise node.unsupported(f"{node.operator} of number {count}", f"numbers up to {_MOST} are possible")
        return of_numbers(lambda node, x: value(node, x, count))(node)

    def value(node: Node, x: Operand, count: int) -> Operand:
        if count < 1:
            return expanded(node, node.scalar(int(count == 0), x.dtype), x.shape)
        x = plus(node, times(node, x, 2), -1) if shifted else x
        before, last = node.scalar(1, x.dtype), plus(node, times(node, x, factor), summand)
        for k in range(1, count):
            a, b, c = step(k)
            grown = node.add("Mul", plus(node, times(node, x, a), b), last)
            before, last = last, node.add("Sub", grown, times(node, before, c))
        return last

    return convert


CONVERTERS: Mapping[str, Converter] = {
    **{f"special_{family}": _polynomial(family, shifted=False) for family in _FAMILIES},
    **{
        f"special_shifted_{family}": _polynomial(family, shifted=True)
        for family in _FAMILIES
        if family.startswith("chebyshev")
    },
}
