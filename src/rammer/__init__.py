"""Rammer: a model compiled into one static program of tile-sized tasks on the device's execution units.

import rammer

net = rammer.compile("model.onnx", device="cpu")
y = net(x)
net.save("model.rammer")
net = rammer.load("model.rammer")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from rammer import errors
from rammer.errors import RammerError
from rammer.ir.dimensions import Dim
from rammer.options import CompileOptions

if TYPE_CHECKING:
    from rammer import expressions
    from rammer.api import adapt, compile, compile_step, explain
    from rammer.extending import kernel, operator
    from rammer.ir.extern import KernelSource
    from rammer.pipelines.loading import load
    from rammer.runtime.adaptive import AdaptiveModel
    from rammer.runtime.bound import BoundCall
    from rammer.runtime.dynamic import DynamicModel
    from rammer.runtime.estimator import CompiledEstimator
    from rammer.runtime.executable import Executable
    from rammer.runtime.module import CompiledModule
    from rammer.runtime.programs import ProgramSet
    from rammer.runtime.signature import Port, Signature
    from rammer.runtime.state import State
    from rammer.runtime.step import CompiledStep
    from rammer.runtime.tracing import TracedRun

__version__ = "0.1.0"

_HOMES = {
    "adapt": "rammer.api",
    "AdaptiveModel": "rammer.runtime.adaptive",
    "BoundCall": "rammer.runtime.bound",
    "compile": "rammer.api",
    "compile_step": "rammer.api",
    "CompiledEstimator": "rammer.runtime.estimator",
    "CompiledModule": "rammer.runtime.module",
    "CompiledStep": "rammer.runtime.step",
    "DynamicModel": "rammer.runtime.dynamic",
    "Executable": "rammer.runtime.executable",
    "explain": "rammer.api",
    "kernel": "rammer.extending",
    "KernelSource": "rammer.ir.extern",
    "load": "rammer.pipelines.loading",
    "operator": "rammer.extending",
    "Port": "rammer.runtime.signature",
    "ProgramSet": "rammer.runtime.programs",
    "Signature": "rammer.runtime.signature",
    "State": "rammer.runtime.state",
    "TracedRun": "rammer.runtime.tracing",
}
"""Where the public names are that are imported when they are first used: `import rammer` alone is quick."""

__all__ = [
    "AdaptiveModel",
    "BoundCall",
    "CompileOptions",
    "CompiledEstimator",
    "CompiledModule",
    "CompiledStep",
    "Dim",
    "DynamicModel",
    "Executable",
    "KernelSource",
    "Port",
    "ProgramSet",
    "RammerError",
    "Signature",
    "State",
    "TracedRun",
    "__version__",
    "adapt",
    "compile",
    "compile_step",
    "errors",
    "explain",
    "expressions",
    "kernel",
    "load",
    "operator",
]


def __getattr__(name: str) -> object:
    if name == "expressions":
        return import_module("rammer.expressions")
    if name not in _HOMES:
        raise AttributeError(f"module 'rammer' has no attribute '{name}'")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
