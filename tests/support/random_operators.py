"""Random models of one operator: shapes with ones and zeros, broadcasting, negative axes, extreme values, all types.

Each rule draws the operands and attributes of some operators. What the answer has to be says ONNX Runtime, or the
standard's reference where that has no kernel for the types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Array = npt.NDArray[Any]
Rng = np.random.Generator

FLOATS = ("float32", "float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOAT8 = ml_dtypes.float8_e4m3fn
FLOAT8_NUMBER = onnx.TensorProto.FLOAT8E4M3FN
EXTREMES = (np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-3, 6e4, -6e4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A node: operands (None: left out), those that are constants, attributes, and by how much results may differ."""

    op_type: str
    operands: Sequence[Array | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: frozenset[int] = frozenset()
    outputs: int = 1
    opset: int = 22
    tolerance: float = 1e-4
    quantum: int = 0

    @property
    def inputs(self) -> dict[str, Array]:
        """What a call gives, by name."""
        return {f"x{i}": x for i, x in enumerate(self.operands) if x is not None and i not in self.constants}

    def model(self) -> onnx.ModelProto:
        """The model of the node."""
        names = ["" if x is None else f"x{i}" for i, x in enumerate(self.operands)]
        results = [f"y{i}" for i in range(self.outputs)]
        graph = helper.make_graph(
            [helper.make_node(self.op_type, names, results, name="node", **self.attributes)],
            "operator",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
                for name, x in self.inputs.items()
            ],
            [onnx.ValueInfoProto(name=name) for name in results],
            [
                numpy_helper.from_array(x, f"x{i}")
                for i, x in enumerate(self.operands)
                if x is not None and i in self.constants
            ],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)

    def expected(self) -> list[Array] | None:
        """The answers, None where nobody gives any."""
        model = self.model()
        if not any(x.dtype == ml_dtypes.bfloat16 for x in self.inputs.values()):
            try:
                session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
                found = [np.asarray(result) for result in session.run(None, self.inputs)]
                return [x.view(FLOAT8) if self.attributes.get("to") == FLOAT8_NUMBER else x for x in found]
            except Exception:  # noqa: BLE001 - whatever it raises, it has no answer
                pass
        try:
            with np.errstate(all="ignore"):
                return [np.asarray(result) for result in ReferenceEvaluator(model).run(None, self.inputs)]
        except Exception:  # noqa: BLE001
            return None


def shape_of(rng: Rng, least: int = 0, most: int = 4) -> tuple[int, ...]:
    """Extents, often 1 and now and then 0."""
    extents = (1, 1, 2, 3, 4, 7, 0) if rng.random() < 0.2 else (1, 2, 3, 4, 7)
    return tuple(int(e) for e in rng.choice(extents, rng.integers(least, most + 1)))


def floats(rng: Rng, shape: Sequence[int], dtype: str = "float32", *, extreme: bool = False) -> Array:
    """Normal numbers, with extreme ones among them if wanted."""
    x = rng.normal(0, 2, tuple(shape))
    if extreme and x.size and rng.random() < 0.4:
        x.flat[rng.integers(0, x.size, 1 + x.size // 4)] = rng.choice(EXTREMES)
    with np.errstate(all="ignore"):
        return x.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def integers(rng: Rng, shape: Sequence[int], dtype: str, *, small: bool = False) -> Array:
    """Integers of the whole range, or of a few."""
    limits = np.iinfo(dtype)
    low, high = (max(int(limits.min), -4), 5) if small else (int(limits.min), int(limits.max))
    return rng.integers(low, high, tuple(shape), dtype=dtype, endpoint=not small)


def any_of(rng: Rng, options: Sequence[Any]) -> Any:
    """One of some options."""
    return options[int(rng.integers(0, len(options)))]


def tolerance_of(dtype: str) -> float:
    """By how much results of a type may differ."""
    return {"float16": 5e-3, "bfloat16": 4e-2}.get(dtype, 1e-4)


def broadcastable(rng: Rng, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape that broadcasts to another."""
    kept = shape[int(rng.integers(0, len(shape) + 1)) :]
    return tuple(extent if rng.random() < 0.7 else 1 for extent in kept)


def elementwise(rng: Rng) -> Case:
    shape = shape_of(rng)
    op_type = any_of(rng, ("Add", "Sub", "Mul", "Max", "Min", "Less", "Equal", "Greater"))
    dtype = any_of(rng, (*FLOATS, "int32", "int64"))
    make = integers if dtype.startswith("int") else floats
    options: dict[str, Any] = {"small": rng.random() < 0.5} if dtype.startswith("int") else {"extreme": True}
    operands = [make(rng, shape, dtype, **options), make(rng, broadcastable(rng, shape), dtype, **options)]
    return Case(op_type=op_type, operands=operands, tolerance=tolerance_of(dtype))


def function(rng: Rng) -> Case:
    names = (
        "Relu",
        "Sigmoid",
        "Tanh",
        "Exp",
        "Neg",
        "Abs",
        "Floor",
        "Ceil",
        "Round",
        "Sign",
        "Softplus",
        "Erf",
        "IsNaN",
    )
    dtype, op_type = any_of(rng, FLOATS), any_of(rng, names)
    # The sign of a NaN of 16 bits is 0 in ONNX Runtime, NaN in the standard's reference and with all its other types.
    extreme = (op_type, dtype) != ("Sign", "float16")
    x = floats(rng, shape_of(rng), dtype, extreme=extreme)
    return Case(op_type=op_type, operands=[x], tolerance=tolerance_of(dtype))


def bits(rng: Rng) -> Case:
    dtype, shape = any_of(rng, INTEGERS), shape_of(rng)
    op_type = any_of(rng, ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "Mod"))
    y = integers(rng, broadcastable(rng, shape), dtype)
    return Case(op_type=op_type, operands=[integers(rng, shape, dtype), np.where(y == 0, 3, y).astype(dtype)])


def reduction(rng: Rng) -> Case:
    shape = tuple(extent or 1 for extent in shape_of(rng, 1))
    dtype = any_of(rng, ("float32", "float64", "float16", "int32"))
    x = integers(rng, shape, dtype, small=True) if dtype == "int32" else floats(rng, shape, dtype)
    axes = rng.permutation(len(shape))[: rng.integers(1, len(shape) + 1)] - (len(shape) if rng.random() < 0.5 else 0)
    op_type = any_of(rng, ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1"))
    if op_type == "ReduceProd" and dtype == "int32":
        x = np.sign(x)  # what overflows wraps around with us, ONNX Runtime gives the greatest number
    keep = int(rng.integers(0, 2))
    return Case(
        op_type=op_type,
        operands=[x, axes.astype(np.int64)],
        constants=frozenset({1}),
        attributes={"keepdims": keep},
        tolerance=tolerance_of(dtype),
    )


def top_k(rng: Rng) -> Case:
    shape = tuple(extent or 1 for extent in shape_of(rng, 1))
    axis = int(rng.integers(-len(shape), len(shape)))
    dtype = any_of(rng, ("float32", "float64", "int64", "int32"))
    x = integers(rng, shape, dtype, small=True) if dtype.startswith("int") else floats(rng, shape, dtype)
    k = np.array([rng.integers(1, shape[axis] + 1)])
    attributes = {"axis": axis, "largest": int(rng.integers(0, 2))}
    return Case(op_type="TopK", operands=[x, k], constants=frozenset({1}), attributes=attributes, outputs=2)


def scatter_elements(rng: Rng) -> Case:
    shape = tuple(extent or 2 for extent in shape_of(rng, 1, 3))
    axis = int(rng.integers(-len(shape), len(shape)))
    reduction_ = any_of(rng, ("add", "mul", "max", "min"))
    count = int(rng.integers(1, 60))
    places = [int(rng.integers(1, extent + 1)) for extent in shape]
    places[axis] = count
    indices = rng.integers(-shape[axis], shape[axis], places)
    operands = [floats(rng, shape), indices, rng.choice(np.array([-1, 0.5, 1, 2], np.float32), places)]
    attributes = {"axis": axis, "reduction": reduction_}
    return Case(op_type="ScatterElements", operands=operands, attributes=attributes, opset=18, tolerance=1e-3)


def scatter_nd(rng: Rng) -> Case:
    shape = tuple(extent or 2 for extent in shape_of(rng, 1, 3))
    depth = int(rng.integers(1, len(shape) + 1))
    outer = tuple(int(e) for e in rng.integers(1, 9, rng.integers(1, 3)))
    columns = [rng.integers(-extent, extent, outer) for extent in shape[:depth]]
    operands = [floats(rng, shape), np.stack(columns, axis=-1), floats(rng, (*outer, *shape[depth:]))]
    attributes = {"reduction": any_of(rng, ("add", "max", "min"))}
    return Case(op_type="ScatterND", operands=operands, attributes=attributes, opset=18, tolerance=1e-3)


def gather(rng: Rng) -> Case:
    shape = tuple(extent or 1 for extent in shape_of(rng, 1))
    axis = int(rng.integers(-len(shape), len(shape)))
    indices = rng.integers(-shape[axis], shape[axis], shape_of(rng, 0, 2)).astype(any_of(rng, ("int32", "int64")))
    return Case(op_type="Gather", operands=[floats(rng, shape, extreme=True), indices], attributes={"axis": axis})


def grid_sample(rng: Rng) -> Case:
    n, c, h, w, oh, ow = (int(e) for e in rng.integers(1, 6, 6))
    attributes = {
        "mode": any_of(rng, ("linear", "nearest", "cubic")),
        "padding_mode": any_of(rng, ("zeros", "border")),
        "align_corners": int(rng.integers(0, 2)),
    }
    grid = rng.uniform(-1.7, 1.7, (n, oh, ow, 2)).astype(np.float32)
    operands = [floats(rng, (n, c, h, w)), grid]
    return Case(op_type="GridSample", operands=operands, attributes=attributes, opset=20, tolerance=1e-3)


def max_pool(rng: Rng) -> Case:
    shape = (*(int(e) for e in rng.integers(1, 4, 2)), *(int(e) for e in rng.integers(5, 9, 2)))
    attributes = {
        "kernel_shape": [int(k) for k in rng.integers(1, 4, 2)],
        "strides": [int(s) for s in rng.integers(1, 4, 2)],
        "dilations": [1, int(rng.integers(1, 3))],
        "storage_order": int(rng.integers(0, 2)),
    }
    return Case(op_type="MaxPool", operands=[floats(rng, shape)], attributes=attributes, outputs=2, opset=12)


def quantize(rng: Rng) -> Case:
    shape = tuple(extent or 1 for extent in shape_of(rng, 1))
    dtype = any_of(rng, ("int8", "uint8", "int16", "uint16"))
    axis = int(rng.integers(-len(shape), len(shape)))
    per = () if rng.random() < 0.5 else (shape[axis],)
    scale = rng.uniform(0.01, 0.5, per).astype(np.float32)
    operands = [floats(rng, shape), scale, integers(rng, per, dtype)]
    return Case(op_type="QuantizeLinear", operands=operands, attributes={"axis": axis}, quantum=1)


def dequantize(rng: Rng) -> Case:
    shape = tuple(extent or 1 for extent in shape_of(rng, 1))
    dtype = any_of(rng, ("int8", "uint8", "int16", "uint16"))
    axis = int(rng.integers(-len(shape), len(shape)))
    per = () if rng.random() < 0.5 else (shape[axis],)
    scale = rng.uniform(0.01, 0.5, per).astype(np.float32)
    operands = [integers(rng, shape, dtype), scale, integers(rng, per, dtype)]
    return Case(op_type="DequantizeLinear", operands=operands, attributes={"axis": axis}, tolerance=1e-3)


def qlinear_matmul(rng: Rng) -> Case:
    m, k, n = (int(e) for e in rng.integers(1, 20, 3))
    a_type, b_type = "uint8", any_of(rng, ("uint8", "int8"))
    scale = [np.float32(rng.uniform(0.01, 0.1)) for _ in range(2)]
    operands = [integers(rng, (m, k), a_type), np.array(scale[0]), integers(rng, (), a_type)]
    operands += [integers(rng, (k, n), b_type), np.array(scale[1]), integers(rng, (), b_type)]
    operands += [np.array(1.5, np.float32), integers(rng, (), a_type)]
    return Case(op_type="QLinearMatMul", operands=operands, quantum=1)


def einsum(rng: Rng) -> Case:
    extents = {label: int(rng.integers(1, 5)) for label in "abcd"}
    terms = ["".join(rng.permutation(list("abcd"))[: rng.integers(1, 4)]) for _ in range(rng.integers(1, 4))]
    seen = sorted(set("".join(terms)))
    result = "".join(rng.permutation(seen)[: rng.integers(0, len(seen) + 1)])
    operands = [floats(rng, [extents[label] for label in term]) for term in terms]
    equation = f"{','.join(terms)}->{result}"
    return Case(op_type="Einsum", operands=operands, attributes={"equation": equation}, tolerance=1e-3)


def cast(rng: Rng) -> Case:
    """To types in whose range the numbers are: elsewhere casts are not defined."""
    to = any_of(rng, ("float16", "float32", "float64", "bfloat16", "int32", "int64", "bool", "float8_e4m3fn"))
    x = floats(rng, shape_of(rng), any_of(rng, ("float32", "float16")), extreme=to.startswith("float"))
    own = getattr(ml_dtypes, to, to)
    number = helper.np_dtype_to_tensor_dtype(np.dtype(own))
    return Case(op_type="Cast", operands=[x], attributes={"to": number}, tolerance=tolerance_of(to))


Rule = Callable[[Rng], Case]
RULES: tuple[Rule, ...] = (
    *(elementwise, function, bits, reduction, top_k, scatter_elements, scatter_nd, gather, grid_sample, max_pool),
    *(quantize, dequantize, qlinear_matmul, einsum, cast),
)
