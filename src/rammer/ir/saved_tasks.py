"""The task graph of a saved model: what it takes to schedule its rTasks again, on another number of vEUs.

It has the chosen rKernels alone, for which there is code, and no data of constants, which stay where they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from rammer.ir import kernel_form, tree_forms
from rammer.ir.expr import Axis, Call, Cast, Const, Guarded, Load, Output, Reduce, TensorExpr
from rammer.ir.graph import SourceLocation
from rammer.ir.kernel_form import KernelForm
from rammer.ir.program import Plan
from rammer.ir.serial import dumped, loaded
from rammer.ir.task import Binding, RKernel, ROperator, RTile, TaskGraph, Tensor, TensorRole
from rammer.ir.types import Layout, Panel, TensorType
from rammer.ir.vdevice import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredKernel:
    """The measured time of one full rTask of an rKernel alone on a vEU, in microseconds."""

    kernel: RKernel
    task_us: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTasks:
    """A task graph with one rKernel for each rOperator, whose tiles were chosen for so many vEUs.

    `measured` are times that it was scheduled by.
    """

    policy: str
    veus: int
    measured: tuple[MeasuredKernel, ...]
    name: str
    tensors: tuple[Tensor, ...]
    operators: tuple[ROperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    states: int
    in_place: tuple[int, ...]

    @property
    def graph(self) -> TaskGraph:
        """The task graph; constants have their types, and zeros for data."""
        types = {tensor.id: tensor.type for tensor in self.tensors if _is_constant(tensor)}
        return TaskGraph(
            name=self.name,
            tensors=self.tensors,
            constants={
                number: np.broadcast_to(np.zeros((), type_.dtype.numpy), type_.shape) for number, type_ in types.items()
            },
            operators=self.operators,
            inputs=self.inputs,
            outputs=self.outputs,
            states=self.states,
            in_place=self.in_place,
        )


_FORMS = tuple(
    kind
    for kind in (vars(kernel_form) | vars(tree_forms)).values()
    if isinstance(kind, type) and issubclass(kind, KernelForm) and kind is not KernelForm
)
_KINDS: tuple[type, ...] = (
    SavedTasks,
    MeasuredKernel,
    Figure,
    TensorType,
    Panel,
    Layout,
    Tensor,
    Binding,
    RTile,
    RKernel,
    ROperator,
    SourceLocation,
    TensorExpr,
    Output,
    Const,
    Axis,
    Load,
    Call,
    Cast,
    Reduce,
    Guarded,
    *_FORMS,
)


def saved_tasks(plan: Plan, measured: Mapping[RKernel, Figure]) -> bytes:
    """The task graph of a plan as JSON, the same each time.

    Args:
        plan: the plan.
        measured: times that its schedule was made with.
    """
    graph, kernels = plan.graph, plan.kernels
    operators = zip(graph.operators, kernels, strict=True)
    saved = SavedTasks(
        policy=plan.schedule.policy,
        veus=plan.veus,
        measured=tuple(
            MeasuredKernel(kernel=kernel, task_us=measured[kernel])
            for kernel in dict.fromkeys(kernels)
            if kernel in measured
        ),
        name=graph.name,
        tensors=graph.tensors,
        operators=tuple(replace(operator, kernels=(kernel,)) for operator, kernel in operators),
        inputs=graph.inputs,
        outputs=graph.outputs,
        states=graph.states,
        in_place=graph.in_place,
    )
    return dumped(saved, _KINDS)


def read_tasks(data: bytes | memoryview) -> SavedTasks:
    """What `saved_tasks` wrote.

    Raises:
        SchemaError: it is something else.
    """
    return loaded(data, SavedTasks, _KINDS, "its task graph")


def _is_constant(tensor: Tensor) -> bool:
    return tensor.role is TensorRole.CONSTANT and tensor.alias_of is None
