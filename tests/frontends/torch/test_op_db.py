"""PyTorch's own database of operators: samples of their arguments, each imported and compared with eager PyTorch.

What Rammer refuses is listed by the code of the error. The list is exact: whoever adds a converter takes its names out.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # the database's own tests need it

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402 - after the check for PyTorch
from torch.utils._pytree import tree_flatten, tree_unflatten  # noqa: E402

from rammer.errors import RammerError  # noqa: E402
from tests.frontends.torch.op_db_refused import NOT_COMPARED, REFUSED  # noqa: E402
from tests.support.torch_modules import Module, check  # noqa: E402

pytestmark = pytest.mark.torch

SAMPLES = 3
"""Of each operator, evenly spread over those of float32."""


def name_of(operator: Any) -> str:
    variant = f".{operator.variant_test_name}" if operator.variant_test_name else ""
    return f"{operator.name}{variant}"


OPERATORS = [one for one in op_db if torch.float32 in one.dtypes and name_of(one) not in NOT_COMPARED]


class Called(Module):
    """An operator whose tensors are arguments; all else that it is called with is fixed."""

    def __init__(self, operator: Any, leaves: Sequence[Any], nest: Any) -> None:
        super().__init__()
        self.operator, self.leaves, self.nest = operator, leaves, nest

    def forward(self, *tensors):
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        args, kwargs = tree_unflatten(leaves, self.nest)
        return self.operator(*args, **kwargs)


def calls(operator: Any) -> Iterator[tuple[Called, list[Any]]]:
    """Some of the samples that eager PyTorch computes, and that with any seed alike."""
    samples = list(operator.sample_inputs("cpu", torch.float32, requires_grad=False))
    for sample in samples[:: max(1, len(samples) // SAMPLES)][:SAMPLES]:
        leaves, nest = tree_flatten(((sample.input, *sample.args), sample.kwargs))
        tensors = [leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor)]
        module = Called(operator.op, leaves, nest).eval()
        if tensors and all(one.layout is torch.strided for one in tensors) and _is_certain(module, tensors):
            yield module, tensors


def _is_certain(module: Called, tensors: Sequence[Any]) -> bool:
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        try:
            found.append(tree_flatten(module(*[tensor.clone() for tensor in tensors]))[0])
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            return False  # a sample for another way to call it
    return all(
        not isinstance(one, torch.Tensor) or (one.numel() > 0 and torch.equal(_numbers(one), _numbers(other)))
        for one, other in zip(*found, strict=True)
    )


def _numbers(tensor: Any) -> Any:
    return torch.nan_to_num(tensor) if tensor.is_floating_point() or tensor.is_complex() else tensor


@pytest.mark.parametrize("operator", OPERATORS, ids=name_of)
def test_samples(operator):
    found = set()
    for module, tensors in calls(operator):
        try:
            check(module, *tensors, tolerance=1e-4)
            found.add("right")
        except RammerError as error:
            found.add(error.code)
    if not found:
        pytest.skip("no sample that is computed alike with any seed")
    assert found - {"right"} == {code for code, names in REFUSED.items() if name_of(operator) in names.split()}
