"""Reads PyTorch modules into a graph. The only room that imports `torch`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.export import ExportedProgram

from rammer.errors import DynamicShapeError, NotAModelError, OptionError
from rammer.frontends.dispatch import Example, Explanation, Imported
from rammer.frontends.torch.capture import capture, functional
from rammer.frontends.torch.dynamic import ModuleFamily
from rammer.frontends.torch.explain import explain_program
from rammer.frontends.torch.private import check_version
from rammer.frontends.torch.program import import_program
from rammer.frontends.torch.step import load_step
from rammer.ir.dimensions import Dynamic
from rammer.options import GivenInputs
from rammer.printable import listing

__all__ = ["explain_model", "load_family", "load_model", "load_step"]

_INSTEAD: Mapping[str, str] = {
    "input_shapes=": "the shapes are those of the tensors in args= and kwargs=",
    "constants=": "what is no tensor in args= and kwargs= is part of the program",
    "state=": "the buffers that it writes to are its state",
}


def load_model(model: torch.nn.Module | ExportedProgram, example: Example, given: GivenInputs) -> Imported:
    """A module, captured with the example's arguments, or an exported program as a graph.

    Its inputs are the tensors among the arguments, its outputs those among the results, in PyTorch's order;
    parameters and buffers are constants, but for buffers that the module writes to, which are its state.

    Raises:
        ModelError: the module cannot be captured, or uses what Rammer does not have.
        OptionError: something is given that it has no use for.
        DeviceUnavailableError: PyTorch is too old.
    """
    for option in given.options:
        raise OptionError(f"{option} for a module", hint=_INSTEAD[option])
    program, name = _captured(model, example)
    return import_program(program, name, None if isinstance(model, ExportedProgram) else model.forward)


def load_family(model: torch.nn.Module, example: Example, given: GivenInputs, dynamic: Dynamic) -> ModuleFamily:
    """A module as graphs for many shapes.

    Raises:
        ModelError: the module cannot be captured.
        OptionError: the model is an exported program, has no such dimensions, or has no use for what is given.
        DeviceUnavailableError: PyTorch is too old.
    """
    check_version()
    for option in given.options:
        raise OptionError(f"{option} for a module", hint=_INSTEAD[option])
    if not isinstance(model, torch.nn.Module):
        raise OptionError("dynamic= for an exported program", hint="give the module")
    return ModuleFamily(model, example, dynamic)


def explain_model(model: torch.nn.Module | ExportedProgram, example: Example) -> Explanation:
    """What a module is made of once it is captured, and what Rammer lacks for it.

    Raises:
        ModelError: the module cannot be captured.
        OptionError: arguments are given where they have no use.
        DeviceUnavailableError: PyTorch is too old.
    """
    return explain_program(*_captured(model, example))


def _captured(model: torch.nn.Module | ExportedProgram, example: Example) -> tuple[ExportedProgram, str]:
    """The program without mutation, and what messages call it."""
    check_version()
    if isinstance(model, ExportedProgram):
        if example.args or example.kwargs:
            raise OptionError("args= or kwargs= for an exported program", hint="it has its own; leave them out")
        if model.range_constraints:
            raise DynamicShapeError(
                f"the exported program has open dimensions: {listing(list(map(str, model.range_constraints)))}",
                hint="export it with shapes that are fixed, or give the module with args= and dynamic=",
            )
        return functional(model, "the program"), "program"
    if not isinstance(model, torch.nn.Module):
        raise NotAModelError(
            f"an object of class {type(model).__name__} is no model",
            hint="give a torch.nn.Module or an ExportedProgram",
        )
    name = type(model).__name__
    return functional(capture(model, example.args, example.kwargs, name), name), name
