"""NVIDIA GPUs: a vEU is a resident block, an rKernel a device function, an rProgram a table that each block walks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rammer.devices.base import Binary, Loaded, Progress, Source, no_progress
from rammer.devices.codegen.source import outdated
from rammer.devices.cuda.architecture import KIND, MOST_BLOCKS, Gpu, named
from rammer.devices.cuda.build import CUBIN, build, build_traced, mismatch
from rammer.devices.cuda.deferred import DeferredModel
from rammer.devices.cuda.driver import find_driver, read_gpu
from rammer.devices.cuda.launch import LoadedModel
from rammer.devices.cuda.source_files import ABI, check_launch
from rammer.devices.cuda.toolchain import find_toolchain
from rammer.errors import CompilerNotFoundError, DeviceUnavailableError
from rammer.ir.schema import SchemaError
from rammer.options import CompileOptions

if TYPE_CHECKING:
    from rammer.devices.cuda.source import Code
    from rammer.ir.program import Plan, Schedule
    from rammer.ir.task import TaskGraph
    from rammer.ir.vdevice import VDevice


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaDevice:
    """The GPU of this process, or one of a named architecture that need not be here.

    See `rammer.devices.base.Device`. For a named architecture, code is compiled for the GPU that stands for it in
    `architecture.NAMED`, and a model is loaded by its first run.
    """

    architecture: str | None = None

    @property
    def name(self) -> str:
        """What users call it: "cuda", or "cuda:sm_90"."""
        return KIND if self.architecture is None else f"{KIND}:{self.architecture}"

    def describe(self, options: CompileOptions) -> VDevice:
        """The GPU as data; see `Device.describe`."""
        return self._described(options, options.veus)

    def divisions(self, options: CompileOptions) -> tuple[VDevice, ...]:
        """Two vEUs on each multiprocessor, which compute by turns or at the same time; see `Divisible.divisions`."""
        if options.veus is not None:
            return ()
        count = MOST_BLOCKS * self._gpu().multiprocessors
        return tuple(self._described(options, count, others_wait=others_wait) for others_wait in (False, True))

    def _described(self, options: CompileOptions, veus: int | None, *, others_wait: bool = False) -> VDevice:
        from rammer.devices.cuda.describe import NOT_MEASURED, describe  # noqa: PLC0415 - loading a model needs none of it
        from rammer.devices.cuda.peaks import find_peaks  # noqa: PLC0415

        gpu = self._gpu()
        described = self.architecture is not None or options.figures == "described"
        peaks = NOT_MEASURED if described else find_peaks(gpu, options)
        vdevice = describe(gpu, veus, _compiler(), peaks, others_wait=others_wait)
        return replace(vdevice, precision=options.precision, numerics=options.numerics)

    def emit(self, plan: Plan, vdevice: VDevice) -> Source:
        """One translation unit, tables and constants; see `Device.emit`."""
        return self.complete(plan, vdevice, self.code(plan.graph, plan.schedule, vdevice))

    def code(self, graph: TaskGraph, schedule: Schedule, vdevice: VDevice) -> Code:
        """The translation unit alone; see `Early.code`."""
        from rammer.devices.cuda.source import code_of  # noqa: PLC0415 - loading a model needs none of it

        return code_of(graph, schedule, vdevice)

    def complete(self, plan: Plan, vdevice: VDevice, code: Code) -> Source:
        """Tables and constants; see `Early.complete`."""
        from rammer.devices.cuda.source import complete  # noqa: PLC0415

        return complete(plan, vdevice, code)

    def build(self, source: Source, options: CompileOptions, progress: Progress = no_progress) -> Binary:
        """Machine code for the architecture; see `Device.build`."""
        return build(source, self._gpu().architecture, options, progress)

    def build_traced(self, source: Source, options: CompileOptions) -> Binary:
        """Machine code that writes times; see `TracedApart.build_traced`."""
        return build_traced(source, self._gpu().architecture, options)

    def outdated(self, source: Source, array_bytes: Sequence[int]) -> str | None:
        """Why the runtime cannot read a source; see `Device.outdated`."""
        reason = outdated(source, ABI, array_bytes)
        if reason is None:
            check_launch(source, array_bytes)
        return reason

    def mismatch(self, binary: Binary) -> str | None:
        """Why the GPU cannot run a binary; see `Device.mismatch`. Where there is none, `load` says so."""
        try:
            return mismatch(binary, self._gpu().architecture)
        except DeviceUnavailableError:
            return None

    def load(self, source: Source, binary: Binary, options: CompileOptions) -> Loaded:
        """A model ready to run; see `Device.load`."""
        if not binary.files[CUBIN]:
            raise SchemaError(f"its {CUBIN} is empty")
        if self.architecture is not None:
            return DeferredModel(lambda: LoadedModel(source, binary, options))
        return LoadedModel(source, binary, options)

    def _gpu(self) -> Gpu:
        return read_gpu(find_driver()) if self.architecture is None else named(self.architecture)


def _compiler() -> str:
    """What makes machine code; nothing where it is missing, which `build` reports."""
    try:
        return f"NVRTC {find_toolchain().version}"
    except CompilerNotFoundError:
        return ""
