"""Runs in CUDA graphs: replayed in any order and on any stream, and what cannot be captured. Run by `pytest -m gpu`."""

import gc
import threading

import numpy as np
import pytest

import rammer
from benchmarks.networks import NETWORKS, SMALL
from rammer.errors import RunTimeoutError, StreamCaptureError
from rammer.torch_backend import backend
from tests.support.agreement import run_onnx_runtime
from tests.support.cpu import chain, expected
from tests.support.gpu import compiled
from tests.support.small_models import layer_model, layer_result

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


@pytest.fixture(scope="module")
def layer():
    return rammer.compile(layer_model(), "cuda")


class Buffers:
    """An input and an output in the GPU's memory."""

    def __init__(self):
        self.x, self.y = torch.zeros(2, 3, device="cuda"), torch.zeros(2, 4, device="cuda")

    def run(self, net, stream=None):
        """A run of it on PyTorch's current stream, or another one."""
        stream = stream or torch.cuda.current_stream()
        net.run({"x": self.x}, outputs={"y": self.y}, stream=stream)

    def check(self, step, replay):
        """A replay computes from what the input holds then."""
        self.x.copy_(torch.from_numpy(X + step))
        self.y.zero_()
        replay()
        torch.cuda.synchronize()
        np.testing.assert_allclose(self.y.cpu().numpy(), layer_result(X + step), rtol=1e-5, atol=1e-6)


def captured(net, buffers):
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        buffers.run(net)
    return graph


def test_replays_compute_what_calls_do(layer):
    buffers = Buffers()
    graph = captured(layer, buffers)
    for step in range(20):
        buffers.check(step, graph.replay)


def test_bound_calls_can_be_captured(layer):
    buffers, graph, stream = Buffers(), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    bound = layer.bind({"x": buffers.x}, outputs={"y": buffers.y}, stream=stream)
    own = layer.bind({"x": buffers.x}, stream=stream)  # its output is its own
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        assert bound() is buffers.y
        own()
    for step in range(5):
        buffers.check(step, graph.replay)
        np.testing.assert_array_equal(own.outputs["y"].numpy(), buffers.y.cpu().numpy())
        buffers.check(step + 1, bound)


def test_replays_on_other_streams_and_between_calls(layer):
    buffers, others = Buffers(), Buffers()
    graphs = [captured(layer, buffers), captured(layer, others)]
    for step in range(30):
        stream = torch.cuda.Stream() if step % 3 else torch.cuda.current_stream()
        with torch.cuda.stream(stream):
            if step % 2:
                np.testing.assert_allclose(layer(X + step), layer_result(X + step), rtol=1e-5, atol=1e-6)
            buffers.check(step, graphs[0].replay)
            others.check(step + 1, lambda: (graphs[1].replay(), graphs[0].replay(), graphs[1].replay()))
            buffers.check(step, lambda: buffers.run(layer))
        torch.cuda.synchronize()


def test_two_models_and_two_runs_in_one_graph(layer):
    twin, graph, buffers = layer.clone(), torch.cuda.CUDAGraph(), [Buffers() for _ in range(4)]
    with torch.cuda.graph(graph):
        for i, each in enumerate(buffers):
            each.run(twin if i % 2 else layer)
    for step in range(10):
        for i, each in enumerate(buffers):
            each.check(step + i, graph.replay)


def test_captured_runs_of_one_model_follow_each_other_on_streams_that_fork(layer):
    graph, buffers, side = torch.cuda.CUDAGraph(), [Buffers(), Buffers()], torch.cuda.Stream()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        torch.cuda._sleep(1_000_000)
        buffers[0].run(layer)
        buffers[1].run(layer, side)
        main.wait_stream(side)
    for step in range(10):
        for each in buffers:
            each.check(step, graph.replay)


@pytest.mark.parametrize("name", ["lstm_tc", "resnext"])
def test_networks(name):
    """Tagged elements, counters and weights that stay in registers."""
    model = NETWORKS[name](**SMALL[name])
    net, graph = rammer.compile(model, "cuda"), torch.cuda.CUDAGraph()
    ports = (*net.signature.inputs, *net.signature.outputs)
    tensors = {port.name: torch.zeros(port.type.shape, device="cuda") for port in ports}
    inputs, outputs = (
        {port.name: tensors[port.name] for port in some} for some in (net.signature.inputs, net.signature.outputs)
    )
    with torch.cuda.graph(graph):
        net.run(inputs, outputs=outputs, stream=torch.cuda.current_stream())
    rng = np.random.default_rng(0)
    for step in range(30):
        given = {name: rng.standard_normal(tensor.shape).astype(np.float32) for name, tensor in inputs.items()}
        for key, value in given.items():
            inputs[key].copy_(torch.from_numpy(value))
        if step % 3 == 2:
            net.run(inputs, outputs=outputs)
        else:
            graph.replay()
        torch.cuda.synchronize()
        for found, wanted in zip(outputs.values(), run_onnx_runtime(model, given), strict=True):
            np.testing.assert_allclose(found.cpu().numpy(), wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda net, x: net(x), "default stream"),
        (lambda net, x: net.run({"x": x}, stream=torch.cuda.current_stream()), "array of its own"),
        (lambda net, x: net(X), "arrays of the host"),
        (lambda net, x: net.clone(), "cannot be loaded"),
        (lambda net, x: net.bound(), "default stream"),
        (lambda net, x: torch.from_dlpack(net.elsewhere), "before the capture"),
    ],
    ids=["default stream", "no output", "host", "load", "bound to the default stream", "taken over"],
)
@pytest.mark.parametrize("mode", ["global", "relaxed"])
def test_what_cannot_be_captured_leaves_the_capture_as_it_is(call, reason, mode, layer):
    buffers, graph = Buffers(), torch.cuda.CUDAGraph()
    net = layer.clone()
    net.bound = net.bind({"x": buffers.x})
    net.elsewhere = net.run({"x": buffers.x}, stream=torch.cuda.Stream())["y"]
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, capture_error_mode=mode):
        with pytest.raises(StreamCaptureError, match=reason):
            call(net, buffers.x)
        buffers.run(net)
    for step in range(3):
        buffers.check(step, graph.replay)
    np.testing.assert_allclose(net(X), layer_result(X), rtol=1e-5, atol=1e-6)


def check_replays(graph, module, x, y):
    """Replays write into y what the module makes of x, whatever x holds by then."""
    for step in range(5):
        x.copy_(torch.from_numpy(X + step))
        graph.replay()
        torch.testing.assert_close(y, module(x))


def test_torch_compile_in_a_graph():
    module = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)).cuda().eval()
    net = torch.compile(module, backend=backend, dynamic=False, options={"device": "cuda"})
    x = torch.zeros(2, 3, device="cuda")
    with torch.no_grad():
        graph = torch.cuda.CUDAGraph()
        with pytest.raises(Exception, match="R316"), torch.cuda.graph(graph):
            net(x)
        net(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = net(x)
        check_replays(graph, module, x, y)


def test_a_compiled_module_in_a_graph():
    module, x = torch.nn.Linear(3, 4).cuda().eval(), torch.zeros(2, 3, device="cuda")
    net, graph = rammer.compile(module, "cuda", args=(x,)), torch.cuda.CUDAGraph()
    with torch.no_grad():
        with torch.cuda.graph(graph):
            y = net(x)
        check_replays(graph, module, x, y)


def test_threads_with_graphs_and_calls_of_their_own(layer):
    failures: list[tuple[int, int]] = []

    def user(seed):
        with lock:
            net, buffers, stream = layer.clone(), Buffers(), torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for step in range(20):
                graph = torch.cuda.CUDAGraph()
                stream.synchronize()
                with lock:
                    graph.capture_begin(capture_error_mode="thread_local")
                    buffers.run(net)
                    graph.capture_end()
                buffers.x.copy_(torch.from_numpy(X * seed + step))
                for _ in range(5):
                    graph.replay()
                buffers.run(net)
                graph.replay()
                stream.synchronize()
                if not np.allclose(buffers.y.cpu().numpy(), layer_result(X * seed + step), rtol=1e-5, atol=1e-5):
                    failures.append((seed, step))

    lock = threading.Lock()  # PyTorch's captures are one at a time
    threads = [threading.Thread(target=user, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_what_another_thread_gives_back_leaves_a_capture_as_it_is(mode, layer):
    """A model, its constants, what it left and a run of it that may be under way."""
    buffers, others, graph = Buffers(), Buffers(), torch.cuda.CUDAGraph()
    given_back = rammer.compile(layer_model(), "cuda")
    side = torch.cuda.Stream()
    left = [given_back.clone(), given_back.run({"x": others.x}, stream=side)["y"], given_back]
    del given_back

    def give_back():
        with torch.cuda.stream(side):
            torch.cuda._sleep(10_000_000)
        others.run(left[0], side)
        left.clear()
        gc.collect()

    gc.collect()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, capture_error_mode=mode):
        buffers.run(layer)
        thread = threading.Thread(target=give_back)
        thread.start()
        thread.join()
        buffers.run(layer)
    assert not left
    for step in range(3):
        buffers.check(step, graph.replay)
    np.testing.assert_allclose(others.y.cpu().numpy(), layer_result(np.zeros_like(X)), rtol=1e-5, atol=1e-6)


def test_replays_behind_a_run_that_was_given_up_are_right(tmp_path):
    plan = chain(length=6, veus=4, tiles=2)
    model = compiled(plan, tmp_path, run_timeout_s=0.05)
    driver, records = model._driver, model._records.copy()
    x, y = torch.randn(64, device="cuda"), torch.zeros(64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model.enqueue([x.data_ptr(), y.data_ptr()], torch.cuda.current_stream().cuda_stream)
    wanted = expected(plan, x.cpu().numpy())
    for number in np.flatnonzero(records["wait_count"]).tolist():
        broken = records.copy()
        broken["waits"]["threshold"][number, 0] += 1
        driver.call("cuMemcpyHtoD", model._program.records, broken.ctypes.data, broken.nbytes)
        graph.replay()
        graph.replay()
        torch.cuda.synchronize()
        driver.call("cuMemcpyHtoD", model._program.records, records.ctypes.data, records.nbytes)
        y.zero_()
        graph.replay()
        torch.cuda.synchronize()
        np.testing.assert_array_equal(y.cpu().numpy(), wanted)
        with pytest.raises(RunTimeoutError):
            model.wait()
        model.wait()
