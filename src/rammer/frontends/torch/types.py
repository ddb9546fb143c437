"""PyTorch's element types and tensors as ours, without copies where their bytes can be used as they lie."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from rammer.errors import UnsupportedFeatureError
from rammer.ir.graph import Array
from rammer.ir.types import MODEL_DTYPES, DType, TensorType

_DTYPES: Mapping[torch.dtype, DType] = {
    getattr(torch, dtype.value): dtype for dtype in MODEL_DTYPES if hasattr(torch, dtype.value)
}
_TORCH: Mapping[DType, torch.dtype] = {ours: theirs for theirs, ours in _DTYPES.items()}


def dtype_of(dtype: torch.dtype, where: str) -> DType:
    """Our element type for PyTorch's.

    Raises:
        UnsupportedFeatureError: there is none (complex, quantised, 8-bit floating-point numbers, ...).
    """
    found = _DTYPES.get(dtype)
    if found is None and dtype.is_complex:
        raise UnsupportedFeatureError(
            f"element type {dtype} of what the model takes, gives or keeps",
            where=where,
            hint="take and give real and imaginary parts, as torch.view_as_real does",
        )
    if found is None:
        raise UnsupportedFeatureError(
            f"element type {dtype}", where=where, hint=f"Rammer has {', '.join(d.value for d in MODEL_DTYPES)}"
        )
    return found


def torch_dtype(dtype: DType) -> torch.dtype:
    """PyTorch's element type for one of a model's."""
    return _TORCH[dtype]


def array_of(tensor: torch.Tensor, where: str) -> Array:
    """A tensor's elements as a row-major array, which shares the memory of a contiguous tensor on the host.

    Raises:
        UnsupportedFeatureError: its element type or layout is none of ours.
    """
    dtype = dtype_of(tensor.dtype, where)
    if tensor.layout is not torch.strided:
        raise UnsupportedFeatureError(f"a tensor of layout {tensor.layout}", where=where, hint="make it dense")
    dense = tensor.detach().cpu().contiguous().resolve_neg()
    if dtype is DType.BFLOAT16:  # NumPy knows it by ml_dtypes alone
        return np.asarray(dense.view(torch.int16).numpy().view(dtype.numpy))
    return np.asarray(dense.numpy())


def tensor_of(array: Array) -> torch.Tensor:
    """The inverse of `array_of`, without a copy."""
    if DType.of(array) is DType.BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def type_of(tensor: torch.Tensor, where: str) -> TensorType:
    """The type of a tensor with a static shape.

    Raises:
        UnsupportedFeatureError: its element type is none of ours.
    """
    return TensorType(dtype_of(tensor.dtype, where), tuple(int(extent) for extent in tensor.shape))


def part_type_of(tensor: torch.Tensor, shape: tuple[int, ...], where: str) -> TensorType:
    """The type of a tensor with a shape, that of the real and the imaginary part if it is complex.

    Raises:
        UnsupportedFeatureError: its element type is none of ours.
    """
    dtype = tensor.dtype.to_real() if tensor.is_complex() else tensor.dtype
    return TensorType(dtype_of(dtype, where), shape)
