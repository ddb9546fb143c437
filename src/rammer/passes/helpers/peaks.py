"""How long an operator takes if arithmetic and memory reach their peaks, as products on processors nearly do."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import lru_cache

from rammer.ir.expr import Call, Reduce, ReduceFn, TensorExpr
from rammer.ir.graph import Graph
from rammer.ir.survey import Demand
from rammer.ir.types import DType
from rammer.ir.vdevice import MemoryLevel, VDevice
from rammer.tiling.pattern import choices, free_axes, values


def peak_us(expr: TensorExpr, constants: Collection[int], device: VDevice, weights: MemoryLevel) -> float:
    """Time of an operator alone on the device: its arithmetic, its operands moved once, and a hand-over.

    Args:
        expr: what it computes.
        constants: the slots that hold weights.
        device: the machine.
        weights: where the constants come from.
    """
    slots = {load.slot for load in expr.usual.loads}
    constant_bytes = sum(expr.inputs[slot].nbytes for slot in slots.intersection(constants))
    moved_bytes = sum(expr.inputs[slot].nbytes for slot in slots) - constant_bytes
    moved_bytes += sum(output.type.nbytes for output in expr.outputs)
    one_unit_us = (
        operations(expr) / device.flops_per_us[DType.FLOAT32].value
        + constant_bytes / weights.bandwidth_bytes_per_us.value
        + moved_bytes / level_of(moved_bytes, device).bandwidth_bytes_per_us.value
    )
    return one_unit_us / device.veu_count + device.handover_us.value


@lru_cache(maxsize=1024)
def operations(expr: TensorExpr) -> int:
    """Floating-point operations, each as often as the axes that it depends on say.

    Peaks count a multiply-add as two, and whatever else is computed takes as long as one.
    """
    free = free_axes(*expr.roots)
    nodes = set(values(*expr.roots)) - choices(expr)
    added = {node.body for node in nodes if isinstance(node, Reduce) and node.fn is ReduceFn.SUM}
    total = 0
    for node in nodes - added:
        if isinstance(node, Call | Reduce):
            axes = free[node.body].union(node.axes) if isinstance(node, Reduce) else free[node]
            total += 2 * math.prod(axis.extent for axis in axes)
    return total


def demands(graphs: Sequence[tuple[int, Graph]], device: VDevice) -> tuple[Demand, ...]:
    """What the operators of graphs without composite ones take, by the kind of the node that they stand for.

    Args:
        graphs: each with how often it runs.
        device: at whose peaks.
    """
    found: dict[str, list[tuple[int, int, int]]] = {}
    for runs, operator in ((runs, operator) for runs, graph in graphs for operator in graph.operators):
        if operator.expr is not None:
            slots = {load.slot for load in operator.expr.usual.loads}
            moved_bytes = sum(operator.expr.inputs[slot].nbytes for slot in slots)
            moved_bytes += sum(output.type.nbytes for output in operator.expr.outputs)
            kind = operator.sources[0].op_type if operator.sources else operator.kind
            found.setdefault(kind, []).append((runs, runs * operations(operator.expr), runs * moved_bytes))
    peak = device.flops_per_us[DType.FLOAT32].value * device.veu_count
    memory = device.levels[-1]
    together = memory.total_bandwidth_bytes_per_us
    width = memory.bandwidth_bytes_per_us.value * device.veu_count if together is None else together.value
    return tuple(
        Demand(
            kind=kind,
            count=sum(runs for runs, _, _ in each),
            operations=sum(operations_ for _, operations_, _ in each),
            moved_bytes=sum(moved for _, _, moved in each),
            compute_us=sum(operations_ for _, operations_, _ in each) / peak,
            memory_us=sum(moved for _, _, moved in each) / width,
        )
        for kind, each in found.items()
    )


def level_of(size_bytes: int, device: VDevice) -> MemoryLevel:
    """The innermost memory level that holds so much, private ones all together."""
    for level in device.levels:
        if size_bytes <= level.capacity_bytes * (1 if level.shared else device.veu_count):
            return level
    return device.levels[-1]
