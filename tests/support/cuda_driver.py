"""Drivers that are fakes: what they are asked is noted, and answered as a test wants it."""

from __future__ import annotations

import enum
from types import SimpleNamespace
from typing import Any


class Status(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_LAUNCH_FAILED = 719
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900


ATTRIBUTES = (
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "MULTIPROCESSOR_COUNT",
    "L2_CACHE_SIZE",
    "MAX_ACCESS_POLICY_WINDOW_SIZE",
)


class Api:
    """A driver whose functions answer what they are told to, else success and zeros."""

    CUresult = Status
    CUdevice_attribute = SimpleNamespace(**{f"CU_DEVICE_ATTRIBUTE_{name}": name for name in ATTRIBUTES})
    CUfunction_attribute = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES="static", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="dynamic"
    )
    CUstreamCaptureStatus = SimpleNamespace(CU_STREAM_CAPTURE_STATUS_NONE=0, CU_STREAM_CAPTURE_STATUS_ACTIVE=1)
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
    CUtensorMapDataType = SimpleNamespace(
        CU_TENSOR_MAP_DATA_TYPE_FLOAT32=4, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16=2, CU_TENSOR_MAP_DATA_TYPE_FLOAT16=2
    )
    """By what an element takes, in bytes."""
    CUtensorMapInterleave = SimpleNamespace(CU_TENSOR_MAP_INTERLEAVE_NONE=0)
    CUtensorMapSwizzle = SimpleNamespace(CU_TENSOR_MAP_SWIZZLE_128B=3)
    CUtensorMapL2promotion = SimpleNamespace(CU_TENSOR_MAP_L2_PROMOTION_L2_256B=3)
    CUtensorMapFloatOOBfill = SimpleNamespace(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE=0)
    cuuint32_t = cuuint64_t = int
    CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=2)
    CUmemorytype = SimpleNamespace(CU_MEMORYTYPE_DEVICE=2)
    CUDA_MEMCPY3D = SimpleNamespace

    def __init__(self, **answers: Any) -> None:
        self._answers = answers
        self.log: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            self.log.append(name)
            answer = self._answers.get(name, (Status.CUDA_SUCCESS, 0))
            return answer(*arguments) if callable(answer) else answer

        return call
