"""What becomes of a GPU, a driver or memory that is missing. The driver here is a fake: no GPU is needed."""

import ctypes
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rammer
from rammer.devices.cuda import capture
from rammer.devices.cuda import driver as drivers
from rammer.devices.cuda.arrays import CUDA, Exchange, Kept, Room, stream_of
from rammer.devices.cuda.capture import capture_of, refuse_while_capturing
from rammer.devices.cuda.driver import LEGACY_STREAM, Driver, check
from rammer.devices.cuda.kernel import load_kernel
from rammer.devices.cuda.memory import Memory, Staging
from rammer.devices.cuda.order import Order
from rammer.errors import DeviceError, DeviceUnavailableError, OptionError, StreamCaptureError
from rammer.ir.graph import Array
from rammer.ir.types import DType, TensorType
from tests.support.cuda_driver import ATTRIBUTES, Api, Status
from tests.support.small_models import layer_model


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


def test_memory_is_zeroed_before_streams_of_their_own_use_it():
    driver, api = fake(cuMemAlloc=(Status.CUDA_SUCCESS, 4096))
    memory = Memory(driver)
    assert memory.device(1) == 4096
    assert api.log == ["cuMemAlloc", "cuMemsetD8", "cuStreamSynchronize"]


def test_memory_is_given_back_in_reverse():
    driver, api = fake(cuMemAlloc=(Status.CUDA_SUCCESS, 4096))
    memory = Memory(driver, lambda: api.log.append("waited"))
    memory.device(1)
    memory.own("cuModuleUnload", 7)
    memory.free()
    mode = "cuThreadExchangeStreamCaptureMode"
    assert api.log[-5:] == [mode, "waited", "cuModuleUnload", "cuMemFree", mode]


def room_of(driver):
    other: Any = None
    kept = Kept(driver)
    return Room(TensorType(DType.FLOAT32, (8, 8)), driver=driver, exchange=other, order=other, wait=other, kept=kept)


def test_memory_of_results_is_kept_for_the_next_run_on_the_stream():
    addresses = iter(range(4096, 1 << 20, 4096))
    driver, api = fake(cuMemAllocFromPoolAsync=lambda *_: (Status.CUDA_SUCCESS, next(addresses)))
    room = room_of(driver)
    first = room.take(LEGACY_STREAM)
    address = first.address
    assert first.shape == (8, 8)
    del first
    asked = len(api.log)
    again = room.take(LEGACY_STREAM)
    assert again.address == address
    assert len(api.log) == asked
    elsewhere = room.take(4096)
    assert elsewhere.address != address
    for other in range(20):
        room.give(other, LEGACY_STREAM)
    given_back = api.log.count("cuMemFreeAsync")
    assert 0 < given_back < 20
    del room, again
    assert api.log.count("cuMemFreeAsync") == given_back + 1  # of the other array; the room lives as long as its arrays
    del elsewhere
    assert api.log.count("cuMemFreeAsync") == 22
    full = room_of(fake(cuMemAllocFromPoolAsync=(Status.CUDA_ERROR_OUT_OF_MEMORY,))[0])
    with pytest.raises(DeviceUnavailableError, match="too little free memory"):
        full.take(LEGACY_STREAM)


def test_arrays_lie_side_by_side_for_copies():
    memory = {}

    def pinned(size_bytes, flags):
        memory["host"] = np.zeros(size_bytes, np.uint8)
        return Status.CUDA_SUCCESS, memory["host"].ctypes.data

    def allocated(size_bytes):
        memory["gpu"] = np.zeros(size_bytes, np.uint8)
        return Status.CUDA_SUCCESS, memory["gpu"].ctypes.data

    def copied(to, source, size_bytes, stream):
        assert stream == 4096
        ctypes.memmove(to, source, size_bytes)
        return (Status.CUDA_SUCCESS,)

    driver, api = fake(cuMemHostAlloc=pinned, cuMemAlloc=allocated, cuMemcpyHtoDAsync=copied, cuMemcpyDtoHAsync=copied)
    arrays: list[Array] = [
        np.arange(3, dtype=np.float32),
        np.zeros((0, 2)),
        np.arange(300, dtype=np.uint8).reshape(3, 100),
    ]
    staging = Staging(driver, Memory(driver), [array.nbytes for array in arrays], 4096)
    begin = memory["gpu"].ctypes.data
    assert memory["gpu"].size == 768
    assert staging.addresses == (begin, begin + 256, begin + 256)
    for step in (1, 2):
        staging.send([array * step for array in arrays])
        memory["host"][:] = 7
        staging.fetch()
        copies = [np.empty_like(array) for array in arrays]
        staging.read(copies)
        for array, copy in zip(arrays, copies, strict=True):
            np.testing.assert_array_equal(array * step, copy)
    empty = Staging(driver, Memory(driver), [0], 4096)
    asked = len(api.log)
    empty.send([arrays[1]])
    empty.fetch()
    assert len(api.log) == asked


def load(driver, *, blocks=132, scratch_bytes=0):
    return load_kernel(
        driver, Memory(driver), b"", architecture="sm_90", blocks=blocks, threads=512, scratch_bytes=scratch_bytes
    )


def gpu(shared_bytes=1000, multiprocessors=132, resident=1):
    limits = dict(zip(ATTRIBUTES, (shared_bytes, multiprocessors, 60 << 20, 128 << 20), strict=True))
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
    driver, log = fake()
    exchange = Exchange(driver)
    asked = []

    class Spied(np.ndarray):
        def __dlpack__(self, **arguments):
            asked.append(arguments)

    for array in (np.zeros(4).view(Spied), [1.0], 2.0, Foreign(1)):
        assert exchange.view(array, 4096) is None
    assert not asked
    with pytest.raises(RuntimeError, match="no streams here"):
        exchange.view(Foreign(CUDA), 4096)
    assert log.log == ["cuCtxSetCurrent"]


def test_arrays_are_seen_from_a_thread_that_is_new_to_the_gpu():
    driver, log = fake()
    seen = SimpleNamespace(ptr=64, dtype=np.dtype("f4"), shape=(2,), strides=(1,), readonly=False, device_id=0)

    def view_of(array, stream_ptr):
        if "cuCtxSetCurrent" not in log.log:
            raise RuntimeError("CUDA_ERROR_INVALID_CONTEXT")
        return seen

    exchange = Exchange(driver)
    exchange._view_of = view_of
    assert exchange.view(Foreign(CUDA), 4096) == (64, np.dtype("f4"), (2,), (1,), True)


@pytest.mark.parametrize(
    ("library", "is_read_by_cuda_core", "asked"),
    [("torch", True, [0, 0, 0, 4096]), ("torch", False, [0, 1, 1, 4096]), ("cupy", True, [1, 1, 4096])],
)
def test_each_library_is_told_the_default_stream_by_its_own_number(library, is_read_by_cuda_core, asked):
    pytest.importorskip("cuda.core", reason="needs the cuda extra")
    numbers = []

    def view_of(array, stream_ptr):
        numbers.append(stream_ptr)
        assert stream_ptr or is_read_by_cuda_core
        return SimpleNamespace(ptr=64, dtype=np.dtype("f4"), shape=(2,), strides=(1,), readonly=False, device_id=0)

    exchange = Exchange(fake()[0])
    exchange._view_of = view_of
    array = type("Tensor", (), {"__module__": library})()
    for stream in (LEGACY_STREAM, LEGACY_STREAM, 4096):
        view = exchange.view(array, stream)
        assert view is not None
        assert view[0] == 64
    assert numbers == asked


def test_streams_are_numbers_or_tell_one():
    assert stream_of(None) == stream_of(0) == LEGACY_STREAM
    assert stream_of(4096) == 4096
    assert stream_of(SimpleNamespace(__cuda_stream__=lambda: (0, 8192))) == 8192
    assert stream_of(SimpleNamespace(cuda_stream=16384)) == 16384
    for wrong in (-1, "fast", 1.0, object()):
        with pytest.raises(OptionError, match="stream="):
            stream_of(wrong)


def test_a_program_may_be_freed_while_an_order_is_changed():
    driver, api = fake()
    order = Order(driver)

    def recorded(*_):
        api._answers.clear()
        order.outlast()  # as what frees a program does
        return (Status.CUDA_SUCCESS,)

    api._answers["cuEventRecord"] = recorded
    thread = threading.Thread(target=order.after, args=(4096,), daemon=True)
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert "cuEventSynchronize" in api.log


def test_what_is_captured():
    api = {"cuStreamIsCapturing": (Status.CUDA_SUCCESS, 1), "cuStreamGetCaptureInfo": (Status.CUDA_SUCCESS, 1, 7, 0, 0)}
    assert capture_of(fake()[0], 4096) is None
    captured, log = fake(**api)
    assert [capture_of(captured, stream) for stream in (LEGACY_STREAM, 2, 4096)] == [None, 7, 7]
    with pytest.raises(StreamCaptureError, match="before the capture"):
        Order(captured).follow(4096)
    assert "cuStreamWaitEvent" not in log.log
    invalid, _ = fake(**api | {"cuStreamGetCaptureInfo": (Status.CUDA_SUCCESS, 2, 7, 0, 0)})
    with pytest.raises(StreamCaptureError, match="made invalid"):
        capture_of(invalid, 4096)
    with pytest.raises(StreamCaptureError, match="reports CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"):
        fake(cuMemAlloc=(Status.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,))[0].call("cuMemAlloc", 1)


@pytest.mark.parametrize("torch", [None, SimpleNamespace(), SimpleNamespace(cuda=SimpleNamespace())])
def test_nothing_is_captured_without_pytorch(torch, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(capture, "_pytorch", capture._PyTorch())
    refuse_while_capturing("a run", "wait")


def test_what_cannot_be_captured_is_refused_before_it_is_tried(monkeypatch):
    torch = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True, is_current_stream_capturing=lambda: True))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(capture, "_pytorch", capture._PyTorch())
    with pytest.raises(StreamCaptureError, match="a run while PyTorch captures") as caught:
        refuse_while_capturing("a run", "wait")
    assert (caught.value.code, caught.value.hint) == ("R316", "wait")
    with pytest.raises(StreamCaptureError, match="default stream"):
        stream_of(None)
    room = room_of(
        fake(cuStreamIsCapturing=(Status.CUDA_SUCCESS, 1), cuStreamGetCaptureInfo=(Status.CUDA_SUCCESS, 1, 7))[0]
    )
    with pytest.raises(StreamCaptureError, match="outputs="):
        room.take(4096)
