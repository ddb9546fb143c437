"""Generated CUDA runs without a GPU: threads of blocks are fibres, instructions plain C++.

`host_gpu` puts this machine in the place of NVIDIA's driver and compiler, so that everything from a plan to a call is
what runs with a GPU: the translation unit, tables, launch, counters and tags, stalls. See CONTRIBUTING.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx

from rammer.devices.base import Source, no_progress
from rammer.devices.codegen.tables import ARENA
from rammer.devices.cuda import build, launch
from rammer.devices.cuda.driver import Driver
from rammer.devices.cuda.launch import LoadedModel
from rammer.devices.cuda.source import source_of
from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.ir.graph import Array
from rammer.ir.program import Plan
from rammer.ir.vdevice import VDevice
from rammer.options import CompileOptions
from rammer.pipelines.planning import plan_graph
from tests.support.host_cuda.driver import ORDERS, Copies, HostApi, LaunchError, Numbering, Order, Policy, orders
from tests.support.host_cuda.toolchain import HostToolchain, compiler

__all__ = [
    "ORDERS",
    "Copies",
    "HostGpu",
    "LaunchError",
    "Numbering",
    "Order",
    "Policy",
    "compiler",
    "host_gpu",
    "orders",
]

ARCHITECTURE = "sm_90"
TIMEOUT_S = 1.0  # of a Wait, in time that passes only where nobody can go on


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGpu:
    """A GPU that is this machine, while `host_gpu` lasts."""

    api: HostApi
    toolchain: HostToolchain

    def options(self, **settings: object) -> CompileOptions:
        """Options for it: few vEUs, libraries kept in the toolchain's folder."""
        chosen = {"device": f"cuda:{ARCHITECTURE}", "cache_dir": self.toolchain.folder, "run_timeout_s": TIMEOUT_S}
        return CompileOptions(**{**chosen, "veus": 2, **settings})  # type: ignore[arg-type]

    def vdevice(self, options: CompileOptions) -> VDevice:
        """The vDevice of these options."""
        return find_device(options.device).describe(options)

    def plan(self, model: onnx.ModelProto, **settings: object) -> tuple[Plan, VDevice]:
        """The plan of a model."""
        options = self.options(**settings)
        vdevice = self.vdevice(options)
        return plan_graph(load_graph(model), vdevice, options), vdevice

    def load(self, source: Source, *, delays: bool = False) -> LoadedModel:
        """A source, built and loaded as for a GPU."""
        options = self.options(delays=delays)
        return LoadedModel(source, build.build(source, ARCHITECTURE, options, no_progress), options)

    def run(self, loaded: LoadedModel, inputs: Sequence[Array], like: Sequence[Array], order: Order) -> list[Array]:
        """The outputs of one run in an order; before it, what operators write holds nothing of use."""
        self.api.order = order
        written = zip(loaded._buffers[0].outputs.addresses, loaded._launch["output_bytes"], strict=True)
        for address, size_bytes in ((loaded._segments[ARENA], loaded._manifest.arena_bytes), *written):
            self.api.scramble(address, size_bytes)
        outputs: list[Array] = [np.full(one.nbytes, 0xA5, np.uint8).view(one.dtype).reshape(one.shape) for one in like]
        loaded.run(inputs, outputs)
        return outputs

    def launch(
        self,
        text: str,
        entry: str,
        blocks: int,
        threads: int,
        arguments: Sequence[Any],
        scratch_bytes: int,
        order: Order,
    ) -> None:
        """One launch of the kernel `entry` of any CUDA C++ text.

        Args:
            text: the text, to which the names of `kernels/rammer_intrinsics.cuh` are known.
            entry: the name of a `__global__` function.
            blocks: of the launch.
            threads: of a block.
            arguments: NumPy arrays, which are passed as pointers and written in place, and values of ctypes.
            scratch_bytes: of `rammer_scratch`, the shared memory that a launch asks for.
            order: the order.
        """
        library = replace(self.toolchain, entry=entry).cubin(text, ARCHITECTURE)
        _, function = self.api.load(library)
        values = [ctypes.c_void_p(one.ctypes.data) if isinstance(one, np.ndarray) else one for one in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self.api.order = order
        self.api.launch(*(function, blocks, 1, 1, threads, 1, 1, scratch_bytes, 0), ctypes.addressof(pointers))

    def run_plan(
        self, plan: Plan, vdevice: VDevice, inputs: Sequence[Array], like: Sequence[Array]
    ) -> list[list[Array]]:
        """The outputs of a plan in each order that matters."""
        loaded = self.load(source_of(plan, vdevice))
        return [self.run(loaded, inputs, like, order) for order in orders(plan.veus)]


@contextmanager
def host_gpu(folder: Path, command: tuple[str, ...] | None = None) -> Iterator[HostGpu]:
    """A GPU that is this machine; libraries are kept in `folder`.

    Raises:
        RuntimeError: no compiler for C++.
    """
    command = command or compiler()
    if command is None:
        raise RuntimeError("no compiler for C++: install g++, or the package ziglang")
    gpu = HostGpu(api=HostApi(), toolchain=HostToolchain(folder=folder, command=command))
    driver = Driver(api=gpu.api, device=0, context=0, pool=0)
    with (
        mock.patch.object(launch, "find_driver", return_value=driver),
        mock.patch.object(build, "find_toolchain", return_value=gpu.toolchain),
    ):
        try:
            yield gpu
        finally:
            gpu.api.close()
