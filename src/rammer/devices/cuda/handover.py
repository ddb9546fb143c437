"""What it costs to hand over, and to run an rTask at all: a plan that tries it, and how its trace is read.

rTasks that add one to a short vector, in three rPrograms: independent ones on one vEU; a chain in which two vEUs take
turns, handed over by counters; the same chain, handed over by tags. Pairs of neighbouring vEUs have their turns one
after another, so near and far multiprocessors count alike. It runs on the interpreter that every model runs on.

A hand-over is the time from the end of an rTask to where the next one, on the other vEU, begins to compute: the end of
its Wait, or what it then takes longer than an rTask with its operand at hand. The clocks of two vEUs are some tenths of
a microsecond apart; a hand-over here is half of one there and one back, in which the difference cancels.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rammer.devices.base import Loaded, Trace
from rammer.ir.expr import Axis, Output, TensorExpr, load
from rammer.ir.pattern import Skeleton
from rammer.ir.program import Execute, MemoryPlan, Plan, RProgram, Schedule, Signal, Step, Wait
from rammer.ir.task import Binding, RKernel, ROperator, RTask, RTile, TaskGraph, Tensor, TensorRole
from rammer.ir.types import DType, Layout, TensorType
from rammer.ir.vdevice import VDevice

_ELEMENTS = 256  # as many as the state of a recurrent layer may have
_ALONE = 200  # rTasks that depend on nothing
_TURNS = 8  # of a pair of vEUs
_COLD_TURNS = 2  # of them: code and records are not yet where they are needed
_WARMUP_RUNS, _RUNS = 20, 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HandOvers:
    """What was measured, in microseconds: float64 [samples] each.

    Attributes:
        task_us: from the start of an rTask of next to no work to that of the next one on its vEU.
        counter_us: hand-overs by counters.
        tagged_us: hand-overs by tags; the operand is then in registers.
    """

    task_us: npt.NDArray[np.float64]
    counter_us: npt.NDArray[np.float64]
    tagged_us: npt.NDArray[np.float64]


def handover_plan(vdevice: VDevice) -> Plan:
    """The plan for a GPU of two vEUs or more.

    It takes float32 [256] and gives that plus one, so often; plus the number of turns; and that once more.
    """
    turns = vdevice.veu_count // 2 * _TURNS
    tensors = _Tensors()
    x = tensors.new(TensorRole.INPUT)
    alone = tensors.new(TensorRole.OUTPUT, (_ALONE, _ELEMENTS))
    operators = [_operator(0, x, alone)]
    for tagged in (False, True):
        source = x
        for turn in range(turns):
            role = TensorRole.INTERMEDIATE if turn < turns - 1 else TensorRole.OUTPUT
            target = tensors.new(role, tagged=tagged and role is TensorRole.INTERMEDIATE)
            operators.append(_operator(len(operators), source, target))
            source = target
    graph = TaskGraph(
        name="hand-overs",
        tensors=tuple(tensors),
        constants={},
        operators=tuple(operators),
        inputs=(x.id,),
        outputs=tuple(tensor.id for tensor in tensors if tensor.role is TensorRole.OUTPUT),
    )
    independent: list[list[Step]] = [[] for _ in vdevice.veus]
    independent[0] = [Execute(RTask(0, i)) for i in range(_ALONE)]
    programs = (
        RProgram(steps=tuple(map(tuple, independent)), counter_count=0),
        RProgram(steps=_taking_turns(vdevice.veu_count, 1, turns, counted=True), counter_count=turns),
        RProgram(steps=_taking_turns(vdevice.veu_count, 1 + turns, turns, counted=False), counter_count=0),
    )
    return Plan(
        graph=graph,
        schedule=Schedule(policy="hand-overs", choice=(0,) * len(operators), programs=programs),
        memory=tensors.side_by_side(vdevice.alignment_bytes),
    )


def measure(loaded: Loaded, plan: Plan) -> HandOvers:
    """Run the plan some times, warm, and read the traces.

    Args:
        loaded: the plan on a GPU.
        plan: what `handover_plan` made.

    Raises:
        RunTimeoutError: the run stopped making progress.
    """
    tensors = plan.graph.tensors
    inputs, outputs = (
        [np.zeros(tensors[i].type.shape, tensors[i].type.dtype.numpy) for i in ids]
        for ids in (plan.graph.inputs, plan.graph.outputs)
    )
    found = [read(plan, loaded.trace(inputs, outputs)) for _ in range(_WARMUP_RUNS + _RUNS)][_WARMUP_RUNS:]
    return HandOvers(
        task_us=np.concatenate([one.task_us for one in found]),
        counter_us=np.concatenate([one.counter_us for one in found]),
        tagged_us=np.concatenate([one.tagged_us for one in found]),
    )


def read(plan: Plan, trace: Trace) -> HandOvers:
    """What one run of the plan says."""
    alone, counted, tagged = (
        _rtasks_us(program, spans) for program, spans in zip(plan.schedule.programs, trace.spans_ns, strict=True)
    )
    own_us = np.median(alone[:, 1] - alone[:, 0])
    starts_us, ends_us = np.moveaxis(counted.reshape(-1, _TURNS, 2)[:, _COLD_TURNS:], -1, 0)
    one_way_us = starts_us[:, 1:] - ends_us[:, :-1]
    tagged_ends_us = tagged.reshape(-1, _TURNS, 2)[:, _COLD_TURNS:, 1]
    return HandOvers(
        task_us=np.diff(alone[:, 0]),
        counter_us=((one_way_us[:, 1:] + one_way_us[:, :-1]) / 2).reshape(-1),
        tagged_us=((tagged_ends_us[:, 2:] - tagged_ends_us[:, :-2]) / 2 - own_us).reshape(-1),
    )


def _rtasks_us(program: RProgram, spans_ns: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.float64]:
    """Start and end of each rTask, in the order of rTasks: float64 [rTasks, 2]."""
    places = sorted((task, veu, position) for veu, position, task in program.tasks())
    return np.array([spans_ns[veu][position] for _, veu, position in places], dtype=np.float64) / 1e3


class _Tensors:
    """Tensors, numbered as they are made."""

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._tensors)

    def new(self, role: TensorRole, shape: tuple[int, ...] = (_ELEMENTS,), *, tagged: bool = False) -> Tensor:
        """Another float32 tensor."""
        layout = Layout.row_major(shape)
        tensor = Tensor(
            id=len(self._tensors),
            name=f"{role.value} {len(self._tensors)}",
            type=TensorType(DType.FLOAT32, shape),
            layout=Layout(strides=layout.strides, span=layout.span, tagged=tagged),
            role=role,
        )
        self._tensors.append(tensor)
        return tensor

    def side_by_side(self, alignment_bytes: int) -> MemoryPlan:
        """Arena bytes for each intermediate tensor."""
        placed = [tensor for tensor in self._tensors if tensor.role is TensorRole.INTERMEDIATE]
        sizes_bytes = (-(-tensor.nbytes // alignment_bytes) * alignment_bytes for tensor in placed)
        *offsets_bytes, end_bytes = itertools.accumulate(sizes_bytes, initial=0)
        return MemoryPlan(
            offsets_bytes={tensor.id: offset for tensor, offset in zip(placed, offsets_bytes, strict=True)},
            arena_bytes=end_bytes,
            alignment_bytes=alignment_bytes,
        )


def _operator(number: int, source: Tensor, target: Tensor) -> ROperator:
    """`target = source + 1` along the last axis, an rTask for each vector of the target."""
    return ROperator(
        id=number,
        name=f"turn {number}" if number else "alone",
        kind="HandOver",
        kernels=(_kernel(source.type, source.layout, target.type, target.layout),),
        reads=(Binding(tensor=source.id, origin=(0,)),),
        writes=(Binding(tensor=target.id, origin=(0,) * target.type.rank),),
    )


@functools.lru_cache(maxsize=8)
def _kernel(source: TensorType, source_layout: Layout, target: TensorType, target_layout: Layout) -> RKernel:
    axes = tuple(Axis(f"s{i}", extent) for i, extent in enumerate(target.shape))
    body = load(0, source, axes[-1:]) + 1.0
    return RKernel(
        expr=TensorExpr(axes=axes, inputs=(source,), outputs=(Output(type=target, indices=axes, body=body),)),
        layouts=(source_layout, target_layout),
        skeleton=Skeleton.MAP,
        tile=RTile(task=(*[1] * (len(axes) - 1), _ELEMENTS), lane=len(axes) - 1),
    )


def _taking_turns(veus: int, first: int, turns: int, *, counted: bool) -> tuple[tuple[Step, ...], ...]:
    """The queues of a chain of rOperators from number `first` on, which the vEUs of a pair run in turns."""
    queues: list[list[Step]] = [[] for _ in range(veus)]
    for turn in range(turns):
        queue = queues[turn // _TURNS * 2 + turn % 2]
        if counted and turn > 0:
            queue.append(Wait(turn - 1, 1))
        queue.append(Execute(RTask(first + turn, 0)))
        if counted:
            queue.append(Signal(turn))
    return tuple(map(tuple, queues))
