"""Quotients in indices: an axis of which loads take quotients and rests becomes two axes, whose indices are affine.

for h < 32: ... k[h // 4] ...  ->  for g < 8, i < 4: ... k[g] ...        (h = 4 g + i)
"""

from __future__ import annotations

from dataclasses import replace

from rammer.ir.expr import Axis, Call, Const, Expr, ScalarFn, const, rebuild, substitute
from rammer.ir.region import Affine, Interval, affine, interval_of
from rammer.ir.types import DType
from rammer.passes.helpers.work import Work


def split_quotients(work: Work) -> Work:
    """The work with every axis split that this makes indices affine of."""
    while (found := _splittable(work)) is not None:
        axis, divisor = found
        outer, inner = Axis(f"{axis.name}_outer", axis.extent // divisor), Axis(f"{axis.name}_inner", divisor)
        axes = tuple(part for one in work.axes for part in ((outer, inner) if one is axis else (one,)))
        outputs = {}
        for value, output in work.outputs.items():
            body, *indices = substitute([output.body, *output.indices], {axis: outer * divisor + inner})
            body, *indices = rebuild([body, *indices], _settled)
            outputs[value] = replace(output, body=body, indices=tuple(indices))
        work = Work(axes=axes, outputs=outputs)
    return work


def _splittable(work: Work) -> tuple[Axis, int] | None:
    """An axis and the extent of its inner part, such that a quotient or rest vanishes from an index."""
    for node in (node for load in work.loads for index in load.indices for node in _quotients(index)):
        form = affine(node.args[0])
        for axis, step in () if form is None else form.terms:
            divisor = _divisor(node) // step if step > 0 and _divisor(node) % step == 0 else 0
            if axis in work.axes and 1 < divisor < axis.extent and axis.extent % divisor == 0:
                return axis, divisor
    return None


def _quotients(index: Expr) -> list[Call]:
    """The quotients and rests by a number in an index."""
    found: list[Call] = []
    stack = [index]
    while stack:
        node = stack.pop()
        match node:
            case Call(ScalarFn.FLOORDIV | ScalarFn.MOD, (_, Const())):
                found.append(node)
        stack.extend(node.children)
    return found


def _divisor(node: Call) -> int:
    divisor = node.args[1]
    assert isinstance(divisor, Const)
    return int(divisor.value)


def _settled(node: Expr) -> Expr | None:
    """A quotient or rest without division, where all that does not divide is less than the divisor; None for others."""
    match node:
        case Call(ScalarFn.FLOORDIV | ScalarFn.MOD as fn, (arg, Const(divisor))) if int(divisor) > 0:
            form = affine(arg)
        case _:
            return None
    if form is None:
        return None
    by = int(divisor)
    whole = Affine(tuple((axis, step) for axis, step in form.terms if step % by == 0), form.offset // by * by)
    rest = _expression(Affine(tuple((axis, step) for axis, step in form.terms if step % by), form.offset % by))
    span = interval_of(rest, {})
    if span is None or not Interval(0, by).contains(span):
        return None
    if fn is ScalarFn.MOD:
        return rest
    return _expression(Affine(tuple((axis, step // by) for axis, step in whole.terms), whole.offset // by))


def _expression(form: Affine) -> Expr:
    total: Expr = const(0, DType.INT64)
    for axis, step in form.terms:
        total = axis * step + total
    return total + form.offset
