"""LSTM layers that are trained stay whole: their gradients beside those of eager PyTorch, in every form."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.frontends.torch.test_step import mean_square, sgd  # noqa: E402 - after the check for PyTorch
from tests.support.torch_modules import Module, check_step, imported_step  # noqa: E402

pytestmark = pytest.mark.torch


class Lstm(Module):
    """An LSTM of which one result is used, or all; with `given`, its first states are trained, too."""

    def __init__(self, used, *, given=False, **options):
        super().__init__()
        self.layer = torch.nn.LSTM(5, 8, **options)
        self.used = used
        rows = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
        states = (torch.nn.Parameter(torch.randn(rows, 3, options.get(key, 8) or 8)) for key in ("proj_size", ""))
        self.first = torch.nn.ParameterList(states if given else [])

    def forward(self, x):
        y, (h, c) = self.layer(x, tuple(self.first) or None)
        return y.mean() + h * c if self.used == "all" else {"y": y, "h": h, "c": c}[self.used]


LSTMS: dict[str, tuple[str, dict[str, Any], int]] = {
    "outputs": ("y", {}, 1),
    "last states of two layers": ("h", {"num_layers": 2}, 2),
    "last cell states, first ones given, no biases": ("c", {"num_layers": 2, "bias": False, "given": True}, 2),
    "both directions": ("y", {"num_layers": 2, "bidirectional": True, "given": True}, 4),
    "all results": ("all", {"bidirectional": True, "given": True}, 2),
    "batch first": ("c", {"batch_first": True}, 1),
    "projections, which are taken apart": ("y", {"proj_size": 4}, 0),
}


@pytest.mark.parametrize("name", LSTMS)
def test_lstm_layers_stay_whole(name):
    torch.manual_seed(0)
    used, options, whole = LSTMS[name]
    module = Lstm(used, **options)
    x = torch.randn(3, 4, 5) if "batch_first" in options else torch.randn(4, 3, 5)
    check_step(mean_square, module, sgd(module), x)
    kinds = [operator.kind for operator in imported_step(mean_square, module, sgd(module), x).graph.operators]
    assert kinds.count("LSTMWithGates") == kinds.count("LSTMGradient") == whole


def test_many_steps_of_an_lstm_are_captured_as_one_call():
    module = Lstm("y", num_layers=2)
    graph = imported_step(mean_square, module, sgd(module), torch.randn(300, 3, 5)).graph
    assert len(graph.operators) < 100


def test_other_dtypes_are_taken_apart():
    module = Lstm("y").double()
    step = imported_step(mean_square, module, sgd(module), torch.randn(4, 3, 5, dtype=torch.float64))
    assert not any(operator.kind.startswith("LSTM") for operator in step.graph.operators)
