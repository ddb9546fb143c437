"""Training steps as one program: losses, parameters and the optimiser's state against eager PyTorch."""

import copy
import math
import re
from typing import Any, cast

import numpy as np
import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import rammer  # noqa: E402 - after the check for PyTorch
from rammer import errors  # noqa: E402
from tests.support.torch_modules import Function, Module, check_losses, check_step, imported_step  # noqa: E402

pytestmark = pytest.mark.torch

BATCH, CLASSES = 6, 3


def sgd(module, **options):
    return torch.optim.SGD(module.parameters(), **{"lr": 0.1, **options})


def cross_entropy(module, x, target):
    return F.cross_entropy(module(x), target)


def mean_square(module, *args):
    return module(*args).sigmoid().square().mean()


def targets():
    return torch.randint(0, CLASSES, (BATCH,))


class Recurrent(Module):
    def __init__(self, kind):
        super().__init__()
        self.layer = kind(5, 8, batch_first=True)
        self.head = torch.nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


class Transformer(Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(10, 16)
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = torch.nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.head(self.layer(self.embed(x)).mean(1))


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, CLASSES))


def cnn():
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2),
        torch.nn.Flatten(),
        torch.nn.Linear(24, CLASSES),
    )


NETWORKS = {
    "mlp": (mlp, lambda: torch.randn(BATCH, 8)),
    "cnn": (cnn, lambda: torch.randn(BATCH, 1, 8, 8)),
    "lstm": (lambda: Recurrent(torch.nn.LSTM), lambda: torch.randn(BATCH, 4, 5)),
    "gru": (lambda: Recurrent(torch.nn.GRU), lambda: torch.randn(BATCH, 4, 5)),
    "transformer": (Transformer, lambda: torch.randint(0, 10, (BATCH, 6))),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_losses_of_twenty_steps(name):
    torch.manual_seed(0)
    make, inputs = NETWORKS[name]
    module = make()
    ours = copy.deepcopy(module)
    optimizers = [sgd(each, momentum=0.9, nesterov=True, weight_decay=1e-2) for each in (module, ours)]
    data = [(inputs(), targets()) for _ in range(20)]
    step = rammer.compile_step(cross_entropy, ours, optimizers[1], "cpu", args=data[0])
    check_losses(step, cross_entropy, module, optimizers, data, slower_from=10, tolerance=1e-5)
    step.sync()
    close(ours.state_dict(), module.state_dict())
    close(optimizers[1].state_dict()["state"], optimizers[0].state_dict()["state"])


def test_losses_of_a_thousand_steps():
    torch.manual_seed(0)
    module = mlp()
    ours = copy.deepcopy(module)
    optimizers = [sgd(each, momentum=0.9) for each in (module, ours)]
    data = [(torch.randn(6, 8), targets()) for _ in range(20)] * 50
    step = rammer.compile_step(cross_entropy, ours, optimizers[1], "cpu", args=data[0])
    check_losses(step, cross_entropy, module, optimizers, data, slower_from=500, tolerance=1e-3)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, maximize=True),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2, weight_decay=0.1, maximize=True),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=torch.tensor(1e-2), amsgrad=True, betas=(0.8, 0.9)),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, eps=1e-3),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    torch.manual_seed(0)
    module = mlp()
    x, target = torch.randn(BATCH, 8), targets()
    optimizer = OPTIMIZERS[name](module.parameters())
    for _ in range(3):  # what it keeps has begun by then
        optimizer.zero_grad()
        cross_entropy(module, x, target).backward()
        optimizer.step()
    check_step(cross_entropy, module, optimizer, x, target)


LAYERS = {
    "conv1d": lambda: torch.nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2),
    "conv1d that leaves a rest": lambda: torch.nn.Conv1d(4, 6, 3, stride=3),
    "conv1d of one tap": lambda: torch.nn.Conv1d(4, 6, 1, stride=2),
    "conv1d whose stride divides its dilation": lambda: torch.nn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2),
    "conv1d of unlike stride and dilation": lambda: torch.nn.Conv1d(4, 4, 3, stride=3, padding=4, dilation=2, groups=4),
    "transposed": lambda: torch.nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
    "layer norm": lambda: torch.nn.LayerNorm(9),
    "group norm": lambda: torch.nn.GroupNorm(2, 4),
    "batch norm": lambda: torch.nn.BatchNorm1d(4, momentum=0.3),
    "prelu": lambda: torch.nn.PReLU(4),
}


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_layers(name):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv1d(4, 4, 1), LAYERS[name]())
    check_step(mean_square, module, sgd(module), torch.randn(2, 4, 9))


def test_gradients_of_convolutions_by_minimal_filtering():
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(32, 32, 3, padding=1, bias=False) for _ in range(3)]
    module = torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1], torch.nn.Tanh(), layers[2])
    step = rammer.compile_step(mean_square, module, sgd(module), args=(torch.randn(2, 32, 16, 16),))
    kinds = [operator["kind"] for operator in step.report["operators"]]
    assert sum(kind.startswith("ConvFilterTransform") for kind in kinds) >= 3
    check_step(mean_square, module, sgd(module), torch.randn(2, 32, 16, 16))


def assigned(x):
    """Parts of a copy are overwritten, by others and by a number, and added to."""
    y = x.clone()
    y[:, 0] = y[:, 1] * 3
    y[..., 2:4] = 0.5
    y[:, :, 1] += y[:, :, 0]
    return y * x


PIXELS = torch.arange(128).reshape(2, 8, 8) % 4

FUNCTIONS = {
    "max pool": lambda x: F.max_pool2d(x, 2),
    "overlapping max pool": lambda x: F.max_pool2d(x, 3, stride=2, padding=1),
    "dilated max pool": lambda x: F.max_pool2d(x, 2, stride=2, dilation=2),
    "rounded up max pool": lambda x: F.max_pool2d(x, 3, stride=2, ceil_mode=True),
    "max pool 1d": lambda x: F.max_pool1d(x.flatten(1, 2), 3, stride=2),
    "adaptive max pool": lambda x: F.adaptive_max_pool2d(x, 2) + F.adaptive_max_pool2d(x, (3, 5))[..., :2, :2],
    "mean pool": lambda x: F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True),
    "mean pool without padding": lambda x: F.avg_pool2d(x, 3, 2, padding=1, count_include_pad=False),
    "divided pool": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    "adaptive mean pool": lambda x: F.adaptive_avg_pool2d(x, (3, 5)),
    "upsampling": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "activations": lambda x: F.gelu(x) + F.silu(x) + F.elu(x) + F.softplus(x) + F.hardswish(x) + F.mish(x) + x.tanh(),
    "logarithm of sigmoid": lambda x: F.logsigmoid(9 * x),
    "assignments to parts": lambda x: assigned(x) + assigned(x.transpose(2, 3)),
    "circular padding": lambda x: F.pad(x, (1, 2, 0, 1), mode="circular"),
    "statistics": lambda x: (
        x.std(-1) + x.norm(dim=-1) + x.amax(-1) + x.max(-1)[0] + x.logsumexp(-1) + x.cumsum(1)[..., 0]
    ),
    "choices": lambda x: (
        x.clamp(-0.1, 0.1) + torch.min(x, -x) + x.abs() + x.gather(3, torch.tensor([[[[1]]]]).expand(2, 4, 8, 1))
    ),
    "padding": lambda x: F.pad(x, (1, 1, 2, 0), mode="reflect"),
    "classes of pixels": lambda x: F.cross_entropy(x, PIXELS, ignore_index=1, reduction="none"),
    "weighted classes of pixels": lambda x: F.cross_entropy(x, PIXELS, weight=torch.tensor([1.0, 2, 3, 4])),
}


class Behind(Module):
    """A function behind a convolution, so that there is something to train."""

    def __init__(self, function):
        super().__init__()
        self.layer = torch.nn.Conv2d(2, 4, 1)
        self.function = function

    def forward(self, x):
        return self.function(self.layer(x))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_functions(name):
    torch.manual_seed(0)
    module = Behind(FUNCTIONS[name])
    check_step(mean_square, module, sgd(module), torch.randn(2, 2, 8, 8))


def test_of_equal_elements_of_a_window_the_first_takes_the_gradient():
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1), torch.nn.MaxPool2d(3, stride=2, padding=1))
    check_step(mean_square, module, sgd(module), torch.ones(1, 1, 7, 7).tril())


TARGET = torch.tensor([1, 0, 2, 1, 2, 1])

LOSSES = {
    "cross entropy": lambda m, x: F.cross_entropy(m(x), torch.tensor([1, 0, 2, -100, 2, 1]), label_smoothing=0.1),
    "a class that does not count": lambda m, x: F.cross_entropy(m(x), TARGET, ignore_index=2),
    "sum": lambda m, x: F.cross_entropy(m(x), TARGET, reduction="sum"),
    "of rows": lambda m, x: F.cross_entropy(m(x), TARGET, reduction="none") @ torch.arange(6.0),
    "weighted, but for a class": lambda m, x: F.cross_entropy(
        m(x), TARGET, weight=torch.tensor([1.0, 2, 3]), ignore_index=0
    ),
    "of one row": lambda m, x: F.cross_entropy(m(x)[0], torch.tensor(1)),
    "of scores": lambda m, x: F.nll_loss(m(x), TARGET),
    "of another softmax": lambda m, x: F.nll_loss(m(x).log_softmax(0), TARGET),
    "with entropy": lambda m, x: F.cross_entropy(m(x), TARGET) + (m(x).softmax(-1) * m(x).log_softmax(-1)).sum(),
    "weighted": lambda m, x: F.cross_entropy(m(x), torch.tensor([1, 0, 2, 1, 2, 1]), weight=torch.tensor([1.0, 2, 3])),
    "binary": lambda m, x: F.binary_cross_entropy_with_logits(m(x), torch.full((BATCH, CLASSES), 0.3)),
    "huber": lambda m, x: F.huber_loss(m(x), torch.zeros(BATCH, CLASSES), delta=0.3),
    "divergence": lambda m, x: F.kl_div(
        m(x).log_softmax(-1), torch.full((BATCH, CLASSES), 1 / 3), reduction="batchmean"
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    torch.manual_seed(0)
    module = mlp()
    check_step(LOSSES[name], module, sgd(module), torch.randn(BATCH, 8))


def test_the_gradient_of_a_class_loss_sums_no_line():
    """Only the class has one: the sum over classes, which that of a softmax takes, is known."""
    module = mlp()
    graph = imported_step(cross_entropy, module, sgd(module), torch.randn(BATCH, 8), TARGET).graph
    assert {each.attributes["axes"] for each in graph.operators if each.kind == "ReduceSum"} == {(0,)}


class Tied(Module):
    """A head that shares its weight with the embedding, beside parameters that are not trained."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(5, 4)
        self.head = torch.nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight
        self.unused = torch.nn.Linear(3, 3)
        self.frozen = torch.nn.Linear(4, 4).requires_grad_(requires_grad=False)

    def forward(self, x):
        return self.head(self.frozen(self.embed(x)))


def test_shared_frozen_and_unused_parameters():
    torch.manual_seed(0)
    module = Tied()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
    check_step(mean_square, module, optimizer, torch.tensor([1, 2, 1]))
    states = [state.name for state in imported_step(mean_square, module, optimizer, torch.tensor([1])).graph.states]
    assert states == [
        "embed.weight",
        "optimizer:lr.0",
        "optimizer:step.0",
        "embed.weight:exp_avg",
        "embed.weight:exp_avg_sq",
    ]


def test_groups_have_learning_rates_of_their_own():
    torch.manual_seed(0)
    module = mlp()
    groups = [{"params": module[0].parameters()}, {"params": module[2].parameters(), "lr": 0.01, "momentum": 0.5}]
    check_step(cross_entropy, module, torch.optim.SGD(groups, lr=0.2), torch.randn(BATCH, 8), targets())


def test_further_results():
    module, x = torch.nn.Linear(4, 2), torch.ones(3, 4)

    def loss_and_scores(module, x, *, factor):
        scores = module(x)
        return scores.sum() * factor, {"scores": scores.detach()}

    step = rammer.compile_step(loss_and_scores, module, sgd(module), "reference", args=(x,), kwargs={"factor": 2})
    with torch.no_grad():
        expected = module(x)
    loss, rest = step(x, factor=2)
    torch.testing.assert_close(rest["scores"], expected)
    torch.testing.assert_close(loss, expected.sum() * 2)


def dropout_step(p, seed=0):
    module = torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False), torch.nn.Dropout(p))
    torch.nn.init.ones_(module[0].weight)

    def kept(module, x):
        y = module(x)
        return y.sum() * 0, y.detach()

    x = torch.ones(4000, 1)
    return rammer.compile_step(kept, module, sgd(module), "cpu", args=(x,), seed=seed), x


def test_dropout_has_pytorchs_distribution():
    step, x = dropout_step(0.3)
    kept = [step(x)[1] for _ in range(5)]
    values = torch.cat(kept).unique()
    torch.testing.assert_close(values, torch.tensor([0, 1 / 0.7]))
    share = torch.cat(kept).bool().float().mean().item()
    assert abs(share - 0.7) < 4 * math.sqrt(0.7 * 0.3 / 20_000)
    agreement = (kept[0].bool() == kept[1].bool()).float().mean().item()
    assert abs(agreement - 0.58) < 4 * math.sqrt(0.58 * 0.42 / 4000)  # two steps are independent
    assert list(step.state["random:stream"]) == [0, 5]


def test_dropout_repeats_from_its_state():
    (step, x), (same, _), (other, _) = dropout_step(0.5), dropout_step(0.5), dropout_step(0.5, seed=1)
    first = step(x)[1]
    assert torch.equal(first, same(x)[1])
    assert not torch.equal(first, other(x)[1])
    step.state["random:stream"] = np.array([0, 0], np.uint64)
    assert torch.equal(first, step(x)[1])


def test_dropout_hides_the_gradient_of_what_it_dropped():
    module = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Dropout(0.5))
    before = module[0].bias.detach().clone()

    def total(module, x):
        y = module(x)
        return y.sum(), y.detach()

    step = rammer.compile_step(total, module, sgd(module, lr=1.0), "cpu", args=(torch.ones(1, 1),))
    _, y = step(torch.ones(1, 1))
    step.sync()
    torch.testing.assert_close(before - module[0].bias.detach(), torch.where(y[0] != 0, 2.0, 0.0))


def test_normal_numbers():
    module = Function(torch.randn_like)
    module.scale = torch.nn.Parameter(torch.ones(()))

    def drawn(module, x):
        return module.scale * 1, module(x).detach()

    step = rammer.compile_step(drawn, module, sgd(module), "cpu", args=(torch.ones(20_000),))
    _, y = step(torch.ones(20_000))
    assert abs(y.mean().item()) < 4 / math.sqrt(20_000)
    assert abs(y.var().item() - 1) < 4 * math.sqrt(2 / 20_000)
    assert abs((y.abs() < 1).float().mean().item() - 0.6827) < 4 * math.sqrt(0.22 / 20_000)


def trained(step, data):
    return [step(*each).item() for each in data]


def test_checkpoints(tmp_path):
    torch.manual_seed(0)
    module = mlp()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    data = [(torch.randn(BATCH, 8), targets()) for _ in range(4)]
    step = rammer.compile_step(cross_entropy, module, optimizer, "cpu", args=data[0])
    trained(step, data)
    step.sync()
    saved = copy.deepcopy((module.state_dict(), optimizer.state_dict()))
    step.save(tmp_path / "step.rammer")
    ahead = trained(step, data)
    module.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    step.refresh()
    assert trained(step, data) == ahead
    loaded = rammer.load(tmp_path / "step.rammer")  # begins as the step was compiled, and needs no PyTorch
    again = loaded(*(tensor.numpy() for tensor in data[0]))
    step.reset()
    assert step(*data[0]).item() == again.item()


def test_a_changed_module_or_optimizer_is_refused():
    module, x = torch.nn.Linear(4, 2), torch.ones(3, 4)
    optimizer = sgd(module, momentum=0.9)
    step = rammer.compile_step(mean_square, module, optimizer, "reference", args=(x,))
    with torch.no_grad():
        module.weight.mul_(2)
    with pytest.raises(errors.StepChangedError, match="refresh"):
        step(x)
    with pytest.raises(errors.StepChangedError):
        step.sync()
    step.refresh()
    expected = mean_square(module, x).item()
    assert step(x).item() == pytest.approx(expected)
    optimizer.param_groups[0]["momentum"] = 0.5
    with pytest.raises(errors.StepChangedError, match="compile the step again"):
        step(x)
    with pytest.raises(errors.RefreshError):
        step.refresh(torch.nn.Linear(4, 2))


def test_a_scheduler_of_the_learning_rate_is_followed():
    module, x = torch.nn.Linear(4, 2), torch.ones(3, 4)
    optimizer = sgd(module)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    step = rammer.compile_step(mean_square, module, optimizer, "reference", args=(x,))
    step(x)
    step.sync()
    schedule.step()
    step(x)
    assert step.state["optimizer:lr.0"] == 0.05
    step.reset()
    other = step.new_state()
    for each in (step.state, other):
        assert each["optimizer:lr.0"] == 0.1
        step(x, state=each)
        assert each["optimizer:lr.0"] == 0.05


@pytest.mark.parametrize(
    ("optimizer", "match"),
    [
        (lambda m: torch.optim.Adagrad(m.parameters()), "Adagrad"),
        (lambda m: sgd(m, momentum=0.9, dampening=0.1), "dampening"),
        (lambda m: torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1), "none of the module's"),
    ],
)
def test_optimizers_that_are_refused(optimizer, match):
    module = torch.nn.Linear(4, 2)
    with pytest.raises(errors.OptimizerError, match=match):
        rammer.compile_step(mean_square, module, optimizer(module), "reference", args=(torch.ones(3, 4),))


def test_steps_that_are_refused():
    module, x = torch.nn.Linear(4, 2), torch.ones(3, 4)
    with pytest.raises(errors.CaptureError, match="scalar"):
        rammer.compile_step(lambda m, x: m(x), module, sgd(module), "reference", args=(x,))
    with pytest.raises(errors.DataDependentError):
        rammer.compile_step(
            lambda m, x: m(x).sum() if x.sum() > 0 else m(-x).sum(), module, sgd(module), "reference", args=(x,)
        )
    with pytest.raises(errors.NotAModelError):
        rammer.compile_step(mean_square, 3, sgd(module), "reference", args=(x,))
    with pytest.raises(errors.OptionError):
        rammer.compile_step(cast(Any, 3), module, sgd(module), "reference", args=(x,))
    with pytest.raises(errors.OptionError):
        rammer.compile_step(mean_square, module, sgd(module), "reference", args=(x,), seed=-1)


def sampled(x):
    return torch.nn.functional.grid_sample(x.view(1, 1, 2, 3), x.new_zeros(1, 1, 1, 2), align_corners=False).sum(1)


class Products(Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 3), Function(sampled))

    def forward(self, x):
        return self.inner(x).sum() + torch.cdist(x, self.inner[0](x) @ torch.ones(3, 4)).sum()


def test_missing_operators_of_the_backward_pass_have_the_places_of_the_forward_pass():
    module = Products()
    with pytest.raises(errors.UnsupportedOperatorsError) as caught:
        rammer.compile_step(lambda m, x: m(x), module, sgd(module), "reference", args=(torch.ones(2, 4),))
    operators = dict(caught.value.operators)
    assert re.fullmatch(
        r"inner\.1/grid_sampler \(torch_modules\.py:\d+\)", operators["aten.grid_sampler_2d_backward.default"]
    )
    assert re.fullmatch(r"cdist \(test_step\.py:\d+\)", operators["aten._cdist_backward.default"])
