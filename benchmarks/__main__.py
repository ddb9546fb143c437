"""Measure Rammer beside other runtimes: `python -m benchmarks --help`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Collection
from pathlib import Path

from rich.console import Console

from benchmarks.harness.alone import alone
from benchmarks.harness.cases import FORMS, build_case
from benchmarks.harness.contestant import Contestant
from benchmarks.harness.environment import OUT, environment
from benchmarks.harness.measure import Row, measure
from benchmarks.harness.report import table, write_json
from benchmarks.harness.setups import SETUPS, TOLERANCES
from benchmarks.networks import PAPER
from rammer.devices.registry import find_device
from rammer.errors import RammerError
from rammer.options import CompileOptions
from rammer.schedule.policies import POLICIES

_DEFAULT = [name for name, form in FORMS.items() if form.task in PAPER]
_BUSY_LOAD = 0.5  # processes that are running before we begin
_console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)


def main() -> int:
    """Run the comparison; 1 where something is not reported."""
    arguments = _arguments()
    try:
        return _compare(arguments)
    except RammerError as error:
        _console.print(str(error), style="red", markup=False)
        return 1


def _compare(arguments: argparse.Namespace) -> int:
    device: str = arguments.device
    vdevice = find_device(device).describe(CompileOptions(device=device, veus=arguments.veus))
    veus = vdevice.veu_count
    setup = SETUPS[device](veus, arguments.precision)
    if arguments.alone:
        setup = alone(setup)
    ours = [setup.ours(policy) for policy in arguments.policies]
    if setup.reference.version() is None:
        name = setup.reference.name
        _console.print(f"{name} is not installed: without it nobody knows the right outputs", style="red")
        return 1
    wanted = [peer for peer in setup.peers if arguments.peers is None or peer.name in arguments.peers]
    if arguments.peers and len(wanted) < len(arguments.peers):
        _console.print(f"--peers: choose of {', '.join(peer.name for peer in setup.peers)}", style="red")
        return 1
    peers = [peer for peer in wanted if peer.version() is not None]
    for missing in [peer.name for peer in wanted if peer not in peers]:
        _console.print(f"{missing}: not installed")
    contestants: list[Contestant] = [*peers, *ours]
    settings = environment(contestants) | {
        "device": {"kind": vdevice.kind, "name": vdevice.name, "veus": veus, **setup.facts()},
        "precision": arguments.precision,
        "region": setup.region,
        "rounds": arguments.rounds,
        "tolerance": setup.tolerance,
    }
    _console.print(f"{vdevice.name}, {arguments.precision}: timed is {setup.region}.")
    load = os.getloadavg()[0]
    if load > _BUSY_LOAD:
        _console.print(
            f"The machine is busy (load {load:.1f}), so times will be longer than they need be.", style="yellow"
        )
    names = ([one.name for one in ours], [one.name for one in peers])
    rows: list[Row] = []
    with _console.status("") as status:
        for name in arguments.networks:
            status.update(f"{name}: building the model")
            case = build_case(name, arguments.precision)
            try:
                row = measure(case, contestants, setup, rounds=arguments.rounds, progress=status.update)
            except Exception as error:  # noqa: BLE001 - other runtimes raise what they like
                said = str(error) if isinstance(error, RammerError) else f"{type(error).__name__}: {error}"
                row = Row(case=name, network=case.form.task, refusal=said)
            rows.append(row)
            _console.print(f"{name}: {'not reported' if row.refusal else 'measured'}")
            write_json(arguments.json, rows, *names, settings)
    _console.print(table(rows, *names))
    _console.print(f"wrote {arguments.json}", soft_wrap=True)
    return int(any(row.refusal for row in rows))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure Rammer beside other runtimes: one process, in turns."
    )
    parser.add_argument("--device", choices=SETUPS, default="cpu")
    parser.add_argument(
        "--networks", type=_names(FORMS), default=_DEFAULT, help=f"of {','.join(FORMS)} (default: {','.join(_DEFAULT)})"
    )
    parser.add_argument("--policies", type=_names(POLICIES), default=["wavefront"], help=f"of {','.join(POLICIES)}")
    parser.add_argument("--precision", choices=TOLERANCES, default="fp32", help="arithmetic of products and sums")
    parser.add_argument("--peers", type=_peers, help="by name; all by default, none with ''")
    parser.add_argument("--rounds", type=_count, default=20, help="turns for each runtime (default: 20)")
    parser.add_argument(
        "--veus", type=_count, help="execution units, and threads of the peers on the processor (default: all)"
    )
    parser.add_argument("--alone", action="store_true", help="each in a process of its own (on the processor)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="where results go (default: out/bench-DEVICE-PRECISION.json)"
    )
    arguments = parser.parse_args()
    if arguments.alone and arguments.device != "cpu":
        parser.error("--alone: processes take turns on the processor only")
    arguments.json = arguments.json or OUT / f"bench-{arguments.device}-{arguments.precision}.json"
    return arguments


def _peers(text: str) -> list[str]:
    return text.split(",") if text else []


def _names(known: Collection[str]) -> Callable[[str], list[str]]:
    """A parser of names with commas between them."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; choose of {', '.join(known)}")
        return names

    return parse


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return count


if __name__ == "__main__":
    sys.exit(main())
