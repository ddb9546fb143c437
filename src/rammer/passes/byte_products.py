"""byte_products: products of numbers that are quantised to 8 bits are computed in integers.

    y = Conv(scale_x * (x - zero_x), scale_w * (w - zero_w)) + b
      ->  y = scale_x * scale_w * (sum[c, q < 4](x[4 c + q] * w'[c, q]) - zero_x * sum(w')) + b

Processors sum four products of uint8 and int8 by one instruction, so that what is summed over is split into quads, and
the weights are laid out by them: int8 becomes uint8 by adding 128, to its zero point, too. Tensor cores of GPUs take
bytes of either sign as they lie, and products with fewer rows than a tile has are left to `fuse_matrix_vectors`. Sums
are int32, which is exact; where the model multiplies numbers in float32, one product with the scales is left to round.
Weights are constants that int8 holds without their zero point once a number is taken from all of them, and have one
scale for each result's feature. Extents that are no multiple of four are filled up with zeros: four bytes are the least
that is copied at a time. Around an image whose zero point is not 0, the padding is put in memory: it stands for 0.

Ordering restriction: the first pass, since `fold_constants` computes what constants stand for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rammer.ir.expr import TensorExpr
from rammer.ir.graph import Array, Attribute, Graph, Operator
from rammer.ir.types import DType, TensorType
from rammer.ir.vdevice import ByteProducts, VDevice
from rammer.operators.attributes import flag, integer, integers, number
from rammer.operators.contraction import gemm, matmul
from rammer.operators.convolution import conv
from rammer.operators.registry import BuildExpr
from rammer.passes.helpers.quads import cut, in_quads, of_types
from rammer.passes.helpers.quantised import Integers, Numbers, centred_weights, numbers_of, scales_of
from rammer.passes.helpers.rewrite import Rewriter
from rammer.tiling.gemm import LEAST_ROWS
from rammer.tiling.pattern import QUAD

_MOST_SUMMED, _MOST_SHIFTED = 2**31 // (255 * 128), 2**31 // (255 * 255)
"""So many products are certain not to leave an int32, by weights that int8 holds and by others."""
_LEAST_FEATURES = 4
"""Of fewer, vectors are mostly empty."""
_SIGN = 128

_BUILDERS: Mapping[str, tuple[BuildExpr, str]] = {"Conv": (conv, "c"), "Gemm": (gemm, "k"), "MatMul": (matmul, "k")}
"""The expression of each product, and the axis that is summed over and cut into quads."""


@dataclass(frozen=True, slots=True)
class _Steps:
    """Adds the operators that stand for one of the model's, in `quads` or for sums as they are."""

    rewriter: Rewriter
    operator: Operator
    quads: bool

    def add(self, kind: str, *inputs: int, **attributes: Attribute) -> int:
        """The result of an operator of a registered kind."""
        name, sources = self.operator.name, self.operator.sources
        return self.rewriter.add(kind, inputs, attributes, name=name, sources=sources)

    def expression(self, expr: TensorExpr, inputs: Sequence[int], kind: str) -> int:
        """The result of an expression."""
        name, sources = self.operator.name, self.operator.sources
        return self.rewriter.add_expression(expr, inputs, kind=kind, name=name, sources=sources)

    def constant(self, array: Array) -> int:
        """A new constant."""
        return self.rewriter.constant(array, self.operator.name)

    def reshaped(self, value: int, shape: tuple[int, ...]) -> int:
        """A value of one dimension or fewer in another shape."""
        return value if self.rewriter.type(value).shape == shape else self.add("Reshape", value, shape=shape)

    def multiplied(self, value: int) -> int:
        """Integers of 8 bits as they are multiplied: in quads as uint8, int8 moved by 128."""
        if not self.quads or self.rewriter.type(value).dtype is DType.UINT8:
            return value
        moved = self.add("Add", self.add("Cast", value, to=DType.INT32), self.constant(np.array(_SIGN, np.int32)))
        return self.add("Cast", moved, to=DType.UINT8)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    """A product by weights, which have the features along dimension `features` and are summed along `summed`.

    `integers` are the weights without their zero point, which int8 holds when `shift` is taken away. `scales` are one,
    or one for each feature, None where there are none. The result has the features along its dimension `column`,
    counted from the end. `zero` is the zero point of x as it is multiplied, None where it is computed as the model
    runs.
    """

    operator: Operator
    x: Numbers
    zero: int | None
    integers: Integers
    shift: int
    scales: npt.NDArray[np.float32] | None
    features: int
    summed: int
    column: int

    def along_features(self, array: Array) -> Array:
        """One element, or one for each feature, in a shape that broadcasts to the result's."""
        return array.reshape((-1,) + (1,) * (-1 - self.column))


def run(graph: Graph, device: VDevice) -> Graph:
    """Compute products of quantised numbers in integers; see the module.

    Args:
        graph: as imported, the operators that take zero points away whole.
        device: says whether it has the instruction.
    """
    if device.byte_products is None:
        return graph
    rewriter, quads = Rewriter(graph), device.byte_products is ByteProducts.QUADS
    makers = graph.producers()
    for operator in graph.operators:
        rewriter.insert(operator)
        product = _product(operator, graph, makers, quads=quads)
        if product is not None and (quads or _has_rows(operator, graph)):
            rewriter.replace(operator.outputs[0], _rewritten(product, rewriter, quads=quads))
    return rewriter.finish()


def _has_rows(operator: Operator, graph: Graph) -> bool:
    """Whether a product has results enough for each feature to be multiplied in tiles."""
    shape = graph.values[operator.outputs[0]].type.shape
    return math.prod(shape[:1] + shape[2:] if operator.kind == "Conv" else shape[:-1]) >= LEAST_ROWS


def _product(operator: Operator, graph: Graph, makers: dict[int, Operator], *, quads: bool) -> _Product | None:
    """The operator as a product of quantised numbers by quantised constants, None for any other."""
    places = _places(operator, graph)
    if places is None:
        return None
    x, w = (numbers_of(value, makers) for value in operator.inputs[:2])
    weights = None if w is None else centred_weights(w, graph)
    if x is None or w is None or weights is None or x.integers in graph.constants:
        return None
    shift = _shift(weights)
    features, summed, column = places
    scales = None if w.scale is None else scales_of(graph.constants.get(w.scale), weights.ndim, features)
    whole = all(graph.values[value].type.size == 1 for value in (x.zero, x.scale) if value is not None)
    most = _MOST_SHIFTED if shift else _MOST_SUMMED
    fits = weights.size // weights.shape[features] <= most and weights.shape[features] >= _LEAST_FEATURES
    if not whole or not fits or not weights.size or (w.scale is None) != (scales is None) or shift is None:
        return None
    if (x.scale is None) != (scales is None):
        return None
    return _Product(
        operator=operator,
        x=x,
        zero=_zero(x, graph, quads=quads),
        integers=weights,
        shift=shift,
        scales=scales,
        features=features,
        summed=summed,
        column=column,
    )


def _shift(weights: Integers) -> int | None:
    """What has to be taken from integers so that int8 holds them, None where nothing helps."""
    least, greatest = int(weights.min(initial=0)), int(weights.max(initial=0))
    limits = np.iinfo(np.int8)
    shift = max(greatest - limits.max, 0) or min(least - limits.min, 0)
    return shift if least - shift >= limits.min and greatest - shift <= limits.max else None


def _places(operator: Operator, graph: Graph) -> tuple[int, int, int] | None:
    """The weights' dimension of features and the one that is cut into quads, the result's dimension of features."""
    types = [graph.values[value].type for value in operator.inputs]
    match operator.kind:
        case "MatMul" if types[0].rank > 1 and types[1].rank == 2:
            return 1, 0, -1
        case "Gemm" if not flag(operator.attributes, "trans_a"):
            plain = all(number(operator.attributes, name) == 1 for name in ("alpha", "beta"))
            transposed = flag(operator.attributes, "trans_b")
            return (0 if transposed else 1, 1 if transposed else 0, -1) if plain else None
        case "Conv" if integer(operator.attributes, "group") == 1:
            return 0, 1, 1 - types[0].rank
    return None


def _zero(x: Numbers, graph: Graph, *, quads: bool) -> int | None:
    """The zero point of numbers as they are multiplied, if it is known."""
    added = _SIGN if quads and graph.values[x.integers].type.dtype is DType.INT8 else 0
    if x.zero is None:
        return added
    array = graph.constants.get(x.zero)
    return None if array is None else int(array.reshape(())) + added


def _pads(operator: Operator) -> tuple[int, ...]:
    return integers(operator.attributes, "pads") if operator.kind == "Conv" else ()


def _rewritten(product: _Product, rewriter: Rewriter, *, quads: bool) -> int:
    """Add the operators that compute a product in integers; returns the result."""
    build = _Steps(rewriter, product.operator, quads)
    total = _sums(product, build)
    if product.scales is None:
        return _plus_bias(product, build, total)
    assert product.x.scale is not None  # of both operands or of neither
    scale = build.reshaped(product.x.scale, ())
    factor = build.add("Mul", scale, build.constant(product.along_features(product.scales)))
    return _plus_bias(product, build, build.add("Mul", build.add("Cast", total, to=DType.FLOAT32), factor))


def _sums(product: _Product, build: _Steps) -> int:
    """The sums of products of integers without their zero points."""
    x = build.multiplied(product.x.integers)
    zero = product.zero
    attributes = dict(product.operator.attributes)
    missing = -product.integers.shape[product.summed] % QUAD
    type_ = build.rewriter.type(x)
    begins, ends = [0] * type_.rank, [0] * type_.rank
    channel = 1 if product.operator.kind == "Conv" else type_.rank - 1
    ends[channel] = missing
    if zero != 0 and any(_pads(product.operator)):
        spatial = type_.rank - 2
        pads = _pads(product.operator)
        begins[2:], ends[2:] = pads[:spatial], pads[spatial:]
        attributes["pads"] = (0,) * len(pads)
    if any(begins) or any(ends):
        x = build.add("Pad", x, mode="constant", pads=(*begins, *ends), value=float(zero or 0))
    if zero is None and any((*begins[2:], *ends[2:])):
        assert product.x.zero is not None  # else it is known
        widths = [(0, 0), (0, 0), *zip(begins[2:], ends[2:], strict=True)]
        outside = np.pad(np.zeros((1, 1, *type_.shape[2:]), bool), widths, constant_values=True)
        x = build.add("Where", build.constant(outside), build.multiplied(build.reshaped(product.x.zero, ())), x)
    total = _of_bytes(product, build, x, product.integers - product.shift, attributes)
    if product.shift:
        one = tuple(1 if dim == product.features else extent for dim, extent in enumerate(product.integers.shape))
        alone = _of_bytes(product, build, x, np.ones(one, np.int32), attributes)
        total = build.add("Add", total, build.add("Mul", alone, build.constant(np.array(product.shift, np.int32))))
    return _less_zero(product, build, total)


def _of_bytes(product: _Product, build: _Steps, x: int, weights: Integers, attributes: Mapping[str, Attribute]) -> int:
    """The sums of products of bytes by weights of int8, filled up with zeros."""
    missing = -weights.shape[product.summed] % QUAD
    weights = np.pad(weights, [(0, missing if dim == product.summed else 0) for dim in range(weights.ndim)])
    types = [TensorType(DType.INT32, shape) for shape in (build.rewriter.type(x).shape, weights.shape)]
    of_int32, summed = _BUILDERS[product.operator.kind]
    expr = of_int32(types, attributes)
    if build.quads:
        expr, stored = in_quads(expr, summed, product.summed), cut(weights, product.summed)
    else:
        expr, stored = of_types(expr, build.rewriter.type(x).dtype, DType.INT8), weights.astype(np.int8)
    return build.expression(expr, (x, build.constant(stored)), kind=f"{product.operator.kind}Bytes")


def _less_zero(product: _Product, build: _Steps, total: int) -> int:
    """Sums less what the zero point of x adds to them."""
    dims = tuple(dim for dim in range(product.integers.ndim) if dim != product.features)
    sums = product.along_features(product.integers.sum(axis=dims, dtype=np.int32))
    if product.zero is not None:
        return build.add("Sub", total, build.constant(product.zero * sums)) if product.zero else total
    assert product.x.zero is not None  # else it is known
    point = build.add("Cast", build.multiplied(build.reshaped(product.x.zero, ())), to=DType.INT32)
    return build.add("Sub", total, build.add("Mul", point, build.constant(sums)))


def _plus_bias(product: _Product, build: _Steps, result: int) -> int:
    for bias in product.operator.inputs[2:]:
        if product.operator.kind == "Conv":
            extent = build.rewriter.type(bias).size
            result = build.add("Add", result, build.reshaped(bias, (extent, *(1,) * (-1 - product.column))))
        else:
            result = build.add("Add", result, bias)
    return result
