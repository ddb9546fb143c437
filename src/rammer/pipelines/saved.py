"""Saved models, apart from what compiles them, which takes longer to import."""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from rammer.devices.base import Buffer, Device, Source
from rammer.devices.registry import find_device
from rammer.ir.schema import SchemaError
from rammer.options import CompileOptions
from rammer.pipelines.guarded import guarded
from rammer.runtime.artifact import load_artifact
from rammer.runtime.container import Check, Json
from rammer.runtime.executable import Executable
from rammer.runtime.module import CompiledModule
from rammer.runtime.opening import begin
from rammer.runtime.programs import ProgramSet, SetReader
from rammer.runtime.tensors import TensorLibrary

if TYPE_CHECKING:
    from rammer.ir.graph import Array
    from rammer.runtime.dynamic import DynamicModel
    from rammer.runtime.estimator import CompiledEstimator

    Model = Executable | ProgramSet | DynamicModel | CompiledEstimator


def restored(check: Check, options: CompileOptions, *, advise: bool) -> Any:  # noqa: ANN401 - what was saved
    """See `load_artifact`."""
    return load_artifact(check, options, find_device, library_of, _reader, _place, advise=advise)


def _place(device: Device, source: Source, tasks: Buffer, options: CompileOptions) -> tuple[Source, Buffer]:
    """See `place`, which takes half of the compiler to import."""
    from rammer.pipelines.placing import place  # noqa: PLC0415 - models are mostly loaded as they are

    return place(device, source, tasks, options)


def library_of(owner: type) -> TensorLibrary | None:
    """The library whose tensors are of a class."""
    from rammer.frontends.dispatch import tensor_library  # noqa: PLC0415 - loading a model needs none of it

    return cast(TensorLibrary | None, tensor_library(owner))


def _dynamic(programs: ProgramSet, about: Json) -> DynamicModel:
    """See `read_dynamic`."""
    from rammer.runtime.dynamic import DynamicModel, read_dynamic  # noqa: PLC0415 - most models are others

    may_be_pickled(DynamicModel)
    return read_dynamic(programs, about, library_of)


def _estimator(programs: ProgramSet, about: Json) -> CompiledEstimator:
    """See `read_estimator`."""
    from rammer.runtime.estimator import CompiledEstimator, read_estimator  # noqa: PLC0415 - most models are others

    may_be_pickled(CompiledEstimator)
    return read_estimator(programs, about)


SET_READERS: Mapping[str, SetReader] = {
    "": lambda programs, about: programs,
    "dynamic": _dynamic,
    "estimator": _estimator,
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


def _pickled(model: Any) -> tuple[Callable[..., Model], tuple[object, ...]]:  # noqa: ANN401 - one of `Model`
    """How pickle keeps a model: by the content of its file, and its states as they are now."""
    content = model.to_bytes()  # an estimator makes the programs that it lacks
    return _unpickled, (content, [dict(program.state) for program in _programs(model)])


def _unpickled(content: bytes, states: Sequence[Mapping[str, Array]]) -> Model:
    with guarded("loaded"), begin(content, options := CompileOptions()) as check:
        model: Model = restored(check, options, advise=False)
    for program, state in zip(_programs(model), states, strict=True):
        for name, value in state.items():
            program.state[name] = value
    return model


def _programs(model: Model) -> Sequence[Executable]:
    """The programs of a model, in the order of their keys."""
    if isinstance(model, Executable):
        return [model]
    return list((model if isinstance(model, ProgramSet) else model.programs).programs.values())


def may_be_pickled(kind: type[Model]) -> None:
    """Let pickle keep models of a kind."""
    copyreg.pickle(kind, _pickled)


for _kind in (Executable, CompiledModule, ProgramSet):
    may_be_pickled(_kind)
