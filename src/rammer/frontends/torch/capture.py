"""From a module to a program without mutation, decomposed only where there is no converter."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.nn.attention import SDPBackend, sdpa_kernel

from rammer.errors import CaptureError, DataDependentError, OptionError, TrainingModeError
from rammer.frontends.torch.assumptions import check_assumptions
from rammer.frontends.torch.converters import CONVERTERS
from rammer.frontends.torch.importer import read_by_checks
from rammer.frontends.torch.private import (
    checks_without_order,
    distinct,
    is_data_dependent,
    recurrent_layers_of_old,
    with_gradients,
)

_NO_ARGUMENTS = "give arguments that the module is called with: rammer.compile(module, args=(x,))"


def capture(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], name: str, *, dynamic_shapes: Any = None
) -> ExportedProgram:
    """The module's computation for arguments like these, as (args, kwargs) of symbols or None for each leaf say.

    Raises:
        TrainingModeError: it is in training mode.
        DataDependentError: its control flow or a shape depends on the values of tensors.
        CaptureError: PyTorch cannot capture it for another reason.
        OptionError: an argument is a NumPy array.
    """
    if isinstance(module, torch.jit.ScriptModule):
        raise CaptureError("it is TorchScript", where=name, hint="give the module that it was made from")
    if any(isinstance(given, np.ndarray) for given in (*args, *kwargs.values())):
        raise OptionError("args= or kwargs= holds a NumPy array", hint="give tensors: torch.from_numpy(x)")
    if module.training:
        raise TrainingModeError("the module is in training mode", where=name, hint="call module.eval() first")
    with torch.no_grad():
        return _exported(module, args, kwargs, name, dynamic_shapes)


def capture_step(
    step: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], name: str
) -> tuple[ExportedProgram, ExportedProgram]:
    """The computation of a loss, its gradients by all parameters, and new values of buffers; without mutation.

    The forward pass as it was captured comes second: its calls know their places in the module.

    Args:
        step: gives the loss, or the loss and further results.
        args: arguments by position.
        kwargs: arguments by name.
        name: what messages call the module.

    Raises:
        DataDependentError: its control flow or a shape depends on the values of tensors.
        CaptureError: PyTorch cannot capture it for another reason.
    """
    # Other kinds of attention have gradients of their own, which say nothing of how they are computed.
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)
        program = _exported(step, args, kwargs, name)
        _check(program, name)
        try:
            with recurrent_layers_of_old(program.graph_module):
                return with_gradients(program, CONVERTERS), program
        except Exception as error:
            raise _capture_error(error, name) from error


def _exported(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], name: str, symbols: Any = None
) -> ExportedProgram:
    shapes = None if symbols is None else {**dict(zip(_names(module), symbols[0], strict=False)), **symbols[1]}
    try:
        once_args, once_kwargs = distinct((tuple(args), dict(kwargs)))
        with warnings.catch_warnings(), recurrent_layers_of_old(module):
            # A recurrent layer keeps a list of its weights, which PyTorch puts back after the capture.
            warnings.filterwarnings("ignore", ".*assigned during export.*", UserWarning)
            return torch.export.export(module, once_args, once_kwargs, strict=False, dynamic_shapes=shapes)
    # PyTorch's exporter raises what it meets: its own errors, and whatever the module's code raises.
    except Exception as error:
        raise _capture_error(error, name, "" if args or kwargs else _NO_ARGUMENTS) from error


def functional(program: ExportedProgram, name: str) -> ExportedProgram:
    """The program without mutation, in operators that have a converter where PyTorch can decompose to them.

    Raises:
        DataDependentError: it takes numbers that depend on the values of tensors for others.
        CaptureError: PyTorch cannot take it apart.
    """
    _check(program, name)
    try:
        with (
            torch.no_grad(),
            warnings.catch_warnings(),
            recurrent_layers_of_old(program.graph_module),
            checks_without_order(),
        ):
            # PyTorch 2.13 warns of its own use of a class that it has deprecated.
            warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)
            return program.run_decompositions(dict(_decompositions()))
    except Exception as error:
        raise _capture_error(error, name) from error


def _check(program: ExportedProgram, name: str) -> None:
    nodes = list(program.graph.nodes)
    check_assumptions(nodes, name, read_by_checks(nodes))


def _names(module: torch.nn.Module) -> list[str]:
    return list(inspect.signature(module.forward).parameters)


@cache
def _decompositions() -> Mapping[Any, Callable[..., Any]]:
    """PyTorch's decompositions of operators that have no converter."""
    return {
        operator: decomposition
        for operator, decomposition in torch.export.default_decompositions().items()
        if operator.name().partition("::")[2].partition(".")[0] not in CONVERTERS
    }


def _between(text: str, before: str, after: str) -> str:
    return text.partition(before)[2].partition(after)[0]


def _capture_error(error: Exception, name: str, hint: str = "") -> CaptureError | DataDependentError:
    message = str(error).strip() or type(error).__name__
    if is_data_dependent(error):
        return DataDependentError(
            f"control flow or a shape depends on the values of tensors: {message.splitlines()[0]}",
            where=name,
            hint="choose with torch.where, compute the choice outside of the module and pass it as an argument, or say "
            "what is known of a size: torch._check(x.shape[0] > 0)",
        )
    if "need to register a pytree" in message:
        return CaptureError(
            f"the module gives {_between(message, 'Found ', ' in output')}, which PyTorch cannot take apart",
            where=name,
            hint="give tensors, in tuples, lists, dictionaries or dataclasses (with use_cache=False, a model of "
            "transformers gives no cache), or let PyTorch know the class: torch.utils._pytree.register_pytree_node",
        )
    return CaptureError(
        f"PyTorch cannot capture the module: {type(error).__name__}: {message}",
        where=name,
        hint=hint or "torch.export.export(module, args, kwargs) says the same; its messages name the line",
    )
