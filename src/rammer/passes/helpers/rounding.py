"""Values of 16-bit floats as they are in float32, before they are rounded."""

from __future__ import annotations

from rammer.ir.expr import Cast, Expr, cast, rebuild


def unrounded(element: Expr) -> Expr:
    """An element in float32, as it is before it is rounded to 16 bits."""
    match element:
        case Cast(type_, inner) if type_.is_rounded:
            return inner
    return cast(element.dtype.compute, element)


def exact(element: Expr) -> Expr:
    """An element in float32 that is rounded nowhere on its way from what is loaded."""
    (whole,) = rebuild([unrounded(element)], unrounding)
    return whole


def unrounding(node: Expr) -> Expr | None:
    """A visitor that leaves out what rounds float32 to 16 bits and back."""
    match node:
        case Cast(type_, Cast(narrow, inner)) if narrow.is_rounded and inner.dtype is type_:
            return inner
    return None
