"""Calls that are timed by the GPU's clock: what the driver is asked, and what may not be captured. No GPU is needed."""

import gc

import pytest

from rammer.devices.cuda.driver import LEGACY_STREAM, Driver
from rammer.devices.cuda.order import Order
from rammer.errors import RunTimeoutError, StreamCaptureError
from rammer.ir.types import DType, TensorType
from tests.devices.cuda.test_launch import load
from tests.support.cuda_driver import Api, Status
from tests.support.small_models import pair_model

ARRAYS = [64, 128, 192, 256]
LAUNCH = "cuLaunchCooperativeKernel"


@pytest.fixture
def loaded(monkeypatch, tmp_path):
    return load(pair_model(), monkeypatch, tmp_path)


def timed(model, stream=LEGACY_STREAM):
    with model.timed() as lap:
        model.enqueue(ARRAYS, stream)
    return lap


def test_a_run_is_timed_by_events_around_its_launch(loaded):
    model, api = loaded
    model.enqueue(ARRAYS, LEGACY_STREAM)
    lap = timed(model)
    api.log.clear()
    model.enqueue(ARRAYS, LEGACY_STREAM)
    assert api.log == [LAUNCH]  # what is not timed is launched as ever
    del lap
    api.log.clear()
    lap = timed(model)
    assert api.log == ["cuEventRecord", LAUNCH, "cuEventRecord"]  # by the events of the first lap
    api._answers["cuEventElapsedTime"] = (Status.CUDA_SUCCESS, 0.25)
    assert lap.times_us() == (250.0,)


def test_nobody_waits_for_a_time(loaded):
    model, api = loaded
    lap = timed(model)
    api._answers["cuEventElapsedTime"] = (Status.CUDA_ERROR_NOT_READY, None)
    api.log.clear()
    assert lap.times_us() is None
    assert not [name for name in api.log if "Synchronize" in name or "Query" in name]
    api._answers["cuEventElapsedTime"] = (Status.CUDA_SUCCESS, 0.25)
    assert lap.times_us() == (250.0,)


def test_a_run_that_was_given_up_is_told_of_once(loaded):
    model, api = loaded
    laps = [timed(model) for _ in range(2)]
    api._answers["cuEventElapsedTime"] = (Status.CUDA_SUCCESS, 0.25)
    model._given_up.value, model._stalled.value = 0, 1
    with pytest.raises(RunTimeoutError):
        laps[0].times_us()
    assert [lap.times_us() for lap in laps] == [(250.0,)] * 2


def test_times_of_a_stream_are_recorded_there_behind_what_the_run_follows(loaded):
    model, api = loaded
    model.enqueue(ARRAYS, LEGACY_STREAM)
    recorded = []

    def record(event, stream):
        recorded.append(stream)
        return (Status.CUDA_SUCCESS,)

    api._answers["cuEventRecord"] = record
    api.log.clear()
    timed(model, 8192)
    asked = [name for name in api.log if name in ("cuStreamWaitEvent", "cuEventRecord", LAUNCH)]
    assert asked == ["cuEventRecord", "cuStreamWaitEvent", "cuEventRecord", LAUNCH, *["cuEventRecord"] * 2]
    assert recorded == [LEGACY_STREAM, 8192, 8192, 8192]  # the last run's end, the two events, this run's end


def test_runs_of_programs_beside_each_other_follow_each_other(loaded):
    model, api = loaded
    other = model.beside(model._source, model._binary)
    model.enqueue(ARRAYS, LEGACY_STREAM)
    api.log.clear()
    other.enqueue(ARRAYS, 8192)
    assert "cuStreamWaitEvent" in api.log
    api.log.clear()
    model.enqueue(ARRAYS, 8192)
    assert "cuStreamWaitEvent" not in api.log


def test_memory_that_came_back_is_taken_by_any_program(loaded):
    model, api = loaded
    rooms = [each.room(TensorType(DType.FLOAT32, (4,))) for each in (model, model.beside(model._source, model._binary))]
    address = rooms[0](8192).address
    api.log.clear()
    assert rooms[1](8192).address == address
    assert rooms[1](4096).address != address
    assert api.log.count("cuMemAllocFromPoolAsync") == 1


def test_programs_whose_place_others_may_take_are_not_captured(loaded):
    model, api = loaded
    api._answers |= {
        "cuStreamIsCapturing": (Status.CUDA_SUCCESS, 1),
        "cuStreamGetCaptureInfo": (Status.CUDA_SUCCESS, 1, 7, 0, 0, 0),
    }
    model.allow_capture(may=False)
    api.log.clear()
    with pytest.raises(StreamCaptureError, match="freeze"):
        model.enqueue(ARRAYS, 8192)
    assert LAUNCH not in api.log
    model.allow_capture(may=True)
    model.enqueue(ARRAYS, 8192)
    assert LAUNCH in api.log


def test_what_is_given_back_waits_for_runs_so_far_and_lets_others_go_on(loaded):
    model, api = loaded
    other = model.beside(model._source, model._binary)
    other.enqueue(ARRAYS, LEGACY_STREAM)

    def go_on(event):
        model.enqueue(ARRAYS, LEGACY_STREAM)
        return (Status.CUDA_SUCCESS,)

    api._answers["cuEventSynchronize"] = go_on
    api.log.clear()
    del other
    gc.collect()
    assert api.log.index("cuEventSynchronize") < api.log.index(LAUNCH) < api.log.index("cuMemFree")
    api.log.clear()
    model.enqueue(ARRAYS, 8192)
    assert "cuStreamWaitEvent" in api.log  # the run that was given meanwhile may be under way


def test_an_order_that_is_outlasted_still_knows_its_last_run():
    api = Api()
    order = Order(Driver(api=api, device=0, context=0, pool=0))
    order.outlast()
    assert "cuEventSynchronize" not in api.log
    order.after(LEGACY_STREAM)
    order.outlast()
    assert "cuEventSynchronize" in api.log
    assert order.steady == LEGACY_STREAM
