"""Measures rKernels alone, on one vEU, and checks what they compute against the meaning of their expression.

The candidates of one rOperator are measured together, in one plan: an rProgram for each candidate, which runs all of
its rTasks on vEU 0. In a run of the plan each candidate finds the operands as the one before has left them, in some
cache or other, which is how a network's rOperators find theirs.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.devices.base import Device, Loaded, Progress, Source
from rammer.devices.cache import DATABASE
from rammer.devices.codegen.constants import aligned_bytes
from rammer.errors import VerificationError
from rammer.ir.evaluate import converted, evaluate, evaluate_tile
from rammer.ir.expr import Load, TensorExpr, nodes
from rammer.ir.graph import Array
from rammer.ir.program import Execute, MemoryPlan, Plan, RProgram, Schedule
from rammer.ir.task import Binding, RKernel, ROperator, RTask, TaskGraph, Tensor, TensorRole
from rammer.ir.types import DType, Layout, TensorType
from rammer.ir.vdevice import Figure, VDevice
from rammer.options import CompileOptions
from rammer.profiler.database import Database
from rammer.profiler.keys import kernel_key

_log = logging.getLogger(__name__)
_CODE_FILES = (".py", ".c", ".h", ".cu", ".cuh")
_LEAST_RUNS, _MOST_RUNS = 5, 50
_RUNS_S = 0.3  # after which there are runs enough
# Largest difference to NumPy's result, relative to the largest element: sums of up to some 10,000 terms.
TOLERANCES = {DType.FLOAT16: 4e-3, DType.BFLOAT16: 3e-2, DType.FLOAT32: 1e-4, DType.FLOAT64: 1e-10}


def profile(
    kernels: Sequence[RKernel], device: Device, vdevice: VDevice, options: CompileOptions, progress: Progress
) -> dict[RKernel, Figure]:
    """The time of a full rTask of each rKernel, from the database or else measured and kept there.

    Args:
        kernels: distinct rKernels; those with equal expressions and layouts are measured together.
        device: where they run.
        vdevice: its description.
        options: compiler, cache and limits.
        progress: told (rKernels done, rKernels in all).

    Raises:
        CompilerNotFoundError: no compiler.
        CompilerFailedError: the compiler ended with an error, or not at all.
        VerificationError: an rKernel does not compute what its expression means.
    """
    database = Database(options.cache_dir / DATABASE)
    keys = {kernel: kernel_key(kernel, vdevice, _code_digest(type(device).__module__)) for kernel in kernels}
    known = database.find(keys.values())
    groups: dict[tuple[TensorExpr, tuple[Layout, ...]], list[RKernel]] = {}
    for kernel, key in keys.items():
        if key not in known:
            groups.setdefault((kernel.expr, kernel.layouts), []).append(kernel)
    done = len(known)
    _log.info("%d rKernels are to be measured, %d have been before", len(keys) - done, done)
    measured: dict[str, Figure] = {}
    for group in groups.values():
        progress(done, len(keys))
        times_us = measure(group, device, vdevice, options)
        figures = {keys[kernel]: Figure(us, _provenance(vdevice)) for kernel, us in zip(group, times_us, strict=True)}
        database.keep(figures)
        measured |= figures
        done += len(group)
    stored = known | measured | database.find(key for key in keys.values() if key not in known)
    return {kernel: stored[key] for kernel, key in keys.items()}


def measure(
    kernels: Sequence[RKernel], device: Device, vdevice: VDevice, options: CompileOptions, veus: int = 1
) -> list[float]:
    """The median time of a full rTask of each candidate of one rOperator, in microseconds, on an otherwise idle vEU.

    Args:
        kernels: with the same expression and layouts.
        device: where they run.
        vdevice: its description.
        options: compiler, cache and limits.
        veus: among which the rTasks of each candidate are shared out, instead.

    Raises:
        CompilerNotFoundError: no compiler.
        CompilerFailedError: the compiler ended with an error, or not at all.
        VerificationError: an rKernel does not compute what its expression means.
    """
    return timed(kernels, load(kernels, device, vdevice, options, veus), vdevice, expected(kernels), veus=veus)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expected:
    """What an output has to hold: at `addresses` (int64 [n], in elements) of its storage `values` ([n])."""

    addresses: npt.NDArray[np.int64]
    values: Array


def timed(
    kernels: Sequence[RKernel], loaded: Loaded, vdevice: VDevice, right: Sequence[Expected], *, veus: int
) -> list[float]:
    """The median time of a full rTask of each candidate of one rOperator, in microseconds, after a look at its results.

    Args:
        kernels: with the same expression and layouts.
        loaded: what `emit` made of them, for as many vEUs.
        vdevice: the description of its device.
        right: what each output has to hold.
        veus: among which the rTasks of each candidate are shared out.

    Raises:
        VerificationError: an rKernel does not compute what its expression means.
    """
    operator = _Operator(kernels, veus)
    inputs, outputs = operator.arrays(operands_for(operator.expr), vdevice.alignment_bytes)
    loaded.trace(inputs, outputs)
    operator.check(outputs, right)
    full = {kernel: full_tasks(kernel, veus) for kernel in kernels}
    samples: list[list[float]] = [[] for _ in kernels]
    end_s = time.perf_counter() + _RUNS_S
    while len(samples[0]) < _LEAST_RUNS or (len(samples[0]) < _MOST_RUNS and time.perf_counter() < end_s):
        for kernel, times_us, queues in zip(kernels, samples, loaded.trace(inputs, outputs).spans_ns[1:], strict=True):
            spans = np.concatenate(queues)[full[kernel]]
            times_us.append(float((spans[:, 1] - spans[:, 0]).mean()) / 1e3)
    return [statistics.median(times_us) for times_us in samples]


def full_tasks(kernel: RKernel, veus: int = 1) -> list[int]:
    """The rTasks that no border of the domain clips, by their places in the queues of so many vEUs side by side."""
    largest = [interval.extent for interval in kernel.tile_ranges(0).values()]
    return [
        place
        for place, index in enumerate(itertools.chain(*_queues(kernel, veus)))
        if [interval.extent for interval in kernel.tile_ranges(index).values()] == largest
    ]


def _queues(kernel: RKernel, veus: int) -> list[range]:
    """The rTasks of each of so many vEUs, in turns."""
    return [range(veu, kernel.task_count, veus) for veu in range(veus)]


def load(
    kernels: Sequence[RKernel], device: Device, vdevice: VDevice, options: CompileOptions, veus: int = 1
) -> Loaded:
    """The candidates of one rOperator, compiled: an rProgram for each, on so many vEUs."""
    source = emit(kernels, device, vdevice, veus)
    return device.load(source, device.build(source, options), options)


def emit(kernels: Sequence[RKernel], device: Device, vdevice: VDevice, veus: int = 1) -> Source:
    """The candidates of one rOperator as a source: an rProgram for each, on so many vEUs."""
    return device.emit(plan_of(kernels, vdevice, veus), vdevice)


def plan_of(kernels: Sequence[RKernel], vdevice: VDevice, veus: int = 1) -> Plan:
    """The plan that `emit` prints."""
    return _Operator(kernels, veus).plan(vdevice.alignment_bytes)


def expected(kernels: Sequence[RKernel]) -> list[Expected]:
    """What each output of the candidates of one rOperator has to hold, by the meaning of their expression in NumPy."""
    expr = kernels[0].expr
    operands = operands_for(expr)
    found = evaluate(expr, operands)
    everywhere = math.prod(axis.extent for axis in expr.axes)
    whole = all(everywhere == right.size for right in found)
    places: list[Any] = [...] * len(found) if whole else [index for index, _ in evaluate_tile(expr, operands, {})]
    layouts = kernels[0].layouts[len(expr.inputs) :]
    return [
        Expected(addresses=layout.addresses(right.shape)[place].ravel(), values=right[place].ravel())
        for layout, right, place in zip(layouts, found, places, strict=True)
    ]


class _Operator:
    """An rOperator's candidates, each with outputs of its own. Tensors are plain storage, whatever the layout.

    Operands are inputs; where a candidate has to know where they lie before a call, they are constants.
    """

    def __init__(self, kernels: Sequence[RKernel], veus: int = 1) -> None:
        self.expr = kernels[0].expr
        self._veus = veus
        self._has_constants = any(kernel.form.maps_operands for kernel in kernels)
        self._kernels = kernels
        count = len(self.expr.inputs)
        self._input_layouts, self._output_layouts = kernels[0].layouts[:count], kernels[0].layouts[count:]

    def plan(self, alignment_bytes: int) -> Plan:
        """An rProgram for each candidate, on the first vEUs. The first stands twice, as it has none before it."""
        expr = self.expr
        dtypes = [type_.dtype for type_ in expr.inputs]
        role = TensorRole.CONSTANT if self._has_constants else TensorRole.INPUT
        constants = self._stored(operands_for(expr), alignment_bytes) if self._has_constants else ()
        tensors = [_storage(i, d, x, role) for i, (d, x) in enumerate(zip(dtypes, self._input_layouts, strict=True))]
        reads = tuple(_whole(tensor) for tensor in tensors)
        operators = []
        for number, kernel in enumerate(self._kernels):
            written = [
                _storage(len(tensors) + i, output.type.dtype, layout, TensorRole.OUTPUT)
                for i, (output, layout) in enumerate(zip(expr.outputs, self._output_layouts, strict=True))
            ]
            tensors += written
            operators.append(
                ROperator(
                    id=number,
                    name=f"candidate {number}",
                    kind="Candidate",
                    kernels=(kernel,),
                    reads=reads,
                    writes=tuple(_whole(tensor) for tensor in written),
                )
            )
        graph = TaskGraph(
            name="candidates",
            tensors=tuple(tensors),
            constants=dict(enumerate(constants)),
            operators=tuple(operators),
            inputs=() if self._has_constants else tuple(range(len(reads))),
            outputs=tuple(range(len(reads), len(tensors))),
        )
        programs = tuple(
            RProgram(
                steps=tuple(
                    tuple(Execute(RTask(number, index)) for index in queue) for queue in _queues(kernel, self._veus)
                ),
                counter_count=0,
            )
            for number, kernel in (*list(enumerate(self._kernels))[:1], *enumerate(self._kernels))
        )
        return Plan(
            graph=graph,
            schedule=Schedule(policy="profile", choice=(0,) * len(operators), programs=programs),
            memory=MemoryPlan(offsets_bytes={}, arenas_bytes=(0,), alignment_bytes=alignment_bytes),
        )

    def arrays(self, operands: Sequence[Array], alignment_bytes: int) -> tuple[list[Array], list[Array]]:
        """Storage of the inputs, and of every candidate's outputs, in which every byte is 77 or true."""
        outputs = []
        for _ in self._kernels:
            for output, layout in zip(self.expr.outputs, self._output_layouts, strict=True):
                dtype = output.type.dtype.numpy
                unset = aligned_bytes(layout.span * dtype.itemsize, alignment_bytes)
                unset.fill(1 if output.type.dtype is DType.BOOL else 77)
                outputs.append(unset.view(dtype))
        return [] if self._has_constants else self._stored(operands, alignment_bytes), outputs

    def _stored(self, operands: Sequence[Array], alignment_bytes: int) -> list[Array]:
        """Storage of the operands."""
        found = []
        for operand, layout in zip(operands, self._input_layouts, strict=True):
            packed = layout.pack(operand)
            stored = aligned_bytes(packed.nbytes, alignment_bytes).view(packed.dtype)
            stored[:] = packed
            found.append(stored)
        return found

    def check(self, outputs: Sequence[Array], right: Sequence[Expected]) -> None:
        """Compare each candidate's outputs with what they have to hold, where it stores any."""
        width = len(right)
        for number, kernel in enumerate(self._kernels):
            stored = outputs[number * width : (number + 1) * width]
            for array, one in zip(stored, right, strict=True):
                error = difference(array[one.addresses], one.values)
                if not error <= TOLERANCES.get(DType.of(one.values), 0.0):
                    raise VerificationError(
                        "K01",
                        f"an rKernel '{kernel.form.skeleton}' with {kernel.tile} is off by {error:.2g} of the largest "
                        f"element from\n{kernel.expr}",
                    )


def _storage(number: int, dtype: DType, layout: Layout, role: TensorRole) -> Tensor:
    shape = (layout.span,)
    return Tensor(
        id=number, name=f"t{number}", type=TensorType(dtype, shape), layout=Layout.row_major(shape), role=role
    )


def _whole(tensor: Tensor) -> Binding:
    return Binding(tensor=tensor.id, origin=(0,))


def operands_for(expr: TensorExpr) -> list[Array]:
    """Arrays that an expression can be computed on: numbers around 0; integers that index are 0, others 1."""
    rng = np.random.default_rng(0)
    indices = [index for load in expr.loads for index in load.indices]
    indices += [index for output in expr.outputs for index in output.indices]
    indexing = {node.slot for node in nodes(*indices) if isinstance(node, Load)}
    arrays: list[Array] = []
    for slot, type_ in enumerate(expr.inputs):
        if type_.dtype.is_float:
            arrays.append(converted(rng.uniform(-1, 1, type_.shape), type_.dtype))
        else:
            arrays.append(np.full(type_.shape, slot not in indexing, type_.dtype.numpy))
    return arrays


def difference(got: Array, right: Array) -> float:
    """The largest difference, relative to the largest element; infinite where one of both alone is no number."""
    if not DType.of(right).is_float:
        return 0.0 if np.array_equal(got, right) else math.inf
    a, b = got.astype(np.float64), right.astype(np.float64)
    special = ~np.isfinite(b)
    if not np.array_equal(a[special], b[special], equal_nan=True):
        return math.inf
    scale = float(np.abs(b[~special]).max(initial=0.0))
    error = float(np.abs(a[~special] - b[~special]).max(initial=0.0))
    return math.inf if math.isnan(error) else error / scale if scale else error


@cache
def _code_digest(module: str) -> str:
    """A digest of a device's package and of what all devices share."""
    digest = hashlib.sha256()
    for package in (module.rpartition(".")[0], "rammer.devices.codegen"):
        for text in _texts(files(package)):
            digest.update(text)
    return digest.hexdigest()


def _texts(folder: Traversable) -> Iterator[bytes]:
    """Source files below a folder, by name."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _texts(entry)
        elif entry.name.endswith(_CODE_FILES):
            yield entry.read_bytes()


def _provenance(vdevice: VDevice) -> str:
    return f"measured {time.strftime('%Y-%m-%d')} with {vdevice.compiler}"
