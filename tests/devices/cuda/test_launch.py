"""What a call asks of the driver, and what the kernel is told. The driver here is a fake: no GPU is needed."""

import ctypes
import itertools
import sys
import threading
from typing import Any

import numpy as np
import pytest
from onnx import helper

from rammer.devices.base import Binary
from rammer.devices.codegen.tables import CALLER
from rammer.devices.cuda import launch
from rammer.devices.cuda.build import CUBIN
from rammer.devices.cuda.driver import LEGACY_STREAM, Driver
from rammer.devices.cuda.tables import program_type
from rammer.devices.registry import find_device
from rammer.errors import RunTimeoutError
from rammer.frontends.onnx import load_graph
from rammer.ir.types import DType, TensorType
from rammer.options import CompileOptions
from rammer.pipelines.planning import plan_graph
from tests.support.cuda_driver import Api, Status
from tests.support.small_models import FLOAT, pair_model, scale_model, small_model

pytest.importorskip("cuda.core", reason="needs the cuda extra")

ARRAYS = 4
STREAM = 4096


class MemoryApi(Api):
    """A driver whose memory is the host's, with a GPU that holds every block and computes nothing."""

    def __init__(self):
        super().__init__(
            cuMemAlloc=self._allocate,
            cuMemHostAlloc=self._allocate,
            cuMemAllocFromPoolAsync=self._allocate,
            cuStreamCreate=lambda _: (Status.CUDA_SUCCESS, next(self._streams)),
            cuDeviceGetAttribute=(Status.CUDA_SUCCESS, 1 << 20),
            cuOccupancyMaxActiveBlocksPerMultiprocessor=(Status.CUDA_SUCCESS, 1),
            cuLaunchCooperativeKernel=self._launch,
            cuCtxSetCurrent=self._enter,
        )
        self.current = False
        self._memory = []
        self._streams: itertools.count[int] = itertools.count(STREAM)
        self.launches: list[tuple[int, Any]] = []

    def _allocate(self, size_bytes, *_):
        self._memory.append(np.zeros(size_bytes, np.uint8))
        return Status.CUDA_SUCCESS, self._memory[-1].ctypes.data

    def _enter(self, _context):
        self.current = True
        return (Status.CUDA_SUCCESS,)

    def _launch(self, *arguments):
        if not self.current:
            return (Status.CUDA_ERROR_INVALID_CONTEXT,)
        *_, stream, parameters = arguments
        (address,) = (ctypes.c_uint64 * 1).from_address(parameters)
        program = program_type(CALLER + ARRAYS).from_address(address)
        self.launches.append((stream, list(program.segments[CALLER:])))
        return (Status.CUDA_SUCCESS,)


@pytest.fixture
def loaded(monkeypatch, tmp_path):
    """A model of two inputs and two outputs, and its driver."""
    return load(pair_model(), monkeypatch, tmp_path)


def load(model, monkeypatch, tmp_path):
    device, options = find_device("cuda:sm_90"), CompileOptions(device="cuda:sm_90", cache_dir=tmp_path)
    vdevice = device.describe(options)
    source = device.emit(plan_graph(load_graph(model), vdevice, options), vdevice)
    api = MemoryApi()
    monkeypatch.setattr(launch, "find_driver", lambda: Driver(api=api, device=0, context=0, pool=0))
    binary = Binary(device="cuda", machine={"architecture": "sm_90"}, files={CUBIN: b""})
    loaded = launch.LoadedModel(source, binary, options)
    api.log.clear()
    return loaded, api


def test_a_run_is_one_launch(loaded):
    model, api = loaded
    for run in range(3):
        api.log.clear()
        model.enqueue([64, 128, 192, 256 + run], LEGACY_STREAM)
        assert api.log == [*["cuCtxSetCurrent"] * (run == 0), "cuLaunchCooperativeKernel"]
    assert api.launches == [(LEGACY_STREAM, [64, 128, 192, 256 + run]) for run in range(3)]


def test_a_launch_without_the_context_is_made_with_it(loaded):
    model, api = loaded
    model.enqueue([64, 128, 192, 256], LEGACY_STREAM)
    api.current = False
    model.enqueue([64, 128, 192, 320], LEGACY_STREAM)
    assert api.log[-3:] == ["cuLaunchCooperativeKernel", "cuCtxSetCurrent", "cuLaunchCooperativeKernel"]
    assert [arrays[-1] for _, arrays in api.launches] == [256, 320]


def test_runs_on_other_streams_follow_the_last(loaded):
    model, api = loaded
    model.enqueue([64, 128, 192, 256], LEGACY_STREAM)
    api.log.clear()
    for _ in range(2):
        model.enqueue([64, 128, 192, 256], 8192)
    launched = ["cuLaunchCooperativeKernel", "cuEventRecord"]  # of a stream that may end before it is asked for
    assert api.log == [
        *("cuCtxSetCurrent", "cuStreamIsCapturing", "cuStreamIsCapturing"),
        *("cuEventRecord", "cuStreamWaitEvent", *launched),
        *("cuCtxSetCurrent", "cuStreamIsCapturing", *launched),
    ]
    assert [stream for stream, _ in api.launches] == [LEGACY_STREAM, 8192, 8192]


def test_runs_on_the_default_stream_follow_the_last_elsewhere(loaded):
    model, api = loaded
    for _ in range(2):
        model.enqueue([64, 128, 192, 256], 0)
    model.enqueue([64, 128, 192, 256], 8192)
    api.log.clear()
    for _ in range(2):
        model.enqueue([64, 128, 192, 256], 0)
    launch = "cuLaunchCooperativeKernel"
    assert api.log == ["cuCtxSetCurrent", "cuStreamWaitEvent", launch, launch]
    model.wait()
    api.log.clear()
    model.enqueue([64, 128, 192, 256], 0)
    assert api.log == ["cuCtxSetCurrent", launch]
    assert [stream for stream, _ in api.launches] == [LEGACY_STREAM, LEGACY_STREAM, 8192, *[LEGACY_STREAM] * 3]


def test_runs_with_a_state_follow_the_last_that_used_it(loaded):
    model, api = loaded
    mine, others = model.new_state([]), model.new_state([])
    model.enqueue([64, 128, 192, 256], 0, mine)
    for state, asked in ((mine, []), (others, ["cuCtxSetCurrent"]), (others, []), (mine, [])):
        api.log.clear()
        model.enqueue([64, 128, 192, 256], 0, state)
        assert api.log == [*asked, "cuLaunchCooperativeKernel"]
    mine.order.after(8192)  # another model's run
    api.log.clear()
    model.enqueue([64, 128, 192, 256], 0, mine)
    assert api.log == ["cuCtxSetCurrent", "cuStreamWaitEvent", "cuLaunchCooperativeKernel"]


def test_inputs_of_the_host_are_copied_once_and_outputs_written_there(loaded):
    model, api = loaded
    x = np.ones(4, np.float32)
    for _ in range(2):
        api.log.clear()
        model.run([x, x], [np.empty(4, np.float32), np.empty(4, np.float32)])
        assert api.log == ["cuCtxSetCurrent", "cuMemcpyHtoDAsync", "cuLaunchCooperativeKernel", "cuStreamSynchronize"]
    (stream, first), (_, second) = api.launches
    assert (stream, first) == (STREAM, second)
    assert first[1] == first[0] + 256


def test_captured_runs_follow_those_of_their_own_graph(loaded):
    model, api = loaded
    captures = {4096: 7, 8192: 7, 12288: 8}
    api._answers |= {
        "cuStreamIsCapturing": lambda stream: (Status.CUDA_SUCCESS, int(stream in captures)),
        "cuStreamGetCaptureInfo": lambda stream: (Status.CUDA_SUCCESS, 1, captures[stream], 0, 0, 0),
    }
    model.enqueue([64, 128, 192, 256], LEGACY_STREAM)
    waits = []
    for stream in (4096, 8192, 12288, 16384):
        api.log.clear()
        model.enqueue([64, 128, 192, 256], stream)
        waits.append("cuStreamWaitEvent" in api.log)
    assert waits == [False, True, False, True]  # the last is not captured: it follows the run on the default stream


def large_output():
    return scale_model(2.0, (1 << 15,))


def output_that_is_read_again():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("MatMul", ["y", "w"], ["z"])]
    square = (FLOAT, (64, 64))
    return small_model(nodes, {"x": square}, {"y": square, "z": square}, {"w": np.eye(64, dtype=np.float32)})


@pytest.mark.parametrize("make", [large_output, output_that_is_read_again])
def test_other_outputs_of_the_host_are_copied(make, monkeypatch, tmp_path):
    model = make()
    loaded, api = load(model, monkeypatch, tmp_path)
    shapes = [[d.dim_value for d in value.type.tensor_type.shape.dim] for value in model.graph.output]
    loaded.run([np.zeros(shapes[0], np.float32)], [np.empty(shape, np.float32) for shape in shapes])
    copied = ["cuMemcpyHtoDAsync", "cuLaunchCooperativeKernel", "cuMemcpyDtoHAsync"]
    assert api.log == ["cuCtxSetCurrent", *copied, "cuStreamSynchronize"]


def test_arrays_of_the_host_wait_once_for_a_run_on_a_stream(loaded):
    model, api = loaded
    x = np.ones(4, np.float32)
    model.enqueue([64, 128, 192, 256], LEGACY_STREAM)
    waits = []
    for _ in range(2):
        api.log.clear()
        model.run([x, x], [np.empty(4, np.float32), np.empty(4, np.float32)])
        waits.append(api.log.count("cuStreamWaitEvent"))
    assert waits == [1, 0]
    api.log.clear()
    model.enqueue([64, 128, 192, 256], LEGACY_STREAM)
    assert api.log == ["cuCtxSetCurrent", "cuLaunchCooperativeKernel"]
    model.run([x, x], [np.empty(4, np.float32), np.empty(4, np.float32)])
    assert "cuStreamWaitEvent" in api.log


def in_threads(model, count):
    """Runs on arrays of the host, a thread each; what they raised."""
    raised = []

    def run():
        x = np.ones(4, np.float32)
        try:
            model.run([x, x], [np.empty(4, np.float32), np.empty(4, np.float32)])
        except RunTimeoutError as error:
            raised.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_a_run_is_sent_while_another_is_under_way(loaded):
    model, api = loaded
    both = threading.Barrier(2, timeout=300)
    api._answers["cuStreamSynchronize"] = lambda stream: (Status.CUDA_SUCCESS, both.wait() if stream else 0)
    assert in_threads(model, 4) == []
    assert len({stream for stream, _ in api.launches}) == 2
    assert "cuStreamWaitEvent" in api.log[api.log.index("cuLaunchCooperativeKernel") :]


def test_runs_around_one_that_was_given_up_fail(loaded):
    model, api = loaded

    def give_up():
        model._given_up.value, model._stalled.value = 0, 1

    both = threading.Barrier(2, action=give_up, timeout=300)
    api._answers["cuStreamSynchronize"] = lambda stream: (Status.CUDA_SUCCESS, both.wait() if stream else 0)
    raised = in_threads(model, 2)
    assert len(raised) == 2
    assert len(set(map(str, raised))) == 1
    api._answers["cuStreamSynchronize"] = (Status.CUDA_SUCCESS, 0)
    assert in_threads(model, 2) == []


def test_arrays_of_the_host_do_not_take_cuda_core(monkeypatch, request):
    monkeypatch.setitem(sys.modules, "cuda.core.utils", None)
    model, _ = request.getfixturevalue("loaded")
    x = np.ones(4, np.float32)
    model.run([x, x], [np.empty(4, np.float32), np.empty(4, np.float32)])
    with pytest.raises(ImportError):
        model.view(object(), LEGACY_STREAM)


def test_room_for_a_result_is_asked_for_once(loaded):
    model, api = loaded
    room = model.room(TensorType(DType.FLOAT32, (4,)))
    address = room(LEGACY_STREAM).address
    assert api.log == ["cuCtxSetCurrent", "cuMemAllocFromPoolAsync"]
    assert room(LEGACY_STREAM).address == address
    assert len(api.log) == 2
