"""A survey of a model as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from rammer.inspection.units import time_text
from rammer.ir.sizes import size_text
from rammer.ir.survey import Demand, Survey
from rammer.printable import printable

_LONGEST_NAME = 23  # characters, so that the table fits 80


def page(survey: Survey) -> RenderableType:
    """What a model holds, what Rammer lacks for it, and what would bound it."""
    contents = survey.contents
    table = Table.grid(padding=(0, 2))
    table.add_row("model", printable(contents.model))
    table.add_row("operator sets", ", ".join(f"{printable(domain)} {version}" for domain, version in contents.opsets))
    table.add_row("takes", _typed(contents.inputs))
    table.add_row("gives", _typed(contents.outputs))
    table.add_row("symbols", ", ".join(map(printable, contents.symbols)) or "none")
    table.add_row("parameters", f"{contents.parameters:,} in {size_text(contents.parameter_bytes)}")
    table.add_row("operators", ", ".join(f"{printable(name)} x {count}" for name, count in contents.operators))
    if contents.missing:
        lacking = (f"{printable(name)} (node '{printable(node)}')" for name, node in contents.missing)
        table.add_row("lacking", ", ".join(lacking))
    table.add_row("compiles", "as far as can be seen" if not survey.refused else "no: " + printable(survey.refused))
    return Group(table, _demands(survey)) if survey.demands else table


def _typed(values: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{printable(name)}: {type_}" for name, type_ in values) or "nothing"


def _demands(survey: Survey) -> RenderableType:
    """A row for each kind of operator, the most demanding first, and one for all."""
    title = f"Each operator alone, at the peaks of {survey.device}"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("operator", max_width=_LONGEST_NAME, no_wrap=True, overflow="ellipsis")
    for heading in ("count", "Mflop", "MB moved", "compute", "memory"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    for demand in sorted(survey.demands, key=lambda d: -max(d.compute_us, d.memory_us)):
        table.add_row(*_row(demand), demand.bound)
    total = Demand(
        kind="all",
        count=sum(demand.count for demand in survey.demands),
        operations=sum(demand.operations for demand in survey.demands),
        moved_bytes=sum(demand.moved_bytes for demand in survey.demands),
        compute_us=sum(demand.compute_us for demand in survey.demands),
        memory_us=sum(demand.memory_us for demand in survey.demands),
    )
    table.add_row(*_row(total), total.bound)
    return table


def _row(demand: Demand) -> tuple[str, ...]:
    return (
        printable(demand.kind),
        str(demand.count),
        f"{demand.operations / 1e6:,.2f}",
        f"{demand.moved_bytes / 1e6:,.2f}",
        time_text(demand.compute_us),
        time_text(demand.memory_us),
    )
