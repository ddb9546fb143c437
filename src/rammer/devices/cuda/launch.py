"""A built model in a GPU's memory, and the launch of its persistent kernel.

Everything is allocated once. A call copies its inputs into pinned memory, and then the stream does the rest: inputs to
the GPU, one cooperative launch, outputs and the run's status back.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import threading
import weakref
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rammer.devices.base import Binary, Source, Trace
from rammer.devices.codegen.source import CONSTANTS, MANIFEST, RECORDS, SIGNALS, SLOTS
from rammer.devices.codegen.tables import (
    ARENA,
    CALLER,
    CONSTANT,
    RECORD,
    SIGNAL_COUNT,
    SLOT,
    Manifest,
)
from rammer.devices.cuda.build import CUBIN, compile_source
from rammer.devices.cuda.driver import Driver, find_driver
from rammer.devices.cuda.memory import Arrays, Block, Pinned
from rammer.devices.cuda.source import LAUNCH
from rammer.devices.cuda.stall import describe_stall
from rammer.devices.cuda.tables import CLOCK, COUNTER, DONE, SPAN, STATUS, Program, device_records
from rammer.errors import DeviceError, DeviceUnavailableError, RunTimeoutError
from rammer.ir.graph import Array
from rammer.options import CompileOptions

_ENTRY = b"rammer_run"


class LoadedModel:
    """A model that runs on a GPU; see `rammer.devices.base.Loaded`."""

    def __init__(self, source: Source, binary: Binary, options: CompileOptions) -> None:
        self._source, self._options = source, options
        self._architecture = binary.machine["architecture"]
        self._driver = driver = find_driver()
        driver.enter()
        self._manifest = manifest = Manifest.from_bytes(source.files[MANIFEST])
        launch = json.loads(bytes(source.files[LAUNCH]))
        self._threads: int = launch["threads"]
        self._scratch_bytes: int = launch["scratch_bytes"]
        self._inputs = Arrays(launch["input_bytes"])
        self._outputs = Arrays(launch["output_bytes"])
        signals = np.frombuffer(source.files[SIGNALS], dtype=SIGNAL_COUNT)
        self._records = device_records(np.frombuffer(source.files[RECORDS], dtype=RECORD), signals)
        self._kernel = self._load(bytes(binary.files[CUBIN]))
        self._traced: object | None = None
        self._lock = threading.Lock()
        self._run_number = 0

        veus = manifest.veus
        self._counter_count = signals.size + 1  # and one where the blocks of a traced run meet
        # The run's report lies behind the outputs, so that one copy brings both.
        self._report_bytes = STATUS.itemsize + 4 * veus
        with driver.allocating() as allocate:
            self._arena = allocate(manifest.arena_bytes)
            self._constants = allocate(len(source.files[CONSTANTS]))
            self._input_block = allocate(self._inputs.total_bytes)
            self._output_block = allocate(self._outputs.total_bytes + self._report_bytes)
            self._counters = allocate(self._counter_count * COUNTER.itemsize)
            self._tables = [allocate(array.nbytes) for array in (self._records, self._starts(), self._pointers())]
