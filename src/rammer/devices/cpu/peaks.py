"""Figures of this processor, measured once: multiply-adds, reads from each memory level, hand-overs, rTask overhead.

A measurement is itself a plan on the device's own runtime. Its rKernels saturate one thing each (`rammer_peaks.h`);
hand-overs and the overhead of an rTask are those of the interpreter that runs every model. Of many short runs the best
counts, so it matters little what else the machine does. The figures are kept in the cache folder under a key made from
machine, compiler and code. Whoever stored them first is believed, so equal compilations see equal figures.
"""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rammer.devices.base import Source, no_progress
from rammer.devices.cache import PEAKS, Cache, content_key
from rammer.devices.codegen.constants import aligned_bytes
from rammer.devices.cpu.build import build
from rammer.devices.cpu.describe import Peaks, describe
from rammer.devices.cpu.launch import LoadedModel
from rammer.devices.cpu.machine import Machine
from rammer.devices.cpu.source import assemble
from rammer.devices.cpu.toolchain import find_toolchain
from rammer.errors import DeviceError
from rammer.ir.expr import Axis, Output, TensorExpr, load
from rammer.ir.kernel_form import KernelForm, Skeleton
from rammer.ir.program import Execute, MemoryPlan, Plan, RProgram, Schedule, Signal, Step, Wait
from rammer.ir.task import Binding, RKernel, ROperator, RTask, RTile, TaskGraph, Tensor, TensorRole
from rammer.ir.types import DType, Layout, TensorType
from rammer.ir.vdevice import VDevice
from rammer.options import CompileOptions

_log = logging.getLogger(__name__)

_HEADER = "rammer_peaks.h"
_CHAINS = 12  # of the header
_ROUNDS = 20_000  # some 0.1 ms: a core may take a while to power up its widest vectors
_MULTIPLY_ADDS = {DType.FLOAT32: "float", DType.FLOAT64: "double", DType.INT32: "int32_t", DType.INT64: "int64_t"}
_LEAST_READ_BYTES = 2 << 20  # takes much longer than reading the clock
_MEMORY_BYTES = (64 << 20, 512 << 20)  # least and most that is read from memory, eight times the last cache
_SAMPLES = 15
_HANDOVERS = 1000
_TASKS = 1000
_NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Probe(KernelForm):
    """One of the functions that are measured, by name."""

    name: str

    @property
    def skeleton(self) -> Skeleton:
        return Skeleton.MAP


def find_peaks(machine: Machine, options: CompileOptions) -> Peaks:
    """The measured figures of this machine: from the cache, else measured now, which takes about a second.

    Without a compiler there are none, and the provenance says why.
    """
    try:
        return _find_peaks(machine, options.cc, options.cache_dir, options.compile_timeout_s)
    except DeviceError as error:
        return Peaks(provenance=f"not measured: {error.message}")


@functools.lru_cache(maxsize=8)
def _find_peaks(machine: Machine, cc: str | None, cache_dir: Path, compile_timeout_s: float) -> Peaks:
    options = CompileOptions(cc=cc, cache_dir=cache_dir, compile_timeout_s=compile_timeout_s)
    compiler = find_toolchain(cc).version.partition("\n")[0]
    bench = _Bench(describe(machine, None))
    sources = [bench.source(programs) for programs in (bench.throughput, bench.tasks, bench.handovers)]
    binaries = [build(source, machine, options, no_progress) for source in sources]
    code = [bytes(content) for binary in binaries for content in binary.files.values()]
    key = content_key(repr(machine), compiler, *code)
    cache = Cache(cache_dir / PEAKS)
    stored = cache.get(key)
    if stored is None:
        _log.info("measuring %s, once", machine.name)
        loaded = [LoadedModel(*built, machine, options) for built in zip(sources, binaries, strict=True)]
        peaks = bench.measure(*loaded, compiler=compiler)
        stored = cache.keep(key, json.dumps(asdict(peaks), sort_keys=True).encode())
    fields = json.loads(stored)
    return Peaks(**{**fields, "bytes_per_us": {name: tuple(pair) for name, pair in fields["bytes_per_us"].items()}})


class _Bench:
    """Plans that measure: probes by name, whose rTask i runs on vEU i."""

    def __init__(self, vdevice: VDevice) -> None:
        self._vdevice = vdevice
        self._veus = vdevice.veu_count
        vector_bytes = vdevice.vector_bytes
        self._slices_bytes = _slices_bytes(vdevice)
        self._bodies = {
            **{
                dtype.value: f"RAMMER_MULTIPLY_ADDS({text}, {vector_bytes}, {_ROUNDS})"
                for dtype, text in _MULTIPLY_ADDS.items()
            },
            **{
                name: _reads(size, vector_bytes, far_apart=name == vdevice.levels[-1].name)
                for name, size in self._slices_bytes.items()
            },
            _NOTHING: "",
        }
        self._numbers = {name: number for number, name in enumerate(self._bodies)}

    @property
    def throughput(self) -> tuple[RProgram, ...]:
        """Every probe on one vEU, then every memory level on all vEUs; each twice, as caches are cold before."""
        levels = self._slices_bytes
        alone = [_program([[self._execute(name, 0)] * 2]) for name in (*_dtype_names(), *levels)]
        together = [_program([[self._execute(name, veu)] * 2 for veu in range(self._veus)]) for name in levels]
        return (*alone, *together)

    @property
    def tasks(self) -> tuple[RProgram, ...]:
        """Many rTasks that do nothing."""
        return (_program([[self._execute(_NOTHING, 0)] * _TASKS]),)

    @property
    def handovers(self) -> tuple[RProgram, ...]:
        """A token that two vEUs hand each other; one that is alone keeps it."""
        queues: list[list[Step]] = [[], []]
        for number in range(_HANDOVERS):
            queues[number % 2].append(Signal(number))
            queues[(number + 1) % 2].append(Wait(number, 1))
        return (_program(queues, _HANDOVERS),) if self._veus > 1 else ()

    def source(self, programs: tuple[RProgram, ...]) -> Source:
        """A plan's source. Expressions say no more than how many rTasks there are."""
        header = (files("rammer.devices.cpu") / _HEADER).read_text()
        plan = Plan(
            graph=self._graph(),
            schedule=Schedule(policy="peaks", choice=(0,) * len(self._bodies), programs=programs),
            memory=MemoryPlan(offsets_bytes={}, arenas_bytes=(0,), alignment_bytes=self._vdevice.alignment_bytes),
        )
        return assemble(plan, self._emit, {_HEADER: header}, self._vdevice.alignment_bytes)

    def measure(self, throughput: LoadedModel, tasks: LoadedModel, handovers: LoadedModel, *, compiler: str) -> Peaks:
        """The best figures of several runs."""
        # Aligned, so that no vector lies in two cache lines; written, so that the system has given all pages.
        arrays = [aligned_bytes(4 * size, self._vdevice.alignment_bytes).view(np.float32) for (size,) in self._shapes]
        for array in arrays:
            array.fill(1)
        inputs, outputs = arrays[:1], arrays[1:]
        runs = [throughput.trace(inputs, outputs).spans_ns for _ in range(_SAMPLES)]
        least_us = [min(_span_us(run[program]) for run in runs) for program in range(len(runs[0]))]
        alone_us = dict(zip((*_dtype_names(), *self._slices_bytes), least_us, strict=False))
        together_us = dict(zip(reversed(self._slices_bytes), reversed(least_us), strict=False))
        read_bytes = {name: size * _passes(size) for name, size in self._slices_bytes.items()}
        operations = {
            dtype.value: 2 * _CHAINS * _ROUNDS * self._vdevice.vector_bytes // dtype.itemsize_bytes
            for dtype in _MULTIPLY_ADDS
        }
        return Peaks(
            provenance=f"measured {time.strftime('%Y-%m-%d')} with {compiler}",
            compiler=compiler,
            flops_per_us={name: count / alone_us[name] for name, count in operations.items()},
            bytes_per_us={
                name: (size / alone_us[name], self._veus * size / together_us[name])
                for name, size in read_bytes.items()
            },
            task_overhead_us=_least_us(lambda: tasks.run(inputs, outputs)) / _TASKS,
            handover_us=_least_us(lambda: handovers.run(inputs, outputs)) / _HANDOVERS if self._veus > 1 else None,
        )

    @property
    def _shapes(self) -> tuple[tuple[int], tuple[int]]:
        """Elements of what is read, and of what is written so that nothing is left out."""
        return (self._veus * max(self._slices_bytes.values()) // 4,), (
            self._veus * _CHAINS * self._vdevice.vector_bytes // 4,
        )

    def _graph(self) -> TaskGraph:
        types = [TensorType(DType.FLOAT32, shape) for shape in self._shapes]
        tensors = tuple(
            Tensor(id=i, name=role.value, type=type_, layout=Layout.row_major(type_.shape), role=role)
            for i, (type_, role) in enumerate(zip(types, (TensorRole.INPUT, TensorRole.OUTPUT), strict=True))
        )
        axis = Axis("s0", self._veus)
        output = Output(type=types[1], indices=(axis,), body=load(0, types[0], (axis,)))
        expr = TensorExpr(axes=(axis,), inputs=(types[0],), outputs=(output,))
        layouts = tuple(tensor.layout for tensor in tensors)
        operators = tuple(
            ROperator(
                id=number,
                name=name,
                kind="Peak",
                kernels=(RKernel(expr=expr, layouts=layouts, tile=RTile(task=(1,)), form=_Probe(name=name)),),
                reads=(Binding(tensor=0, origin=(0,)),),
                writes=(Binding(tensor=1, origin=(0,)),),
            )
            for name, number in self._numbers.items()
        )
        return TaskGraph(name="peaks", tensors=tensors, constants={}, operators=operators, inputs=(0,), outputs=(1,))

    def _execute(self, name: str, veu: int) -> Execute:
        return Execute(RTask(self._numbers[name], veu))

    def _emit(self, kernel: RKernel, symbol: str) -> str:
        """The function of a probe."""
        assert isinstance(kernel.form, _Probe)
        body = self._bodies[kernel.form.name]
        return f'#include "{_HEADER}"\nvoid {symbol}(char *const *restrict pointers, int32_t tile) {{ {body} }}\n'


def _dtype_names() -> tuple[str, ...]:
    return tuple(dtype.value for dtype in _MULTIPLY_ADDS)


def _program(queues: Sequence[Sequence[Step]], counters: int = 0) -> RProgram:
    return RProgram(steps=tuple(map(tuple, queues)), counter_count=counters)


def _slices_bytes(vdevice: VDevice) -> dict[str, int]:
    """What one vEU reads of each memory level: it fits there, with those of the others, and in no level before."""
    unit = _CHAINS * vdevice.vector_bytes
    slices: dict[str, int] = {}
    inner_bytes = 0
    for level in vdevice.levels[:-1]:
        room_bytes = level.capacity_bytes // (2 * vdevice.veu_count if level.shared else 2)
        slices[level.name] = -(-max(room_bytes, 2 * inner_bytes) // unit) * unit
        inner_bytes = level.capacity_bytes
    least_bytes, most_bytes = _MEMORY_BYTES
    whole_bytes = min(max(8 * inner_bytes, least_bytes), most_bytes)
    slices[vdevice.levels[-1].name] = -(-whole_bytes // vdevice.veu_count // unit) * unit
    return slices


def _reads(slice_bytes: int, vector_bytes: int, *, far_apart: bool) -> str:
    length = slice_bytes // (_CHAINS * vector_bytes)
    apart, step = (length, 1) if far_apart else (1, _CHAINS)
    return f"RAMMER_READS({vector_bytes}, {length}, {apart}, {step}, {_passes(slice_bytes)})"


def _passes(slice_bytes: int) -> int:
    return -(-_LEAST_READ_BYTES // slice_bytes)


def _span_us(queues: Sequence[npt.NDArray[np.int64]]) -> float:
    """From the first start to the last end of what the vEUs do last."""
    spans = np.concatenate([queue[-1:] for queue in queues])
    return float(spans[:, 1].max() - spans[:, 0].min()) / 1e3


def _least_us(call: Callable[[], None]) -> float:
    """The shortest of several calls."""
    clock_ns = []
    for _ in range(_SAMPLES):
        start_ns = time.perf_counter_ns()
        call()
        clock_ns.append(time.perf_counter_ns() - start_ns)
    return min(clock_ns) / 1e3
