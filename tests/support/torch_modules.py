"""What eager PyTorch makes of a module or function, beside the graph that Rammer imports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from rammer.frontends.dispatch import Example, Imported
from rammer.frontends.torch import load_model, load_step
from rammer.frontends.torch.types import array_of
from rammer.ir.calling import Nest, assembled
from rammer.ir.evaluate import evaluate_graph
from rammer.options import GivenInputs
from rammer.passes import unroll
from rammer.verify import graph as verify_graph

Module: Any = torch.nn.Module


def generator() -> torch.Generator:
    """Equal numbers for each tensor that is drawn."""
    return torch.Generator().manual_seed(7)


def normal(*shape: int) -> torch.Tensor:
    """Normally distributed numbers, float32."""
    return torch.randn(*shape, generator=generator())


def integers(*shape: int, low: int = -5, high: int = 6, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Integers from `low` on and below `high`."""
    return torch.randint(low, high, shape, generator=generator(), dtype=dtype)


class Each(torch.nn.Module):
    """Calls each of several modules on its arguments."""

    def __init__(self, modules: Mapping[str, torch.nn.Module]) -> None:
        super().__init__()
        self.all = torch.nn.ModuleDict(modules)

    def forward(self, *args):
        return {name: module(*args) for name, module in self.all.items()}


class Function(torch.nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def imported(module: torch.nn.Module | Callable[..., Any], *args: Any, **kwargs: Any) -> Imported:
    """A module, or a function as one, in Rammer's graph."""
    whole = module if isinstance(module, torch.nn.Module) else Function(module)
    return load_model(whole.eval(), Example(args=args, kwargs=kwargs), GivenInputs())


def kinds(module: torch.nn.Module | Callable[..., Any], *args: Any) -> list[str]:
    """The kinds of the operators in the graph, in order."""
    return [operator.kind for operator in imported(module, *args).graph.operators]


def check(module: torch.nn.Module | Callable[..., Any], *args: Any, tolerance: float = 1e-5) -> None:
    """Compare the imported graph, evaluated as its expressions say, with eager PyTorch."""
    check_each(module, [args], tolerance=tolerance)


def check_each(
    module: torch.nn.Module | Callable[..., Any], calls: Sequence[Sequence[Any]], *, tolerance: float = 1e-5
) -> None:
    """The same for the arguments of several calls; the graph is imported for those of the first one."""
    found = imported(module, *calls[0])
    verify_graph.verify(found.graph)
    graph = unroll.run(found.graph)
    assert found.form is not None
    for args in calls:
        tensors = [leaf for leaf in _leaves(args) if isinstance(leaf, torch.Tensor)]
        arrays = evaluate_graph(graph, [array_of(tensor, "an input") for tensor in tensors])
        result = assembled(
            found.form.result, iter(arrays), lambda nest, parts: dict(zip(nest.keys, parts, strict=True))
        )
        with torch.no_grad():
            expected = module(*args)
        for ours, theirs in zip(_leaves(result), _leaves(expected), strict=True):
            _compare(ours, theirs, tolerance)


def _made(nest: Nest, parts: Sequence[object]) -> object:
    return dict(zip(nest.keys, parts, strict=True))


def _compare(ours: Any, theirs: Any, tolerance: float) -> None:
    if not isinstance(theirs, torch.Tensor):
        assert ours == theirs
        assert type(ours) is type(theirs)
        return
    reference = array_of(theirs, "a result")
    assert ours.dtype == reference.dtype
    assert ours.shape == reference.shape
    if reference.dtype.kind in "biu":
        np.testing.assert_array_equal(ours, reference)
        return
    wide = reference.astype(np.float64)
    scale = max(1.0, float(np.abs(wide[np.isfinite(wide)]).max(initial=0)))
    np.testing.assert_allclose(ours.astype(np.float64), wide, rtol=tolerance, atol=tolerance * scale)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in _leaves(part)]
    if isinstance(value, list | tuple):
        return [leaf for part in value for leaf in _leaves(part)]
    return [value]


def imported_step(function: Callable[..., Any], module: torch.nn.Module, optimizer: Any, *args: Any) -> Imported:
    """A training step in Rammer's graph."""
    return load_step(function, module, optimizer, Example(args=args))


def check_step(function: Callable[..., Any], module: torch.nn.Module, optimizer: Any, *args: Any) -> None:
    """Compare a training step's graph, evaluated as its expressions say, with a step of eager PyTorch."""
    graph = imported_step(function, module, optimizer, *args).graph
    verify_graph.verify(graph)
    inputs = [array_of(tensor, "an input") for tensor in args] + [state.initial for state in graph.states]
    loss, *following = evaluate_graph(unroll.run(graph), inputs)
    optimizer.zero_grad()
    expected = function(module, *args)
    expected.backward()
    optimizer.step()
    np.testing.assert_allclose(loss.astype(np.float64), expected.detach().numpy(), rtol=1e-5)
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    trained = 0
    for state, found in zip(graph.states, following, strict=True):
        name, _, kept = state.name.partition(":")
        if name == "optimizer":
            continue
        tensor = optimizer.state[tensors[name]][kept] if kept else tensors[name]
        trained += not np.array_equal(found, state.initial)
        reference = array_of(tensor, name).astype(np.float64)
        change = reference - state.initial.astype(np.float64)
        scale = max(float(np.abs(change[np.isfinite(change)]).max(initial=0)), 1e-6)
        np.testing.assert_allclose(
            found.astype(np.float64), reference, rtol=1e-5, atol=1e-4 * scale, err_msg=state.name
        )
    assert trained


def check_losses(
    call: Callable[..., Any],
    loss_of: Callable[..., Any],
    module: torch.nn.Module,
    optimizers: Sequence[Any],
    data: Sequence[Sequence[Any]],
    *,
    slower_from: int,
    tolerance: float,
) -> None:
    """The loss of each call of a step beside that of eager PyTorch, whose optimiser is the first.

    From some step on both learn half as fast. Losses are looked at last, so that nobody waits for them between steps.
    """
    losses = []
    for number, args in enumerate(data):
        if number == slower_from:
            for optimizer in optimizers:
                optimizer.param_groups[0]["lr"] *= 0.5
        optimizers[0].zero_grad()
        loss = loss_of(module, *args)
        loss.backward()
        optimizers[0].step()
        losses.append((call(*args), loss.item()))
    for found, expected in losses:
        assert found.item() == pytest.approx(expected, rel=tolerance)
