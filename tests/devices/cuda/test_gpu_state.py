"""State and training steps on a GPU: on any stream, bound, captured, copied, and as PyTorch has it. `pytest -m gpu`."""

import asyncio
import copy
import threading

import numpy as np
import pytest

import rammer
from rammer.errors import RunTimeoutError, StreamCaptureError
from tests.runtime.test_state import ONE, STATE, running_sum
from tests.runtime.test_state_in_place import ROW, cached
from tests.support.copies import COPIES
from tests.support.small_models import mlp_model

torch = pytest.importorskip("torch")

from tests.frontends.torch.test_step import (  # noqa: E402 - after the check for PyTorch
    BATCH,
    NETWORKS,
    OPTIMIZERS,
    cross_entropy,
    mean_square,
    mlp,
    sgd,
)
from tests.support.torch_modules import check_losses  # noqa: E402

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def compiled():
    return rammer.compile(running_sum(), "cuda", state=STATE)


@pytest.fixture
def net(compiled):
    compiled.reset()
    return compiled


def ones(value=1.0):
    return torch.full((3,), value, device="cuda")


def test_tensors_on_streams_of_their_own(net):
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    found = []
    for i in range(12):
        with torch.cuda.stream(streams[i % 3]):
            found.append(net.run({"x": ones()}, stream=streams[i % 3])["y"])
    assert [each.numpy()[0] for each in found] == [2.0 * i for i in range(1, 13)]
    assert net.state["past"].tolist() == [12, 12, 12]
    assert net(ONE)[0] == 26


def test_states_of_a_bound_call_and_of_others(net):
    x = ones()
    bound, mine = net.bind({"x": x}), net.new_state()
    for i in range(1, 6):
        bound()
        assert net.run({"x": x}, state=mine)["y"].numpy()[0] == 2 * i
    assert net.state["past"][0] == 5
    net.state["past"] = ONE * 100
    assert bound().numpy()[0] == 202


def test_replays_move_the_state(net):
    graph, x, y = torch.cuda.CUDAGraph(), ones(), ones(0.0)
    with torch.cuda.graph(graph):
        for _ in range(3):
            net.run({"x": x}, outputs={"y": y}, stream=torch.cuda.current_stream())
        with pytest.raises(StreamCaptureError, match="a state cannot be written"):
            net.reset()
    for i in range(1, 5):
        graph.replay()
        torch.cuda.synchronize()
        assert y[0].item() == 2 * (4 * i - 1)
        assert net(ONE)[0] == 2 * 4 * i
    net.reset()
    graph.replay()
    torch.cuda.synchronize()
    assert net.state["past"][0] == 3


@pytest.mark.parametrize("again", COPIES.values(), ids=COPIES)
def test_copies_go_on_by_themselves(net, again):
    net(ONE)
    twin = again(net)
    assert [twin(ONE)[0], twin(ones()).numpy()[0]] == [4, 6]
    assert net.state["past"].tolist() == [1, 1, 1]
    twin.reset()
    assert twin(ONE)[0] == 2


def test_a_run_that_is_given_up_on_a_stream_is_told_by_the_state(monkeypatch):
    monkeypatch.setenv("RAMMER_RUN_TIMEOUT_S", "0.05")
    net = rammer.compile(mlp_model(), "cuda", policy="sequential")
    loaded = net._loaded
    records = loaded._records.copy()
    waits = np.flatnonzero(records["wait_count"])
    records["waits"]["threshold"][waits[0], 0] += 1
    loaded._driver.call("cuMemcpyHtoD", loaded._program.records, records.ctypes.data, records.nbytes)
    state = loaded.new_state([net.signature.inputs[0].type])
    state.wait = loaded._waits
    x = torch.zeros(net.signature.inputs[0].type.shape, device="cuda")
    net(x)
    torch.cuda.synchronize()
    with pytest.raises(RunTimeoutError):
        state.load([0])


def test_awaited_calls_of_copies():
    net = rammer.compile(mlp_model(), "cuda")
    xs = [np.random.default_rng(i).standard_normal((8, 64)).astype(np.float32) for i in range(16)]
    wanted = [net(x) for x in xs]

    async def all_at_once(nets):
        return await asyncio.gather(*(net.async_run(x) for net, x in zip(nets, xs, strict=True)))

    for make in COPIES.values():
        nets = [net, make(net), make(net), make(net)] * 4
        for found, right in zip(asyncio.run(all_at_once(nets)), wanted, strict=True):
            np.testing.assert_array_equal(found, right)

    async def on_the_gpu():
        return await net.async_run(torch.from_numpy(xs[0]).cuda())

    np.testing.assert_array_equal(asyncio.run(on_the_gpu()).numpy(), wanted[0])


def test_a_file_is_loaded_by_many_threads(tmp_path):
    net = rammer.compile(mlp_model(), "cuda")
    net.save(tmp_path / "net.rammer")
    x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    wanted, found, barrier = net(x), [], threading.Barrier(16)

    def user():
        barrier.wait()
        loaded = rammer.load(tmp_path / "net.rammer")
        found.append([loaded(x) for _ in range(20)])

    threads = [threading.Thread(target=user) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 16
    assert all(np.array_equal(each, wanted) for results in found for each in results)


# --- Training steps ---------------------------------------------------------------------------------------------------


def on_gpu(tensors):
    return tuple(tensor.cuda() for tensor in tensors)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.fixture(autouse=True)
def _in_float32():
    """Libraries of PyTorch's round what recurrent layers multiply, unless they are told not to."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


def trained(make, inputs, loss_of, make_optimizer, *, steps=20):
    """Twenty steps by a program and by eager PyTorch, with half the learning rate from the tenth on."""
    torch.manual_seed(0)
    module = make().cuda()
    ours = copy.deepcopy(module)
    optimizers = [make_optimizer(each) for each in (module, ours)]
    data = [on_gpu(inputs()) for _ in range(steps)]
    step = rammer.compile_step(loss_of, ours, optimizers[1], "cuda", args=data[0])
    check_losses(step, loss_of, module, optimizers, data, slower_from=10, tolerance=1e-4)
    step.sync()
    close(ours.state_dict(), module.state_dict())
    close(optimizers[1].state_dict()["state"], optimizers[0].state_dict()["state"])


@pytest.mark.parametrize("name", NETWORKS)
def test_losses_of_twenty_steps(name):
    make, inputs = NETWORKS[name]
    trained(
        make,
        lambda: (inputs(), torch.randint(0, 3, (BATCH,))),
        cross_entropy,
        lambda module: sgd(module, momentum=0.9, nesterov=True, weight_decay=1e-2),
    )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    trained(mlp, lambda: (torch.randn(BATCH, 8),), mean_square, lambda module: OPTIMIZERS[name](module.parameters()))


def test_a_captured_step_trains():
    torch.manual_seed(0)
    module = mlp().cuda()
    ours = copy.deepcopy(module)
    optimizers = [sgd(each, momentum=0.9) for each in (module, ours)]
    x, target = torch.randn(BATCH, 8, device="cuda"), torch.randint(0, 3, (BATCH,), device="cuda")
    step, graph = (
        rammer.compile_step(cross_entropy, ours, optimizers[1], "cuda", args=(x, target)),
        torch.cuda.CUDAGraph(),
    )

    def eager():
        optimizers[0].zero_grad()
        loss = cross_entropy(module, x, target)
        loss.backward()
        optimizers[0].step()
        return loss.item()

    assert step(x, target).item() == pytest.approx(eager(), rel=1e-4)
    with torch.cuda.graph(graph):
        loss = step(x, target)
    for _ in range(10):
        x.normal_()
        graph.replay()
        assert loss.item() == pytest.approx(eager(), rel=1e-4)
    step.sync()
    close(ours.state_dict(), module.state_dict())


def test_values_are_taken_over_and_steps_have_states_of_their_own():
    torch.manual_seed(0)
    module = mlp().cuda()
    optimizer = sgd(module)
    x, target = torch.randn(BATCH, 8, device="cuda"), torch.randint(0, 3, (BATCH,), device="cuda")
    step = rammer.compile_step(cross_entropy, module, optimizer, "cuda", args=(x, target))
    first, other = step(x, target).item(), step.new_state()
    assert step(x, target).item() < first
    assert step(x, target, state=other).item() == first
    step.reset()
    assert step(x, target).item() == first
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    step.refresh()
    assert step(x, target).item() == pytest.approx(np.log(3), rel=1e-5)


def test_replays_update_a_cache_in_place():
    """Each of them writes the row behind the last one's, and the position moves on the GPU, too."""
    net = rammer.compile(cached(), "cuda", state=STATE)
    assert net.signature.in_place == (0,)
    x = torch.ones(ROW, device="cuda")
    position = torch.zeros(1, dtype=torch.int64, device="cuda")
    y = torch.zeros(ROW, device="cuda")
    net.run({"x": x, "position": position}, outputs={"y": y}, stream=torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        net.run({"x": x, "position": position}, outputs={"y": y}, stream=torch.cuda.current_stream())
        position.add_(1)
        x.add_(1)
    for _ in range(5):
        graph.replay()
    torch.cuda.synchronize()
    held = net.state["past"]
    assert [held[0, 0, row, 0] for row in range(6)] == [1, 2, 3, 4, 5, 0]
    net(np.full(ROW, 9, np.float32), np.array([2]))
    assert net.state["past"][0, 0, :5, 0].tolist() == [1, 2, 9, 4, 5]
    memory = net.state.memory
    assert memory.read == memory.written
