"""A report as tables for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table

Report = Mapping[str, Any]


def summary(report: Report) -> RenderableType:
    """One model at a glance."""
    device, memory, predicted = report["device"], report["memory"], report["predicted"]
    tasks = [step for program in report["programs"] for queue in program for step in queue]
    kinds = Counter(step[0] for step in tasks)
    table = Table.grid(padding=(0, 2))
    table.add_row("model", str(report["name"]))
    table.add_row("device", f"{device['name']}, {device['veus']} execution units")
    table.add_row("policy", str(report["policy"]))
    table.add_row("work", f"{len(report['operators'])} rOperators, {report['kernels']} distinct rKernels")
    steps = f"{kinds['execute']} rTasks, {kinds['wait']} waits, {kinds['signal']} signals"
    table.add_row("program", f"{steps} in {len(report['programs'])} rProgram(s)")
    table.add_row("constants", f"{memory['constant_bytes'] / 1e6:.2f} MB")
    table.add_row("arena", f"{memory['arena_bytes'] / 1e6:.2f} MB for {memory['intermediates']} intermediate tensors")
    table.add_row("predicted", f"{predicted['total_us']:,.1f} us by the cost model")
    return table


def operators(report: Report) -> RenderableType:
    """Every rOperator with the rKernel that was chosen."""
    table = Table("id", "operator", "kind", "skeleton", "task tile", "rTasks", "us each", "from")
    for number, operator in enumerate(report["operators"]):
        chosen = operator["candidates"][operator["chosen"]]
        nodes = ", ".join(node for _, node in operator["sources"])
        table.add_row(
            str(number),
            operator["name"],
            operator["kind"],
            chosen["skeleton"],
            _tile(chosen["task"]),
            str(chosen["tasks"]),
            f"{chosen['task_us']['value']:.2f}",
            nodes,
        )
    return table


def candidates(report: Report) -> RenderableType:
    """For every rOperator its candidate rKernels; the chosen one is marked."""
    table = Table("operator", "", "skeleton", "task tile", "registers", "rTasks", "us each", "provenance")
    for operator in report["operators"]:
        for position, candidate in enumerate(operator["candidates"]):
            table.add_row(
                operator["name"] if position == 0 else "",
                "*" if position == operator["chosen"] else "",
                candidate["skeleton"],
                _tile(candidate["task"]),
                _tile(candidate["register"]),
                str(candidate["tasks"]),
                f"{candidate['task_us']['value']:.2f}",
                candidate["task_us"]["provenance"],
            )
    return table


def _tile(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes)) or "-"
