"""Derivatives through programs for inference: refused, or those of eager PyTorch; never missing without a word."""

import pytest

torch = pytest.importorskip("torch")

import rammer  # noqa: E402 - after the check for PyTorch
from rammer import errors  # noqa: E402
from rammer.torch_backend import backend  # noqa: E402
from tests.support.torch_modules import Function, Module  # noqa: E402

pytestmark = pytest.mark.torch

LIMIT = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"  # before 2.7
forward_ad = torch.autograd.forward_ad

X = torch.ones(1, 3)


@pytest.fixture(autouse=True)
def afresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def compiled(module):
    return torch.compile(module, backend=backend, dynamic=False, options={"device": "reference"})


def layer():
    return torch.nn.Linear(3, 2).eval()


def wanting():
    return X.clone().requires_grad_()


def refused(call):
    with pytest.raises(Exception, match="R311"):
        call()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_graph_that_was_compiled_without_gradients(mode):
    net = compiled(layer())
    for _ in range(2):
        with mode():
            net(X)
        refused(lambda: net(X))
        refused(lambda: net(X))


def test_parameters_that_want_gradients_later():
    for parameters in (lambda module: module.parameters(), lambda module: [module.bias]):
        module = layer().requires_grad_(False)
        net = compiled(module)
        assert not net(X).requires_grad
        for parameter in parameters(module):
            parameter.requires_grad_()
        refused(lambda net=net: net(X))


def test_another_parameter_that_wants_gradients():
    module = layer().requires_grad_(False)
    net = compiled(module)
    net(X)
    module.weight = torch.nn.Parameter(torch.ones(2, 3))
    refused(lambda: net(X))


def test_inputs_that_want_gradients_later():
    net = compiled(Function(lambda x, more: x * more["y"][0]))
    net(X, {"y": [X.clone()]})
    refused(lambda: net(wanting(), {"y": [X.clone()]}))
    refused(lambda: net(X, {"y": [wanting()]}))
    refused(lambda: net(X, {"y": [wanting() + 0]}))


def test_a_closed_over_tensor_that_wants_gradients_later():
    factor = torch.ones(3)
    net = compiled(Function(lambda x: x * factor))
    net(X)
    factor.requires_grad_()
    refused(lambda: net(X))


def test_other_modules_of_the_class_before():
    for _ in range(3):
        compiled(layer().requires_grad_(False))(X)
    refused(lambda: compiled(layer())(X))


def test_gradients_that_are_switched_on_and_off_inside():
    def on(x):
        with torch.enable_grad():
            return x * 2

    def off(x):
        with torch.no_grad():
            return x * 2

    with torch.no_grad():
        refused(lambda: compiled(Function(on))(wanting()))
    assert not compiled(Function(off))(wanting()).requires_grad


def test_only_results_that_need_no_gradient():
    net = compiled(Function(lambda x: ((x * 2).detach(), x.t(), x.argmax())))
    x = wanting()
    assert not any(y.requires_grad for y in net(X))
    found = net(x)
    assert [y.requires_grad for y in found] == [False, True, False]
    found[1].sum().backward()
    assert torch.equal(x.grad, torch.ones(1, 3))
    refused(lambda: compiled(Function(lambda x: ((x * 2).detach(), x * 3)))(wanting()))


class Total(Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total.add_(x[0])
        return x.detach() + 1


def test_a_buffer_that_would_carry_a_gradient():
    net = compiled(Total().eval())
    net(X)
    refused(lambda: net(wanting()))


def test_behind_a_break_of_the_graph():
    def broken(x, factor):
        y = x.detach() * 2
        torch._dynamo.graph_break()
        return y * factor

    net = compiled(Function(broken))
    net(X, torch.ones(3))
    refused(lambda: net(X, torch.ones(3, requires_grad=True)))


def test_dynamo_calls_eager_pytorch_once_it_has_compiled_too_often():
    """Behind its limit Dynamo compiles no more: the module itself runs, and PyTorch says so and has the gradients."""
    net, x = compiled(Function(lambda x: x * 2)), wanting()
    with torch._dynamo.config.patch({LIMIT: 2}), torch.no_grad():
        for size in (1, 2, 3):
            net(torch.ones(size))
        with torch.enable_grad():
            net(x).sum().backward()
    assert torch.equal(x.grad, torch.full((1, 3), 2.0))


def test_tangents_are_refused():
    module = Function(lambda x: x * 3).eval()
    lazy, net = compiled(module), rammer.compile(module, "reference", args=(X,))
    lazy(X)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(X, torch.ones_like(X))
        for call in (lazy, net):
            with pytest.raises(errors.AutogradError, match="R311"):
                call(dual)
            assert torch.equal(call(X), X * 3)


def test_derivatives_of_functions_are_eagers_or_refused():
    module = Function(lambda x: x * x).eval()
    lazy, net = compiled(module), rammer.compile(module, "reference", args=(X,))
    lazy(X)
    found, tangent = torch.func.jvp(lazy, (X,), (X,))
    assert torch.equal(torch.cat([found, tangent]), torch.cat([X, 2 * X]))
    assert torch.equal(torch.func.grad(lambda x: lazy(x).sum())(X), 2 * X)
    with pytest.raises(errors.AutogradError):
        torch.func.grad(lambda x: net(x).sum())(X)
