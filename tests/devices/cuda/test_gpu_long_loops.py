"""Loops of very many trips on a GPU: arrays of the host and of PyTorch, streams, threads. Run by `pytest -m gpu`."""

import threading
from collections.abc import Callable, Mapping

import numpy as np
import onnx
import pytest

import rammer
from rammer.errors import StreamCaptureError
from tests.support.agreement import run_onnx_runtime
from tests.support.loops import Array, layer, loop, scan, stack

pytestmark = pytest.mark.gpu
X = np.array([0.1, -0.2, 0.3], np.float32)

MODELS: Mapping[str, Callable[[], tuple[onnx.ModelProto, dict[str, Array]]]] = {
    "LSTM": lambda: layer("LSTM", 3000, batch=1, width=4, hidden=4),
    "LSTM that fills registers": lambda: layer("LSTM", 1000, batch=1, width=256, hidden=256),
    "GRU of both directions": lambda: layer("GRU", 1001, direction="bidirectional", hidden=4),
    "RNN with lengths": lambda: layer("RNN", 700, direction="reverse", batch=3, initial=True, lengths=(700, 0, 513)),
    "stack": lambda: stack(700, 4),
    "scan": lambda: scan(5000, backward=(True, True)),
    "loop": lambda: (loop(5003), {"x": X}),
}


def close(found, wanted, tolerance):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 2e-5), ("fp16", 2e-2)])
@pytest.mark.parametrize("name", MODELS)
def test_arrays_of_the_host(name, precision, tolerance):
    model, inputs = MODELS[name]()
    wanted, net = run_onnx_runtime(model, inputs), rammer.compile(model, "cuda", precision=precision)
    found = net.run(inputs)
    close(found.values(), wanted, tolerance)
    for _ in range(5):
        again = net.run(inputs)
        assert all(np.array_equal(again[key], found[key]) for key in found)


def test_threads_and_clones():
    model, inputs = MODELS["LSTM"]()
    net = rammer.compile(model, "cuda")
    others = [{"x": inputs["x"] * factor} for factor in range(1, 5)]
    wanted = [net.run(other) for other in others]
    found: list[tuple[int, bool]] = []

    def call(number):
        own = net.clone() if number % 2 else net
        for _ in range(10):
            got = own.run(others[number])
            found.append((number, all(np.array_equal(got[key], wanted[number][key]) for key in got)))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [right for _, right in found] == [True] * 40


def test_arrays_of_the_gpu():
    torch = pytest.importorskip("torch")
    model, inputs = MODELS["stack"]()
    net = rammer.compile(model, "cuda")
    (wanted,) = net.run(inputs).values()
    x = torch.tensor(inputs["x"], device="cuda")
    np.testing.assert_array_equal(torch.from_dlpack(net(x)).cpu(), wanted)
    streams = [torch.cuda.Stream() for _ in range(2)]
    outputs = [torch.empty(wanted.shape, device="cuda") for _ in range(6)]
    (name,) = (port.name for port in net.signature.outputs)
    for i, output in enumerate(outputs):
        net.run({"x": x}, outputs={name: output}, stream=streams[i % 2])
    net.wait()
    for output in outputs:
        np.testing.assert_array_equal(output.cpu(), wanted)
    bound = net.bind({"x": x}, outputs={name: outputs[0]}, stream=streams[0])
    streams[0].wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(streams[0]):
        x.neg_()
    bound()
    streams[0].synchronize()
    np.testing.assert_array_equal(outputs[0].cpu(), next(iter(net.run({"x": np.negative(inputs["x"])}).values())))


def test_captures_are_refused():
    torch = pytest.importorskip("torch")
    model, inputs = MODELS["stack"]()
    net = rammer.compile(model, "cuda")
    x = torch.tensor(inputs["x"], device="cuda")
    (port,) = net.signature.outputs
    y = torch.empty(port.type.shape, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), pytest.raises(StreamCaptureError, match="loops are programs of their own"):
        net.run({"x": x}, outputs={port.name: y}, stream=torch.cuda.current_stream())
