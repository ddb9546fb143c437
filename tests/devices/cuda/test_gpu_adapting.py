"""Adaptive models on a GPU: tensors on any stream, bound calls, graphs, threads; every call right. `pytest -m gpu`."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import rammer
from benchmarks.networks import NETWORKS, SMALL
from examples.two_branches import build_model
from rammer.errors import StreamCaptureError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu
DEADLINE_S = 300.0
X = np.random.default_rng(0).standard_normal((1, 8, 8, 8)).astype(np.float32)


def adapted(model=None, **settings):
    chosen = {"max_slowdown": 20.0, "budget_runs": 1000, **settings}
    return rammer.adapt(build_model() if model is None else model, "cuda", **chosen)


def settle(model, call):
    deadline_s = time.monotonic() + DEADLINE_S
    while not model.is_settled:
        assert time.monotonic() < deadline_s, "it goes on trying"
        call()
    assert any(outcome.pairs for outcome in model.history)
    assert all(outcome.verdict != "failed" for outcome in model.history)
    call()


@pytest.fixture(scope="module")
def expected():
    return rammer.compile(build_model(), "cuda")(X)


def test_arrays_of_the_host(expected):
    model = adapted()
    settle(model, lambda: np.testing.assert_array_equal(model(X), expected))
    np.testing.assert_array_equal(model.freeze()(X), expected)


def test_tensors_on_streams_that_nobody_waits_for(expected):
    model, x = adapted(), torch.from_numpy(X).cuda()
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    found = []

    def call():
        for stream in streams:
            found.append(model.run({"x": x}, stream=stream))
        if len(found) > 300:
            results = [next(iter(one.values())).numpy() for one in found]
            assert all(np.array_equal(result, expected) for result in results)
            found.clear()

    settle(model, call)


def test_bound_calls(expected):
    model, x = adapted(), torch.zeros(X.shape, device="cuda")
    bound, rng = model.bind({"x": x}), np.random.default_rng(1)
    reference = rammer.compile(build_model(), "cuda")

    def call():
        given = rng.standard_normal(X.shape).astype(np.float32)
        x.copy_(torch.from_numpy(given))
        np.testing.assert_array_equal(bound().numpy(), reference(given))

    settle(model, call)


def test_tensors_on_the_stream_of_a_thread_that_is_new_to_the_gpu(expected):
    model, x, stream = adapted(), torch.from_numpy(X).cuda(), torch.cuda.Stream()
    name = model.signature.outputs[0].name

    def first_call():
        y = torch.zeros(expected.shape, device="cuda")
        model.bind({"x": x}, outputs={name: y}, stream=stream)()
        stream.synchronize()
        return y.cpu().numpy()

    torch.cuda.synchronize()
    with ThreadPoolExecutor(1) as pool:
        np.testing.assert_array_equal(pool.submit(first_call).result(), expected)


def test_a_module_with_tensors():
    module = torch.nn.Sequential(
        torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 8, 3), torch.nn.Flatten()
    )
    module, x = module.cuda().eval(), torch.from_numpy(X).cuda()
    model = rammer.adapt(module, "cuda", args=(x,), max_slowdown=20.0, bits="any")
    with torch.no_grad():
        wanted = module(x)

    def call():
        found = model(x)
        assert isinstance(found, torch.Tensor)
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)

    with torch.no_grad():
        deadline_s = time.monotonic() + DEADLINE_S
        while not model.is_settled:
            assert time.monotonic() < deadline_s
            call()
        call()


def test_graphs_hold_a_frozen_program_alone(expected):
    model, x = adapted(), torch.from_numpy(X).cuda()
    y = torch.zeros(expected.shape, device="cuda")
    name = model.signature.outputs[0].name
    graph = torch.cuda.CUDAGraph()

    def run():
        model.run({"x": x}, outputs={name: y}, stream=torch.cuda.current_stream())

    with torch.cuda.graph(graph), pytest.raises(StreamCaptureError, match="freeze"):
        run()
    settle(model, run)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    y.zero_()
    graph.replay()
    torch.cuda.synchronize()
    np.testing.assert_array_equal(y.cpu().numpy(), expected)


@pytest.mark.parametrize("mode", ["global", "thread_local"])
def test_what_is_built_and_judged_leaves_a_capture_as_it_is(mode, expected):
    """While another thread calls the model and the background loads, a graph of another model is captured."""
    model, other = adapted(), rammer.compile(build_model(), "cuda")
    x, y, z = (torch.from_numpy(X).cuda(), *(torch.zeros(expected.shape, device="cuda") for _ in range(2)))
    name = other.signature.outputs[0].name
    stream = torch.cuda.Stream()
    bound = model.bind({"x": x}, outputs={name: z}, stream=stream)

    def go_on():
        deadline_s = time.monotonic() + DEADLINE_S
        while not model.is_settled:
            assert time.monotonic() < deadline_s, "it goes on trying"
            bound()
            time.sleep(1e-4)

    with ThreadPoolExecutor(1) as pool:
        calls = pool.submit(go_on)
        while not calls.done():
            graph = torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, capture_error_mode=mode):
                other.run({"x": x}, outputs={name: y}, stream=torch.cuda.current_stream())
                time.sleep(0.02)
            y.zero_()
            graph.replay()
            torch.cuda.synchronize()
            np.testing.assert_array_equal(y.cpu().numpy(), expected)
        calls.result()
    np.testing.assert_array_equal(z.cpu().numpy(), expected)
    assert any(outcome.pairs for outcome in model.history)
    assert all(outcome.verdict != "failed" for outcome in model.history)


def test_calls_from_several_threads(expected):
    model, wrong = adapted(), []

    def call():
        while not model.is_settled:
            if not np.array_equal(model(X), expected):
                wrong.append(1)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_network_that_explores_its_epochs():
    model = NETWORKS["resnext"](seed=0)
    net = rammer.compile(model, "cuda")
    (port,) = net.signature.inputs
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(port.type.shape).astype(np.float32)).cuda()
    wanted = net(x).numpy()
    adaptive = adapted(model, max_slowdown=3.0)
    deadline_s = time.monotonic() + DEADLINE_S
    while not adaptive.is_settled:
        assert time.monotonic() < deadline_s
        np.testing.assert_array_equal(adaptive(x).numpy(), wanted)
    judged = [one for one in adaptive.history if "epoch" in one.name and one.pairs]
    assert judged


def test_device_memory_is_given_back():
    network = NETWORKS["alexnet"](**SMALL["alexnet"])
    settled = adapted(network)
    (port,) = settled.signature.inputs
    x = np.zeros(port.type.shape, np.float32)
    settle(settled, lambda: settled(x))
    torch.cuda.synchronize()
    free_bytes, _ = torch.cuda.mem_get_info()
    kept = [adapted(network)]
    settle(kept[0], lambda: kept[0](x))
    kept.clear()
    deadline_s = time.monotonic() + 30
    while torch.cuda.mem_get_info()[0] < free_bytes:
        assert time.monotonic() < deadline_s, "some memory is still taken"
        time.sleep(0.01)
