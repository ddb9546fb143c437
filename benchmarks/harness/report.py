"""Results as a table for people and as JSON for scripts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.harness.environment import Json
from benchmarks.harness.measure import Row, Timing


def best(timings: Mapping[str, Timing], names: Iterable[str]) -> str:
    """The name of the fastest, by median."""
    return min(names, key=lambda name: timings[name].median_us)


def ratios(row: Row, ours: Sequence[str], peers: Sequence[str]) -> dict[str, float]:
    """For each of ours, how many times as long the best peer takes."""
    peer_us = row.timings[best(row.timings, peers)].median_us
    return {name: peer_us / row.timings[name].median_us for name in ours}


def geometric_means(rows: Sequence[Row], ours: Sequence[str], peers: Sequence[str]) -> dict[str, float]:
    """Of `ratios` over the networks, where each side takes the form of the network that suits it best."""
    means = {}
    for name in ours:
        logs = []
        for network in dict.fromkeys(row.network for row in rows):
            forms = [row for row in rows if row.network == network]
            our_us = min(row.timings[name].median_us for row in forms)
            peer_us = min(row.timings[best(row.timings, peers)].median_us for row in forms)
            logs.append(math.log(peer_us / our_us))
        means[name] = math.exp(math.fsum(logs) / len(logs))
    return means


def table(rows: Sequence[Row], ours: Sequence[str], peers: Sequence[str]) -> RenderableType:
    """Medians in microseconds with the span of 80 % of the calls, and the ratios to the best peer."""
    grid = Table(
        title="Latency in us: median (p10 to p90)",
        title_justify="left",
        caption="A ratio says how many times as long the best peer takes. Their mean takes each network once, for "
        "either side in the form that suits it best.",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
    )
    grid.add_column("network", no_wrap=True)
    for name in (*peers, *ours):
        grid.add_column(name, justify="right")
    for name in ours if peers else ():
        grid.add_column(f"ratio {name}", justify="right")
    measured = [row for row in rows if row.timings]
    for row in measured:
        quickest = best(row.timings, (*peers, *ours))
        cells = [_cell(row.timings[name], marked=name == quickest) for name in (*peers, *ours)]
        cells += [_ratio(value) for value in ratios(row, ours, peers).values()] if peers else []
        grid.add_row(row.case, *cells)
    if measured and peers:
        means = geometric_means(measured, ours, peers)
        grid.add_section()
        blank = [""] * (len(peers) + len(ours))
        grid.add_row("geometric mean", *blank, *[_ratio(value) for value in means.values()])
    refusals = [Text(f"{row.case} is not reported: {row.refusal}", style="red") for row in rows if row.refusal]
    return Group(grid, *refusals)


def write_json(
    path: Path, rows: Sequence[Row], ours: Sequence[str], peers: Sequence[str], settings: Mapping[str, Json]
) -> None:
    """Leave everything that was measured in a file."""
    measured = [row for row in rows if row.timings]
    comparable = bool(measured and peers)
    data = {
        **settings,
        "rows": [_row(row, ours, peers) for row in rows],
        "geometric_means": geometric_means(measured, ours, peers) if comparable else {},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")


def _row(row: Row, ours: Sequence[str], peers: Sequence[str]) -> dict[str, object]:
    differences = {name: value if math.isfinite(value) else None for name, value in row.differences.items()}
    comparable = bool(row.timings and peers)
    return asdict(row) | {"differences": differences, "ratios": ratios(row, ours, peers) if comparable else {}}


def _cell(timing: Timing, *, marked: bool) -> Text:
    text = f"{timing.median_us:,.0f} ({timing.p10_us:,.0f} to {timing.p90_us:,.0f})"
    return Text(text, style="bold" if marked else "", no_wrap=True)


def _ratio(value: float) -> Text:
    return Text(f"{value:.2f}", style="green" if value >= 1 else "red")
