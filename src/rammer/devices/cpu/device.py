"""The processor: a vEU is a pinned thread, an rKernel a C function, an rProgram a table that each thread walks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rammer.devices.base import Binary, Progress, Source, no_progress
from rammer.devices.codegen.source import outdated
from rammer.devices.cpu.binary import ABI, mismatch
from rammer.devices.cpu.launch import LoadedModel
from rammer.devices.cpu.machine import read_machine
from rammer.devices.cpu.source import DEVICE, assemble, check_code
from rammer.options import CompileOptions

if TYPE_CHECKING:
    from rammer.ir.program import Plan
    from rammer.ir.task import TaskGraph
    from rammer.ir.vdevice import VDevice


class CpuDevice:
    """The processor this program runs on; see `rammer.devices.base.Device`."""

    @property
    def name(self) -> str:
        """What users call it."""
        return DEVICE

    def describe(self, options: CompileOptions) -> VDevice:
        """The processor as data; see `Device.describe`."""
        from rammer.devices.cpu.describe import NOT_MEASURED, describe  # noqa: PLC0415 - loading a model needs none of it
        from rammer.devices.cpu.peaks import find_peaks  # noqa: PLC0415

        machine = read_machine()
        measured = (options.figures or options.tune) == "measured"
        return describe(machine, options.veus, find_peaks(machine, options) if measured else NOT_MEASURED)

    def emit(self, plan: Plan, vdevice: VDevice) -> Source:
        """C functions, tables and constants; see `Device.emit`."""
        from importlib.resources import files  # noqa: PLC0415 - loading a model needs none of it

        from rammer.devices.cpu.emit.kernel import emit_kernel  # noqa: PLC0415

        own = files("rammer.devices.cpu")
        folders = (own / "kernels", own / "skeletons", files("rammer.devices.codegen"))
        found = [entry for folder in folders for entry in folder.iterdir() if entry.name.endswith(".h")]
        headers = {entry.name: entry.read_text() for entry in sorted(found, key=lambda entry: entry.name)}
        return assemble(plan, emit_kernel, headers, vdevice.alignment_bytes)

    def build(self, source: Source, options: CompileOptions, progress: Progress = no_progress) -> Binary:
        """Shared objects for this processor; see `Device.build`."""
        from rammer.devices.cpu.build import build  # noqa: PLC0415 - loading a model needs none of it

        return build(source, read_machine(), options, progress)

    def outdated(self, source: Source, array_bytes: Sequence[int]) -> str | None:
        """Why the runtime cannot read a source; see `Device.outdated`."""
        reason = outdated(source, ABI, array_bytes)
        if reason is None:
            check_code(source)
        return reason

    def mismatch(self, binary: Binary) -> str | None:
        """Why this processor cannot run a binary; see `Device.mismatch`."""
        return mismatch(binary.machine, read_machine())

    def usual_veus(self) -> int:
        """One for each usable core; see `Placing.usual_veus`."""
        return read_machine().usable_cores

    def check_tasks(self, source: Source, graph: TaskGraph) -> None:
        """See whether a source is that of a task graph; see `Placing.check_tasks`."""
        from rammer.devices.codegen.placed import read_uses  # noqa: PLC0415 - loading a model needs none of it

        read_uses(source, graph)

    def placed(self, source: Source, plan: Plan) -> Source:
        """A source with other tables; see `Placing.placed`."""
        from rammer.devices.codegen.placed import placed  # noqa: PLC0415 - loading a model needs none of it

        return placed(source, plan)

    def load(self, source: Source, binary: Binary, options: CompileOptions) -> LoadedModel:
        """A model ready to run; see `Device.load`."""
        return LoadedModel(source, binary, read_machine(), options)
