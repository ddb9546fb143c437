"""Products by constants that may become one: which there are, how they are read, and parts that stand for them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rammer.ir.graph import Array, Attributes, Graph, Operator
from rammer.operators.attributes import flag, integer
from rammer.passes.helpers.pointwise import pointwise
from rammer.passes.helpers.rewrite import Rewriter
from rammer.passes.helpers.views import view_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A product that may be merged. Features run along one dimension of the weights and one of the result.

    `parameters` are what the weights stand for numbers by, such as scales, with the features along the same dimension.
    """

    operator: Operator
    weight_dim: int
    result_dim: int
    weight: Array
    bias: Array | None
    parameters: tuple[Array, ...] = ()

    @property
    def features(self) -> int:
        """Number of features."""
        return int(self.weight.shape[self.weight_dim])

    def bias_or_zeros(self) -> Array:
        """A bias for each feature."""
        return np.zeros(self.features, self.weight.dtype) if self.bias is None else self.bias


def product_of(operator: Operator, graph: Graph) -> Product | None:
    """The operator as a product of one group by constants, None if it is none."""
    arrays = [graph.constants[value] for value in operator.inputs[1:] if value in graph.constants]
    if not arrays or len(arrays) < len(operator.inputs) - 1:
        return None
    weight, *rest = arrays
    bias = rest[0] if rest else None
    x = graph.values[operator.inputs[0]].type
    match operator.kind:
        case "MatMulNBits":
            return Product(
                operator=operator,
                weight_dim=0,
                result_dim=x.rank - 1,
                weight=weight,
                bias=None,
                parameters=tuple(rest),
            )
        case "MatMul" if weight.ndim == 2:
            return Product(operator=operator, weight_dim=1, result_dim=x.rank - 1, weight=weight, bias=None)
        case "Gemm":
            columns = 0 if flag(operator.attributes, "trans_b") else 1
            if bias is not None:
                if bias.size != 1 and bias.size != bias.shape[-1]:
                    return None
                bias = np.broadcast_to(bias.reshape(-1), (weight.shape[columns],))
            return Product(operator=operator, weight_dim=columns, result_dim=1, weight=weight, bias=bias)
        case "Conv" if integer(operator.attributes, "group") == 1:
            return Product(operator=operator, weight_dim=0, result_dim=1, weight=weight, bias=bias)
    return None


def chain_of(
    product: Product, graph: Graph, consumers: Mapping[int, Sequence[Operator]]
) -> tuple[tuple[Hashable, ...], int]:
    """The pointwise operators that follow a product, as equal ones are equal, and the value behind them."""
    (value,) = product.operator.outputs
    chain: list[Hashable] = []
    while value not in graph.outputs:
        readers = consumers.get(value, [])
        step = pointwise(readers[0], value, graph.constants) if len(readers) == 1 else None
        if step is None:
            break
        chain.append((step.operator.kind, step.data, step.resized(product.result_dim, 1)))
        (value,) = step.operator.outputs
    return tuple(chain), value


def reads_elementwise(readers: Sequence[Operator]) -> bool:
    """Whether any of some readers could be the epilogue of what it reads."""
    return any(reader.expr is not None and not reader.expr.reductions and view_of(reader) is None for reader in readers)


def sliced(whole: int, products: Sequence[Product], rewriter: Rewriter) -> None:
    """Let parts of a value, one behind the other, stand for the results of products."""
    start = 0
    for product in products:
        operator = product.operator
        (output,) = operator.outputs
        shape = rewriter.type(output).shape
        attributes: Attributes = {
            "starts": tuple(start if dim == product.result_dim else 0 for dim in range(len(shape))),
            "steps": (1,) * len(shape),
            "sizes": shape,
        }
        rewriter.replace(
            output, rewriter.add("Slice", [whole], attributes, name=operator.name, sources=operator.sources)
        )
        start += product.features
