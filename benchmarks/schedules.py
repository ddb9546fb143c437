"""How far each policy's schedules are from what any schedule could reach, and how long they are said to take.

    python -m benchmarks.schedules --device cuda:sm_90 --networks nasnet,resnext
    python -m benchmarks.schedules --device cuda --policies wavefront --measure

Prints, for each network and policy, the simulated time, with `--measure` the measured one, and the bounds of
`rammer.schedule.bound`. Without it no device is needed: times are predicted.
"""

from __future__ import annotations

import argparse
import sys
import time

from rich.console import Console
from rich.table import Table

from benchmarks.harness.cases import FORMS
from benchmarks.networks import NETWORKS, SMALL
from benchmarks.networks.precision import ELEMENT_TYPES, converted
from rammer.compiler import lower_graph
from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.ir.program import Plan
from rammer.options import CompileOptions
from rammer.profiler.whole import measure_plan
from rammer.roller.model import ModelCosts
from rammer.schedule import memory
from rammer.schedule.bound import find_bounds, problem_of
from rammer.schedule.policies import POLICIES
from rammer.schedule.simulator import simulate
from rammer.verify import program


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:sm_90")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--small", action="store_true", help="networks of little work")
    parser.add_argument("--measure", action="store_true", help="run the programs, too")
    options = parser.parse_args()
    compile_options = CompileOptions(device=options.device, precision=options.precision)
    device = find_device(options.device)
    vdevice = device.describe(compile_options)
    costs = ModelCosts(vdevice)
    bounded = ("bound of its rKernels", "bound of any", "any, with hand-overs", "s")
    heads = ("network", "policy", "simulated, us", *(("measured, us",) if options.measure else ()), *bounded)
    table = Table(*heads, title=f"{vdevice.name}, {vdevice.veu_count} vEUs, {options.precision}")
    for name in options.networks.split(","):
        model = NETWORKS[name](seed=0, **(SMALL[name] if options.small else {}))
        if FORMS[name].converts and options.precision in ELEMENT_TYPES:
            model = converted(model, options.precision)
        tasks = lower_graph(load_graph(model, input_shapes={}), vdevice, compile_options, Dump(None))
        problem = problem_of(tasks, vdevice, costs)
        for policy in options.policies.split(","):
            began = time.perf_counter()
            schedule = POLICIES[policy](tasks, vdevice, costs)
            seconds = time.perf_counter() - began
            simulated = simulate(tasks, schedule, vdevice, costs)
            bounds = find_bounds(problem, schedule.choice)
            measured_us = []
            if options.measure:
                arenas = memory.plan(tasks, schedule, vdevice.alignment_bytes, vdevice.homes)
                plan = Plan(graph=tasks, schedule=schedule, memory=arenas)
                program.verify(plan, vdevice)
                measured_us.append(measure_plan(plan, device, vdevice, compile_options).value)
            figures = (
                simulated.total_us,
                *measured_us,
                bounds.chosen_us,
                bounds.any_us,
                bounds.with_handovers_us,
            )
            table.add_row(name, policy, *(f"{figure:.1f}" for figure in figures), f"{seconds:.1f}")
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
