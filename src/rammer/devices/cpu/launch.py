"""A built model on the processor, and calls of it.

A call fills in the addresses of its arrays and goes straight to C, with Python's interpreter lock released. Calls from
several threads share the cores: a model of several vEUs has one instance, for which they queue; one of a single vEU
gets as many instances as calls overlap, up to the number of cores.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rammer.devices.base import Binary, Source, Trace
from rammer.devices.codegen.tables import TASKS
from rammer.devices.cpu.instance import STALLED, Image, Instance, Stall
from rammer.devices.cpu.machine import Machine
from rammer.errors import OutOfMemoryError, RunTimeoutError
from rammer.options import CompileOptions

if TYPE_CHECKING:
    from rammer.ir.graph import Array


class LoadedModel:
    """A model that runs on the processor; see `rammer.devices.base.Loaded`."""

    def __init__(self, source: Source, binary: Binary, machine: Machine, options: CompileOptions) -> None:
        image = Image(source, binary, machine, options)
        self._begin(image, machine.computing_cores if image.manifest.veus == 1 else 1, options.run_timeout_s)

    def _begin(self, image: Image, most_instances: int, timeout_s: float) -> None:
        self._image, self._most_instances, self._timeout_s = image, most_instances, timeout_s
        self._array_count = len(image.manifest.array_bytes)
        self._addresses = ctypes.c_void_p * self._array_count
        self._instances = [Instance(image)]
        self._idle = deque(self._instances)
        self._turns = itertools.count()
        self._growing = threading.Lock()

    def clone(self) -> LoadedModel:
        """The same model with an arena of its own; see `Loaded.clone`."""
        twin = LoadedModel.__new__(LoadedModel)
        twin._begin(self._image, self._most_instances, self._timeout_s)
        return twin

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run the model once; see `Loaded.run`."""
        self._run(inputs, outputs, None)

    def run_at(self, addresses: Sequence[int], stream: int | None = None) -> None:
        """Run the model once; see `OnHost.run_at`."""
        self._launch(self._pointers(addresses), None)

    def bound(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Callable[[], None]:
        """The model on the same arrays each time; see `OnHost.bound`."""
        return partial(self._launch, self._pointers([array.ctypes.data for array in (*inputs, *outputs)]), None)

    def trace(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Trace:
        """Run the model once and measure every step; see `Loaded.trace`."""
        manifest = self._image.manifest
        spans_ns: npt.NDArray[np.int64] = np.zeros((len(self._image.records), 2), dtype=np.int64)
        self._run(inputs, outputs, spans_ns.ctypes.data)
        firsts = [
            [start + first for first in manifest.first_records(veu)] for veu, start in enumerate(manifest.starts[:-1])
        ]
        return Trace(
            spans_ns=tuple(
                tuple(spans_ns[firsts[veu][number] :][:length] for veu, length in enumerate(lengths))
                for number, lengths in enumerate(manifest.steps)
            )
        )

    def _run(self, inputs: Sequence[Array], outputs: Sequence[Array], spans: int | None) -> None:
        self._launch(self._pointers([array.ctypes.data for array in (*inputs, *outputs)]), spans)

    def _pointers(self, addresses: Sequence[int]) -> ctypes.Array[ctypes.c_void_p]:
        if len(addresses) != self._array_count:
            raise ValueError(f"{len(addresses)} inputs and outputs, {self._array_count} in all")
        return self._addresses(*addresses)

    def _launch(self, pointers: ctypes.Array[ctypes.c_void_p], spans: int | None) -> None:
        stall = Stall()
        try:
            instance, taken = self._idle.pop(), True
        except IndexError:
            instance, taken = self._further()
        try:
            code = instance.run(pointers, spans, stall)
        finally:
            if taken:
                self._idle.append(instance)
        if code == STALLED:
            raise self._timeout(stall)

    def _further(self) -> tuple[Instance, bool]:
        """An instance as all are taken: a new one, or, where there are as many as there may be, one to queue for."""
        with self._growing:
            if len(self._instances) < self._most_instances:
                try:
                    self._instances.append(Instance(self._image))
                except OutOfMemoryError:
                    self._most_instances = len(self._instances)
                else:
                    return self._instances[-1], True
            return self._instances[next(self._turns) % len(self._instances)], False

    def _timeout(self, stall: Stall) -> RunTimeoutError:
        manifest = self._image.manifest
        program, step = manifest.locate(stall.veu, stall.step)
        if step >= manifest.steps[program][stall.veu]:
            place = f"the barrier behind rProgram {program}"
        else:
            counter = stall.counter - manifest.first_counters[program]
            place = f"step {step} of rProgram {program}, a Wait for counter {counter}"
        return RunTimeoutError(
            f"nothing moved for {self._timeout_s:g} s: vEU {stall.veu} is at {place}, which saw {stall.seen} of "
            f"{stall.wanted} signals",
            where=self._next_task(stall.veu, stall.step),
            hint="this is a defect of Rammer; please report it with the model",
        )

    def _next_task(self, veu: int, step: int) -> str:
        """The rTask that a vEU would have run after a record."""
        manifest = self._image.manifest
        start, end = manifest.starts[veu : veu + 2]
        for record in self._image.records[start + step : end]:
            if record["opcode"] in TASKS:
                return f"before rTask {record['b']} of {manifest.operator_at(record['c'])}"
        return "behind the last rTask of the vEU"
