"""Rammer: a model compiled into one static program of tile-sized tasks on the device's execution units.

import rammer

net = rammer.compile("model.onnx", device="cpu")
y = net(x)
net.save("model.rammer")
net = rammer.load("model.rammer")
"""

from __future__ import annotations

from rammer import errors
from rammer.compiler import compile, load
from rammer.errors import RammerError
from rammer.options import CompileOptions
from rammer.runtime.bound import BoundCall
from rammer.runtime.executable import Executable
from rammer.runtime.signature import Port, Signature

__all__ = ["BoundCall", "CompileOptions", "Executable", "Port", "RammerError", "Signature", "compile", "errors", "load"]
