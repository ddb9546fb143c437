"""fold_scales: what is divided by a scale to be quantised is divided where it is made.

    y = Round((Cast(x) * f + b) / s)            ->  y = Round(Cast(x) * (f / s) + b / s)
    y = Round(Relu(Conv(Cast(x) * t, w, b)) / s)  ->  y = Round(Relu(Conv(Cast(x), w * t / s, b / s)))
    integers that stand for numbers which are quantised as they were  ->  the integers themselves
    q = Cast(Clip(Round(x) + z, 0, 255))        ->  n = max(int32(round(min(x, 255 - z))), -z), q = n + z
    Centre(q, z)                                ->  n

Constants take the scale: factors and biases, weights of convolutions that stay in float32, of normalisations, limits.
What has none is multiplied by the reciprocal. Nobody else may read what is between, but for numbers that are made of
integers, which may be made twice. New constants are computed in float64 and rounded once.

Numbers in quanta are clipped from above before they are converted, and from below behind that: what an int32 does not
hold becomes its least value, so do NaN, and vector code has an instruction for minima and maxima of integers, none that
means what NumPy does by those of floating-point numbers.

Ordering restriction: after `fold_constants`, which finds out what scales are; before `hoist_pointwise` and whatever
changes expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rammer.ir.expr import ScalarFn, TensorExpr, call, cast, load
from rammer.ir.graph import Array, Attribute, Graph, Operator
from rammer.ir.types import DType
from rammer.ir.vdevice import VDevice
from rammer.operators.attributes import number
from rammer.operators.convolution import conv
from rammer.operators.shapes import plain_result, spatial_axes
from rammer.passes.helpers.quads import of_types
from rammer.passes.helpers.rewrite import Rewriter

_ENDS = {DType.UINT8: (0, 255), DType.INT8: (-128, 127)}
_VIEWS = frozenset({"Reshape", "Transpose"})


def run(graph: Graph, device: VDevice) -> Graph:
    """Fold scales; see the module.

    Args:
        graph: whose operators are known by their kinds.
        device: nothing is done where it has no products of bytes: quantised numbers are float32 there.
    """
    if device.byte_products is None:
        return graph
    folding = _Folding(graph=graph, rewriter=Rewriter(graph), readers=_readers(graph), quanta={})
    for operator in graph.operators:
        folding.visit(operator)
    return folding.rewriter.finish()


def _readers(graph: Graph) -> dict[int, list[str]]:
    """The kinds of the operators that read each value; callers read a graph's outputs."""
    readers = {value: [operator.kind for operator in found] for value, found in graph.consumers().items()}
    for value in graph.outputs:
        readers.setdefault(value, []).append("caller")
    return readers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quanta:
    """Numbers in quanta, as int32, and the zero point that is added to make them bytes."""

    value: int
    zero: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rounded:
    """What an operator rounds, clips and makes bytes of a type with a zero point."""

    value: int
    zero: int
    dtype: DType


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folding:
    """The graph as it is being rewritten; `quanta` has the integers without their zero point of bytes made so far."""

    graph: Graph
    rewriter: Rewriter
    readers: Mapping[int, list[str]]
    quanta: dict[int, _Quanta]

    def visit(self, operator: Operator) -> None:
        """Insert an operator, or what becomes of it."""
        self.rewriter.insert(operator)
        (result, *others) = operator.outputs
        if others:
            return
        made = None
        if operator.kind == "Div" and self.readers.get(result) == ["Round"]:
            divisor = self._number(operator.inputs[1])
            if divisor is not None:
                made = self._divided(operator.inputs[0], divisor)
                made = self.by_reciprocal(operator, operator.inputs[0], divisor) if made is None else made
        elif operator.kind == "Cast":
            made = self._bytes(operator)
        elif operator.kind == "Centre":
            made = self._centred(operator)
        if made is not None and self.rewriter.type(made) == self.rewriter.type(result):
            self.rewriter.replace(result, made)

    def _number(self, value: int) -> float | None:
        """A scale that can be divided by."""
        array = self.rewriter.array(value)
        if array is None or array.dtype != np.float32 or array.size != 1:
            return None
        scale = float(array.reshape(()))
        return scale if 2.0**-100 < scale < 2.0**100 else None

    def _divided(self, value: int, divisor: float) -> int | None:
        """A value divided where it is made; None where that takes a step more."""
        maker = self.rewriter.maker(value)
        if maker is None or self.rewriter.type(value).dtype is not DType.FLOAT32 or len(maker.outputs) > 1:
            return None
        if len(self.readers.get(value, ())) != 1 and not self._is_of_integers(maker):
            return None
        rule = _RULES.get(maker.kind)
        return None if rule is None else rule(self, maker, divisor)

    def _is_of_integers(self, operator: Operator) -> bool:
        """Whether numbers are integers times a scale."""
        maker = self.rewriter.maker(operator.inputs[0])
        return operator.kind == "Mul" and maker is not None and maker.kind == "Cast"

    def by_reciprocal(self, like: Operator, value: int, divisor: float) -> int:
        """A value times a number."""
        return self.again(like, (value, self.constant(like, np.asarray(1 / divisor, np.float32))), kind="Mul")

    def again(
        self, like: Operator, inputs: Sequence[int], attributes: Mapping[str, Attribute] | None = None, kind: str = ""
    ) -> int:
        """The result of an operator like another with other operands."""
        return self.rewriter.add(
            kind or like.kind,
            inputs,
            like.attributes if attributes is None and not kind else attributes or {},
            name=like.name,
            sources=like.sources,
        )

    def constant(self, like: Operator, array: Array) -> int:
        """A new constant of an operator."""
        return self.rewriter.constant(array, like.name)

    def quotient(self, value: int, divisor: float) -> Array | None:
        """A float32 constant divided; None where the value is none, or the quotients are not finite."""
        array = self.rewriter.array(value)
        if array is None or array.dtype != np.float32:
            return None
        with np.errstate(all="ignore"):
            divided = np.asarray(array.astype(np.float64) / divisor).astype(np.float32)
        return divided if np.isfinite(divided).all() else None

    def in_one(self, operator: Operator, divisor: float, slot: int) -> int | None:
        """The operator with one operand divided."""
        divided = self._divided(operator.inputs[slot], divisor)
        if divided is None:
            return None
        return self.again(operator, [divided if i == slot else value for i, value in enumerate(operator.inputs)])

    def in_constants(self, operator: Operator, divisor: float) -> int | None:
        """The operator with all operands but the first divided, which have to be constants."""
        divided = [self.quotient(value, divisor) for value in operator.inputs[1:]]
        if not divided or any(array is None for array in divided):
            return None
        others = [self.constant(operator, array) for array in divided if array is not None]
        return self.again(operator, (operator.inputs[0], *others))

    def product(self, operator: Operator, divisor: float) -> int | None:
        """A product, of which one factor is divided."""
        for slot, value in enumerate(operator.inputs):
            other = operator.inputs[1 - slot]
            array = self.quotient(value, divisor)
            if array is None:
                continue
            scale = self._number(value)
            made = None if scale is None else self._divided(other, divisor / scale)
            if made is not None:
                return made
            if (array == 1).all() and self.rewriter.type(other) == self.rewriter.type(operator.outputs[0]):
                return other
            factors = (self.constant(operator, array), other)
            return self.again(operator, factors if slot == 0 else factors[::-1])
        made = self.in_one(operator, divisor, 0)
        return self.in_one(operator, divisor, 1) if made is None else made

    def ratio(self, operator: Operator, divisor: float) -> int | None:
        """A quotient, whose divisor is multiplied."""
        scale = self._number(operator.inputs[1])
        if scale is None:
            return None
        made = self._divided(operator.inputs[0], scale * divisor)
        return self.by_reciprocal(operator, operator.inputs[0], scale * divisor) if made is None else made

    def sum(self, operator: Operator, divisor: float) -> int | None:
        """A sum of which both operands are divided, one of them where it is made."""
        made: list[int | None] = []
        for value in operator.inputs:
            array = self.quotient(value, divisor)
            made.append(self._divided(value, divisor) if array is None else self.constant(operator, array))
        left, right = made
        if left is None and right is None:
            return None
        operands = [
            self.by_reciprocal(operator, value, divisor) if found is None else found
            for value, found in zip(operator.inputs, made, strict=True)
        ]
        return self.again(operator, operands)

    def clipped(self, operator: Operator, divisor: float) -> int | None:
        """A clip with its limits divided."""
        divided = self._divided(operator.inputs[0], divisor)
        if divided is None:
            return None
        limits = {name: float(np.float32(number(operator.attributes, name) / divisor)) for name in ("lower", "upper")}
        return self.again(operator, (divided,), {**operator.attributes, **limits})

    def convolution(self, operator: Operator, divisor: float) -> int | None:
        """A convolution by constants: its weights take its input's scale, too."""
        x, *_ = operator.inputs
        maker = self.rewriter.maker(x)
        factor = 1.0
        if maker is not None and self._is_of_integers(maker):
            scale = self._number(maker.inputs[1])
            if scale is not None:
                x, factor = maker.inputs[0], scale
        weights = self.quotient(operator.inputs[1], divisor / factor)
        biases = [self.quotient(value, divisor) for value in operator.inputs[2:]]
        if weights is None or any(array is None for array in biases):
            return None
        arrays = [weights, *(array for array in biases if array is not None)]
        operands = [self.constant(operator, array) for array in arrays]
        bytes_ = self._plain_bytes(x) if weights.shape[1] == 1 else None
        if bytes_ is None:
            return self.again(operator, (x, *operands))
        attributes = {**operator.attributes, "finite_weights": True}
        expr = conv([self.rewriter.type(value) for value in (x, *operands)], attributes)
        return self.rewriter.add_expression(
            of_types(expr, self.rewriter.type(bytes_).dtype),
            (bytes_, *operands),
            kind="ConvOfBytes",
            name=operator.name,
            sources=operator.sources,
        )

    def _plain_bytes(self, value: int) -> int | None:
        """The bytes that float32 numbers are, without a zero point."""
        maker = self.rewriter.maker(value)
        if maker is None or maker.kind != "Cast":
            return None
        integers = self.rewriter.current(maker.inputs[0])
        for made, quanta in self.quanta.items():
            if quanta.value == integers:
                return None if quanta.zero else made
        centre = self._maker(integers, "Centre")
        return centre.inputs[0] if centre is not None and len(centre.inputs) == 1 else None

    def _rounded(self, operator: Operator) -> _Rounded | None:
        """What an operator that makes bytes makes them of, if it quantises numbers."""
        dtype = self.rewriter.type(operator.outputs[0]).dtype
        clip = self._maker(operator.inputs[0], "Clip")
        if clip is None or _ENDS.get(dtype) != tuple(number(clip.attributes, name) for name in ("lower", "upper")):
            return None
        shift = self._maker(clip.inputs[0], "Add")
        zero = 0 if shift is None else self._zero(shift.inputs[1])
        rounded = self._maker(clip.inputs[0] if shift is None else shift.inputs[0], "Round")
        if zero is None or rounded is None or self.rewriter.type(rounded.inputs[0]).dtype is not DType.FLOAT32:
            return None
        return _Rounded(value=rounded.inputs[0], zero=zero, dtype=dtype)

    def _bytes(self, operator: Operator) -> int | None:
        """The bytes that an operator makes: those that they were before, or made by integers."""
        found = self._rounded(operator)
        if found is None:
            return None
        integers = self._integers(found.value, found.zero, found.dtype)
        return self._quantised(operator, found) if integers is None else integers

    def _quantised(self, operator: Operator, found: _Rounded) -> int:
        """Bytes, made of numbers in quanta that are kept for what reads their values."""
        least, greatest = _ENDS[found.dtype]
        x = self.rewriter.type(found.value)
        axes = spatial_axes(x.shape)
        clipped = call(ScalarFn.MIN, load(0, x, axes), float(greatest - found.zero))
        nearest = call(ScalarFn.MAX, cast(DType.INT32, call(ScalarFn.ROUND, clipped)), least - found.zero)
        quanta = self._expression(operator, plain_result((x,), DType.INT32, axes, nearest), found.value, "Quanta")
        n = self.rewriter.type(quanta)
        shifted = plain_result((n,), found.dtype, axes, cast(found.dtype, load(0, n, axes) + found.zero))
        made = self._expression(operator, shifted, quanta, "Bytes")
        self.quanta[made] = _Quanta(value=quanta, zero=found.zero)
        return made

    def _expression(self, like: Operator, expr: TensorExpr, operand: int, kind: str) -> int:
        return self.rewriter.add_expression(expr, (operand,), kind=kind, name=like.name, sources=like.sources)

    def _centred(self, operator: Operator) -> int | None:
        """Bytes less their zero point, if they were made of just that."""
        bytes_, *zeros = operator.inputs
        found = self.quanta.get(self.rewriter.current(bytes_))
        zero = self._zero(zeros[0]) if zeros else 0
        return None if found is None or found.zero != zero else found.value

    def _integers(self, value: int, zero: int, dtype: DType) -> int | None:
        """The bytes of a type that a float32 value is, less their zero point, in its shape."""
        maker = self.rewriter.maker(value)
        if maker is not None and maker.kind in _VIEWS:
            integers = self._integers(maker.inputs[0], zero, dtype)
            return None if integers is None else self.again(maker, (integers,))
        if maker is None or maker.kind != "Cast":
            return None
        for made, quanta in self.quanta.items():
            if quanta.value == self.rewriter.current(maker.inputs[0]):
                return made if quanta.zero == zero and self.rewriter.type(made).dtype is dtype else None
        centre = self._maker(maker.inputs[0], "Centre")
        if centre is None or self.rewriter.type(centre.inputs[0]).dtype is not dtype:
            return None
        own = 0 if len(centre.inputs) == 1 else self._zero(centre.inputs[1])
        return centre.inputs[0] if own == zero else None

    def _maker(self, value: int, kind: str) -> Operator | None:
        """The operator of a kind that makes a value."""
        maker = self.rewriter.maker(value)
        return maker if maker is not None and maker.kind == kind else None

    def _zero(self, value: int) -> int | None:
        """A zero point, None where it is no single constant."""
        array = self.rewriter.array(value)
        return None if array is None or array.size != 1 else int(array.reshape(()))


def _through(folding: _Folding, operator: Operator, divisor: float) -> int | None:
    return folding.in_one(operator, divisor, 0)


_RULES: Mapping[str, Callable[[_Folding, Operator, float], int | None]] = {
    "Add": _Folding.sum,
    "Clip": _Folding.clipped,
    "Conv": _Folding.convolution,
    "Div": _Folding.ratio,
    "LayerNormalization": _Folding.in_constants,
    "MaxPool": _through,
    "Mul": _Folding.product,
    "Relu": _through,
    "Reshape": _through,
    "Transpose": _through,
}
"""How the result of each kind is divided."""
