"""Random numbers of PyTorch modules: they have eager PyTorch's distributions."""

import math

import pytest

torch = pytest.importorskip("torch")

import rammer  # noqa: E402 - after the check for PyTorch
from rammer.errors import UnsupportedFeatureError  # noqa: E402
from tests.support.torch_modules import Function, Module  # noqa: E402

pytestmark = pytest.mark.torch
F = torch.nn.functional
COUNT = 10_000
ZEROS = torch.zeros(COUNT)
DRAWS = {
    "rand": lambda x: torch.rand(COUNT),
    "rand_like": torch.rand_like,
    "randn": lambda x: torch.randn(100, 100),
    "randn in float64": lambda x: torch.randn(COUNT, dtype=torch.float64),
    "rand in float16": lambda x: torch.rand(COUNT, dtype=torch.float16),
    "uniform": lambda x: torch.empty(COUNT).uniform_(-2, 5),
    "normal": lambda x: torch.empty(COUNT).normal_(3, 0.5),
    "normal by means": lambda x: torch.normal(x + torch.arange(2.0).repeat(COUNT // 2), 2.0),
    "normal by deviations": lambda x: torch.normal(1.0, x + torch.arange(2.0).repeat(COUNT // 2)),
    "normal by both": lambda x: torch.normal(x, x + 2),
    "log_normal": lambda x: torch.empty(COUNT).log_normal_(1, 0.5),
    "exponential": lambda x: torch.empty(COUNT).exponential_(3),
    "geometric": lambda x: torch.empty(COUNT).geometric_(0.25),
    "cauchy": lambda x: torch.empty(COUNT).cauchy_(1, 2),
    "integers": lambda x: torch.randint(-3, 12, (COUNT,)),
    "integers like": lambda x: torch.randint_like(x, 7),
    "integers of random_": lambda x: torch.empty(COUNT, dtype=torch.int32).random_(100),
    "bernoulli": lambda x: torch.bernoulli(x + 0.3),
    "bernoulli of a number": lambda x: torch.empty(COUNT).bernoulli_(0.8),
    "bernoulli of a tensor": lambda x: torch.empty(COUNT).bernoulli_(x + 0.8),
    "multinomial": lambda x: torch.multinomial(torch.tensor([0.5, 0, 3, 1.5]) + x[0], COUNT, replacement=True),
    "dropout": lambda x: F.dropout(x + 1, 0.25, training=True),
    "dropout of channels": lambda x: F.dropout2d((x + 1).view(2, COUNT // 8, 2, 2), 0.5, training=True),
    "alpha dropout": lambda x: F.alpha_dropout(x + 1, 0.3, training=True),
    "gumbel": lambda x: F.gumbel_softmax(x.view(-1, 4)),
}


def compiled(draw, *args, **options):
    return rammer.compile(Function(draw).eval(), args=args, **{"veus": 1, **options})


@pytest.mark.parametrize("name", DRAWS)
def test_distributions(name):
    """The empirical ones of both: where they are furthest apart, as by Kolmogorov and Smirnov."""
    draw = DRAWS[name]
    torch.manual_seed(3)
    expected = draw(ZEROS)
    net = compiled(draw, ZEROS)
    found = net(ZEROS)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    ours, theirs = (values.double().flatten().sort().values for values in (found, expected))
    both = torch.cat([ours, theirs]).unique()
    shares = [torch.searchsorted(values, both, right=True) / values.numel() for values in (ours, theirs)]
    apart = (shares[0] - shares[1]).abs().max().item()
    assert apart < 1.95 * math.sqrt(2 / ours.numel())
    assert not torch.equal(net(ZEROS), found)


def test_permutations():
    net = compiled(lambda x: torch.randperm(50), ZEROS)
    drawn = torch.stack([net(ZEROS) for _ in range(200)])
    assert torch.equal(drawn.sort().values, torch.arange(50).expand(200, 50))
    assert len({tuple(one.tolist()) for one in drawn}) == 200
    assert abs(drawn[:, 0].double().mean().item() - 24.5) < 4.5 * 14.43 / math.sqrt(200)


def test_positions_are_chosen_once():
    weights = torch.tensor([[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 1.0, 9.0]])
    net = compiled(lambda w: torch.multinomial(w, 2), weights)
    drawn = torch.stack([net(weights) for _ in range(2000)])
    assert (drawn[:, :, 0] != drawn[:, :, 1]).all()
    assert set(drawn[:, 1].unique().tolist()) == {2, 3}
    first = torch.bincount(drawn[:, 0, 0], minlength=4) / 2000
    torch.testing.assert_close(first, weights[0] / 10, atol=0.05, rtol=0)
    pairs = ((drawn[:, 0] == torch.tensor([3, 2])).all(1)).double().mean().item()
    assert abs(pairs - 0.4 * 3 / 6) < 0.045


def test_a_seed_repeats_them_and_streams_are_apart():
    draw = lambda x: (torch.rand_like(x), torch.rand_like(x))  # noqa: E731
    net = compiled(draw, ZEROS, seed=3)
    one, other = net(ZEROS)
    assert abs(torch.corrcoef(torch.stack([one, other]))[0, 1].item()) < 0.045
    assert torch.equal(compiled(draw, ZEROS, seed=3)(ZEROS)[1], other)
    net.reset()
    assert torch.equal(net(ZEROS)[0], one)


def test_graphs_of_one_module_draw_numbers_of_their_own():
    def broken(x):
        one = torch.rand_like(x)
        torch._dynamo.graph_break()
        return one, torch.rand_like(x)

    torch.compiler.reset()
    net = torch.compile(Function(broken), backend="rammer", dynamic=False, options={"veus": 1})
    with torch.no_grad():
        one, other = net(ZEROS)
        assert not torch.equal(net(ZEROS)[0], one)
    assert abs(torch.corrcoef(torch.stack([one, other]))[0, 1].item()) < 0.045


def test_a_stochastic_head_beside_a_buffer():
    class Walk(Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("place", torch.zeros(COUNT))

        def forward(self, x):
            self.place.add_(torch.randn_like(x))
            return self.place + x

    net = rammer.compile(Walk().eval(), args=(ZEROS,), veus=1)
    found = [net(ZEROS) for _ in range(3)]
    assert abs(found[2].square().mean().item() - 3) < 4.5 * math.sqrt(18 / COUNT)


def test_several_shapes_are_refused():
    with pytest.raises(UnsupportedFeatureError, match="random"):
        compiled(torch.rand_like, torch.ones(2), dynamic={"args.0": {0: (1, 8)}})
