"""Checks of a task graph's rOperators, each by itself: bindings, rKernels and index maps (rules T05 to T13)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rammer.errors import VerificationError
from rammer.ir.expr import Axis, Load, Output, TensorExpr, nodes
from rammer.ir.region import Interval, affine, depends_on_data, interval_of
from rammer.ir.task import Binding, RKernel, ROperator, TaskGraph, Tensor, TensorRole
from rammer.ir.types import DType, TensorType
from rammer.verify.footprints import index_positions
from rammer.verify.forms import form_fault
from rammer.verify.naming import describe_operator, describe_tensor, sources_of
from rammer.verify.updates import loads_of_indices, settled_stores


class WorkChecker:
    """Checks rOperators; each expression's index maps and bindings, and each rKernel's form, are checked once."""

    def __init__(self, graph: TaskGraph) -> None:
        self._graph = graph
        self._faults: dict[TensorExpr, tuple[str, str] | None] = {}
        self._form_faults: dict[RKernel, tuple[str, str] | None] = {}
        self._sound: dict[TensorExpr, set[tuple[int, int, tuple[int, ...]]]] = {}

    def check(self, operator: ROperator) -> None:
        """All that can be said about one rOperator alone.

        Raises:
            VerificationError: T05 to T13.
        """
        fault = self._fault(operator)
        if fault is not None:
            code, message = fault
            raise VerificationError(code, f"{describe_operator(operator)}: {message}", where=sources_of(operator))

    def _fault(self, operator: ROperator) -> tuple[str, str] | None:
        if not operator.kernels:
            return "T08", "has no rKernel"
        expr = operator.kernels[0].expr
        if len(operator.reads) != len(expr.inputs) or len(operator.writes) != len(expr.outputs):
            return "T05", (
                f"binds {len(operator.reads)} slots of {len(expr.inputs)} and "
                f"{len(operator.writes)} outputs of {len(expr.outputs)}"
            )
        bindings = (*operator.reads, *operator.writes)
        types = (*expr.inputs, *(output.type for output in expr.outputs))
        predicate = operator.predicate
        if predicate is not None:
            fault = self._binding_fault(predicate, TensorType(DType.BOOL, (1,) * len(predicate.origin)))
            if fault is not None:
                return fault[0], f"its predicate {fault[1]}"
        sound = self._sound.setdefault(expr, set())
        for place, (binding, type_) in enumerate(zip(bindings, types, strict=True)):
            known = (place, binding.tensor, binding.origin)
            if known not in sound:
                fault = self._binding_fault(binding, type_)
                if fault is not None:
                    return fault
                sound.add(known)
        for place, kernel in enumerate(operator.kernels):
            fault = self._kernel_fault(kernel, expr, bindings)
            if fault is not None:
                return fault[0], f"rKernel {place} {fault[1]}"
        if expr not in self._faults:
            self._faults[expr] = _expression_fault(expr)
        return self._faults[expr] or self._update_fault(operator)

    def _update_fault(self, operator: ROperator) -> tuple[str, str] | None:
        """Stores at positions from data, of which nobody knows where they are not."""
        for output, binding in zip(operator.kernels[0].expr.outputs, operator.writes, strict=True):
            if any(map(depends_on_data, output.indices)) and binding.tensor not in self._graph.updated:
                tensor = describe_tensor(self._graph.tensors[binding.tensor])
                return "T12", f"stores {tensor} at positions from data, and it is no state in place"
        return None

    def _binding_fault(self, binding: Binding, type_: TensorType) -> tuple[str, str] | None:
        tensor = self._graph.tensors[binding.tensor]
        panel = tensor.layout.panel
        if not len(binding.origin) == type_.rank == tensor.type.rank:
            code, fault = "T05", "of another rank"
        elif any(
            start < 0 or start + extent > whole
            for start, extent, whole in zip(binding.origin, type_.shape, tensor.type.shape, strict=True)
        ):
            code, fault = "T05", "out of bounds"
        elif panel is not None and binding.origin[panel.dim] % panel.width:
            code, fault = "T06", f"inside a panel of {panel.width}"
        elif type_.dtype is not tensor.type.dtype:
            code, fault = "T07", "of another element type"
        else:
            return None
        return code, f"binds {type_} at {list(binding.origin)} of {describe_tensor(tensor)} {tensor.type}, {fault}"

    def _kernel_fault(self, kernel: RKernel, expr: TensorExpr, bindings: Sequence[Binding]) -> tuple[str, str] | None:
        if kernel.expr != expr:
            return "T08", "computes something else than rKernel 0"
        if kernel.layouts != tuple(self._graph.tensors[binding.tensor].layout for binding in bindings):
            return "T11", "was made for other layouts than its operands have"
        for slot in sorted(kernel.constants):
            if slot >= len(expr.inputs) or not self._stays(self._graph.root(bindings[slot].tensor)):
                return "T18", f"takes slot {slot} for a constant"
        if kernel not in self._form_faults:
            self._form_faults[kernel] = form_fault(kernel)
        return self._form_faults[kernel]

    def _stays(self, tensor: Tensor) -> bool:
        """Whether nobody writes a tensor: a constant, or what a run reads of a state that is not updated in place."""
        first = len(self._graph.inputs) - self._graph.states
        states = set(self._graph.inputs[first:]).difference(self._graph.updated.values())
        return tensor.role is TensorRole.CONSTANT or tensor.id in states


def _expression_fault(expr: TensorExpr) -> tuple[str, str] | None:
    """What is wrong with an expression's loads and stores."""
    for load in expr.loads:
        fault = load_fault(load, expr)
        if fault is not None:
            return "T13", f"{load} {fault}"
    for load in loads_of_indices(expr):
        return "T13", f"stores where {load} says, which its bodies do not load"
    for place, output in enumerate(expr.outputs):
        if output.body.dtype is not output.type.dtype:
            return "T07", f"stores {output.body.dtype.value} as output {place}, which is {output.type}"
        if len(output.indices) != output.type.rank or not is_one_to_one(output, expr.axes):
            return "T12", f"stores output {place} out of bounds or an element twice: {list(map(str, output.indices))}"
    return None


def load_fault(load: Load, expr: TensorExpr) -> str | None:
    """What is wrong with a load. Indices that depend on data are the data's business."""
    if not 0 <= load.slot < len(expr.inputs):
        return f"reads one of {len(expr.inputs)} slots"
    type_ = expr.inputs[load.slot]
    if load.type is not type_.dtype or len(load.indices) != type_.rank:
        return f"does not fit its slot, {type_}"
    if load.fill is not None or any(axis.extent == 0 for axis in expr.axes):
        return None
    for index, extent in zip(load.indices, type_.shape, strict=True):
        if depends_on_data(index):
            continue
        axes = tuple(node for node in nodes(index) if isinstance(node, Axis))
        if any(axis.extent == 0 for axis in axes):
            continue
        span = interval_of(index, {})
        inside = Interval(0, extent)
        if span is not None and inside.contains(span):
            continue
        # Interval arithmetic is exact for affine indices alone; the others are looked at point by point.
        if affine(index) is None:
            probe = Output(type=TensorType(DType.INT64, (extent,)), indices=(index,), body=index)
            (values,) = index_positions(probe, axes, {})
            if inside.contains(Interval(int(values.min()), int(values.max()) + 1)):
                continue
        return f"leaves its slot, {type_}"
    return None


def is_one_to_one(output: Output, axes: Sequence[Axis]) -> bool:
    """Whether the points of the domain are stored at elements of their own, within the output."""
    if any(axis.extent == 0 for axis in axes):
        return True
    settled = settled_stores(output)
    if settled is None:
        return False
    output = settled
    inside = all(
        ((span := interval_of(index, {})) is None or affine(index) is None or Interval(0, extent).contains(span))
        for index, extent in zip(output.indices, output.type.shape, strict=True)
    )
    if not inside:
        return False
    if _nests(output, axes):
        return True
    index = index_positions(output, axes, {})
    for part, extent in zip(index, output.type.shape, strict=True):
        if part.min() < 0 or part.max() >= extent:
            return False
    stored = np.zeros(output.type.size, dtype=np.bool_)
    stored[np.ravel_multi_index(index, output.type.shape)] = True
    return int(np.count_nonzero(stored)) == int(np.prod([axis.extent for axis in axes]))


def _nests(output: Output, axes: Sequence[Axis]) -> bool:
    """Whether indices are affine, and within each an axis steps over all that the finer ones reach: a quick proof."""
    seen: set[Axis] = set()
    for index in output.indices:
        form = affine(index)
        if form is None or any(axis in seen for axis, _ in form.terms):
            return False
        reach = 0
        for axis, coefficient in sorted(form.terms, key=lambda term: abs(term[1])):
            if abs(coefficient) <= reach:
                return False
            reach += abs(coefficient) * (axis.extent - 1)
            seen.add(axis)
    return all(axis in seen or axis.extent == 1 for axis in axes)
