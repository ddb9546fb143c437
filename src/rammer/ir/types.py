"""Element types, tensor types and storage layouts: the vocabulary every level of the compiler shares."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided


class DType(enum.Enum):
    """An element type. The value is its NumPy name, which is also how dumps and artifacts spell it.

    TF32 is float32 rounded to the 10 bits of mantissa that tensor cores take, to nearest, ties away from zero. NumPy
    holds it as float32. No model has it: the compiler stores so what products round.

    Types of fewer than 8 bits and floats of 8 are codes: they are stored, a byte each, and nothing is computed in them.
    As uint8 they are their bits, and uint8 becomes them as bits; an operator gives the bits their meaning.
    """

    BOOL = "bool"
    UINT8 = "uint8"
    INT8 = "int8"
    UINT16 = "uint16"
    INT16 = "int16"
    UINT32 = "uint32"
    INT32 = "int32"
    UINT64 = "uint64"
    INT64 = "int64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    TF32 = "tf32"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    UINT2 = "uint2"
    INT2 = "int2"
    UINT4 = "uint4"
    INT4 = "int4"
    FLOAT4E2M1 = "float4_e2m1fn"
    FLOAT8E4M3FN = "float8_e4m3fn"
    FLOAT8E4M3FNUZ = "float8_e4m3fnuz"
    FLOAT8E5M2 = "float8_e5m2"
    FLOAT8E5M2FNUZ = "float8_e5m2fnuz"
    FLOAT8E8M0 = "float8_e8m0fnu"

    __hash__ = object.__hash__  # by identity, as members are equal; Enum's own is a Python function over the name

    def __init__(self, name: str) -> None:
        # An attribute, not a property: calls compare it.
        own: npt.DTypeLike = np.float32 if name == "tf32" else getattr(ml_dtypes, name, name)
        self.numpy: np.dtype[np.generic] = np.dtype(own)
        """The NumPy dtype; bfloat16 and codes are those that `ml_dtypes` registers."""

    @property
    def itemsize_bytes(self) -> int:
        """Bytes of one stored element."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        """Whether values are floating point."""
        return self in _FLOATS

    @property
    def is_signed(self) -> bool:
        """Whether values can be negative."""
        return self.is_float or self in _SIGNED

    @property
    def is_half(self) -> bool:
        """Whether this is a 16-bit float: stored narrow, computed in float32."""
        return self in (DType.FLOAT16, DType.BFLOAT16)

    @property
    def is_code(self) -> bool:
        """Whether elements are stored as codes of a byte, in which nothing is computed."""
        return self in _CODE_BITS

    @property
    def bits(self) -> int:
        """Bits that tell the values of an element apart."""
        return _CODE_BITS.get(self, 8 * self.itemsize_bytes)

    @property
    def is_rounded(self) -> bool:
        """Whether this is a float of fewer bits than float32, in which nothing is computed."""
        return self.is_half or self is DType.TF32

    @property
    def can_be_tagged(self) -> bool:
        """Whether an element and a tag can be one word."""
        return self is DType.FLOAT32 or self.is_rounded

    @property
    def compute(self) -> DType:
        """The type arithmetic runs in: float32 for floats of fewer bits, the type itself otherwise."""
        return DType.FLOAT32 if self.is_rounded else self

    @classmethod
    def of(cls, array: npt.NDArray[np.generic]) -> DType:
        """The element type of a NumPy array.

        Raises:
            KeyError: the array's dtype is none of ours.
        """
        return _FROM_NUMPY[array.dtype.name]


_CODE_BITS = {
    DType.UINT2: 2,
    DType.INT2: 2,
    DType.UINT4: 4,
    DType.INT4: 4,
    DType.FLOAT4E2M1: 4,
    DType.FLOAT8E4M3FN: 8,
    DType.FLOAT8E4M3FNUZ: 8,
    DType.FLOAT8E5M2: 8,
    DType.FLOAT8E5M2FNUZ: 8,
    DType.FLOAT8E8M0: 8,
}
CODES = tuple(_CODE_BITS)
"""The element types that are stored as codes."""

MODEL_DTYPES = tuple(dtype for dtype in DType if dtype is not DType.TF32 and not dtype.is_code)
"""The element types of a model's tensors that operators compute with, which are those that NumPy tells apart."""

STORED_DTYPES = (*MODEL_DTYPES, *CODES)
"""The element types that a model's tensors may have."""

_FROM_NUMPY: dict[str, DType] = {dtype.numpy.name: dtype for dtype in STORED_DTYPES}
_FLOATS = frozenset({DType.FLOAT16, DType.BFLOAT16, DType.TF32, DType.FLOAT32, DType.FLOAT64})
_SIGNED = frozenset({DType.INT8, DType.INT16, DType.INT32, DType.INT64})


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and static shape of a tensor. Shape `()` is a scalar; an extent may be 0."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, without padding."""
        return self.size * self.dtype.itemsize_bytes

    def __str__(self) -> str:
        return f"{self.dtype.value}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A blocked dimension: `width` neighbouring indices lie together, panels are `stride` elements apart.

    With a panel on dimension d the address of index i is `(i // width) * stride + (i % width) * strides[d]`
    for that dimension. It is how weights are packed for a register micro-kernel.
    """

    dim: int
    width: int
    stride: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the element with a logical index lies in storage, in elements from the tensor's start.

    Logical indices never change with the layout; only addresses do. `span` is the number of elements of
    storage the tensor takes, padding included. In a tagged layout each element lies beside a tag (`Tensor`), which
    says in which run it was written.
    """

    strides: tuple[int, ...]
    span: int
    panel: Panel | None = None
    tagged: bool = False

    @classmethod
    def row_major(cls, shape: Sequence[int]) -> Layout:
        """The dense C-order layout of a shape."""
        return cls.ordered(shape, tuple(range(len(shape))))

    @classmethod
    def ordered(cls, shape: Sequence[int], order: Sequence[int]) -> Layout:
        """A dense layout whose dimensions lie in `order`, outermost first (channels last: 0, 2, 3, 1)."""
        strides = [0] * len(shape)
        stride = 1
        for dim in reversed(order):
            strides[dim] = stride
            stride *= shape[dim]
        return cls(strides=tuple(strides), span=stride)

    @classmethod
    def panelled(
        cls, shape: Sequence[int], order: Sequence[int], dim: int, width: int, inner: int | None = None
    ) -> Layout:
        """Panels of `width` indices of `dim`, outermost; inside a panel `order` (dim excluded), then the lanes.

        Of each lane all indices of the dimension `inner`, where there is one, lie side by side. The last panel is
        padded to `width`, so every panel can be read whole.
        """
        strides = [0] * len(shape)
        if inner is not None:
            strides[inner] = 1
        strides[dim] = 1 if inner is None else shape[inner]
        stride = width * strides[dim]
        for other in reversed([d for d in order if d != dim]):
            strides[other] = stride
            stride *= shape[other]
        panels = -(-shape[dim] // width)
        return cls(strides=tuple(strides), span=panels * stride, panel=Panel(dim=dim, width=width, stride=stride))

    def is_row_major(self, shape: Sequence[int]) -> bool:
        """Whether addresses equal those of the dense C order (dimensions of extent 1 do not matter)."""
        plain = Layout.row_major(shape)
        return self.panel is None and all(
            mine == its for mine, its, extent in zip(self.strides, plain.strides, shape, strict=True) if extent > 1
        )

    def address(self, index: Sequence[int]) -> int:
        """Elements from the tensor's start to the element at `index`."""
        total = 0
        for dim, i in enumerate(index):
            if self.panel is not None and self.panel.dim == dim:
                panel, i = divmod(i, self.panel.width)
                total += panel * self.panel.stride
            total += i * self.strides[dim]
        return total

    def reach(self, shape: Sequence[int]) -> int:
        """Elements of storage that indices of a shape may lie in, strides and panels not being negative.

        Raises:
            ValueError: the layout is for another number of dimensions.
        """
        if len(self.strides) != len(shape) or (self.panel is not None and self.panel.dim >= len(shape)):
            raise ValueError(f"a layout of {len(self.strides)} dimensions for {len(shape)}")
        last = sum(stride * (extent - 1) for stride, extent in zip(self.strides, shape, strict=True))
        if self.panel is not None:
            extent, stride = shape[self.panel.dim], self.strides[self.panel.dim]
            panels = -(-extent // self.panel.width)
            last += (panels - 1) * self.panel.stride + (min(extent, self.panel.width) - extent) * stride
        return last + 1

    def addresses(self, shape: Sequence[int]) -> npt.NDArray[np.int64]:
        """Addresses of all elements, as an int64 array of `shape`."""
        total: npt.NDArray[np.int64] = np.zeros(tuple(shape), dtype=np.int64)
        for dim, line in enumerate(self.steps(shape)):
            total = total + line.reshape([-1 if d == dim else 1 for d in range(len(shape))])
        return total

    def steps(self, shape: Sequence[int]) -> list[npt.NDArray[np.int64]]:
        """What an index of each dimension adds to an address."""
        lines = []
        for dim, extent in enumerate(shape):
            i = np.arange(extent, dtype=np.int64)
            if self.panel is not None and self.panel.dim == dim:
                lines.append((i // self.panel.width) * self.panel.stride + (i % self.panel.width) * self.strides[dim])
            else:
                lines.append(i * self.strides[dim])
        return lines

    def pack(self, array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """The storage of `array` under this layout: one dimension of `span` elements, padding zero."""
        storage = np.zeros(self.span, dtype=array.dtype)
        self.pack_into(array, storage)
        return storage

    def pack_into(self, array: npt.NDArray[np.generic], storage: npt.NDArray[np.generic]) -> None:
        """Write `array` into its storage under this layout: zeros, one dimension of `span` elements."""
        steps = [stride * array.dtype.itemsize for stride in self.strides]
        if self.panel is None:
            as_strided(storage, array.shape, steps)[...] = array
            return
        dim, width = self.panel.dim, self.panel.width
        lanes_last = np.moveaxis(array, dim, -1)
        outer = [step for d, step in enumerate(steps) if d != dim]
        whole, rest = divmod(array.shape[dim], width)
        for first, count, lanes in ((0, whole, width), (whole, 1, rest)):
            part = lanes_last[..., first * width : first * width + count * lanes]
            part = part.reshape(*part.shape[:-1], count, lanes)
            panels = [*outer, self.panel.stride * array.dtype.itemsize, steps[dim]]
            as_strided(storage[first * self.panel.stride :], part.shape, panels)[...] = part
