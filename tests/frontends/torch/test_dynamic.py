"""Modules for several shapes, captured once with symbols."""

import pytest

torch = pytest.importorskip("torch")

import rammer  # noqa: E402 - after the check for PyTorch
from rammer import errors  # noqa: E402
from rammer.frontends.dispatch import Example  # noqa: E402
from rammer.frontends.torch import load_family  # noqa: E402
from rammer.ir.dimensions import Dim  # noqa: E402
from rammer.options import GivenInputs  # noqa: E402
from tests.support.torch_modules import Function, Module  # noqa: E402

pytestmark = pytest.mark.torch

BATCH = Dim(name="batch", low=1, high=4, buckets=(2, 4))
LENGTH = Dim(name="length", low=2, high=8, buckets=(4, 8), mask="mask")


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


class Encoder(Module):
    """A layer of attention over tokens, and the mean of those that are not masked."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(10, 16)
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, tokens, mask, scale=1.0):
        h = self.layer(self.embed(tokens), src_key_padding_mask=~mask)
        kept = mask.unsqueeze(-1).float()
        return {"mean": (h * kept).sum(1) / kept.sum(1) * scale, "h": h}


def test_batch_and_length():
    torch.manual_seed(0)
    module, axes = Encoder().eval(), {0: BATCH, 1: LENGTH}
    example = (torch.zeros(1, 3, dtype=torch.int64), torch.ones(1, 3, dtype=torch.bool))
    net = rammer.compile(
        module, "reference", args=example, kwargs={"scale": 2.0}, dynamic={"tokens": axes, "mask": axes}
    )
    assert len(net.programs) == 4
    for rows, length in ((1, 2), (3, 5), (4, 8)):
        tokens, mask = torch.randint(0, 10, (rows, length)), torch.rand(rows, length) > 0.3
        mask[:, 0] = True
        found, expected = net(tokens, mask, scale=2.0), module(tokens, mask, 2.0)
        assert found["h"].shape == expected["h"].shape
        torch.testing.assert_close(found["mean"], expected["mean"])
        torch.testing.assert_close(found["h"][mask], expected["h"][mask])
    with pytest.raises(errors.ArgumentError):
        net(*example, scale=3.0)


def test_a_recurrent_layer_whose_rows_lie_behind_the_time():
    torch.manual_seed(0)
    module = torch.nn.LSTM(3, 4).eval()
    net = rammer.compile(module, "reference", args=(torch.ones(5, 2, 3),), dynamic={"input": {1: (1, 4)}})
    assert "padded" in repr(net)
    x = torch.randn(5, 3, 3)
    torch.testing.assert_close(net(x), module(x))


DEPENDENT = {
    "number of rows": lambda x: x / x.shape[0],
    "mean": lambda x: x - x.mean(0),
    "result that is a number": lambda x: (x * 2, x.shape[0]),
}


@pytest.mark.parametrize("name", DEPENDENT)
def test_rows_that_depend_on_the_batch_are_exact(name):
    module = Function(DEPENDENT[name]).eval()
    net = rammer.compile(module, "reference", args=(torch.ones(2, 3),), dynamic={"args.0": {0: (1, 3)}})
    assert "exact" in repr(net)
    for rows in (1, 2, 3):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(net(x), module(x))


def test_a_shape_is_imported_without_capturing_again(monkeypatch):
    family = load_family(
        torch.nn.Linear(3, 2).eval(), Example(args=(torch.ones(1, 3),)), GivenInputs(), {"input": {0: BATCH}}
    )
    monkeypatch.setattr(torch.export, "export", None)
    for rows in (2, 3, 2):
        graph = family.at(((rows, 3),)).graph
        assert graph.values[graph.outputs[0]].type.shape == (rows, 2)


class Branching(Module):
    def forward(self, x):
        return x * 2 if x.shape[0] > 2 else x * 3


def test_a_module_that_asks_for_its_shape_is_captured_for_each():
    module = Branching().eval()
    net = rammer.compile(module, "reference", args=(torch.ones(2, 3),), dynamic={"x": {0: (1, 4)}})
    for rows in (1, 2, 3, 4):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(net(x), module(x))


class Counter(Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return x + self.count


def test_refused():
    with pytest.raises(errors.UnsupportedFeatureError, match="keeps 'count'"):
        rammer.compile(Counter().eval(), "reference", args=(torch.ones(2, 3),), dynamic={"x": {0: BATCH}})
    with pytest.raises(errors.OptionError, match="the inputs are input"):
        rammer.compile(torch.nn.Linear(3, 2).eval(), args=(torch.ones(1, 3),), dynamic={"x": {0: BATCH}})
