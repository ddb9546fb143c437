"""NVIDIA's driver: the GPU of this process, its memory, and the few calls that the launch takes.

The bindings are imported when first asked for, so that Rammer runs without them. Every call's status is checked.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import Any

from rammer.devices.cuda.architecture import Gpu, lanes_of
from rammer.errors import DeviceError, DeviceUnavailableError, StreamCaptureError

_INSTALL = "run: pip install 'rammer-compiler[cuda]'"
_ELSEWHERE = "compile for the device 'cpu', or for a named architecture such as 'cuda:sm_90' to run elsewhere"
_lock = threading.Lock()

NULL_STREAM, LEGACY_STREAM = 0, 1
"""The legacy default stream, by the driver's number and by its and DLPack's other one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Driver:
    """The driver's bindings, the first GPU, its primary context, and memory that is taken in the order of a stream."""

    api: Any
    device: Any
    context: Any
    pool: Any
    ordinal: int = 0

    def call(self, name: str, *arguments: Any) -> Any:  # noqa: ANN401 - the bindings have no types
        """A function of the driver; returns its result, or a tuple of several.

        Raises:
            DeviceUnavailableError: too little memory.
            DeviceError: the driver reports any other error.
        """
        return check(self.api, name, getattr(self.api, name)(*arguments))

    def enter(self) -> None:
        """Make the context that of the calling thread."""
        answer = self.api.cuCtxSetCurrent(self.context)
        if answer[0]:  # not left to `check`: this stands in the way of every call
            check(self.api, "cuCtxSetCurrent", answer)

    def allocate(self, size_bytes: int, stream: int) -> int:
        """The address of memory for work on `stream`; `cuMemFreeAsync` gives it back.

        Raises:
            DeviceUnavailableError: there is too little.
        """
        return int(self.call("cuMemAllocFromPoolAsync", max(size_bytes, 1), self.pool, stream))

    def attribute(self, name: str) -> int:
        """A fact about the GPU."""
        return attribute(self.api, self.device, name)


def check(api: Any, name: str, answer: Any) -> Any:  # noqa: ANN401 - the bindings have no types
    """The results behind a status.

    Raises:
        DeviceUnavailableError: too little memory.
        StreamCaptureError: a stream is captured, and this cannot be.
        DeviceError: any other error.
    """
    status = answer[0]
    if status:
        if status == api.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            raise DeviceUnavailableError(
                "the GPU has too little free memory for the model", hint="end other programs that use it"
            )
        if "STREAM_CAPTURE" in status.name:
            raise StreamCaptureError(f"{name} reports {status.name}", hint="call the model once before the capture")
        raise DeviceError(f"{name} reports {status.name}", hint="see the GPU's log (dmesg, nvidia-smi)")
    return answer[1] if len(answer) == 2 else answer[1:]


def attribute(api: Any, device: Any, name: str) -> int:  # noqa: ANN401 - the bindings have no types
    """A fact about a GPU."""
    key = getattr(api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(check(api, "cuDeviceGetAttribute", api.cuDeviceGetAttribute(key, device)))


def find_driver() -> Driver:
    """The driver and its first GPU. Once found they stay; where they are missing, the next call looks again.

    Raises:
        DeviceUnavailableError: no bindings, no driver or no GPU.
    """
    with _lock:
        return _open()


@functools.cache
def _open() -> Driver:
    try:
        from cuda.bindings import driver as api
    except ImportError as error:
        raise DeviceUnavailableError(
            f"NVIDIA's package cuda-bindings cannot be used: {error}", hint=_INSTALL
        ) from error
    try:
        (status,) = api.cuInit(0)
    except (RuntimeError, OSError) as error:  # the bindings find no libcuda
        raise DeviceUnavailableError(f"no NVIDIA driver: {error}", hint=_ELSEWHERE) from error
    if status == api.CUresult.CUDA_ERROR_NO_DEVICE:
        raise DeviceUnavailableError("the NVIDIA driver sees no GPU", hint=_ELSEWHERE)
    if status != api.CUresult.CUDA_SUCCESS:
        raise DeviceUnavailableError(f"the NVIDIA driver does not start: {status.name}", hint=_ELSEWHERE)
    device = check(api, "cuDeviceGet", api.cuDeviceGet(0))
    context = check(api, "cuDevicePrimaryCtxRetain", api.cuDevicePrimaryCtxRetain(device))
    return Driver(api=api, device=device, context=context, pool=_pool(api))


def _pool(api: Any) -> Any:  # noqa: ANN401 - the bindings have no types
    """A pool of the first GPU's memory that keeps what is given back, so that taking it again costs next to nothing."""
    location = api.CUmemLocation()
    location.type, location.id = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
    properties = api.CUmemPoolProps()
    properties.allocType, properties.location = api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED, location
    pool = check(api, "cuMemPoolCreate", api.cuMemPoolCreate(properties))
    kept = api.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    everything = api.cuuint64_t((1 << 64) - 1)
    check(api, "cuMemPoolSetAttribute", api.cuMemPoolSetAttribute(pool, kept, everything))
    return pool


def read_gpu(driver: Driver) -> Gpu:
    """What the GPU says about itself."""
    name = driver.call("cuDeviceGetName", 128, driver.device).split(b"\0")[0].decode()
    version = driver.call("cuDriverGetVersion")
    capability = (driver.attribute("COMPUTE_CAPABILITY_MAJOR"), driver.attribute("COMPUTE_CAPABILITY_MINOR"))
    # Two transfers a clock; the driver tells neither for memory that has no clock of its own.
    bytes_per_us = 2 * driver.attribute("MEMORY_CLOCK_RATE") * 1e-3 * driver.attribute("GLOBAL_MEMORY_BUS_WIDTH") / 8
    return Gpu(
        name=name,
        capability=capability,
        multiprocessors=driver.attribute("MULTIPROCESSOR_COUNT"),
        clock_ghz=driver.attribute("CLOCK_RATE") * 1e-6,
        shared_bytes_per_multiprocessor=driver.attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        shared_bytes_reserved=driver.attribute("RESERVED_SHARED_MEMORY_PER_BLOCK"),
        registers_per_multiprocessor=driver.attribute("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        lanes_per_multiprocessor=lanes_of(capability),
        l2_bytes=driver.attribute("L2_CACHE_SIZE"),
        memory_bytes=driver.call("cuDeviceTotalMem", driver.device),
        memory_bytes_per_us=bytes_per_us,
        provenance=f"told by the driver (CUDA {version // 1000}.{version % 1000 // 10})",
    )
