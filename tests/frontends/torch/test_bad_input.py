"""What a module or a call can have wrong, each with an error of its own, by its code, that says what to do."""

import re

import pytest

torch = pytest.importorskip("torch")

import rammer  # noqa: E402 - after the check for PyTorch
from rammer import errors  # noqa: E402
from rammer.torch_backend import backend  # noqa: E402
from tests.support.torch_modules import Function  # noqa: E402

pytestmark = pytest.mark.torch

X = torch.ones(2, 4)


def compiled(function, *args, **options):
    return rammer.compile(Function(function).eval(), "reference", args=args, **options)


def parameters_changed_behind_a_graph():
    module = torch.nn.Linear(4, 3).eval()
    net = torch.compile(module, backend=backend, dynamic=False, options={"device": "reference"})
    with torch.no_grad():
        net(X)
        module.weight.mul_(2)
        net(X)


def parameters_changed_behind_a_step():
    module = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    step = rammer.compile_step(lambda module, x: module(x).sum(), module, optimizer, "reference", args=(X,))
    torch.nn.init.zeros_(module.weight)
    step(X)


BAD = {
    "control flow by data": ("R221", "torch.where", lambda: compiled(lambda x: x + 1 if x.sum() > 0 else x, X)),
    "strides of what is bound": (
        "R308",
        "row by row",
        lambda: compiled(torch.exp, X).bind({"args_0": torch.ones(4, 2).t()}),
    ),
    "an argument that is written to": ("R223", "return the new value", lambda: compiled(lambda x: x.add_(1), X)),
    "a shape outside of the range": (
        "R306",
        "wider range",
        lambda: compiled(torch.exp, X, dynamic={"args.0": {0: (1, 8)}})(torch.ones(9, 4)),
    ),
    "an exported program with open dimensions": (
        "R205",
        "dynamic=",
        lambda: rammer.compile(
            torch.export.export(
                Function(torch.exp).eval(), (X,), dynamic_shapes=(({0: torch.export.Dim("n", max=8)},),)
            )
        ),
    ),
    "another shape": ("R302", "reshape it", lambda: compiled(torch.exp, X)(torch.ones(9, 4))),
    "training mode": ("R222", "module.eval()", lambda: rammer.compile(torch.nn.Dropout(), args=(X,))),
    "parameters changed behind a graph": ("R313", "torch.compiler.reset()", parameters_changed_behind_a_graph),
    "parameters changed behind a step": ("R315", "step.refresh()", parameters_changed_behind_a_step),
    "another device": ("R303", ".to('cpu')", lambda: compiled(torch.exp, X)(torch.ones(2, 4, device="meta"))),
    "a gradient": ("R311", "torch.no_grad()", lambda: compiled(torch.exp, X)(X.clone().requires_grad_())),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_has_a_code_and_a_repair(name):
    code, repair, call = BAD[name]
    torch.compiler.reset()
    with pytest.raises(errors.RammerError) as caught:
        call()
    assert caught.value.code == code
    assert repair in caught.value.hint
    assert re.match(rf"\[{code}\] .*\n  to do: ", str(caught.value), re.DOTALL)


def test_each_code_stands_for_one_mistake():
    codes = [code for code, _, _ in BAD.values()]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize(
    ("code", "repair", "call"),
    [
        ("R220", "was made from", lambda: rammer.compile(torch.jit.trace(torch.nn.ReLU().eval(), X), args=(X,))),
        ("R220", "args=(x,)", lambda: rammer.compile(torch.nn.ReLU().eval())),
        ("R100", "args=(x,)", lambda: rammer.compile(torch.nn.ReLU().eval(), args=X)),
        ("R100", "torch.from_numpy", lambda: compiled(torch.exp, X.numpy())),
    ],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_what_a_newcomer_gives_instead_is_answered(code, repair, call):
    with pytest.raises(errors.RammerError) as caught:
        call()
    assert (caught.value.code, repair in caught.value.hint) == (code, True)
