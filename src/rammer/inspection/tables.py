"""A report as tables for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from rammer.ir.sizes import size_text

Report = Mapping[str, Any]

_NAMED = 3
_TIMES = {
    "handover_us": "to hand over to another unit",
    "tagged_handover_us": "to hand over a tagged element",
    "task_overhead_us": "to start an rTask",
}
_LEFT: JustifyMethod = "left"


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
    table = _table(("", "right"), "rOperator", "kind", "rKernel", ("rTasks", "right"), ("us each", "right"))
    table.add_column("from")
    for number, operator in enumerate(report["operators"]):
        chosen = operator["candidates"][operator["chosen"]]
        table.add_row(
            str(number),
            operator["name"],
            operator["kind"],
            f"{chosen['skeleton']} {_tile(chosen['task'])}",
            str(chosen["tasks"]),
            f"{chosen['task_us']['value']:.2f}",
            listing([node for _, node in operator["sources"]]),
        )
    return table


def candidates(report: Report) -> RenderableType:
    """For every rOperator its candidate rKernels; the chosen one is marked."""
    table = _table("rOperator", "", "rKernel", "form", ("memory", "right"), ("rTasks", "right"))
    table.add_column("predicted us", justify="right", no_wrap=True)
    table.add_column("measured us", justify="right", no_wrap=True)
    table.add_column("bound", no_wrap=True)
    table.add_column("why it was chosen")
    for operator in report["operators"]:
        for position, candidate in enumerate(operator["candidates"]):
            table.add_row(
                operator["name"] if position == 0 else "",
                "*" if position == operator["chosen"] else "",
                f"{candidate['skeleton']} {_tile(candidate['task'])}",
                candidate["details"],
                size_text(candidate["scratch_bytes"]) if candidate["scratch_bytes"] else "",
                str(candidate["tasks"]),
                f"{candidate['predicted_us']:.2f}",
                "" if candidate["measured_us"] is None else f"{candidate['measured_us']:.2f}",
                candidate["bound"],
                operator["reason"] if position == operator["chosen"] else "",
            )
    return table


def device(name: str, description: Mapping[str, Any]) -> RenderableType:
    """What is known of a device: a `VDevice` as plain data."""
    peak = description["flops_per_us"]["float32"]
    table = Table.grid(padding=(0, 2))
    of_threads = f" of {description['threads']} threads" if description["threads"] > 1 else ""
    table.add_row(Text(name, "bold"), f"{description['name']}, {len(description['veus'])} execution units{of_threads}")
    table.add_row("", f"{description['vector_bytes']}-byte vectors, {description['vector_registers']} registers")
    table.add_row("", f"{peak['value'] / 1e3:.0f} GFLOP/s float32 on each unit", _dim(peak["provenance"]))
    for level in description["levels"]:
        rate, total = level["bandwidth_bytes_per_us"], level["total_bandwidth_bytes_per_us"]
        together = "" if total is None else f", {total['value'] / 1e3:.0f} for all"
        size = size_text(level["capacity_bytes"])
        text = f"{level['name']} of {size}, {rate['value'] / 1e3:.0f} GB/s for one unit{together}"
        table.add_row("", text, _dim(rate["provenance"]))
    for key, text in _TIMES.items():
        if (time_us := description[key]) is not None:
            table.add_row("", f"{time_us['value'] * 1e3:.0f} ns {text}", _dim(time_us["provenance"]))
    return table


def _dim(text: str) -> Text:
    return Text(text, "dim")


def listing(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    hidden = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {hidden} more" if hidden > 0 else "")


def _table(*headers: str | tuple[str, JustifyMethod]) -> Table:
    """A table without lines between its columns; columns keep their width as long as there is room."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for header in headers:
        name, justify = header if isinstance(header, tuple) else (header, _LEFT)
        table.add_column(name, justify=justify, no_wrap=True)
    return table


def _tile(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes)) or "-"
