"""Users' own rKernels are compared with the meaning of their operators before they are candidates.

Each is run alone on one vEU: on numbers, on special values (zeros of both signs, infinities, what is tiny or huge), and
on numbers with a few NaN. Operands and results lie between margins. Those of operands hold NaN, so that what is read
there shows; those of results hold a pattern that must be there afterwards. All rTasks run twice, in order and
backwards, each time into results that hold the pattern: one that writes beyond its tile destroys another one's part.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakSet

import numpy as np

from rammer.devices.base import Device
from rammer.devices.codegen.constants import aligned_bytes
from rammer.errors import KernelRejectedError
from rammer.ir.evaluate import evaluate
from rammer.ir.expr import Axis, Load, Output, TensorExpr
from rammer.ir.graph import Array
from rammer.ir.kernel_form import ExternForm
from rammer.ir.program import Execute, MemoryPlan, Plan, RProgram, Schedule
from rammer.ir.task import Binding, RKernel, ROperator, RTask, TaskGraph, Tensor, TensorRole
from rammer.ir.types import DType, Layout, TensorType
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.options import CompileOptions
from rammer.profiler.measure import TOLERANCES, difference, operands_for

_log = logging.getLogger(__name__)
_MARGIN = 64  # elements before and behind
_PATTERN = 0xA5  # every byte of it
_NAN_OF, _SPECIAL_OF = 50, 3  # elements that one of these is among
_SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, 1e-40, -1e-40, 3e4, -3e4)
_ADMITTED: WeakSet[RKernel] = WeakSet()


def admit(kernels: Sequence[RKernel], device: Device, vdevice: VDevice, options: CompileOptions) -> None:
    """Compare users' rKernels with what their expressions mean, each once; all others are passed by.

    Raises:
        KernelRejectedError: one computes something else, or writes where it must not.
        CompilerNotFoundError: no compiler.
        CompilerFailedError: the compiler ended with an error, or not at all.
        DeviceError: the device is not here, so that nothing can be compared.
    """
    for kernel in dict.fromkeys(kernels):
        if isinstance(kernel.form, ExternForm) and kernel not in _ADMITTED:
            _log.info("comparing the kernel '%s' with its meaning", kernel.form.name)
            _admit(kernel, kernel.form, device, vdevice, options)
            _ADMITTED.add(kernel)


def _admit(kernel: RKernel, form: ExternForm, device: Device, vdevice: VDevice, options: CompileOptions) -> None:
    trial = _Trial(kernel, vdevice)
    source = device.emit(trial.plan(), vdevice)
    loaded = device.load(source, device.build(source, options), options)
    for what, operands in _cases(kernel.expr):
        inputs, outputs = trial.arrays(operands)
        given = [array.copy() for array in inputs]
        loaded.run(inputs, outputs)
        with np.errstate(all="ignore"):
            expected = evaluate(kernel.expr, operands)
        fault = trial.fault(outputs, expected)
        if any(before.tobytes() != after.tobytes() for before, after in zip(given, inputs, strict=True)):
            fault = "writes to its operands"
        if fault is not None:
            raise KernelRejectedError(f"the kernel '{form.name}' {fault}, for {what} and tiles of {kernel.tile.task}")


def _cases(expr: TensorExpr) -> Iterator[tuple[str, list[Array]]]:
    """Operands to compare on, with what they are."""
    plain = operands_for(expr)
    floats = [slot for slot, array in enumerate(plain) if DType.of(array).is_float]
    yield "numbers", plain
    for slot in floats:
        yield (
            f"NaN in operand {slot}",
            [
                _strewn(array, (np.nan,), array.size // _NAN_OF) if slot == number else array
                for number, array in enumerate(plain)
            ],
        )
    if floats:
        yield (
            "special values",
            [
                _strewn(array, _SPECIAL, array.size // _SPECIAL_OF) if slot in floats else array
                for slot, array in enumerate(plain)
            ],
        )


def _strewn(array: Array, values: Sequence[float], count: int) -> Array:
    """The array with so many elements replaced, by each of the values as far as there is room."""
    strewn = array.copy()
    places = np.random.default_rng(array.size).permutation(array.size)[: max(count, len(values))]
    with np.errstate(all="ignore"):
        strewn.reshape(-1)[places] = np.resize(values, len(places)).astype(array.dtype)
    return strewn


@dataclass(frozen=True, slots=True)
class _Trial:
    """An rKernel between margins: the same rTasks in order, and backwards into other results."""

    kernel: RKernel
    vdevice: VDevice

    def plan(self) -> Plan:
        """Results get the pattern in a first rProgram, then come the rTasks."""
        tensors: list[Tensor] = []

        def storage(dtype: DType, span: int, role: TensorRole) -> Tensor:
            shape = (span + 2 * _MARGIN,)
            tensor = Tensor(
                id=len(tensors),
                name=f"t{len(tensors)}",
                type=TensorType(dtype, shape),
                layout=Layout.row_major(shape),
                role=role,
            )
            tensors.append(tensor)
            return tensor

        inputs, results = self._sides()
        operands = [storage(dtype, layout.span, TensorRole.INPUT) for dtype, layout in inputs]
        patterns = [storage(dtype, layout.span, TensorRole.INPUT) for dtype, layout in results]
        operators: list[ROperator] = []
        filling: list[Execute] = []
        orders: list[list[Execute]] = []
        for step in (1, -1):
            written = [storage(dtype, layout.span, TensorRole.OUTPUT) for dtype, layout in results]
            for pattern, tensor in zip(patterns, written, strict=True):
                copy = _copy(pattern.type, self.vdevice)
                operators.append(
                    _operator(len(operators), copy, [Binding(tensor=pattern.id, origin=(0,))], [tensor], 0)
                )
                filling += [Execute(RTask(operators[-1].id, index)) for index in range(copy.task_count)]
            reads = [Binding(tensor=tensor.id, origin=(_MARGIN,)) for tensor in operands]
            operators.append(_operator(len(operators), self.kernel, reads, written, _MARGIN))
            tasks = [Execute(RTask(operators[-1].id, index)) for index in range(self.kernel.task_count)]
            orders.append(tasks[::step])
        graph = TaskGraph(
            name="admission",
            tensors=tuple(tensors),
            constants={},
            operators=tuple(operators),
            inputs=tuple(tensor.id for tensor in tensors if tensor.role is TensorRole.INPUT),
            outputs=tuple(tensor.id for tensor in tensors if tensor.role is TensorRole.OUTPUT),
        )
        programs = tuple(RProgram(steps=(tuple(queue),), counter_count=0) for queue in (filling, *orders))
        return Plan(
            graph=graph,
            schedule=Schedule(policy="admission", choice=(0,) * len(operators), programs=programs),
            memory=MemoryPlan(offsets_bytes={}, arenas_bytes=(0,), alignment_bytes=self.vdevice.alignment_bytes),
        )

    def arrays(self, operands: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        """Storage of operands, of patterns, and of results."""
        inputs, results = self._sides()
        given = [
            self._between(layout.pack(operand), np.nan if dtype.is_float else 0)
            for operand, (dtype, layout) in zip(operands, inputs, strict=True)
        ]
        patterns = [_pattern(dtype, layout.span + 2 * _MARGIN) for dtype, layout in results]
        outputs = [self._aligned(np.zeros_like(pattern)) for _ in range(2) for pattern in patterns]
        return [*given, *map(self._aligned, patterns)], outputs

    def fault(self, outputs: Sequence[Array], expected: Sequence[Array]) -> str | None:
        """What is wrong with the results, or None."""
        _, results = self._sides()
        for number, array in enumerate(outputs):
            right, (dtype, layout) = expected[number % len(expected)], results[number % len(expected)]
            inside = _MARGIN + layout.addresses(right.shape)
            outside = np.ones(array.shape, np.bool_)
            outside[inside] = False
            if array[outside].tobytes() != _pattern(dtype, array.size)[outside].tobytes():
                return "writes beyond its result"
            error = difference(array[inside], right)
            if not error <= TOLERANCES.get(dtype, 0.0):
                return f"is off by {error:.2g} of the largest element"
        return None

    def _sides(self) -> tuple[list[tuple[DType, Layout]], list[tuple[DType, Layout]]]:
        """Element types and layouts of operands, and of results."""
        expr, layouts, count = self.kernel.expr, self.kernel.layouts, len(self.kernel.expr.inputs)
        dtypes = [output.type.dtype for output in expr.outputs]
        return (
            [(type_.dtype, layout) for type_, layout in zip(expr.inputs, layouts[:count], strict=True)],
            list(zip(dtypes, layouts[count:], strict=True)),
        )

    def _between(self, packed: Array, margin: float) -> Array:
        return self._aligned(np.pad(packed, _MARGIN, constant_values=margin))

    def _aligned(self, array: Array) -> Array:
        stored = aligned_bytes(array.nbytes, self.vdevice.alignment_bytes).view(array.dtype)
        stored[:] = array
        return stored


def _operator(
    number: int, kernel: RKernel, reads: Sequence[Binding], written: Sequence[Tensor], origin: int
) -> ROperator:
    return ROperator(
        id=number,
        name=f"trial {number}",
        kind="Trial",
        kernels=(kernel,),
        reads=tuple(reads),
        writes=tuple(Binding(tensor=tensor.id, origin=(origin,)) for tensor in written),
    )


def _copy(type_: TensorType, vdevice: VDevice) -> RKernel:
    """An rKernel of the device's own that writes a tensor once more."""
    axes = tuple(Axis(f"s{dim}", extent) for dim, extent in enumerate(type_.shape))
    output = Output(type=type_, indices=axes, body=Load(0, axes, type_.dtype))
    expr = TensorExpr(axes=axes, inputs=(type_,), outputs=(output,))
    layout = Layout.row_major(type_.shape)
    return vdevice.rules.candidates(Workload(expr, (layout, layout)), vdevice, to_measure=False)[0]


def _pattern(dtype: DType, count: int) -> Array:
    """What no result is by chance; a bool is true."""
    if dtype is DType.BOOL:
        return np.ones(count, np.bool_)
    return np.full(count * dtype.numpy.itemsize, _PATTERN, np.uint8).view(dtype.numpy)
