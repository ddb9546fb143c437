"""What a device is to the rest of the compiler: describe, emit, build, load.

    Plan ──emit──▶ Source ──build──▶ Binary ──load──▶ Loaded

`Source` follows from the plan alone; `Binary` depends on the machine and its compilers. Both are named bytes, so an
artifact stores them as they are and a model loads without its plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rammer.ir.graph import Array
from rammer.ir.program import Plan
from rammer.ir.vdevice import VDevice
from rammer.options import CompileOptions

Buffer = bytes | memoryview
Progress = Callable[[int, int], None]


def no_progress(done: int, total: int) -> None:
    """The `Progress` of a caller who does not want to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A plan in a device's terms: code, tables and constants by name.

    Equal plans give equal bytes: there is no path, time, address or machine in them. A device whose programs live in
    memory only (the reference device) derives from this class and leaves `files` empty; its models cannot be saved.
    """

    device: str
    files: Mapping[str, Buffer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """A source, built. `machine` holds what a machine must have to run it, see `Device.mismatch`."""

    device: str
    machine: Mapping[str, str]
    files: Mapping[str, Buffer]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """When each step of a run happened.

    `spans_ns[program][veu]` has shape `[steps, 2]`, int64: start and end of `programs[program].steps[veu][i]` in
    nanoseconds from the start of the run.
    """

    spans_ns: tuple[tuple[npt.NDArray[np.int64], ...], ...]


class Loaded(Protocol):
    """A model in a device's memory. Calls from several threads are safe; they run one after another."""

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run the model once, in place: nothing is copied.

        Args:
            inputs: C-contiguous arrays of the graph's input types, in order. Checked by the caller.
            outputs: C-contiguous writable arrays of the graph's output types, in order, apart from each other and
                from the inputs; every element is written.

        Raises:
            RunTimeoutError: the run stopped making progress. Later runs are not affected.
        """
        ...

    def trace(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Trace:
        """`run`, measuring every step."""
        ...


class Device(Protocol):
    """One kind of accelerator. Devices hold no state."""

    @property
    def name(self) -> str:
        """What users call it."""
        ...

    def describe(self, options: CompileOptions) -> VDevice:
        """The machine at hand as data, from what it says about itself and what was measured once: the same each time.

        Raises:
            DeviceUnavailableError: there is no such device here.
            OptionError: more vEUs than the device can have.
        """
        ...

    def emit(self, plan: Plan, vdevice: VDevice) -> Source:
        """The plan as code and tables. Pure: equal arguments give equal bytes."""
        ...

    def build(self, source: Source, options: CompileOptions, progress: Progress = no_progress) -> Binary:
        """Compile for the machine at hand, or take from the cache what was compiled before.

        Args:
            source: what `emit` returned, here or elsewhere.
            options: compiler, cache and limits.
            progress: told (units done, units in all) as units are done, from any thread.

        Raises:
            CompilerNotFoundError: no compiler.
            CompilerFailedError: the compiler ended with an error, or not at all.
            CacheError: no folder to work in can be written.
        """
        ...

    def mismatch(self, binary: Binary) -> str | None:
        """Why this machine cannot run `binary`, or None if it can. Building its source again helps."""
        ...

    def load(self, source: Source, binary: Binary, options: CompileOptions) -> Loaded:
        """Place a model in memory. Buffers that are aligned to 64 bytes are used where they lie.

        Raises:
            DeviceUnavailableError: the binary does not load on this machine.
        """
        ...
