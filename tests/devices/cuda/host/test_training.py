"""Training steps as a program of a GPU: losses and parameters against eager PyTorch."""

import copy

import pytest

torch = pytest.importorskip("torch")

from torch.nn import Module  # noqa: E402 - after the check for PyTorch

from rammer.frontends.dispatch import Example  # noqa: E402
from rammer.pipelines.kinds import compile_training  # noqa: E402
from tests.frontends.torch.test_step import Recurrent, close, cross_entropy, mlp, sgd, targets  # noqa: E402
from tests.support.torch_modules import check_losses  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("make", "shape"), [(mlp, (6, 8)), (lambda: Recurrent(torch.nn.LSTM), (6, 4, 5))], ids=["mlp", "lstm"]
)
def test_losses_of_some_steps(make, shape, gpu):
    torch.manual_seed(0)
    module = make()
    ours = copy.deepcopy(module)
    optimizers = [sgd(each, momentum=0.9, weight_decay=1e-2) for each in (module, ours)]
    data = [(torch.randn(*shape), targets()) for _ in range(6)]
    options = gpu.options(veus=3)
    step = compile_training(cross_entropy, ours, optimizers[1], options, Example(args=data[0]))
    check_losses(
        lambda *args: step(*(each.numpy() for each in args)),
        *(cross_entropy, module, optimizers, data),
        slower_from=3,
        tolerance=1e-5,
    )
    step.sync()
    close(ours.state_dict(), module.state_dict())
    close(optimizers[1].state_dict()["state"], optimizers[0].state_dict()["state"])


class Block(Module):
    """Two convolutions, the first of stride 2, and a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(16, 24, 3, 2, 1, bias=False)
        self.norm = torch.nn.BatchNorm2d(24)
        self.second = torch.nn.Conv2d(24, 24, 3, 1, 1)
        self.shortcut = torch.nn.Conv2d(16, 24, 1, 2, bias=False)

    def forward(self, x):
        return torch.relu(self.second(torch.tanh(self.norm(self.first(x)))) + self.shortcut(x))


def test_convolutions_with_strides_and_shortcuts(gpu):
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.Tanh(), Block(), torch.nn.Flatten(), torch.nn.Linear(24 * 36, 10)
    )
    ours = copy.deepcopy(module)
    optimizers = [sgd(each, momentum=0.9) for each in (module, ours)]
    data = [(torch.randn(6, 3, 12, 12), targets()) for _ in range(3)]
    step = compile_training(cross_entropy, ours, optimizers[1], gpu.options(veus=3), Example(args=data[0]))
    for each in data:
        optimizers[0].zero_grad()
        loss = cross_entropy(module, *each)
        loss.backward()
        optimizers[0].step()
        assert step(*(one.numpy() for one in each)).item() == pytest.approx(loss.item(), rel=1e-4)
    step.sync()
    for name, parameter in module.named_parameters():
        assert torch.allclose(ours.get_parameter(name), parameter, rtol=1e-3, atol=1e-5), name
