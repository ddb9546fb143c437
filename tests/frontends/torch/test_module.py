"""Modules compiled in one line: called as the module is, with tensors, and refused with a reason."""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import rammer  # noqa: E402 - after the check for PyTorch
from rammer import errors  # noqa: E402
from rammer.frontends.dispatch import Example  # noqa: E402
from rammer.frontends.torch import load_model  # noqa: E402
from rammer.options import GivenInputs  # noqa: E402
from tests.support.torch_modules import Each, Function, Module, imported, kinds  # noqa: E402

pytestmark = pytest.mark.torch


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Scores:
    values: Any
    best: Any = None


torch.export.register_dataclass(Scores)


def compiled(module, *args, **kwargs):
    return rammer.compile(module.eval(), "reference", args=args, kwargs=kwargs)


def layer():
    torch.manual_seed(0)
    return torch.nn.Linear(4, 3)


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def test_tensors_in_tensors_out():
    module, x = layer(), torch.ones(2, 4)
    net = compiled(module, x)
    assert isinstance(net(x), torch.Tensor)
    torch.testing.assert_close(net(x), module(x))
    torch.testing.assert_close(net(input=x + 1), module(x + 1))
    assert isinstance(net(x.numpy()), np.ndarray)
    torch.testing.assert_close(net(torch.nn.Parameter(x, requires_grad=False)), module(x))


def test_results_are_not_overwritten_by_the_next_call():
    module, x = layer(), torch.ones(2, 4)
    net = compiled(module, x)
    first = net(x)
    kept = first.clone()
    net(x * 2)
    torch.testing.assert_close(first, kept)


class Nested(Module):
    def forward(self, x, rest, *, scale=2, table=None):
        a, b = rest
        return {"sum": x + a, "parts": [b * scale, (table["w"], None)], "name": "fixed"}


def test_nested_arguments_and_results():
    x, a, b, w = (torch.full((2,), float(i)) for i in range(4))
    net = compiled(Nested(), x, (a, b), scale=3, table={"w": w})
    expected = {"sum": x + a, "parts": [b * 3, (w, None)], "name": "fixed"}
    assert str(net(x, (a, b), table={"w": w})) == str(expected)
    assert str(net(x, rest=[a, b], table={"w": w}, scale=3)) == str(expected)
    assert net(x.numpy(), (a.numpy(), b.numpy()), table={"w": w.numpy()})["sum"].tolist() == [1, 1]


def test_results_in_objects():
    x = torch.tensor([3.0, 1.0])
    net = compiled(Function(lambda x: (Pair(x + 1, x), Scores(x.exp(), x.argmax()), Scores(x))), x)
    pair, scores, lonely = net(x)
    assert isinstance(pair, Pair)
    torch.testing.assert_close(pair.first, x + 1)
    assert isinstance(scores, Scores)
    assert scores.best.item() == 0
    assert lonely.best is None
    torch.testing.assert_close(lonely.values, x)


def test_arguments_in_objects():
    x = torch.tensor([3.0, 1.0])
    net = compiled(Function(lambda pair, scores: pair.first * pair.second + scores.values), Pair(x, x), Scores(x))
    torch.testing.assert_close(net(Pair(x, x + 1), Scores(x)), x * (x + 1) + x)


@pytest.mark.parametrize("device", ["cpu"])
def test_saved_modules_load_and_call_alike(tmp_path, device):
    x, a, b, w = (torch.full((2,), float(i)) for i in range(4))
    net = rammer.compile(Nested().eval(), device, args=(x, (a, b)), kwargs={"table": {"w": w}})
    net.save(tmp_path / "nested.rammer")
    loaded = rammer.load(tmp_path / "nested.rammer")
    assert str(loaded(x, (a, b), table={"w": w})) == str(net(x, (a, b), table={"w": w}))
    module = Function(lambda x: (Pair(x + 1, x), Scores(x.exp(), x)))
    net = rammer.compile(module.eval(), device, args=(x,))
    net.save(tmp_path / "objects.rammer")
    pair, scores = rammer.load(tmp_path / "objects.rammer")(x)
    assert isinstance(pair, Pair)
    assert isinstance(scores, Scores)


def test_exported_programs():
    module, x = layer(), torch.ones(2, 4)
    program = torch.export.export(module, (x,))
    torch.testing.assert_close(rammer.compile(program, "reference")(x), module(x))
    with pytest.raises(errors.OptionError, match="exported program"):
        rammer.compile(program, "reference", args=(x,))


def test_results_that_are_arguments_or_repeated():
    x = torch.ones(3)
    net = compiled(Function(lambda x: (x, x + 1, x)), x)
    first, second, third = net(x * 2)
    assert first.data_ptr() != third.data_ptr()
    assert [t.tolist() for t in (first, second, third)] == [[2, 2, 2], [3, 3, 3], [2, 2, 2]]


def test_constants_of_all_kinds():
    class Constants(Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]).to(torch.bfloat16))
            self.register_buffer("kept", torch.ones(2))
            self.register_buffer("lost", torch.full((2,), 3.0), persistent=False)
            self.plain = torch.tensor([5.0, 6.0])

        def forward(self, x):
            return x * self.weight + self.kept + self.lost + self.plain + torch.tensor(0.5)

    module, x = Constants(), torch.ones(2)
    torch.testing.assert_close(compiled(module, x)(x), module(x))


def test_names_and_places_of_operators():
    module = Each({"a": torch.nn.Sequential(layer(), torch.nn.GELU())})
    graph = imported(module, torch.ones(2, 4)).graph
    places = [str(operator.sources[0]) for operator in graph.operators]
    assert places[0].startswith("aten.linear.default node 'all.a.0/linear (torch_modules.py:")
    assert places[-1].startswith("aten.gelu.default node 'all.a.1/gelu")


def test_all_missing_operators_are_named_at_once():
    class Missing(Module):
        def forward(self, x):
            return torch.linalg.svdvals(x) + torch.special.airy_ai(x).sum() + torch.special.airy_ai(x + 1).sum()

    with pytest.raises(errors.UnsupportedOperatorsError) as caught:
        compiled(Missing(), torch.ones(3, 3))
    assert {name.split(".")[1] for name, _ in caught.value.operators} == {"_linalg_svd", "special_airy_ai"}
    assert len(caught.value.operators) == 3
    assert all("(test_module.py:" in place for _, place in caught.value.operators)


def test_operators_with_effects_are_named():
    def printing(x):
        torch.ops.aten._print("x")
        return x + 1

    with pytest.raises(errors.UnsupportedOperatorsError, match="_print"):
        compiled(Function(printing), torch.ones(2))


def test_explanations_say_what_is_there_and_what_is_missing():
    class Partly(Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x, flag=True):
            self.seen.add_(x)
            return torch.special.airy_ai(self.seen), x.exp()

    found = rammer.explain(Partly().eval(), (torch.ones(3),), {"flag": True})
    assert [(name, str(type_)) for name, type_ in found.inputs] == [("x", "float32[3]")]
    assert [(name, str(type_)) for name, type_ in found.states] == [("seen", "float32[3]")]
    assert len(found.outputs) == 2
    assert found.operators == (("aten.add.Tensor", 1), ("aten.exp.default", 1), ("aten.special_airy_ai.default", 1))
    ((missing, place),) = found.missing
    assert missing == "aten.special_airy_ai.default"
    assert "(test_module.py:" in place
    assert "lacks in Rammer:\n  aten.special_airy_ai.default in" in str(found)
    assert str(rammer.explain(torch.export.export(layer().eval(), (torch.ones(2, 4),)))).endswith("nothing")
    refused(errors.NotAModelError, lambda: rammer.explain(3))


def test_new_weights_are_taken_over(tmp_path):
    module, x = torch.nn.Sequential(layer(), torch.nn.BatchNorm1d(3)).eval(), torch.ones(2, 4)
    net: Any = rammer.compile(module, "cpu", args=(x,))
    old = net(x)
    module[0].weight.mul_(2)
    module[1].running_mean.add_(1)
    torch.testing.assert_close(net(x), old)
    net.refresh(module)
    torch.testing.assert_close(net(x), module(x))
    net.save(tmp_path / "net.rammer")
    loaded: Any = rammer.load(tmp_path / "net.rammer")
    torch.testing.assert_close(loaded(x), module(x))
    refused(errors.RefreshError, lambda: loaded.refresh(module), "loaded from a file")
    refused(errors.RefreshError, lambda: net.refresh(torch.nn.Linear(4, 5).eval()), "[2,5]")
    torch.testing.assert_close(net(x), module(x))


def test_refreshing_keeps_the_state():
    class Counting(Module):
        def __init__(self, step):
            super().__init__()
            self.step = torch.nn.Parameter(torch.full((3,), step))
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x):
            self.total.add_(self.step)
            return self.total + x

    net, x = compiled(Counting(1.0), torch.zeros(3)), torch.zeros(3)
    assert [net(x)[0].item() for _ in range(2)] == [1, 2]
    net.refresh(Counting(10.0).eval())
    assert net(x)[0].item() == 12


def refused(error, call, *words):
    with pytest.raises(error) as caught:
        call()
    for word in words:
        assert word in str(caught.value)
    assert caught.value.hint


def test_modules_that_are_refused():
    x = torch.ones(2, 4)
    refused(errors.TrainingModeError, lambda: rammer.compile(layer().train(), args=(x,)), "module.eval()")
    branch = Function(lambda x: x + 1 if x.sum() > 0 else x)
    refused(errors.DataDependentError, lambda: compiled(branch, x), "torch.where")
    refused(errors.CaptureError, lambda: compiled(layer()), "'input'")
    refused(errors.MutatedInputError, lambda: compiled(Function(lambda x: x.add_(1)), x), "return the new value")
    complex_ = Function(lambda x: torch.view_as_complex(x.view(2, 2, 2)))
    refused(errors.RammerError, lambda: compiled(complex_, x), "complex")
    refused(errors.NotAModelError, lambda: rammer.compile(x), "Tensor")
    refused(errors.OptionError, lambda: rammer.compile(layer().eval(), args=(x,), input_shapes={"x": (2, 4)}))


def test_projections_of_very_many_steps_are_refused():
    lstm = torch.nn.LSTM(3, 4, proj_size=2)
    refused(errors.UnsupportedFeatureError, lambda: compiled(lstm, torch.ones(1025, 1, 3)), "proj_size=0")


def test_what_depends_on_values_has_a_place():
    sized = Function(lambda x: x[x > 0].squeeze())
    refused(errors.DataDependentError, lambda: compiled(sized, torch.ones(4)), "aten.squeeze", "name the dimensions")
    choice = Function(lambda x: torch.full((3,), x.argmax().item() > 2))
    refused(errors.DataDependentError, lambda: compiled(choice, torch.ones(4)), "truth value")


def test_checks_of_values_are_left_out():
    def checked(x):
        torch._check(x.max().item() < 2)
        torch._assert_async((x > 0).all())
        return x * 2

    assert kinds(checked, torch.ones(3)) == ["Mul"]


def test_results_of_unknown_classes_are_refused():
    class Cache:
        def __init__(self, x):
            self.keys = x

    refused(errors.CaptureError, lambda: compiled(Function(Cache), torch.ones(3)), "Cache'>, which", "use_cache=False")


def test_tensors_are_copied_where_they_do_not_lie_row_by_row():
    images = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    net = compiled(Function(lambda x: x * 2), images)
    assert torch.equal(net(images), images * 2)
    assert torch.equal(net(images.contiguous()), images * 2)


def test_calls_that_are_refused():
    x, d = torch.ones(2), {"w": torch.ones(2)}
    net = compiled(Nested(), x, (x, x), table=d)
    refused(errors.ArgumentError, lambda: net(x, (x, x)), "'table' is missing")
    refused(errors.ArgumentError, lambda: net(x, (x, x), table=d, scale=5), "'scale' is none that")
    refused(errors.ArgumentError, lambda: net(x, (x,), table=d), "'rest'")
    refused(errors.ArgumentError, lambda: net(x, (x, x), table={"v": x}), "'table'")
    refused(errors.ArgumentError, lambda: net(x, (x, x), d, table=d), "3 arguments by position")
    refused(errors.ArgumentError, lambda: net(x, (x, x), x=x, table=d), "given twice")
    refused(errors.ArgumentError, lambda: net(x, (x, x), table=d, wrong=1), "'wrong' is none")
    refused(errors.InputTypeError, lambda: net(x.double(), (x, x), table=d), "float64")
    refused(errors.InputShapeError, lambda: net(torch.ones(3), (x, x), table=d), "[3]")
    elsewhere = torch.ones(2, device="meta")
    refused(errors.PlacementError, lambda: net(elsewhere, (x, x), table=d), "meta")


def test_gradients_are_refused_where_autograd_would_record_them():
    x = torch.ones(2, 4)
    net = compiled(layer(), x)
    wanting = x.clone().requires_grad_()
    torch.testing.assert_close(net(wanting), net(x))  # autograd is off
    with torch.enable_grad():
        refused(errors.AutogradError, lambda: net(wanting), "torch.no_grad()")
        assert math.isfinite(net(x).sum())


def test_onnx_models_take_no_arguments():
    refused(errors.OptionError, lambda: rammer.compile(b"", args=(1,)), "modules")


def test_loading_without_arguments_for_a_module_without_inputs():
    module = Function(lambda: torch.arange(4.0) * 2)
    found = load_model(module.eval(), Example(), GivenInputs())
    assert found.graph.inputs == ()
    assert rammer.compile(module, "reference")().tolist() == [0, 2, 4, 6]
