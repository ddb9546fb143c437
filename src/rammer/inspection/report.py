"""What runs where, when and why, as JSON data: stored with every compiled model, rendered by the other files here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Protocol

from rammer.ir.program import Execute, Plan, Signal, Step, Wait
from rammer.ir.schema import OrNull, Schema, SchemaError, check_schema
from rammer.ir.task import RKernel, ROperator, TensorRole
from rammer.ir.timeline import Timeline
from rammer.ir.vdevice import CostModel, Figure, VDevice


class ExplainedCosts(CostModel, Protocol):
    """A cost model that knows what its figures are bound by."""

    def bound(self, kernel: RKernel) -> str:
        """What an rTask of `kernel` takes its time for: "compute" or "memory"."""
        ...


_CANDIDATE: Schema = {
    "skeleton": str,
    "task": [int],
    "details": str,
    "threads": int,
    "scratch_bytes": int,
    "tasks": int,
    "predicted_us": float,
    "measured_us": OrNull(float),
    "bound": str,
    "task_us": {"value": float},
}
_OPERATOR: Schema = {
    "name": str,
    "kind": str,
    "chosen": int,
    "reason": str,
    "candidates": [_CANDIDATE],
    "sources": [(str, str)],
}
_REPORT: Schema = {
    "name": str,
    "policy": str,
    "device": {"name": str, "veus": int},
    "kernels": int,
    "operators": [_OPERATOR],
    "programs": [[[]]],
    "memory": {"arena_bytes": int, "constant_bytes": int, "intermediates": int},
    "predicted": {"total_us": float},
}
"""What is read of a report; the steps of programs are looked at apart."""

_STEPS: Mapping[str, Schema] = {"execute": (str, int, int), "wait": (str, int, int), "signal": (str, int)}

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


def build_report(
    plan: Plan, device: VDevice, model: ExplainedCosts, measured: Mapping[RKernel, Figure], predicted: Timeline
) -> bytes:
    """The report of a plan as UTF-8 JSON with sorted keys.

    Top level: `name`, `policy`, `device`, `operators` (in order of id), `programs` (per program and vEU the steps as
    ["execute", operator, tile], ["wait", counter, threshold] or ["signal", counter]), `memory` and `predicted`.

    Args:
        plan: the plan.
        device: its description.
        model: predicts the time of every candidate.
        measured: the times that were measured; the plan was made with these in place of predicted ones.
        predicted: the run as simulated.
    """
    kernels = plan.kernels
    numbers = {kernel: number for number, kernel in enumerate(dict.fromkeys(kernels))}
    graph = plan.graph
    constants = [tensor for tensor in graph.tensors if tensor.role is TensorRole.CONSTANT and tensor.alias_of is None]
    report: dict[str, Json] = {
        "name": graph.name,
        "policy": plan.schedule.policy,
        "device": _device(device),
        "kernels": len(numbers),
        "operators": [
            _operator(operator, kernel, numbers[kernel], device, model, measured)
            for operator, kernel in zip(graph.operators, kernels, strict=True)
        ],
        "programs": [
            [[_step(step) for step in queue] for queue in program.steps] for program in plan.schedule.programs
        ],
        "memory": {
            "arena_bytes": plan.memory.arena_bytes,
            "constant_bytes": sum(tensor.nbytes for tensor in constants),
            "intermediates": len(plan.memory.offsets_bytes),
        },
        "predicted": {"total_us": predicted.total_us, "waiting_us": list(predicted.waiting_us)},
    }
    return json.dumps(report, sort_keys=True).encode()


def check_report(report: object) -> None:
    """See whether JSON data that comes from elsewhere is a report that can be rendered.

    Raises:
        SchemaError: it is not; the message says where.
    """
    check_schema(report, _REPORT, "its report")
    assert isinstance(report, Mapping)
    operators = report["operators"]
    for number, operator in enumerate(operators):
        if operator["chosen"] >= len(operator["candidates"]):
            raise SchemaError(f"its report.operators[{number}].chosen is none of its candidates")
    for step in (step for program in report["programs"] for queue in program for step in queue):
        kind = step[0] if isinstance(step, list) and step else None
        if not isinstance(kind, str) or kind not in _STEPS:
            raise SchemaError("its report has a step that is none of " + ", ".join(_STEPS))
        check_schema(step, _STEPS[kind], f"its report's step '{kind}'")
        if kind == "execute" and step[1] >= len(operators):
            raise SchemaError(f"its report runs operator {step[1]} of {len(operators)}")


def _device(device: VDevice) -> Json:
    return {
        "kind": device.kind,
        "name": device.name,
        "veus": device.veu_count,
        "handover_us": _figure(device.handover_us),
        "task_overhead_us": _figure(device.task_overhead_us),
        "flops_per_us": {dtype.value: _figure(figure) for dtype, figure in device.flops_per_us.items()},
        "levels": [
            {
                "name": level.name,
                "capacity_bytes": level.capacity_bytes,
                "bandwidth_bytes_per_us": _figure(level.bandwidth_bytes_per_us),
                "shared": level.shared,
            }
            for level in device.levels
        ],
    }


def _figure(figure: Figure) -> Json:
    return {"value": figure.value, "provenance": figure.provenance}


def _operator(
    operator: ROperator,
    chosen: RKernel,
    number: int,
    device: VDevice,
    model: ExplainedCosts,
    measured: Mapping[RKernel, Figure],
) -> Json:
    times_us = [(measured.get(kernel) or model.task_us(kernel)).value for kernel in operator.kernels]
    return {
        "name": operator.name,
        "kind": operator.kind,
        "kernel": number,
        "chosen": operator.kernels.index(chosen),
        "reason": _reason(operator, operator.kernels.index(chosen), times_us, device.veu_count),
        "candidates": [_candidate(kernel, model, measured.get(kernel)) for kernel in operator.kernels],
        "sources": [[source.op_type, source.node] for source in operator.sources],
    }


def _reason(operator: ROperator, chosen: int, times_us: Sequence[float], veus: int) -> str:
    """Why a candidate was chosen, in the words of the Rammer paper (section 4.3)."""
    counts = [kernel.task_count for kernel in operator.kernels]
    if len(counts) == 1:
        return "the only candidate"
    alone_us = [-(-count // veus) * time_us for count, time_us in zip(counts, times_us, strict=True)]
    work_us = [count * time_us for count, time_us in zip(counts, times_us, strict=True)]
    virtues = []
    if alone_us[chosen] == min(alone_us):
        virtues.append("fastest")
    if work_us[chosen] == min(work_us):
        virtues.append("most efficient")
    return " and ".join(virtues) or "its wave ends first with it"


def _candidate(kernel: RKernel, model: ExplainedCosts, measured: Figure | None) -> Json:
    return {
        "skeleton": kernel.form.skeleton.value,
        "task": list(kernel.tile.task),
        "details": kernel.form.details,
        "threads": kernel.form.threads,
        "scratch_bytes": kernel.form.scratch_bytes,
        "tasks": kernel.task_count,
        "predicted_us": model.task_us(kernel).value,
        "measured_us": None if measured is None else measured.value,
        "bound": model.bound(kernel),
        "task_us": _figure(measured or model.task_us(kernel)),
    }


def _step(step: Step) -> Json:
    match step:
        case Execute(task):
            return ["execute", task.operator, task.tile]
        case Wait(counter, threshold):
            return ["wait", counter, threshold]
        case Signal(counter):
            return ["signal", counter]
