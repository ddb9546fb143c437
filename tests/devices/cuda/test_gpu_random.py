"""Random numbers on a GPU are those of the reference device, call by call. `pytest -m gpu`."""

import numpy as np
import pytest

import rammer
from tests.frontends.test_random_numbers import ZEROS, model_of

torch = pytest.importorskip("torch")

from tests.frontends.torch.test_random_numbers import COUNT  # noqa: E402 - after the check for PyTorch
from tests.support.torch_modules import Function  # noqa: E402

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("body", ["y = RandomUniformLike(x)", "y = RandomNormalLike<seed=3.0>(x)"])
def test_numbers_are_those_of_the_reference_device(body):
    nets = [rammer.compile(model_of(f"z = Add(x, x) {body}"), device, seed=5) for device in ("cuda", "reference")]
    found, expected = ([net(ZEROS) for _ in range(3)] for net in nets)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert not np.array_equal(found[0], found[1])


def test_a_captured_call_draws_anew_in_each_replay():
    x = torch.zeros(COUNT, device="cuda")
    net = rammer.compile(Function(torch.rand_like).eval(), "cuda", args=(x,))
    first = net(x).clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = net(x)
    drawn = [first]
    for _ in range(3):
        graph.replay()
        torch.cuda.synchronize()
        drawn.append(y.clone())
    assert len({one.sum().item() for one in drawn}) == 4
    net.reset()
    assert torch.equal(net(x), first)
    assert torch.equal(net(x), drawn[1])


def test_positions_are_drawn_by_weights():
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4]], device="cuda")
    net = rammer.compile(
        Function(lambda w: torch.multinomial(w, COUNT, replacement=True)).eval(), "cuda", args=(weights,)
    )
    shares = torch.bincount(net(weights)[0], minlength=4) / COUNT
    torch.testing.assert_close(shares, weights[0], atol=0.02, rtol=0)
