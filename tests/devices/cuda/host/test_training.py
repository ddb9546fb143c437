"""Training steps as a program of a GPU: losses and parameters against eager PyTorch."""

import copy

import pytest

torch = pytest.importorskip("torch")

from rammer.frontends.dispatch import Example  # noqa: E402 - after the check for PyTorch
from rammer.kinds import compile_training  # noqa: E402
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
    step = compile_training(cross_entropy, ours, optimizers[1], options, Example(args=data[0]), 0)
    check_losses(
        lambda *args: step(*(each.numpy() for each in args)),
        *(cross_entropy, module, optimizers, data),
        slower_from=3,
        tolerance=1e-5,
    )
    step.sync()
    close(ours.state_dict(), module.state_dict())
    close(optimizers[1].state_dict()["state"], optimizers[0].state_dict()["state"])
