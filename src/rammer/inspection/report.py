"""What runs where, when and why, as JSON data: stored with every compiled model, rendered by the other files here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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
    "scheduled_us": float,
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
    "device": {
        "name": str,
        "veus": int,
        "handover_us": {"value": float},
        "task_overhead_us": {"value": float},
        "starts_early": bool,
    },
    "kernels": int,
    "operators": [_OPERATOR],
    "edges": [(int, int, bool, bool)],
    "programs": [[[]]],
    "memory": {
        "arena_bytes": int,
        "constant_bytes": int,
        "intermediates": int,
        "tensors": [{"bytes": int, "operators": [int]}],
    },
    "predicted": {"total_us": float, "starts_us": [[[float]]]},
}
"""What is read of a report; the steps of programs are looked at apart."""

_CHAIN: Schema = {"name": str, "scratch_bytes": int, "links": [{"runs": int, "report": {}}]}

_STEPS: Mapping[str, Schema] = {"execute": (str, int, int), "wait": (str, int, int), "signal": (str, int)}

Report = Mapping[str, Any]
Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """What is known of a plan beside it.

    Attributes:
        device: its description.
        model: predicts the time of every candidate.
        measured: the times that were measured; the plan was made with these in place of predicted ones.
        task_us: per rOperator and candidate, what an rTask takes in schedules: with starting it.
        edges: (producer, consumer, starts, ends) of rOperators that depend on each other, as in `schedule.bound.Edge`.
        predicted: the run as simulated.
    """

    device: VDevice
    model: ExplainedCosts
    measured: Mapping[RKernel, Figure]
    task_us: Sequence[Sequence[float]]
    edges: Sequence[tuple[int, int, bool, bool]]
    predicted: Timeline


def build_report(plan: Plan, known: Explained) -> bytes:
    """The report of a plan as UTF-8 JSON with sorted keys.

    Top level: `name`, `policy`, `device`, `operators` (in order of id), `edges` between them, `programs` (per program
    and vEU the steps as ["execute", operator, tile], ["wait", counter, threshold] or ["signal", counter]), `memory`
    (with the rOperators that touch each intermediate) and `predicted` (with the start of each rTask, as in `programs`).
    """
    kernels = plan.kernels
    numbers = {kernel: number for number, kernel in enumerate(dict.fromkeys(kernels))}
    graph = plan.graph
    constants = [tensor for tensor in graph.tensors if tensor.role is TensorRole.CONSTANT and tensor.alias_of is None]
    report: dict[str, Json] = {
        "name": graph.name,
        "policy": plan.schedule.policy,
        "device": _device(known.device),
        "kernels": len(numbers),
        "operators": [
            _operator(operator, kernel, numbers[kernel], known)
            for operator, kernel in zip(graph.operators, kernels, strict=True)
        ],
        "edges": known.edges,
        "programs": [
            [[_step(step) for step in queue] for queue in program.steps] for program in plan.schedule.programs
        ],
        "memory": {
            "arena_bytes": plan.memory.arena_bytes,
            "constant_bytes": sum(tensor.nbytes for tensor in constants),
            "intermediates": len(plan.memory.offsets_bytes),
            "tensors": _tensors(plan),
        },
        "predicted": {
            "total_us": known.predicted.total_us,
            "waiting_us": list(known.predicted.waiting_us),
            "starts_us": _starts_us(plan, known.predicted),
        },
    }
    return json.dumps(report, sort_keys=True).encode()


def links_of(report: Report) -> Sequence[tuple[int, Report]]:
    """How often each program of a model runs in a call, and its report: one of them, or several where loops are."""
    return [(link["runs"], link["report"]) for link in report["links"]] if "links" in report else [(1, report)]


def check_reports(report: object) -> None:
    """See whether JSON data are what was written of a model, of one program or of several.

    Raises:
        SchemaError: they are not.
    """
    if not (isinstance(report, dict) and "links" in report):
        check_report(report)
        return
    check_schema(report, _CHAIN, "its report")
    for link in report["links"]:
        check_report(link["report"])


def check_report(report: object) -> None:
    """See whether JSON data that comes from elsewhere is a report that can be rendered.

    Raises:
        SchemaError: it is not; the message says where.
    """
    check_schema(report, _REPORT, "its report")
    assert isinstance(report, Mapping)
    operators = report["operators"]
    touched = [number for tensor in report["memory"]["tensors"] for number in tensor["operators"]]
    named = [number for edge in report["edges"] for number in edge[:2]]
    if max([*touched, *named], default=-1) >= len(operators):
        raise SchemaError(f"its report has edges or tensors of more than {len(operators)} operators")
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
    executed = [[sum(step[0] == "execute" for step in queue) for queue in program] for program in report["programs"]]
    if executed != [[len(starts) for starts in program] for program in report["predicted"]["starts_us"]]:
        raise SchemaError("its report.predicted.starts_us is of another program")


def _tensors(plan: Plan) -> Json:
    """The intermediates, each with the rOperators that write or read it."""
    touched: dict[int, dict[int, None]] = {tensor: {} for tensor in plan.memory.offsets_bytes}
    for operator in plan.graph.operators:
        for binding in operator.bindings:
            root = plan.graph.root(binding.tensor).id
            if root in touched:
                touched[root][operator.id] = None
    return [{"bytes": plan.graph.tensors[tensor].nbytes, "operators": list(found)} for tensor, found in touched.items()]


def _starts_us(plan: Plan, predicted: Timeline) -> Json:
    """When each rTask starts, by rProgram and vEU."""
    starts: list[list[list[Json]]] = [[[] for _ in program.steps] for program in plan.schedule.programs]
    for span in predicted.spans:
        starts[span.program][span.veu].append(round(span.start_us, 3))
    return starts


def _device(device: VDevice) -> Json:
    return {
        "kind": device.kind,
        "name": device.name,
        "veus": device.veu_count,
        "handover_us": _figure(device.handover_us),
        "start_us": _figure(device.start_us),
        "starts_early": device.starts_early,
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


def _operator(operator: ROperator, chosen: RKernel, number: int, known: Explained) -> Json:
    times_us = known.task_us[operator.id]
    return {
        "name": operator.name,
        "kind": operator.kind,
        "kernel": number,
        "chosen": operator.kernels.index(chosen),
        "reason": _reason(operator, operator.kernels.index(chosen), times_us, known.device.veu_count),
        "candidates": [
            _candidate(kernel, known, time_us) for kernel, time_us in zip(operator.kernels, times_us, strict=True)
        ],
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


def _candidate(kernel: RKernel, known: Explained, scheduled_us: float) -> Json:
    measured = known.measured.get(kernel)
    return {
        "skeleton": kernel.form.skeleton.value,
        "task": list(kernel.tile.task),
        "details": kernel.form.details,
        "threads": kernel.form.threads,
        "scratch_bytes": kernel.form.scratch_bytes,
        "tasks": kernel.task_count,
        "predicted_us": known.model.task_us(kernel).value,
        "measured_us": None if measured is None else measured.value,
        "bound": known.model.bound(kernel),
        "task_us": _figure(measured or known.model.task_us(kernel)),
        "scheduled_us": round(scheduled_us, 4),
    }


def _step(step: Step) -> Json:
    match step:
        case Execute(task):
            return ["execute", task.operator, task.tile]
        case Wait(counter, threshold):
            return ["wait", counter, threshold]
        case Signal(counter):
            return ["signal", counter]
