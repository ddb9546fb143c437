"""What becomes of a GPU, a driver or memory that is missing. The driver here is a fake: no GPU is needed."""

import enum
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rammer
from rammer.devices.cuda import driver as drivers
from rammer.devices.cuda.arrays import CUDA, Exchange, Room, stream_of
from rammer.devices.cuda.driver import Driver, check
from rammer.devices.cuda.kernel import load_kernel
from rammer.devices.cuda.memory import Memory
from rammer.devices.cuda.order import LEGACY_STREAM
from rammer.errors import DeviceError, DeviceUnavailableError, OptionError
from tests.support.small_models import layer_model


class Status(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209
    CUDA_ERROR_LAUNCH_FAILED = 719
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803


ATTRIBUTES = ("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", "MULTIPROCESSOR_COUNT")


class Api:
    """A driver whose functions answer what they are told to, else success and zeros."""

    CUresult = Status
    CUdevice_attribute = SimpleNamespace(**{f"CU_DEVICE_ATTRIBUTE_{name}": name for name in ATTRIBUTES})
    CUfunction_attribute = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES="static", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="dynamic"
    )
    CUstreamCaptureStatus = SimpleNamespace(CU_STREAM_CAPTURE_STATUS_NONE=0)

    def __init__(self, **answers):
        self._answers = answers
        self.log: list[str] = []

    def __getattr__(self, name):
        def call(*arguments):
            self.log.append(name)
            answer = self._answers.get(name, (Status.CUDA_SUCCESS, 0))
            return answer(*arguments) if callable(answer) else answer

        return call


@pytest.fixture
def bindings(monkeypatch):
    """Puts a driver in the place of NVIDIA's bindings, or nothing."""
    drivers._open.cache_clear()

    def put(api):
        package = ModuleType("cuda")
        package.bindings = ModuleType("cuda.bindings")  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "cuda", package)
        monkeypatch.setitem(sys.modules, "cuda.bindings", None if api is None else package.bindings)
        package.bindings.driver = api

    yield put
    drivers._open.cache_clear()


def refusal() -> str:
    with pytest.raises(DeviceUnavailableError) as caught:
        rammer.compile(layer_model(), "cuda")
    assert caught.value.code == "R500"
    return str(caught.value)


def test_no_bindings(bindings):
    bindings(None)
    text = refusal()
    assert "cuda-bindings cannot be used" in text
    assert "pip install 'rammer-compiler[cuda]'" in text


def no_library(flags):
    raise RuntimeError("libcuda.so.1 not found")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (no_library, "no NVIDIA driver: libcuda.so.1 not found"),
        ((Status.CUDA_ERROR_NO_DEVICE,), "the NVIDIA driver sees no GPU"),
        (
            (Status.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,),
            "the NVIDIA driver does not start: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        ),
    ],
    ids=["driver", "GPU", "start"],
)
def test_no_driver_or_gpu(bindings, answer, message):
    bindings(Api(cuInit=answer))
    text = refusal()
    assert message in text
    assert "compile for the device 'cpu', or for a named architecture such as 'cuda:sm_90'" in text


def fake(**answers):
    api: Any = Api(**answers)
    return Driver(api=api, device=0, context=0, pool=0), api


def test_too_little_memory():
    driver, api = fake(cuMemAlloc=(Status.CUDA_ERROR_OUT_OF_MEMORY,))
    with pytest.raises(DeviceUnavailableError, match="too little free memory") as caught:
        Memory(driver).device(1 << 40)
    assert "end other programs" in caught.value.hint
    with pytest.raises(DeviceError, match="cuStreamSynchronize reports CUDA_ERROR_LAUNCH_FAILED"):
        check(api, "cuStreamSynchronize", (Status.CUDA_ERROR_LAUNCH_FAILED,))


def test_memory_is_given_back_in_reverse():
    driver, api = fake(cuMemAlloc=(Status.CUDA_SUCCESS, 4096))
    memory = Memory(driver)
    memory.device(1)
    memory.own("cuModuleUnload", 7)
    memory.free()
    assert api.log[-3:] == ["cuCtxSynchronize", "cuModuleUnload", "cuMemFree"]


def test_memory_of_results_is_kept_for_the_next_run_on_the_stream():
    addresses = iter(range(4096, 1 << 20, 4096))
    driver, api = fake(cuMemAllocFromPoolAsync=lambda *_: (Status.CUDA_SUCCESS, next(addresses)))
    room = Room(driver)
    first = room.take(256, LEGACY_STREAM)
    room.give(first, 256, LEGACY_STREAM)
    asked = len(api.log)
    assert room.take(256, LEGACY_STREAM) == first
    assert len(api.log) == asked
    room.give(first, 256, LEGACY_STREAM)
    assert room.take(512, LEGACY_STREAM) != first
    assert room.take(256, 4096) != first
    for address in range(20):
        room.give(address, 256, LEGACY_STREAM)
    given_back = api.log.count("cuMemFreeAsync")
    assert 0 < given_back < 20
    del room
    assert api.log.count("cuMemFreeAsync") == 21
    full = Room(fake(cuMemAllocFromPoolAsync=(Status.CUDA_ERROR_OUT_OF_MEMORY,))[0])
    with pytest.raises(DeviceUnavailableError, match="too little free memory"):
        full.take(256, LEGACY_STREAM)


def load(driver, *, blocks=132, scratch_bytes=0):
    return load_kernel(
        driver, Memory(driver), b"", architecture="sm_90", blocks=blocks, threads=512, scratch_bytes=scratch_bytes
    )


def gpu(shared_bytes=1000, multiprocessors=132, resident=1):
    limits = dict(zip(ATTRIBUTES, (shared_bytes, multiprocessors), strict=True))
    return fake(
        cuDeviceGetAttribute=lambda name, device: (Status.CUDA_SUCCESS, limits[name]),
        cuFuncGetAttribute=(Status.CUDA_SUCCESS, 100),
        cuOccupancyMaxActiveBlocksPerMultiprocessor=(Status.CUDA_SUCCESS, resident),
    )[0]


def test_a_kernel_that_fits_is_loaded():
    assert load(gpu(), scratch_bytes=900).blocks == 132


def test_a_kernel_that_does_not_fit_is_refused():
    with pytest.raises(DeviceUnavailableError, match=r"takes 1001 bytes of shared memory .* this GPU has 1000"):
        load(gpu(), scratch_bytes=901)
    with pytest.raises(DeviceUnavailableError, match="has 132 vEUs, this GPU holds 100"):
        load(gpu(multiprocessors=100))
    with pytest.raises(DeviceUnavailableError, match="sm_90 does not load on this GPU: CUDA_ERROR_NO_BINARY_FOR_GPU"):
        load(fake(cuModuleLoadData=(Status.CUDA_ERROR_NO_BINARY_FOR_GPU, None))[0])


class Foreign:
    """An array of a library that refuses to be asked for an order with a stream."""

    def __init__(self, kind):
        self._kind = kind

    def __dlpack__(self, **_):
        raise RuntimeError("no streams here")

    def __dlpack_device__(self):
        return self._kind, 0


def test_arrays_of_the_host_are_left_to_the_host():
    pytest.importorskip("cuda.core", reason="needs the cuda extra")
    exchange = Exchange(0)
    asked = []

    class Spied(np.ndarray):
        def __dlpack__(self, **arguments):
            asked.append(arguments)

    for array in (np.zeros(4).view(Spied), [1.0], 2.0, Foreign(1)):
        assert exchange.view(array, 4096) is None
    assert not asked
    with pytest.raises(RuntimeError, match="no streams here"):
        exchange.view(Foreign(CUDA), 4096)


def test_streams_are_numbers_or_tell_one():
    driver, _ = fake()
    assert stream_of(driver, None) == stream_of(driver, 0) == LEGACY_STREAM
    assert stream_of(driver, 4096) == 4096
    assert stream_of(driver, SimpleNamespace(__cuda_stream__=lambda: (0, 8192))) == 8192
    assert stream_of(driver, SimpleNamespace(cuda_stream=16384)) == 16384
    for wrong in (-1, "fast", 1.0, object()):
        with pytest.raises(OptionError, match="stream="):
            stream_of(driver, wrong)
    captured, _ = fake(cuStreamIsCapturing=(Status.CUDA_SUCCESS, 1))
    with pytest.raises(OptionError, match="captured"):
        stream_of(captured, 4096)
    assert stream_of(captured, None) == LEGACY_STREAM
