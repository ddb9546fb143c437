"""From a module to a program without mutation, decomposed only where there is no converter."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch.export import ExportedProgram

from rammer.errors import CaptureError, DataDependentError, TrainingModeError
from rammer.frontends.torch.converters import CONVERTERS
from rammer.frontends.torch.private import distinct, is_data_dependent


def capture(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], name: str) -> ExportedProgram:
    """The module's computation for arguments like these.

    Raises:
        TrainingModeError: it is in training mode.
        DataDependentError: its control flow or a shape depends on the values of tensors.
        CaptureError: PyTorch cannot capture it for another reason.
    """
    if module.training:
        raise TrainingModeError("the module is in training mode", where=name, hint="call module.eval() first")
    try:
        with torch.no_grad():
            once_args, once_kwargs = distinct((tuple(args), dict(kwargs)))
            return torch.export.export(module, once_args, once_kwargs, strict=False)
    # PyTorch's exporter raises what it meets: its own errors, and whatever the module's code raises.
    except Exception as error:
        raise _capture_error(error, name) from error


def functional(program: ExportedProgram, name: str) -> ExportedProgram:
    """The program without mutation, in operators that have a converter where PyTorch can decompose to them.

    Raises:
        CaptureError: PyTorch cannot take it apart.
    """
    try:
        with torch.no_grad(), warnings.catch_warnings():
            # PyTorch 2.13 warns of its own use of a class that it has deprecated.
            warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)
            return program.run_decompositions(dict(_decompositions()))
    except Exception as error:
        raise _capture_error(error, name) from error


@cache
def _decompositions() -> Mapping[Any, Callable[..., Any]]:
    """PyTorch's decompositions of operators that have no converter."""
    return {
        operator: decomposition
        for operator, decomposition in torch.export.default_decompositions().items()
        if operator.name().partition("::")[2].partition(".")[0] not in CONVERTERS
    }


def _capture_error(error: Exception, name: str) -> CaptureError | DataDependentError:
    message = str(error).strip() or type(error).__name__
    if is_data_dependent(error):
        return DataDependentError(
            f"control flow or a shape depends on the values of tensors: {message.splitlines()[0]}",
            where=name,
            hint="choose with torch.where, or compute the choice outside of the module and pass it as an argument",
        )
    return CaptureError(
        f"PyTorch cannot capture the module: {type(error).__name__}: {message}",
        where=name,
        hint="torch.export.export(module, args, kwargs) says the same; its messages name the line",
    )
