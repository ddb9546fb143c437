"""Saved models: `load`, apart from what compiles them, which takes longer to import."""

from __future__ import annotations

import copyreg
import os
from collections.abc import Callable, Mapping
from typing import Any, cast

from rammer.devices.registry import find_device
from rammer.frontends.dispatch import tensor_library
from rammer.guarded import guarded
from rammer.ir.graph import Array
from rammer.ir.schema import SchemaError
from rammer.options import CompileOptions
from rammer.runtime.artifact import load_artifact
from rammer.runtime.dynamic import read_dynamic
from rammer.runtime.estimator import read_estimator
from rammer.runtime.executable import Executable
from rammer.runtime.module import CompiledModule
from rammer.runtime.programs import SetReader
from rammer.runtime.tensors import TensorLibrary


def load(file: str | os.PathLike[str] | bytes, options: CompileOptions | None = None) -> Any:  # noqa: ANN401 - what was saved
    """Load what `save` wrote; needs neither the model nor, on the same machine, a compiler.

    Args:
        file: its path, or what `to_bytes` gave.
        options: how to run it, and to build it where it was built for another machine. What was decided when it was
            compiled stays; `veus` of another number than the program's is refused.

    Returns:
        What was saved: an `Executable`, a `CompiledModule`, a `ProgramSet` or what one was saved from.

    Raises:
        ArtifactError: the file cannot be used.
        DeviceUnavailableError: it was compiled for a device that is not here.
        OptionError: the options name another number of execution units than the file's programs have.
    """
    with guarded("loaded"):
        return load_artifact(file, options or CompileOptions(), find_device, library_of, _reader)


def library_of(owner: type) -> TensorLibrary | None:
    """The library whose tensors are of a class."""
    return cast(TensorLibrary | None, tensor_library(owner))


SET_READERS: Mapping[str, SetReader] = {
    "": lambda programs, about: programs,
    "dynamic": lambda programs, about: read_dynamic(programs, about, library_of),
    "estimator": read_estimator,
}
"""What makes a model of a saved set of programs, by the kind that it was saved with."""


def _reader(kind: str) -> SetReader:
    """What reads a kind of sets.

    Raises:
        SchemaError: there is none.
    """
    if kind not in SET_READERS:
        raise SchemaError(f"its programs are of the kind '{kind}', which this Rammer does not have")
    return SET_READERS[kind]


def _pickled(model: Executable) -> tuple[Callable[..., Executable], tuple[object, ...]]:
    """How pickle keeps a model: by the content of its file, and its state as it is now."""
    return _unpickled, (model.to_bytes(), dict(model.state))


def _unpickled(content: bytes, state: Mapping[str, Array]) -> Executable:
    model: Executable = load(content)
    for name, value in state.items():
        model.state[name] = value
    return model


for _kind in (Executable, CompiledModule):
    copyreg.pickle(_kind, _pickled)
