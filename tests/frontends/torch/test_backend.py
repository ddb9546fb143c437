"""`torch.compile` with Rammer as its backend."""

import copy
import tomllib
from importlib import import_module

import pytest

torch = pytest.importorskip("torch")

from rammer import errors  # noqa: E402 - after the check for PyTorch
from rammer.torch_backend import backend  # noqa: E402
from tests.support.torch_modules import Function, Module  # noqa: E402
from tests.support.walkthroughs import ROOT  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def afresh():
    torch.compiler.reset()
    with torch.no_grad():
        yield
    torch.compiler.reset()


def compiled(module, device="reference", **options):
    return torch.compile(module, backend=backend, **{"dynamic": False, "options": {"device": device}, **options})


def check(module, *args):
    """Calls agree with eager PyTorch, in values, strides, and what becomes of buffers and arguments."""
    eager = copy.deepcopy(module)
    net = compiled(module)
    for _ in range(2):
        given, expected = net(*args), eager(*args)
        torch.testing.assert_close(given, expected, check_stride=True)
    torch.testing.assert_close(dict(module.named_buffers()), dict(eager.named_buffers()))


def test_pytorch_finds_the_backend():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, name = project["entry-points"]["torch_dynamo_backends"]["rammer"].split(":")
    assert getattr(import_module(module), name) is backend


def cnn():
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(2, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(36, 3)).eval()


def test_factorisations_that_pytorch_checks():
    check(Function(lambda a: torch.linalg.inv(a) + torch.linalg.cholesky(a)), torch.tensor([[2.0, 1.0], [1.0, 2.0]]))


def test_networks():
    check(cnn(), torch.randn(3, 2, 8, 8))
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        check(layer, *(torch.randn(2, 5, 8) for _ in range(3)))
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_strides_of_arguments_and_results():
    x = torch.randn(2, 3, 4, 5)
    check(Function(lambda x: (x * 2, (x + 1).transpose(1, 2))), x.to(memory_format=torch.channels_last))
    check(Function(lambda x: x.exp()), x.permute(3, 1, 0, 2))


def test_tensors_that_leave_gaps_are_copied():
    whole = torch.randn(4, 4, 6)
    for part in (whole[:, ::2], whole[..., 1:5], whole[:, 1:2].expand(4, 3, 6), whole.transpose(0, 2)[::2]):
        check(Function(torch.exp), part)


def test_arguments_that_leave_gaps_are_written_to():
    given, expected = (torch.arange(16.0).reshape(4, 4) for _ in range(2))
    module = Function(lambda x: x.mul_(2) + 1)
    torch.testing.assert_close(compiled(module)(given[:, ::2]), module(expected[:, ::2]))
    assert torch.equal(given, expected)


def test_results_that_are_parts_have_the_strides_of_eager_pytorch():
    """As at a graph break between a product and the views of its parts."""

    class Parts(Module):
        def forward(self, x):
            first, second, third = (x * 2).view(2, 4, 2, 9).transpose(1, 2).chunk(3, -1)
            torch._dynamo.graph_break()
            return first @ second.mT + third.sum(-1, keepdim=True), third, x[:1].exp().expand(3, 4, 18)

    check(Parts(), torch.randn(2, 4, 18))


def test_tensors_whose_elements_overlap_are_refused():
    with pytest.raises(errors.LayoutError, match="contiguous"):
        compiled(Function(torch.exp))(torch.randn(8).as_strided((3, 4), (2, 1)))


def test_results_that_are_arguments():
    check(Function(lambda x: (x, x.t(), x * 2)), torch.randn(2, 3))


def test_results_are_not_overwritten_by_the_next_call():
    net = compiled(Function(lambda x: x * 2))
    first = net(torch.ones(3))
    net(torch.zeros(3))
    assert torch.equal(first, torch.full((3,), 2.0))


class Counter(Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total += x.sum(0)
        return self.total * 2


def test_buffers_that_are_written():
    check(Counter().eval(), torch.randn(4, 3))


def test_an_argument_that_is_written():
    def filled(x):
        x.add_(1)
        return x * 2

    x = torch.zeros(3)
    y = compiled(Function(filled))(x)
    assert torch.equal(x, torch.ones(3))
    assert torch.equal(y, torch.full((3,), 2.0))


def test_a_graph_that_breaks():
    def broken(x):
        y = x * 2
        if y.sum() > 0:
            return y + 1
        return y - 1

    check(Function(broken), torch.ones(3))
    check(Function(broken), -torch.ones(3))


def test_parameters_are_constants_whose_versions_are_checked():
    module = torch.nn.Linear(3, 2)
    net, x = compiled(module), torch.ones(1, 3)
    net(x)
    module.weight.mul_(2)
    with pytest.raises(errors.RefreshError, match=r"torch\.compiler\.reset"):
        net(x)
    torch.compiler.reset()
    torch.testing.assert_close(net(x), module(x))


def test_parameters_that_are_given_other_memory():
    module = torch.nn.Linear(3, 2)
    net, x = compiled(module), torch.ones(1, 3)
    net(x)
    module.weight.data = torch.zeros(2, 3)
    with pytest.raises(errors.RefreshError, match="written to"):
        net(x)


def test_modules_that_share_a_graph_in_turns():
    torch.manual_seed(0)
    modules = [torch.nn.Linear(3, 2) for _ in range(3)]
    modules[2].weight = modules[0].weight  # and another bias
    nets, x = [compiled(module) for module in modules], torch.randn(2, 3)
    for _ in range(3):
        for module, net in zip(modules, nets, strict=True):
            torch.testing.assert_close(net(x), module(x))
    modules[1].bias.add_(1)
    torch.testing.assert_close(nets[2](x), modules[2](x))
    with pytest.raises(errors.RefreshError):
        nets[1](x)


def called_alone(function, *args):
    """Whether what Dynamo calls for a graph is Rammer's own, without AOTAutograd's part around it."""
    found = []

    def seen(graph, inputs, **options):
        found.append(backend(graph, inputs, **options))
        return found[-1]

    torch.compile(Function(function), backend=seen, dynamic=False, options={"device": "reference"})(*args)
    return [each.__module__.startswith("rammer") for each in found]


def test_pytorch_stands_between_only_where_it_has_something_to_do():
    x = torch.ones(2, 3)
    assert called_alone(lambda x: x * 2, x) == [True]
    assert called_alone(lambda x: (x.exp(), x @ x.t()), x) == [True]
    assert called_alone(lambda x: (x * 2, x.t()), x) == [False]
    assert called_alone(lambda x: x.add_(1) * 2, x) == [False]


def test_a_part_of_another_tensor():
    whole = torch.randn(9)
    check(Function(lambda x: x * 2), whole[1:7].view(2, 3))


def test_graphs_without_inputs():
    check(Function(lambda: torch.ones(3) * 2))
    check(Function(lambda x: (torch.arange(3), x)), torch.ones(2))


def test_a_view_with_the_other_sign():
    check(Function(torch.exp), torch._neg_view(torch.ones(3)))
    check(Function(torch.exp), torch._neg_view(torch.randn(3, 2)).t())


def test_gradients_are_refused():
    with torch.enable_grad(), pytest.raises(Exception, match="R311"):
        compiled(torch.nn.Linear(3, 2))(torch.ones(1, 3))


def test_symbolic_shapes_are_refused():
    with pytest.raises(Exception, match="dynamic=False"):
        compiled(Function(lambda x: x * 2), dynamic=True)(torch.ones(5, 3))


def test_operators_that_are_missing_are_named():
    with pytest.raises(errors.UnsupportedOperatorsError, match="svd"):
        compiled(Function(torch.linalg.svdvals))(torch.ones(3, 4))
