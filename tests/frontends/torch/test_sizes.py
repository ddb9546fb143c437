"""Tensors whose size depends on the values of others, against eager PyTorch: where there are none, some, or all."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import rammer  # noqa: E402 - after the check for PyTorch
from rammer import errors  # noqa: E402
from tests.support.torch_modules import Function, Module, check_each, generator, imported, normal  # noqa: E402

pytestmark = pytest.mark.torch

W, B = normal(3, 4), normal(3)
X = normal(6, 4)
SIGNS = {
    "some": [1, -1, 1, 1, -1, -1],
    "none": [-1] * 6,
    "all": [1] * 6,
    "the first": [1, -1, -1, -1, -1, -1],
    "the last": [-1, -1, -1, -1, -1, 1],
}
CALLS = [(torch.cat([X[:, :1].abs() * torch.tensor([signs]).T, X[:, 1:]], 1),) for signs in SIGNS.values()]
SOME = [CALLS[0], *CALLS[2:]]


def rows(x):
    """`[n, 4]`, of which any number up to 6 count."""
    return x[x[:, 0] > 0]


def of_rows(function):
    return lambda x: function(rows(x))


def of_list(function):
    """Of a vector of rows' numbers."""
    return lambda x: function(x, torch.where(x[:, 0] > 0)[0])


MADE = {
    "a mask": rows,
    "elements": lambda x: x[x > 0],
    "columns of a mask": lambda x: x.T[:, x[:, 0] > 0],
    "a mask of two dimensions": lambda x: torch.stack([x, x * 2], 2)[x > 0],
    "a mask behind positions": lambda x: x.view(2, 3, 4)[:, x[:3, 0] > 0],
    "nonzero": lambda x: (torch.nonzero(x > 0), torch.nonzero(x[:, 0] > 0, as_tuple=True)),
    "of a fixed size": lambda x: (torch.nonzero_static(x > 0, size=3), torch.nonzero_static(x > 0, size=30)),
    "argwhere": lambda x: torch.argwhere(x > 1),
    "where": lambda x: torch.where(x > 0),
    "masked_select": lambda x: (torch.masked_select(x, x > 0), torch.masked_select(x, x[:, :1] > 0)),
    "of what counts": of_rows(lambda y: (torch.nonzero(y > 0), y[y > 0], y[y[:, 1] > 0], y.masked_select(y > 0))),
    "again": lambda x: rows(rows(x)[:, 1:]),
    "unique": lambda x: (torch.unique(x > 0), torch.unique((x * 2).long(), return_inverse=True, return_counts=True)),
    "unique rows": lambda x: torch.unique((x > 0).long(), dim=0, return_counts=True),
    "unique of rows": of_rows(lambda y: (torch.unique(y.long()), torch.unique((y > 0).long(), dim=0))),
}


@pytest.mark.parametrize("function", [pytest.param(f, id=name) for name, f in MADE.items()])
def test_what_is_as_large_as_the_values_say(function):
    check_each(function, CALLS)


FLOWS: dict[str, Any] = {
    "elements": lambda y: (y * 2 + 1, -y, y.exp(), y > 0, y.clamp(min=0), y.half(), torch.where(y > 0, y, 0.0)),
    "another of the same mask": lambda y: y * y[:, :1] + y[:, 1:2],
    "activations": lambda y: (F.gelu(y), F.silu(y), F.relu6(y), F.prelu(y, torch.tensor([0.1]))),
    "sums": lambda y: (y.sum(), y.sum(0), y.sum(1), y.sum(0, keepdim=True), (y > 0).sum()),
    "means": lambda y: (y.mean(), y.mean(0), y.mean(1), y.mean((0, 1), keepdim=True)),
    "spread": lambda y: (y.var(), y.std(0), y.var(1), y.std(0, unbiased=False), torch.var_mean(y, 0)),
    "norms": lambda y: (y.norm(), y.norm(dim=0), y.norm(dim=1), y.norm(p=1, dim=0)),
    "truth": lambda y: ((y > 0).all(), (y > 0).any(0), (y > 0).all(1), y.prod(0)),
    "running": lambda y: (y.cumsum(0), y.cumprod(1)),
    "softmax": lambda y: (y.softmax(0), y.softmax(1), y.log_softmax(0)),
    "normalised": lambda y: (F.layer_norm(y, (4,)), F.rms_norm(y, (4,)), F.normalize(y, dim=1)),
    "sorted": lambda y: (y.sort(0), y.sort(1), y[:, 0].argsort(descending=True), (y * 2).long().sort(0)),
    "the greatest": lambda y: (y[:, 1].topk(torch.sym_min(2, y.shape[0])), y.topk(2, 1)),
    "views": lambda y: (
        y.view(-1, 2, 2),
        y.reshape(-1),
        y.flatten(),
        y.unsqueeze(0),
        y[:, None],
        y.unflatten(1, (2, 2)),
    ),
    "orders": lambda y: (y.T, y.transpose(0, 1).contiguous(), y.flip(0), y.flip(1), y.flip((0, 1)), y.tril()),
    "slices": lambda y: (y[1:], y[:2], y[-2:], y[:-1], y[::2], y[:, 1:], y[:, -1], y[1:, :2]),
    "joined": lambda y: (torch.cat([y, y]), torch.cat([y, y * 2], 1), torch.cat([X, y]), torch.stack([y, y], 1)),
    "parts": lambda y: (*y.split(2, 1), *y.chunk(2, 1), *y.unbind(1)),
    "pads": lambda y: (F.pad(y, (1, 2)), F.pad(y.T, (0, 0, 1, 0))),
    "repeated": lambda y: (
        y.repeat(1, 2),
        y[:, None].expand(-1, 3, -1),
        y.repeat_interleave(2, 0),
        y.repeat_interleave(2),
    ),
    "products": lambda y: (F.linear(y, W, B), y @ W.T, W @ y.T, y.T @ y, y @ X[0], X[0] @ y.T),
    "more products": lambda y: (torch.addmm(B, y, W.T), torch.bmm(y[:, None], y[:, :, None]), torch.outer(y[:, 0], B)),
    "sums of products": lambda y: (torch.einsum("nd,kd->nk", y, W), torch.einsum("nd,ne->de", y, y)),
    "more sums of products": lambda y: (
        torch.einsum("...i,...i", y, y),
        torch.einsum("ij,kj", W, y),
        torch.einsum("ni->", y),
    ),
    "images": lambda y: F.max_pool2d(F.conv2d(y.view(-1, 1, 2, 2), W.view(3, 1, 2, 2), padding=1), 2),
    "resized images": lambda y: F.interpolate(y.view(-1, 1, 2, 2), scale_factor=2),
    "embedded": lambda y: F.embedding(y.long().clamp(0, 2), W),
    "one hot": lambda y: F.one_hot(y[:, 0].long().clamp(0, 3), 4),
    "picked": lambda y: (y.gather(1, (y > 0).long()), y[:, [2, 0]], y.index_select(1, torch.tensor([1, 1]))),
    "filled": lambda y: (y.masked_fill(y > 0, 1.0), torch.zeros_like(y), y.new_ones(y.shape[0]), y.clone().zero_()),
    "columns replaced": lambda y: column(y.clone()),
    "masks of it": lambda y: masked(y.clone()),
    "sizes": lambda y: (y.shape[0], y.shape[0] * 2 + 1, y.numel(), y / y.shape[0], y * y.shape[0] ** 0.5),
    "made as large": lambda y: (
        torch.arange(y.shape[0]),
        torch.zeros(y.shape[0], 2),
        torch.full((2 * y.shape[0],), 3.0),
    ),
    "halves": lambda y: (y[: y.shape[0] // 2], y[y.shape[0] // 2 :]),
    "distances": lambda y: ((y[:, None] - X[None]).norm(dim=2).argmin(1), (y[:, None] - X[None]).abs().amax((1, 2))),
    "edges": lambda y: torch.bucketize(y, torch.tensor([-0.5, 0.5])),
}


def column(y):
    y[:, 1] = 5.0
    y[:, 2:] = y[:, 2:].clamp(0, 1)
    return y


def masked(y):
    mask = y[:, 1] > 0
    written = torch.zeros_like(y)
    written[mask] = y[mask] * 3
    y[mask] = 0.0
    return y, written, y.masked_scatter(mask[:, None], written)


@pytest.mark.parametrize("function", [pytest.param(of_rows(f), id=name) for name, f in FLOWS.items()])
def test_flows(function):
    check_each(function, CALLS)


OF_SOME: dict[str, Any] = {
    "extremes": lambda y: (y.max(0), y.min(), y.amax(0), y.amin(1), y.argmax(), y.argmin(0)),
    "of lines": lambda y: (y.logsumexp(0), y.cummax(0), y.roll(1, 1)),
    "one row": lambda y: (y[0], y[-1], y[-1] @ y.T),
}


@pytest.mark.parametrize("function", [pytest.param(f, id=name) for name, f in OF_SOME.items()])
def test_flows_where_there_are_any(function):
    def checked(x):
        y = rows(x)
        torch._check(y.shape[0] > 0)
        return function(y)

    check_each(checked, SOME)


WRITTEN: dict[str, Any] = {
    "by a mask": lambda x, _: put(x, x[:, 0] > 0, F.linear(rows(x), W)),
    "numbers by a mask": lambda x, _: (put(x, x[:, 0] > 0, 2.0), put(x, x[:, 0] > 0, B)),
    "elements by a mask": lambda x, _: put(x, x > 0, x[x > 0] * 2, x.shape),
    "in order": lambda x, _: x.masked_scatter(x > 0, x[x > 0] * 2),
    "by positions": lambda x, i: put(x, i, F.linear(x[i], W)),
    "columns": lambda x, i: torch.zeros(3, 6).index_put((torch.tensor([[0], [2]]), i), x[i, 1]),
    "added": lambda x, i: torch.zeros(6, 3).index_add(0, i, F.linear(x[i], W)),
    "copied": lambda x, i: (torch.zeros(6, 4).index_copy(0, i, x[i]), torch.ones(6).index_fill(0, i, 3.0)),
    "summed": lambda x, i: torch.zeros(6).index_put((i // 2,), x[i, 1], accumulate=True),
    "scattered": lambda x, i: (torch.zeros(6).scatter(0, i, x[i, 1]), torch.zeros(6).scatter_add(0, i // 2, x[i, 1])),
    "the greatest": lambda x, i: torch.zeros(6).scatter_reduce(0, i // 2, x[i, 1], "amax", include_self=False),
    "from the end": lambda x, i: (x[i - 6], x[-i - 1], x[i][:, [-1]]),
}


def put(x, index, values, shape=(6, 3)):
    result = torch.zeros(shape)
    result[index] = values
    return result


@pytest.mark.parametrize("function", [pytest.param(of_list(f), id=name) for name, f in WRITTEN.items()])
def test_what_is_written_back(function):
    check_each(function, CALLS)


def test_numbers_from_tensors():
    def cut(x, n):
        size, first = n.item(), x[:, 1].argmax().item()
        return x[:size] * 2, x[size:], x[first], x * size, x * x[0, 0].item(), torch.arange(6) < size

    check_each(cut, [(X, torch.tensor(n)) for n in (0, 2, 5)])

    def window(x, n):
        first = n.item()
        torch._check(first >= 0)
        torch._check(first <= 4)
        return x[first : first + 2], x.narrow(0, first, 2)

    check_each(window, [(X, torch.tensor(n)) for n in (0, 3, 4)])


def test_numbers_that_checks_alone_compare():
    def checked(x, n):
        torch._check((n - n).item() == 0)
        return x[: n.item()] * x[: n.item()]

    check_each(checked, [(X, torch.tensor(n)) for n in (0, 1, 4)])


def test_parts_of_computed_sizes():
    def parts(x, sizes):
        first, second, third = x.split(sizes.tolist())
        return first * 2, second.sum(0), torch.cat([third, first])

    check_each(parts, [(X, torch.tensor(sizes)) for sizes in ([1, 2, 3], [0, 6, 0], [2, 0, 4])])

    def rest(x):
        y = rows(x)
        first, others = y.split([1, y.shape[0] - 1])
        return first, others

    check_each(rest, SOME)


def test_repetitions_have_a_bound():
    def repeated(x):
        times = (x[:, 1].abs() * 2).long()
        y, i = x.repeat_interleave(times, 0), torch.repeat_interleave(times)
        torch._check(y.shape[0] <= 40)
        torch._check(i.shape[0] <= 40)
        return y, i, x.repeat_interleave(torch.full((6,), 2), 0, output_size=12)

    check_each(repeated, CALLS)
    with pytest.raises(errors.DataDependentError, match=r"torch\._check"):
        imported(lambda x: x.repeat_interleave(x[:, 1].abs().long(), 0), X)


def test_a_check_says_how_many_there_are_at_most():
    def few(x):
        y = rows(x)
        torch._check(y.shape[0] <= 3)
        return y * 2

    def put_back(x):
        result = torch.zeros(6, 3)
        result[x[:, 0] > 0] = F.linear(few(x), W)
        return result

    check_each(put_back, [CALLS[0], CALLS[1], CALLS[3]])
    graph = imported(few, X).graph
    assert [graph.values[output].type.shape for output in graph.outputs] == [(3, 4), ()]
    check_each(few, [CALLS[0], CALLS[1], CALLS[3]])


class Experts(Module):
    """The two best of some experts compute each row, weighted by gates."""

    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Linear(4, 3)
        self.experts = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU()) for _ in range(3)
        )
        self.back = torch.nn.Linear(8, 4)

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            row, place = torch.where(chosen == number)
            result.index_add_(0, row, self.back(F.gelu(expert(x[row]))) * weights[row, place, None])
        return result


class Packed(Module):
    """A layer of attention over the tokens that there are, scattered back to where they were."""

    def __init__(self):
        super().__init__()
        self.projection = torch.nn.Linear(8, 24)
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, h, mask):
        tokens = h[mask]
        torch._check(tokens.shape[0] > 0)
        q, k, v = self.projection(self.norm(tokens)).view(1, tokens.shape[0], 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)[0]
        result = torch.zeros_like(h)
        result[mask] = mixed
        return result, mixed.mean(0)


def test_experts_and_packed_tokens():
    torch.manual_seed(0)
    check_each(Experts().eval(), CALLS)
    masks = [torch.rand(2, 5, generator=generator()) > 0.4, torch.ones(2, 5, dtype=torch.bool)]
    check_each(Packed().eval(), [(normal(2, 5, 8), mask) for mask in masks])


def test_compiled_modules_give_what_counts(tmp_path):
    def found(x):
        return {"rows": rows(x) * 2, "number": rows(x).shape[0], "places": [torch.where(x[:, 0] > 0)[0]]}

    net = rammer.compile(Function(found).eval(), "reference", args=CALLS[0])
    for x, *_ in CALLS:
        ours, theirs = net(x), found(x)
        torch.testing.assert_close(ours, theirs)
        arrays = net(x.numpy())
        assert arrays["rows"].shape == tuple(theirs["rows"].shape)
    whole = net.run({"args.0" if "args.0" in str(net.signature) else "args_0": CALLS[0][0].numpy()})
    assert whole["rows"].shape == (6, 4)
    assert whole["rows.count"] == whole["number"] == 3
    assert not whole["rows"][3:].any()
    both = rammer.compile([Function(found).eval(), Function(rows).eval()], "reference", args=[CALLS[0], CALLS[0]])
    first, second = both(CALLS[3][0], CALLS[2][0])
    assert (first["number"], second.shape) == (1, (6, 4))


def test_saved_models_give_what_counts(tmp_path):
    net = rammer.compile(Function(lambda x: (rows(x), rows(x).shape[0])).eval(), "cpu", args=CALLS[0], veus=1)
    net.save(tmp_path / "rows.rammer")
    again = rammer.load(tmp_path / "rows.rammer")
    for x, *_ in CALLS:
        taken, number = again(x)
        torch.testing.assert_close(taken, rows(x))
        assert number == len(rows(x))


def test_explained_as_large_as_they_can_be():
    found = rammer.explain(Function(rows).eval(), CALLS[0])
    assert [(name, each.shape) for name, each in found.outputs] == [("index", (6, 4))]


def bounded(x):
    number = x[:, 1].argmax().item()
    torch._check(number >= 0)
    torch._check(number <= 6)
    return number


REFUSED: dict[str, Any] = {
    "two sizes": (lambda x: rows(x) @ rows(x).T, "several dimensions"),
    "another mask": (lambda x: rows(x) + x[x[:, 1] > 0], "not known to be that of"),
    "a known size": (lambda x: rows(x) + x, "for that of"),
    "a sum of sizes": (lambda x: torch.cat([rows(x), x[x[:, 1] > 0]]) + x, "6 elements along that dimension"),
    "a number": (lambda x: x[: x[:, 1].argmax().item()] + W, "for that of"),
    "a number with bounds": (lambda x: x[: bounded(x)] + W, "that of another operand"),
    "two numbers": (lambda x: x[: bounded(x)] + x[: bounded(-x)], "not known to be that of"),
    "repetitions": (lambda x: x.repeat_interleave(x[:, 1].abs().long(), 0) + W, "for that of"),
    "sizes of parts": (lambda x: x.split([bounded(x), bounded(-x), 3])[0] + W, "that of another operand"),
    "any dimension of one": (lambda x: rows(x).squeeze(), "name the dimensions"),
    "that dimension": (lambda x: rows(x).squeeze(0), "may not go"),
    "split": (lambda x: rows(x).T.reshape(-1), "does not stay one of its own"),
    "no rule": (lambda x: torch.linalg.qr(rows(x)), "size that depends on the data"),
    "rolled": (lambda x: rows(x)[:, 0].median(), "along that dimension"),
    "values of another mask": (lambda x: put(x, x[:, 0] > 0, x[x[:, 1] > 0], (6, 4)), "how often the mask holds"),
    "complex": (lambda x: torch.fft.rfft(rows(x)).real, "complex"),
    "a choice": (lambda x: torch.full((2,), rows(x).shape[0] > 2), "truth value"),
}


@pytest.mark.parametrize(("function", "words"), [pytest.param(*case, id=name) for name, case in REFUSED.items()])
def test_refused(function, words):
    with pytest.raises(errors.DataDependentError, match=words) as caught:
        imported(function, X)
    assert caught.value.hint
