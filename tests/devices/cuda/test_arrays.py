"""Arrays of other libraries in a GPU's memory: read and written where they lie, in the order of streams.

Run by `pytest -m gpu`; each library's tests need that library.
"""

import gc
import threading

import numpy as np
import pytest

import rammer
from benchmarks.calls import call_costs
from rammer.devices.cuda.driver import find_driver
from rammer.errors import (
    InputShapeError,
    InputTypeError,
    LayoutError,
    OptionError,
    OutputError,
    PlacementError,
    RunTimeoutError,
)
from tests.support.cpu import chain, without_first_signal
from tests.support.gpu import compiled
from tests.support.small_models import layer_model, layer_result, pair_model

pytestmark = pytest.mark.gpu
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


@pytest.fixture(scope="module")
def layer():
    return rammer.compile(layer_model(), "cuda")


@pytest.fixture(scope="module")
def pair():
    return rammer.compile(pair_model(), "cuda")


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_pytorch_tensors_stay_on_the_gpu(layer, torch):
    x = torch.from_numpy(X).cuda()
    y = layer(x)
    taken = torch.from_dlpack(y)
    assert taken.is_cuda
    assert taken.data_ptr() == y.address
    np.testing.assert_array_equal(taken.cpu().numpy(), layer(X))
    np.testing.assert_array_equal(y.numpy(), layer(X))
    np.testing.assert_array_equal(np.asarray(y), layer(X))
    np.testing.assert_allclose(layer(torch.from_numpy(X)), layer_result(X), rtol=1e-6)  # on the host: NumPy's way


def test_cupy_arrays_stay_on_the_gpu(layer):
    cupy = pytest.importorskip("cupy")
    x = cupy.asarray(X)
    y = layer(x)
    for taken in (cupy.from_dlpack(y), cupy.asarray(y)):
        assert taken.data.ptr == y.address
        np.testing.assert_array_equal(cupy.asnumpy(taken), layer(X))


def test_jax_arrays_stay_on_the_gpu(layer):
    jax = pytest.importorskip("jax")
    x = jax.device_put(X, jax.devices("gpu")[0])
    np.testing.assert_array_equal(np.asarray(jax.dlpack.from_dlpack(layer(x))), layer(X))


def test_outputs_are_written_where_the_caller_says(pair, torch):
    a, b = torch.arange(4.0, device="cuda"), torch.ones(4, device="cuda")
    total, gap = torch.full((4,), 7.0, device="cuda"), torch.full((4,), 7.0, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    results = pair.run({"a": a, "b": b}, outputs={"total": total, "gap": gap}, stream=stream)
    assert results["total"] is total
    stream.synchronize()
    assert total.tolist() == [1, 2, 3, 4]
    assert gap.tolist() == [-1, 0, 1, 2]
    host = np.empty(4, np.float32)
    with pytest.raises(OutputError, match="elsewhere"):
        pair.run({"a": a, "b": b}, outputs={"total": total, "gap": host})
    with pytest.raises(OutputError, match="is to be written where another"):
        pair.run({"a": a, "b": b}, outputs={"total": total, "gap": total})
    with pytest.raises(OutputError, match="'total' is to be written where another"):
        pair.run({"a": a, "b": b}, outputs={"total": a, "gap": gap})
    with pytest.raises(OutputError, match="float64"):
        pair.run({"a": a, "b": b}, outputs={"total": total.double(), "gap": gap})


def test_what_does_not_fit_is_refused(layer, pair, torch):
    x = torch.from_numpy(X).cuda()
    with pytest.raises(InputTypeError, match="float64"):
        layer(x.double())
    with pytest.raises(InputShapeError, match=r"\[6\]"):
        layer(x.reshape(6))
    with pytest.raises(LayoutError, match="row by row"):
        layer(x.t().contiguous().t())
    with pytest.raises(PlacementError, match="some inputs lie on the host"):
        pair(torch.ones(4, device="cuda"), np.ones(4, np.float32))
    with pytest.raises(OptionError, match="stream='fast'"):
        layer.run({"x": x}, stream="fast")
    with pytest.raises(PlacementError, match="a stream for inputs on the host"):
        layer.run({"x": X}, stream=torch.cuda.Stream())


def test_a_run_follows_what_its_stream_was_given_before(layer, torch):
    for stream in (None, torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for i in range(20):
                x = torch.zeros(2, 3, device="cuda")
                torch.cuda._sleep(200_000)
                x += torch.from_numpy(X + i).cuda()
                y = torch.from_dlpack(layer.run({"x": x}, stream=stream)["y"] if i % 2 else layer(x))
                doubled = y * 2
                torch.cuda.current_stream().synchronize()
                np.testing.assert_array_equal(doubled.cpu().numpy(), 2 * layer(X + i))


def test_runs_on_several_streams_follow_each_other(torch):
    net = rammer.compile(layer_model(), "cuda")
    streams = [torch.cuda.Stream() for _ in range(4)]
    xs = [torch.from_numpy(X + i).cuda() for i in range(24)]
    torch.cuda.synchronize()
    for _ in range(5):
        results = [net.run({"x": x}, stream=streams[i % 4])["y"] for i, x in enumerate(xs)]
        for i, result in enumerate(results):
            np.testing.assert_array_equal(result.numpy(), net(X + i))


def test_results_outlive_the_model_and_give_their_memory_back(torch):
    driver = find_driver()
    net = rammer.compile(layer_model(), "cuda")
    taken = torch.from_dlpack(net(torch.from_numpy(X).cuda()))
    expected = net(X)
    del net
    gc.collect()
    np.testing.assert_array_equal(taken.cpu().numpy(), expected)
    used = driver.api.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT

    def taken_bytes():
        gc.collect()
        torch.cuda.synchronize()
        return int(driver.call("cuMemPoolGetAttribute", driver.pool, used))

    before = taken_bytes()
    del taken
    assert taken_bytes() < before


def test_a_run_that_was_given_up_is_reported_by_the_next_call(torch, tmp_path):
    model = compiled(without_first_signal(chain(length=3, veus=2)), tmp_path, run_timeout_s=0.05)
    x, y = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
    torch.cuda.synchronize()
    for _ in range(2):
        for _ in range(3):
            model.enqueue([x.data_ptr(), y.data_ptr()], model.stream_of(None))
        with pytest.raises(RunTimeoutError, match="vEU 1 is at step 0 of rProgram 0"):
            model.wait()


def test_threads_with_streams_of_their_own(layer, torch):
    failures = []

    def user(seed):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for i in range(100):
                x = torch.from_numpy(X * seed + i).cuda()
                y = torch.from_dlpack(layer.run({"x": x}, stream=stream)["y"]) if i % 3 else layer(X * seed + i)
                y = y if isinstance(y, np.ndarray) else y.cpu().numpy()
                if not np.allclose(y, layer_result(X * seed + i), rtol=1e-5, atol=1e-5):
                    failures.append((seed, i))

    threads = [threading.Thread(target=user, args=(seed,)) for seed in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_bound_calls_follow_what_their_stream_was_given_before(layer, torch):
    for stream in (None, torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            x, y = torch.zeros(2, 3, device="cuda"), torch.empty(2, 4, device="cuda")
            bound = layer.bind({"x": x}, outputs={"y": y}, stream=stream)
            for i in range(20):
                torch.cuda._sleep(200_000)
                x.copy_(torch.from_numpy(X + i).cuda())
                assert bound() is y
                doubled = y * 2
                torch.cuda.current_stream().synchronize()
                np.testing.assert_array_equal(doubled.cpu().numpy(), 2 * layer(X + i))


def test_bound_arrays_of_the_host(layer):
    x = X.copy()
    bound = layer.bind({"x": x})
    for i in range(3):
        x[:] = X + i
        np.testing.assert_array_equal(bound(), layer(X + i))


@pytest.mark.usefixtures("torch")
def test_what_calls_cost_the_host_is_measured():
    costs = list(call_costs(turns=2))
    assert len(costs) == 5
    assert all(cost.call_us > 0 and cost.driver_us > 0 for cost in costs)
    assert [cost.model_us for cost in costs[:3]] == [0, 0, 0]  # these do not wait for the GPU
