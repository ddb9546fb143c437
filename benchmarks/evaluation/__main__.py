"""The evaluation of the Rammer paper in one command, which goes on where it was ended.

    python -m benchmarks.evaluation                     # on the processor
    python -m benchmarks.evaluation --device cuda       # on a GPU
    python -m benchmarks.evaluation --page              # the page anew, from what was measured

Each figure is kept in a file as soon as it is there; a new call measures what is missing, and writes the page.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from benchmarks.evaluation import cells, measured
from benchmarks.evaluation.page import page_name, write_page
from benchmarks.harness.environment import OUT, ROOT, environment
from benchmarks.networks import LARGER, PAPER
from rammer.devices.base import Device
from rammer.devices.registry import find_device
from rammer.ir.vdevice import VDevice
from rammer.options import CompileOptions
from rammer.pipelines.beside import each_beside

_BATCHES = (1, 4, 16)
_console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
_Target = tuple[Device, VDevice, CompileOptions]
_Found = TypeVar("_Found")


def main() -> int:
    """Measure what is missing, and write the page; 1 where the time was over before."""
    arguments = _arguments()
    data: dict[str, Any] = {"settings": {}, "networks": {}, "commits": {}, "cells": {}}
    if arguments.json.exists() and not arguments.again:
        data |= json.loads(arguments.json.read_text(encoding="utf-8"))
    is_done = True
    if not arguments.page:
        is_done = _measure(arguments, data)
    if data["settings"]:
        text, pictures = write_page(data)
        arguments.to.write_text(text, encoding="utf-8")
        for name, picture in pictures.items():
            (arguments.to.parent / "images" / name).write_text(picture, encoding="utf-8")
        _console.print(f"wrote {arguments.to}", soft_wrap=True)
    return 0 if is_done else 1


def _measure(arguments: argparse.Namespace, data: dict[str, Any]) -> bool:
    """Add figures until all are there, or the time is over."""
    options = CompileOptions(device=arguments.device, veus=arguments.veus)
    device = find_device(options.device)
    vdevice = device.describe(options)
    here = environment([])
    commit, when = str(here["commit"] or "unknown")[:7], str(here["time"])[:10]
    kind = arguments.device
    data["settings"] = {
        "device": vdevice.name,
        "veus": vdevice.veu_count,
        "kind": kind,
        "commit": commit,
        "time": when,
        "known": "measured" if vdevice.handover_us.provenance.startswith("measured") else "described",
        "figures": here,
    }
    target = device, vdevice, options
    return _measure_networks(arguments, data, target, time.monotonic() + arguments.budget_s) and _simulate_cells(
        arguments, data, target
    )


def _measure_networks(arguments: argparse.Namespace, data: dict[str, Any], target: _Target, end_s: float) -> bool:
    """Programs of all networks are made first, several networks at a time, then measured one after another."""
    paper = [(name, batch) for batch in arguments.batches for name in arguments.networks]
    wanted = paper + [(name, 1) for name in arguments.larger]
    missing = [(name, batch) for name, batch in wanted if f"{name}-{batch}" not in data["networks"]]
    for (name, batch), found in zip(
        missing, _beside(measured.built, [(*one, *target) for one in missing]), strict=True
    ):
        if time.monotonic() > end_s:
            _console.print("the time is over; the same command goes on from here")
            return False
        data["networks"][f"{name}-{batch}"] = measured.network(name, batch, *target, found)
        data["commits"][f"{name}-{batch}"] = data["settings"]["commit"]
        _keep(arguments.json, data)
        _console.print(f"{name}, batch {batch}")
    return True


def _simulate_cells(arguments: argparse.Namespace, data: dict[str, Any], target: _Target) -> bool:
    missing = [seed for seed in range(arguments.cells) if str(seed) not in data["cells"]]
    count = min(len(missing), os.cpu_count() or 1)
    for found in _beside(cells.several, [(missing[i::count], *target[1:]) for i in range(count)]):
        data["cells"] |= found
    _keep(arguments.json, data)
    return True


def _beside(function: Callable[..., _Found], calls: Sequence[tuple[Any, ...]]) -> list[_Found]:
    return each_beside(function, calls) if calls else []


def _keep(path: Path, data: dict[str, Any]) -> None:
    """Write the file anew; whoever reads it meanwhile finds the old one whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    fresh.replace(path)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.evaluation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--veus", type=int, help="execution units (default: all)")
    parser.add_argument("--networks", type=_parts, default=list(PAPER), help="none with ''")
    parser.add_argument(
        "--larger", type=_parts, default=list(LARGER), help="of larger inputs, at batch 1; none with ''"
    )
    parser.add_argument("--batches", type=lambda text: [*map(int, _parts(text))], default=_BATCHES)
    parser.add_argument("--cells", type=int, default=cells.COUNT, help=f"random cells (default: {cells.COUNT})")
    parser.add_argument("--budget-s", type=float, default=float("inf"), help="begin nothing new after so many seconds")
    parser.add_argument("--again", action="store_true", help="forget what was measured before")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page")
    parser.add_argument("--to", type=Path, help="the page (default: in docs)")
    parser.add_argument("--json", type=Path, help="what was measured (default: out/evaluation-DEVICE.json)")
    arguments = parser.parse_args()
    arguments.json = arguments.json or OUT / f"evaluation-{arguments.device.replace(':', '-')}.json"
    arguments.to = arguments.to or ROOT / "docs" / page_name(arguments.device)
    return arguments


def _parts(text: str) -> list[str]:
    return text.split(",") if text else []


if __name__ == "__main__":
    sys.exit(main())
