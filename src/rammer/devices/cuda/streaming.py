"""Launches whose constants make room in L2 before other data does.

Constants that do not stay in L2 from run to run would still drive out what lies between them: what rTasks hand over,
records, code. Their lines are marked as streaming by the access policy of the launch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from rammer.devices.cuda.driver import Driver

Launch = Callable[[int, int], Any]
"""Takes a stream's handle and the address of parameters' addresses, and gives what the driver answers."""

_HALVES = 2  # of L2, each of which has what its multiprocessors read
_STREAMS = 64  # whose launches are kept


def streams(driver: Driver, size_bytes: int) -> bool:
    """Whether so many bytes of constants do not stay in L2, and are no more than a launch's policy is for."""
    if _HALVES * size_bytes <= driver.attribute("L2_CACHE_SIZE"):
        return False
    return size_bytes <= driver.attribute("MAX_ACCESS_POLICY_WINDOW_SIZE")


def streaming_launch(
    driver: Driver,
    function: Any,  # noqa: ANN401 - the bindings have no types
    *,
    blocks: int,
    threads: int,
    scratch_bytes: int,
    address: int,
    size_bytes: int,
) -> Launch:
    """A cooperative launch to which so many bytes from an address on are streaming."""
    api = driver.api
    policy, together = api.CUlaunchAttribute(), api.CUlaunchAttribute()
    window = api.CUaccessPolicyWindow()
    window.base_ptr, window.num_bytes, window.hitRatio = address, size_bytes, 1.0
    window.hitProp = window.missProp = api.CUaccessProperty.CU_ACCESS_PROPERTY_STREAMING
    policy.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
    policy.value.accessPolicyWindow = window
    together.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    together.value.cooperative = 1

    @lru_cache(maxsize=_STREAMS)
    def on(stream: int) -> Any:  # noqa: ANN401 - the bindings have no types
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = blocks, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes, config.hStream = scratch_bytes, api.CUstream(stream)
        config.attrs, config.numAttrs = [policy, together], 2
        return config

    return lambda stream, parameters: api.cuLaunchKernelEx(on(stream), function, parameters, 0)
