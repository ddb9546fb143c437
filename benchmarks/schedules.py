"""How far each policy's schedules are from what any schedule could reach, and how long they are said to take.

    python -m benchmarks.schedules --device cuda:sm_90 --networks nasnet,resnext
    python -m benchmarks.schedules --device cuda --policies wavefront,sequential --measure

Prints, for each network and policy, the simulated time and the bounds of `rammer.schedule.bound`; with `--measure` the
measured time, too, how much of it is simulated, and for each network whether simulation orders its programs as
measurement does. Without it no device is needed: times are predicted. `--divisions` has rows for other ways to cut the
device into execution units, too: with `--measure`, what `auto` chooses from.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from benchmarks.harness.cases import FORMS
from benchmarks.harness.ranking import kendall
from benchmarks.networks import NETWORKS, SMALL
from benchmarks.networks.precision import ELEMENT_TYPES, converted
from rammer.devices.base import Divisible
from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.ir.graph import Graph
from rammer.ir.vdevice import VDevice
from rammer.options import CompileOptions
from rammer.pipelines.planning import RunUs, lower_graph, plan_memory
from rammer.profiler.whole import measure_plan
from rammer.roller.model import ModelCosts
from rammer.schedule.bound import find_bounds, problem_of
from rammer.schedule.policies import MERGING, POLICIES
from rammer.schedule.simulator import simulate

NOISE = 0.01
"""Of the time of a program, what medians of two runs of the benchmark differ by: pairs closer than that are ties."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:sm_90")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--small", action="store_true", help="networks of little work")
    parser.add_argument("--measure", action="store_true", help="run the programs, too")
    parser.add_argument("--divisions", action="store_true", help="divide the device in other ways, too")
    chosen = parser.parse_args(arguments)
    options = CompileOptions(device=chosen.device, precision=chosen.precision)
    device = find_device(chosen.device)
    vdevice = device.describe(options)
    others = device.divisions(options) if chosen.divisions and isinstance(device, Divisible) else ()
    measured = ("measured, us", "simulated / measured") if chosen.measure else ()
    bounded = ("bound of its rKernels", "bound of any", "any, with hand-overs", "s")
    heads = ("network", "vEUs", "policy", "simulated, us", *measured, *bounded)
    table = Table(*heads, title=f"{vdevice.name}, {chosen.precision}")
    orders = []
    for name in chosen.networks.split(","):
        graph = _network(name, chosen.precision, small=chosen.small)
        run_us = (lambda plan, one: measure_plan(plan, device, one, options).value) if chosen.measure else None
        policies = chosen.policies.split(",")
        pairs = _rows(table, name, graph, policies, vdevice, options, run_us)
        orders.append(f"{name} {kendall(pairs, NOISE):.2f}")
        for other in others:
            _rows(table, name, graph, policies, other, options, run_us)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    if chosen.measure:
        print(f"Kendall's correlation, pairs within {NOISE:.0%} of each other left out: {', '.join(orders)}")
    return 0


def _network(name: str, precision: str, *, small: bool) -> Graph:
    model = NETWORKS[name](seed=0, **(SMALL[name] if small else {}))
    if FORMS[name].converts and precision in ELEMENT_TYPES:
        model = converted(model, precision)
    return load_graph(model, input_shapes={})


def _rows(
    table: Table,
    name: str,
    graph: Graph,
    policies: Sequence[str],
    vdevice: VDevice,
    options: CompileOptions,
    run_us: RunUs | None,
) -> list[tuple[float, float]]:
    """Add a row for each policy; the simulated and the measured time of each, where they are measured."""
    costs = ModelCosts(vdevice)
    pairs = []
    for merges in (False, True):
        own = [policy for policy in policies if (policy in MERGING) == merges]
        if not own:
            continue
        tasks = lower_graph(graph, vdevice, replace(options, policy=own[0]), Dump(None))
        problem = problem_of(tasks, vdevice, costs)
        for policy in own:
            began = time.perf_counter()
            schedule = POLICIES[policy](tasks, vdevice, costs)
            seconds = time.perf_counter() - began
            simulated_us = simulate(tasks, schedule, vdevice, costs).total_us
            figures = [f"{simulated_us:.1f}"]
            if run_us is not None:
                measured_us = run_us(plan_memory(tasks, schedule, vdevice, Dump(None)), vdevice)
                pairs.append((simulated_us, measured_us))
                figures += [f"{measured_us:.1f}", f"{simulated_us / measured_us:.2f}"]
            bounds = find_bounds(problem, schedule.choice)
            figures += [f"{bound:.1f}" for bound in (bounds.chosen_us, bounds.any_us, bounds.with_handovers_us)]
            table.add_row(name, str(vdevice.veu_count), policy, *figures, f"{seconds:.1f}")
    return pairs


if __name__ == "__main__":
    sys.exit(main())
