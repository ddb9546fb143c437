"""Modules that write a position of their caches: the caches are updated in place, as in eager PyTorch."""

import runpy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import rammer  # noqa: E402 - after the check for PyTorch
from rammer.frontends.dispatch import Example, load_model  # noqa: E402
from rammer.options import CompileOptions, GivenInputs  # noqa: E402
from rammer.pipelines.compiler import find_target  # noqa: E402
from rammer.pipelines.planning import plan_graph  # noqa: E402
from tests.support.torch_modules import Module  # noqa: E402
from tests.support.updates import elements_written  # noqa: E402
from tests.support.walkthroughs import ROOT  # noqa: E402

pytestmark = pytest.mark.torch

HEADS, LENGTH, WIDTH = 2, 32, 4
TOKENS = 256


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


class Cached(Module):
    """Attention to a cache that is written in one of the usual ways."""

    def __init__(self, way, rows=1):
        super().__init__()
        self.way, self.rows = way, rows
        self.out = torch.nn.Linear(WIDTH, WIDTH)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, HEADS, LENGTH, WIDTH))

    def forward(self, x, position):
        for cache, row in ((self.keys, x), (self.values, self.out(x))):
            match self.way:
                case "index_copy_":
                    cache.index_copy_(2, position, row)
                case "index_put_":
                    cache[:, :, position] = row
                case "copy_":
                    here = torch.arange(LENGTH).view(-1, 1) == position
                    cache.copy_(torch.where(here, row, cache))
                case "slice":
                    cache[:, :, 3 : 3 + self.rows] = row
                case "scatter_":
                    cache.scatter_(2, position.view(1, 1, -1, 1).expand(1, HEADS, self.rows, WIDTH), row)
                case "roll":
                    cache.copy_(torch.cat([cache[:, :, 1:], row], 2))
        seen = torch.arange(LENGTH) <= position[:, None]
        return torch.nn.functional.scaled_dot_product_attention(x, self.keys, self.values, attn_mask=seen)


@pytest.mark.parametrize(
    ("way", "rows", "in_place"),
    [
        ("index_copy_", 1, (0, 1)),
        ("index_put_", 1, (0, 1)),
        ("copy_", 1, (0, 1)),
        ("slice", 4, (0, 1)),
        ("index_copy_", 4, ()),
        ("scatter_", 1, (0, 1)),
        ("scatter_", 4, ()),
        ("roll", 1, ()),
    ],
)
@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_ways_to_write_a_cache(device, way, rows, in_place):
    torch.manual_seed(0)
    module, eager = Cached(way, rows).eval(), Cached(way, rows).eval()
    eager.load_state_dict(module.state_dict())
    x, position = torch.zeros(1, HEADS, rows, WIDTH), torch.arange(rows)
    net = rammer.compile(module, device, args=(x, position))
    assert net.signature.in_place == in_place
    for first in (0, 7, 7, LENGTH - rows):
        x = torch.randn(x.shape)
        torch.testing.assert_close(net(x, position + first), eager(x, position + first), rtol=1e-4, atol=1e-5)
        for name in ("keys", "values"):
            held: Any = net.state[name]
            torch.testing.assert_close(torch.from_numpy(held), getattr(eager, name), rtol=1e-5, atol=1e-6)


def test_a_program_goes_on_from_anothers_cache():
    """A prompt written at once, then a row in each call."""
    module, x = Cached("slice", 4).eval(), torch.randn(1, HEADS, 4, WIDTH)
    row = x[:, :, :1].contiguous()
    prompt = rammer.compile(module, "cpu", args=(x, torch.arange(4)))
    module.way = "index_copy_"
    one = rammer.compile(module, "cpu", args=(row, torch.arange(1)))
    prompt(x, torch.arange(4))
    found = one(row, torch.tensor([9]), state=prompt.state)
    module.way = "slice"
    module(x, torch.arange(4))
    module.way = "index_copy_"
    torch.testing.assert_close(found, module(row, torch.tensor([9])), rtol=1e-4, atol=1e-5)


def decoder():
    """The example's, with a cache of 512 positions: the module, and how many elements a step has to write."""
    example = runpy.run_path(str(ROOT / "examples" / "decoder" / "decoder.py"))
    example["Decoder"].forward.__globals__["LENGTH"] = 512
    torch.manual_seed(1)
    return example["Decoder"](40).eval(), 2 * example["LAYERS"], example["WIDTH"]


def test_a_decoder_writes_eagers_tokens_and_copies_no_cache():
    module, caches, width = decoder()
    eager, _, _ = decoder()
    eager.load_state_dict(module.state_dict())
    example = torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    options = CompileOptions(device="cpu")
    graph = load_model(module, Example(args=example), GivenInputs()).graph
    assert elements_written(plan_graph(graph, find_target(options)[1], options)) == [width] * caches
    net = rammer.compile(module, "cpu", args=example)
    assert net.signature.in_place == tuple(range(caches))
    tokens: dict[str, list[int]] = {"found": [3], "wanted": [3]}
    for position in range(TOKENS):
        for name, run in (("found", net), ("wanted", eager)):
            scores = run(torch.tensor([[tokens[name][-1]]]), torch.tensor([position]))
            tokens[name].append(int(scores[0, 0].argmax()))
    assert tokens["found"] == tokens["wanted"]
    assert len({*tokens["found"]}) > 3
