"""Modules in one program with other models: each takes and gives what it does alone, tensors for tensors."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import rammer  # noqa: E402 - after the check for PyTorch
from tests.support.small_models import layer_model, layer_result  # noqa: E402
from tests.support.torch_modules import Function, Module  # noqa: E402

pytestmark = pytest.mark.torch

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
ONES, COUNT = torch.ones(3), torch.arange(3.0)


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


class Named(Module):
    """Takes an argument by name alone."""

    def forward(self, x, *, y):
        return x + y


class Counting(Module):
    """Gives the sum of all that it was called with."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.seen.add_(x)
        return self.seen * 1.0


def both(x, y):
    return {"sum": x + y, "first": [x]}


def test_modules_and_models_are_grouped_and_give_tensors_for_tensors(tmp_path):
    line = torch.nn.Linear(3, 2).eval()
    net = rammer.compile([Function(both).eval(), line, layer_model()], "cpu", args=[(ONES, COUNT), (ONES,), ()])
    net.save(tmp_path / "three.rammer")
    for each in (net, rammer.load(tmp_path / "three.rammer")):
        sums, scores, layer = each((ONES, COUNT), COUNT, torch.from_numpy(X))
        assert torch.equal(sums["sum"], ONES + COUNT)
        assert torch.equal(sums["first"][0], ONES)
        torch.testing.assert_close(scores, line(COUNT))
        assert isinstance(layer, torch.Tensor)
        np.testing.assert_allclose(layer.numpy(), layer_result(X), rtol=1e-6)
        arrays = each((ONES.numpy(), COUNT.numpy()), COUNT.numpy(), X)
        assert isinstance(arrays[2], np.ndarray)


def test_a_module_with_arguments_by_name_takes_a_dictionary():
    net = rammer.compile(
        [Function(lambda x: 2 * x).eval(), Named().eval()], args=[(ONES,), (ONES,)], kwargs=[{}, {"y": COUNT}]
    )
    twice, summed = net(COUNT, {"x": ONES, "y": COUNT})
    assert torch.equal(twice, 2 * COUNT)
    assert torch.equal(summed, ONES + COUNT)


def test_weights_of_all_modules_are_taken_over():
    modules = [torch.nn.Linear(3, 2).eval() for _ in range(2)]
    net = rammer.compile(modules, args=[(ONES,), (ONES,)])
    fresh = [torch.nn.Linear(3, 2).eval() for _ in range(2)]
    net.refresh(fresh)
    for found, module in zip(net(COUNT, COUNT), fresh, strict=True):
        torch.testing.assert_close(found, module(COUNT))
    with pytest.raises(rammer.errors.OptionError, match="2 models"):
        net.refresh(fresh[0])


def test_buffers_are_states_of_their_own():
    net = rammer.compile([Counting().eval(), Counting().eval()], args=[(ONES,), (ONES,)])
    for call in range(1, 4):
        first, second = net(ONES, 2 * ONES)
        assert (first[0].item(), second[0].item()) == (call, 2 * call)
    assert len(net.state) == 2
