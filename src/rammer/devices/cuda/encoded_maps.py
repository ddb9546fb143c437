"""Tensor maps as the GPU reads them, which the driver makes when a model is loaded."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.devices.cuda.driver import check
from rammer.devices.cuda.tables import MAP_BYTES
from rammer.ir.types import DType

FORMATS: Mapping[DType, str] = {
    DType.TF32: "CU_TENSOR_MAP_DATA_TYPE_FLOAT32",
    DType.BFLOAT16: "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16",
    DType.FLOAT16: "CU_TENSOR_MAP_DATA_TYPE_FLOAT16",
}
"""What tables of tensor maps call formats by the place here."""


def encoded(api: Any, table: npt.NDArray[np.void], segments: Sequence[int]) -> npt.NDArray[np.uint8]:  # noqa: ANN401
    """A table's maps as the GPU reads them.

    Args:
        api: the driver's functions.
        table: the maps.
        segments: the addresses of segments.

    Raises:
        DeviceError: the driver refuses one.
    """
    maps = np.zeros((len(table), MAP_BYTES), dtype=np.uint8)
    formats = list(FORMATS.values())
    for place, row in enumerate(table):
        rank = len(row["extents"])
        answer = api.cuTensorMapEncodeTiled(
            getattr(api.CUtensorMapDataType, formats[row["format"]]),
            rank,
            segments[row["segment"]] + int(row["offset_bytes"]),
            [api.cuuint64_t(int(extent)) for extent in row["extents"]],
            [api.cuuint64_t(int(stride)) for stride in row["strides_bytes"]],
            [api.cuuint32_t(int(size)) for size in row["box"]],
            [api.cuuint32_t(1)] * rank,
            api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            api.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        found = check(api, "cuTensorMapEncodeTiled", answer)
        maps[place] = np.frombuffer(ctypes.string_at(found.getPtr(), MAP_BYTES), dtype=np.uint8)
    return maps
