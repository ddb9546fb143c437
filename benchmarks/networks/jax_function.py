"""A network's ONNX model as a JAX function, for XLA: an interpreter of the operators that the networks are made of.

What comes from a `Constant` node stays NumPy's, so that shapes are known when the function is traced. Floating-point
constants and casts are of the parameters' type. Recurrent layers are scans; the products of their inputs are taken for
all steps at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

if TYPE_CHECKING:
    from jax import Array

Attributes = Mapping[str, Any]
Parameters = Mapping[str, Any]
Ints = npt.NDArray[np.int64]

_UNROLL = 10  # steps of a scan in one iteration of its loop, which takes longer on a GPU than the work of a step


def jax_function(model: onnx.ModelProto) -> tuple[Callable[..., tuple[Array, ...]], dict[str, Any]]:
    """The model as a function of (parameters by name, inputs in order), and its parameters as float32 NumPy arrays.

    The function gives the model's outputs in the type of its parameters. Raises KeyError for an operator that none of
    the networks has.
    """

    def function(parameters: Parameters, *inputs: Array) -> tuple[Array, ...]:
        given = zip((value.name for value in model.graph.input), inputs, strict=True)
        values = {"": None, **parameters, **dict(given)}
        dtype = next(iter(parameters.values())).dtype
        for node in model.graph.node:
            attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
            outputs = _OPERATORS[node.op_type](attributes | {"dtype": dtype}, *(values[name] for name in node.input))
            values.update(zip(node.output, outputs if isinstance(outputs, tuple) else (outputs,), strict=False))
        return tuple(values[result.name] for result in model.graph.output)

    return function, {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def _constant(attributes: Attributes) -> npt.NDArray[np.generic]:
    array: npt.NDArray[np.generic] = numpy_helper.to_array(attributes["value"])
    return array.astype(attributes["dtype"]) if np.issubdtype(array.dtype, np.floating) else array


def _cast(attributes: Attributes, x: Array) -> Array:
    wanted = helper.tensor_dtype_to_np_dtype(attributes["to"])
    return x.astype(attributes["dtype"] if np.issubdtype(wanted, np.floating) else wanted)


def _layer_normalization(attributes: Attributes, x: Array, scale: Array, bias: Array) -> Array:
    centered = x - x.mean(axis=-1, keepdims=True)
    variance = (centered * centered).mean(axis=-1, keepdims=True)
    return centered * (variance + attributes["epsilon"]) ** -0.5 * scale + bias


def _softmax(attributes: Attributes, x: Array) -> Array:
    import jax

    return jax.nn.softmax(x, axis=attributes["axis"])


def _split(attributes: Attributes, x: Array) -> tuple[Array, ...]:
    from jax import numpy as jnp

    return tuple(jnp.split(x, attributes["num_outputs"], axis=attributes["axis"]))


def _unsqueeze(_: Attributes, x: Array, axes: Ints) -> Array:
    from jax import numpy as jnp

    return jnp.expand_dims(x, tuple(axes.tolist()))


def _expand(_: Attributes, x: Array, shape: Ints) -> Array:
    from jax import numpy as jnp

    return jnp.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape.tolist())))


def _lax(name: str) -> Callable[[Attributes, Array], Array]:
    """The function of that name of `jax.lax`, of one array."""

    def operator(_: Attributes, x: Array) -> Array:
        from jax import lax

        y: Array = getattr(lax, name)(x)
        return y

    return operator


def _conv(attributes: Attributes, x: Array, w: Array, b: Array | None = None) -> Array:
    from jax import lax

    y = lax.conv_general_dilated(
        x, w, attributes["strides"], _pairs(attributes["pads"]), feature_group_count=attributes["group"]
    )
    return y if b is None else y + b.reshape(-1, *[1] * (y.ndim - 2))


def _gemm(attributes: Attributes, a: Array, b: Array, c: Array | float = 0.0) -> Array:
    return a @ (b.T if attributes["transB"] else b) + c


def _batch_normalization(
    attributes: Attributes, x: Array, scale: Array, bias: Array, mean: Array, variance: Array
) -> Array:
    factor = scale / (variance + attributes["epsilon"]) ** 0.5
    channels = (-1, *[1] * (x.ndim - 2))
    return x * factor.reshape(channels) + (bias - mean * factor).reshape(channels)


def _lstm(
    _: Attributes,
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    lengths: Ints | None = None,
    h: Array | None = None,
    c: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Y [steps, 1, batch, n], Y_h and Y_c [1, batch, n] of x [steps, batch, width]; gates in the order i, o, f, c.

    All batch entries have the whole length: `lengths` is left out by all networks.
    """
    import jax
    from jax import lax
    from jax import numpy as jnp

    n = r.shape[-1]
    zero = jnp.zeros((x.shape[1], n), x.dtype)
    gates = x @ w[0].T + (0.0 if b is None else b[0, : 4 * n] + b[0, 4 * n :])

    def cell(state: tuple[Array, Array], gate: Array) -> tuple[tuple[Array, Array], Array]:
        h, c = state
        i, o, f, candidate = jnp.split(gate + h @ r[0].T, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(candidate)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    start = (zero if h is None else h[0], zero if c is None else c[0])
    (last_h, last_c), all_h = lax.scan(cell, start, gates, unroll=_UNROLL)
    return all_h[:, None], last_h[None], last_c[None]


def _max_pool(attributes: Attributes, x: Array) -> Array:
    from jax import lax

    return _windows(attributes, x, -np.inf, lax.max)


def _average_pool(attributes: Attributes, x: Array) -> Array:
    from jax import lax
    from jax import numpy as jnp

    inside = _windows(attributes, jnp.ones_like(x[:1, :1]), 0.0, lax.add)  # padding does not count
    return _windows(attributes, x, 0.0, lax.add) / inside


def _windows(attributes: Attributes, x: Array, start: float, combine: Callable[[Array, Array], Array]) -> Array:
    from jax import lax

    kernel, strides = ((1, 1, *attributes[name]) for name in ("kernel_shape", "strides"))
    return lax.reduce_window(
        x, np.asarray(start, x.dtype), combine, kernel, strides, ((0, 0), (0, 0), *_pairs(attributes["pads"]))
    )


def _pairs(pads: Sequence[int]) -> list[tuple[int, int]]:
    """All beginnings, then all ends, as (beginning, end) of each dimension."""
    half = len(pads) // 2
    return [(int(begin), int(end)) for begin, end in zip(pads[:half], pads[half:], strict=True)]


def _pad(attributes: Attributes, x: Array, pads: Ints) -> Array:
    from jax import numpy as jnp

    return jnp.pad(x, _pairs(pads.tolist()), mode=attributes["mode"].decode())


def _slice(_: Attributes, x: Array, starts: Ints, ends: Ints, axes: Ints) -> Array:
    cuts = [slice(None)] * x.ndim
    for start, end, axis in zip(starts.tolist(), ends.tolist(), axes.tolist(), strict=True):
        cuts[axis] = slice(start, end)
    return x[tuple(cuts)]


def _reshape(_: Attributes, x: Array, shape: Ints) -> Array:
    return x.reshape([x.shape[i] if extent == 0 else extent for i, extent in enumerate(shape.tolist())])


def _concat(attributes: Attributes, *parts: Array) -> Array:
    from jax import numpy as jnp

    return jnp.concatenate(parts, axis=attributes["axis"])


_OPERATORS: Mapping[str, Callable[..., Any]] = {
    "Add": lambda _, a, b: a + b,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_normalization,
    "Cast": _cast,
    "Clip": lambda _, x, low, high: x.clip(low.item(), high.item()),
    "Concat": _concat,
    "Constant": _constant,
    "Conv": _conv,
    "Cos": _lax("cos"),
    "Div": lambda _, a, b: a / b,
    "Erf": _lax("erf"),
    "Expand": _expand,
    "Flatten": lambda attributes, x: x.reshape(int(np.prod(x.shape[: attributes["axis"]])), -1),
    "Gather": lambda attributes, x, indices: x.take(indices, axis=attributes["axis"]),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda _, x: x.mean(axis=tuple(range(2, x.ndim)), keepdims=True),
    "LSTM": _lstm,
    "LayerNormalization": _layer_normalization,
    "MatMul": lambda _, a, b: a @ b,
    "MaxPool": _max_pool,
    "Mul": lambda _, a, b: a * b,
    "Neg": lambda _, x: -x,
    "Pad": _pad,
    "Pow": lambda _, x, power: x ** power.item(),
    "Reciprocal": lambda _, x: 1.0 / x,
    "ReduceMean": lambda attributes, x, axes: x.mean(tuple(axes.tolist()), keepdims=bool(attributes["keepdims"])),
    "Relu": lambda _, x: x.clip(0.0),
    "Reshape": _reshape,
    "Sigmoid": _lax("logistic"),
    "Sin": _lax("sin"),
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Sqrt": _lax("sqrt"),
    "Squeeze": lambda _, x, axes: x.squeeze(tuple(axes.tolist())),
    "Sub": lambda _, a, b: a - b,
    "Tanh": _lax("tanh"),
    "Transpose": lambda attributes, x: x.transpose(attributes["perm"]),
    "Unsqueeze": _unsqueeze,
}
