"""The reference device: no machine, any number of vEUs, and results by definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from rammer.devices.addressed import array_at
from rammer.devices.base import Binary, Progress, Source, Trace, no_progress
from rammer.devices.reference.execution import Interpreter
from rammer.devices.reference.pickers import Random
from rammer.devices.vector.rules import VectorRules
from rammer.errors import DeviceUnavailableError, OutOfMemoryError
from rammer.ir.graph import Array
from rammer.ir.kernel_form import Skeleton
from rammer.ir.program import Plan
from rammer.ir.schema import SchemaError
from rammer.ir.types import DType
from rammer.ir.vdevice import VEU, Figure, MemoryLevel, VDevice
from rammer.options import CompileOptions

_DEFAULT_VEUS = 4
_ASSUMED = "assumed: the reference device is no machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSource(Source):
    """A plan as it is. Constants and arena live in memory only, so there is nothing to save."""

    plan: Plan


class ReferenceLoaded:
    """A plan that runs under random interleavings, the same ones in every run."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self._graph = plan.graph
        self._interpreter = Interpreter(plan)
        self._plan, self._seed = plan, seed

    def clone(self) -> ReferenceLoaded:
        """The same model once more; see `Loaded.clone`."""
        return ReferenceLoaded(self._plan, self._seed)

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run the model once, in place.

        Raises:
            RunTimeoutError: the program does not end.
        """
        self.trace(inputs, outputs)

    def run_at(self, addresses: Sequence[int], stream: int | None = None) -> None:
        """Run the model once; see `OnHost.run_at`."""
        ports = (*self._graph.inputs, *self._graph.outputs)
        arrays = [
            array_at(address, self._graph.tensors[port].type) for address, port in zip(addresses, ports, strict=True)
        ]
        count = len(self._graph.inputs)
        self.run(arrays[:count], arrays[count:])

    def bound(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Callable[[], None]:
        """The model on the same arrays each time; see `OnHost.bound`."""
        return partial(self.run, inputs, outputs)

    def trace(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Trace:
        """`run`, with a microsecond for each event of the interleaving.

        Raises:
            RunTimeoutError: the program does not end.
            OutOfMemoryError: NumPy takes more memory for an rTask than there is.
        """
        try:
            return self._interpreter.run(inputs, outputs, Random(self._seed))
        except MemoryError as error:
            raise OutOfMemoryError(f"memory ran out as the model ran: {str(error) or 'no more is given'}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceDevice:
    """Runs plans in NumPy; `seed` decides which interleavings."""

    seed: int = 0

    @property
    def name(self) -> str:
        """What users call it."""
        return "reference"

    def describe(self, options: CompileOptions) -> VDevice:
        """A small machine with as many vEUs as the options ask for."""
        return describe(_DEFAULT_VEUS if options.veus is None else options.veus)

    def emit(self, plan: Plan, vdevice: VDevice) -> Source:
        """The plan itself."""
        return ReferenceSource(device=self.name, files={}, plan=plan)

    def build(self, source: Source, options: CompileOptions, progress: Progress = no_progress) -> Binary:
        """Nothing is to be built."""
        return Binary(device=self.name, machine={}, files={})

    def outdated(self, source: Source, array_bytes: Sequence[int]) -> str | None:
        """Programs are never saved; see `Device.outdated`."""
        raise SchemaError("programs of the reference device are never saved")

    def mismatch(self, binary: Binary) -> str | None:
        """It runs everywhere."""
        return None

    def load(self, source: Source, binary: Binary, options: CompileOptions) -> ReferenceLoaded:
        """Place a plan in memory.

        Raises:
            DeviceUnavailableError: the source was emitted for another device.
        """
        if not isinstance(source, ReferenceSource):
            raise DeviceUnavailableError(
                f"a program for the {source.device} device cannot run on the {self.name} device",
                hint=f"compile the model for the device '{self.name}'",
            )
        return ReferenceLoaded(source.plan, self.seed)


def describe(veus: int) -> VDevice:
    """The reference vDevice: small memories, so that small models have many rTasks."""

    def level(name: str, capacity_bytes: int, bandwidth_bytes_per_us: float, *, shared: bool) -> MemoryLevel:
        return MemoryLevel(
            name=name,
            capacity_bytes=capacity_bytes,
            bandwidth_bytes_per_us=Figure(bandwidth_bytes_per_us, _ASSUMED),
            transaction_bytes=64,
            shared=shared,
        )

    return VDevice(
        kind="reference",
        name="reference",
        veus=tuple(VEU(index=index) for index in range(veus)),
        vector_bytes=32,
        vector_registers=16,
        levels=(
            level("L1", 32 << 10, 100_000.0, shared=False),
            level("L2", 256 << 10, 50_000.0, shared=False),
            level("memory", 16 << 30, 10_000.0, shared=True),
        ),
        flops_per_us={dtype: Figure(50_000.0, _ASSUMED) for dtype in DType},
        handover_us=Figure(0.5, _ASSUMED),
        task_overhead_us=Figure(0.05, _ASSUMED),
        skeletons=tuple(skeleton.value for skeleton in Skeleton),
        rules=VectorRules(),
    )
