"""A report as tables for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from rammer.inspection.report import Report, links_of
from rammer.inspection.units import time_text
from rammer.ir.sizes import size_text
from rammer.printable import counted, listing, printable

_TIMES = {
    "handover_us": "to hand over to another unit",
    "tagged_handover_us": "to hand over a tagged element",
    "task_overhead_us": "to start an rTask",
}
_LEFT: JustifyMethod = "left"
_STEPS = {"execute": "rTask", "wait": "wait", "signal": "signal"}
_LONGEST_NAME, _LONGEST_KERNEL, _LONGEST_FORM = 30, 26, 22  # characters, of a narrow table


def summary(report: Report) -> RenderableType:
    """One model at a glance; one of several programs, as a row for each."""
    if "links" in report:
        return _chain(report)
    device, memory, predicted = report["device"], report["memory"], report["predicted"]
    tasks = [step for program in report["programs"] for queue in program for step in queue]
    kinds = Counter(step[0] for step in tasks)
    table = Table.grid(padding=(0, 2))
    table.add_row("model", str(report["name"]))
    table.add_row("device", f"{device['name']}, {counted(device['veus'], 'execution unit')}")
    table.add_row("policy", str(report["policy"]))
    work = (counted(len(report["operators"]), "rOperator"), counted(report["kernels"], "distinct rKernel"))
    table.add_row("work", ", ".join(work))
    steps = ", ".join(counted(kinds[kind], noun) for kind, noun in _STEPS.items())
    table.add_row("program", f"{steps} in {counted(len(report['programs']), 'rProgram')}")
    table.add_row("constants", size_text(memory["constant_bytes"]))
    tensors = counted(memory["intermediates"], "intermediate tensor")
    table.add_row("arena", f"{size_text(memory['arena_bytes'])} for {tensors}")
    table.add_row("predicted", f"{time_text(predicted['total_us'])} by the cost model")
    return table


def _chain(report: Report) -> RenderableType:
    """The programs of a model whose loops are programs of their own, in the order in which they run."""
    table = _table(("program", _LONGEST_NAME), ("runs", "right"))
    for header in ("rOperators", "rTasks", "each run", "all runs"):
        table.add_column(header, justify="right", no_wrap=True)
    for runs, own in links_of(report):
        tasks = sum(step[0] == "execute" for program in own["programs"] for queue in program for step in queue)
        each_us = own["predicted"]["total_us"]
        cells = [str(runs), str(len(own["operators"])), str(tasks), time_text(each_us), time_text(runs * each_us)]
        table.add_row(str(own["name"]), *cells)
    table.caption = f"predicted by the cost model; {size_text(report['scratch_bytes'])} between the programs"
    return table


def operators(report: Report, *, wide: bool) -> RenderableType:
    """Every rOperator with the rKernel that was chosen; narrow, the most telling columns fit 80 characters."""
    table = _table(("", "right"), ("rOperator", _LONGEST_NAME if not wide else None))
    if wide:
        table.add_column("kind", no_wrap=True)
    table.add_column("rKernel", no_wrap=True, max_width=None if wide else _LONGEST_KERNEL, overflow="ellipsis")
    table.add_column("rTasks", justify="right", no_wrap=True)
    table.add_column("each", justify="right", no_wrap=True)
    if wide:
        table.add_column("from", no_wrap=True)
    for number, operator in enumerate(report["operators"]):
        chosen = operator["candidates"][operator["chosen"]]
        cells = [str(number), operator["name"], operator["kind"]] if wide else [str(number), operator["name"]]
        cells += [_kernel(chosen), str(chosen["tasks"]), time_text(chosen["task_us"]["value"])]
        table.add_row(*cells, *([listing([node for _, node in operator["sources"]])] if wide else []))
    return table


def candidates(report: Report, *, wide: bool) -> RenderableType:
    """For every rOperator its candidate rKernels; the chosen one is marked. Narrow, an rOperator has a line above."""
    table = _table("rOperator", "") if wide else _table("")
    table.add_column("rKernel", no_wrap=True, max_width=None if wide else _LONGEST_KERNEL, overflow="ellipsis")
    table.add_column("form", no_wrap=True, max_width=None if wide else _LONGEST_FORM, overflow="ellipsis")
    if wide:
        table.add_column("memory", justify="right", no_wrap=True)
    for header in ("rTasks", "predicted", "measured"):
        table.add_column(header, justify="right", no_wrap=True)
    if wide:
        table.add_column("bound", no_wrap=True)
        table.add_column("why it was chosen")
    for operator in report["operators"]:
        if not wide:
            table.add_row("", operator["name"], style="bold")
        for position, candidate in enumerate(operator["candidates"]):
            chosen = position == operator["chosen"]
            mark = "*" if chosen else ""
            cells = [operator["name"] if position == 0 else "", mark] if wide else [mark]
            cells += [_kernel(candidate), candidate["details"]]
            if wide:
                cells.append(size_text(candidate["scratch_bytes"]) if candidate["scratch_bytes"] else "")
            measured_us = candidate["measured_us"]
            cells += [str(candidate["tasks"]), time_text(candidate["predicted_us"])]
            cells.append("" if measured_us is None else time_text(measured_us))
            table.add_row(*cells, *([candidate["bound"], operator["reason"] if chosen else ""] if wide else []))
    return table


def programs(report: Report) -> RenderableType:
    """The programs of a model that has several; constants that they share are in the size of each."""
    table = _table("entry")
    table.add_column("inputs", overflow="fold")
    for header in ("rOperators", "predicted", "size"):
        table.add_column(header, justify="right", no_wrap=True)
    for program in report["programs"]:
        inputs = ", ".join(f"{name} {dtype}{shape}" for name, dtype, shape in program["signature"]["inputs"])
        links = links_of(program["report"])
        predicted_us = sum(runs * own["predicted"]["total_us"] for runs, own in links)
        count = sum(len(own["operators"]) for _, own in links)
        cells = [str(count), time_text(predicted_us), size_text(program["bytes"])]
        table.add_row(printable(program["entry"]), printable(inputs), *cells)
    return table


def estimator(form: Mapping[str, Any]) -> RenderableType:
    """Which columns an estimator reads, and how many each of its steps computes."""
    table = Table.grid(padding=(0, 2))
    read = [column["name"] for column in form["columns"] if column["read"]]
    table.add_row("methods", ", ".join(form["methods"]))
    table.add_row(
        "reads", printable(f"{len(read)} of {len(form['columns'])} columns{': ' * bool(read)}{', '.join(read)}")
    )
    for step in form["steps"]:
        table.add_row("step", printable(f"{step['place']} computes {step['computed']} of {step['width']} columns"))
    for reason in form["refusals"]:
        table.add_row("refuses", printable(reason))
    return table


def device(name: str, description: Mapping[str, Any]) -> RenderableType:
    """What is known of a device: a `VDevice` as plain data."""
    peak = description["flops_per_us"]["float32"]
    table = Table.grid(padding=(0, 2))
    of_threads = f" of {description['threads']} threads" if description["threads"] > 1 else ""
    table.add_row(Text(name, "bold"), f"{description['name']}, {len(description['veus'])} execution units{of_threads}")
    table.add_row("", f"{description['vector_bytes']}-byte vectors, {description['vector_registers']} registers")
    table.add_row("", f"{peak['value'] / 1e3:.0f} GFLOP/s float32 on each unit", _dim(peak["provenance"]))
    if (tiles := description["tile_flops_per_us"]) is not None:
        table.add_row("", f"{tiles['value'] / 1e3:.0f} GOP/s of bytes by tiles", _dim(tiles["provenance"]))
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


def _table(*headers: str | tuple[str, JustifyMethod | int | None]) -> Table:
    """A table without lines between its columns; a header is given with how it is justified, or with a longest cell."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for header in headers:
        name, given = header if isinstance(header, tuple) else (header, _LEFT)
        if isinstance(given, str):
            table.add_column(name, justify=given, no_wrap=True)
        else:
            table.add_column(name, max_width=given, no_wrap=True, overflow="ellipsis")
    return table


def _kernel(candidate: Mapping[str, Any]) -> str:
    return f"{candidate['skeleton']} {_tile(candidate['task'])}"


def _tile(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes)) or "-"
