"""Modules that write to their buffers: the buffers are state, as they are in eager PyTorch."""

import pytest

torch = pytest.importorskip("torch")

import rammer  # noqa: E402 - after the check for PyTorch
from rammer.errors import OptionError  # noqa: E402
from tests.support.torch_modules import Module  # noqa: E402

pytestmark = pytest.mark.torch

POSITIONS, WIDTH, HEADS, TOKENS = 512, 32, 4, 50


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


class Counter(Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.ones(3))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("fixed", torch.full((3,), 2.0))

    def forward(self, x):
        self.total.add_(x * self.fixed)
        self.count += 1
        return self.total / self.count


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_buffers_that_are_written_are_state(device, tmp_path):
    module, x = Counter().eval(), torch.arange(3.0)
    net = rammer.compile(module, device, args=(x,))
    assert list(net.state) == ["total", "count"]
    for i in range(4):
        torch.testing.assert_close(net(x + i), module(x + i))
    torch.testing.assert_close(torch.from_numpy(net.state["total"]), module.total)
    assert net.state["count"] == 4
    fresh, other = Counter().eval(), net.new_state()
    torch.testing.assert_close(net(x, state=other), fresh(x))
    torch.testing.assert_close(net(x.numpy() + 1, state=other), fresh(x + 1).numpy())
    torch.testing.assert_close(net(x), module(x))
    net.reset()
    assert net.state["count"] == 0
    if device == "cpu":
        net.save(tmp_path / "counter.rammer")
        torch.testing.assert_close(rammer.load(tmp_path / "counter.rammer")(x), Counter().eval()(x))


def test_compiling_leaves_the_module_as_it_was():
    module = Counter().eval()
    net = rammer.compile(module, "reference", args=(torch.ones(3),))
    net(torch.ones(3))
    assert module.count == 0
    module(torch.ones(3))
    assert net.new_state()["count"] == 0


def test_a_modules_state_is_its_buffers():
    with pytest.raises(OptionError, match="buffers"):
        rammer.compile(Counter().eval(), "reference", args=(torch.ones(3),), state={"x": "y"})


class Streaming(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.LSTM(4, 8)
        self.register_buffer("h", torch.zeros(1, 1, 8))
        self.register_buffer("c", torch.zeros(1, 1, 8))

    def forward(self, x):
        y, (h, c) = self.layer(x, (self.h, self.c))
        self.h.copy_(h)
        self.c.copy_(c)
        return y


def test_a_streaming_lstm_is_the_whole_sequence_bit_for_bit():
    torch.manual_seed(0)
    module, steps = Streaming().eval(), 10_000
    x = torch.randn(steps, 1, 4)
    chunk = rammer.compile(module, "cpu", args=(x[:1],), veus=1)
    pieces = torch.cat([chunk(x[i : i + 1]) for i in range(steps)])
    longer = rammer.compile(module, "cpu", args=(x[:100],), veus=1)
    whole = torch.cat([longer(part) for part in x.split(100)])
    assert torch.equal(pieces, whole)
    torch.testing.assert_close(pieces, module.layer(x)[0], rtol=1e-4, atol=1e-5)


class Decoder(Module):
    """One layer of attention over a static cache, and the most likely next token."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(TOKENS, WIDTH)
        self.places = torch.nn.Embedding(POSITIONS, WIDTH)
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(WIDTH, 64), torch.nn.GELU(), torch.nn.Linear(64, WIDTH))
        self.head = torch.nn.Linear(WIDTH, TOKENS)
        for name in ("k_cache", "v_cache"):
            self.register_buffer(name, torch.zeros(1, HEADS, POSITIONS, WIDTH // HEADS))
        self.register_buffer("position", torch.zeros(1, dtype=torch.int64))

    def forward(self, token):
        x = self.embed(token) + self.places(self.position)
        q, k, v = (part.view(1, 1, HEADS, -1).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        self.k_cache.index_copy_(2, self.position, k)
        self.v_cache.index_copy_(2, self.position, v)
        seen = torch.arange(POSITIONS) <= self.position
        mixed = torch.nn.functional.scaled_dot_product_attention(q, self.k_cache, self.v_cache, attn_mask=seen[None])
        x = x + mixed.transpose(1, 2).reshape(1, 1, WIDTH)
        logits = self.head(x + self.mlp(x))
        self.position += 1
        return logits, logits.argmax(-1)


def generated(step, count):
    token, found = torch.tensor([[7]]), []
    for _ in range(count):
        logits, token = step(token)
        found.append((token.item(), logits))
    return found


def test_a_decoder_with_a_static_cache_generates_eagers_tokens():
    torch.manual_seed(1)
    module = Decoder().eval()
    net = rammer.compile(module, "cpu", args=(torch.tensor([[7]]),))
    assert set(net.state) == {"k_cache", "v_cache", "position"}
    ours, theirs = generated(net, 256), generated(module, 256)
    assert [token for token, _ in ours] == [token for token, _ in theirs]
    assert len({token for token, _ in theirs}) > 5
    torch.testing.assert_close(ours[-1][1], theirs[-1][1], rtol=1e-4, atol=1e-4)
    assert net.state["position"] == 256
