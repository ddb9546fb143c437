"""IOS's networks by its policy: states, transitions and seconds of the search, and simulated times of the programs.

    python -m benchmarks.ios --networks randwire,nasnet
    python -m benchmarks.ios --device cuda:sm_90 --networks inception_v3,squeezenet1_0

RandWire and NASNet are built here, the others are torchvision's. Times are predicted, so no device is needed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.networks import nasnet, randwire
from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.ir.graph import Graph
from rammer.options import CompileOptions, GivenInputs
from rammer.pipelines.planning import lower_graph
from rammer.roller.model import ModelCosts
from rammer.schedule.estimates import Estimates
from rammer.schedule.policies import POLICIES, ios
from rammer.schedule.simulator import simulate

SHOWN = ("sequential", "ios", "ios-tiles", "wavefront")
BUILT: dict[str, Callable[[], Graph]] = {
    "randwire": lambda: load_graph(randwire.build(), input_shapes={}),
    "nasnet": lambda: load_graph(nasnet.build(), input_shapes={}),
}


def of_torchvision(name: str) -> Graph:
    """A network of torchvision's; its library is asked for here alone."""
    import torch
    import torchvision

    from rammer.frontends.dispatch import Example, load_model

    options = {"init_weights": False} if name == "inception_v3" else {}
    module = torchvision.models.get_model(name, weights=None, **options).eval()
    size = 299 if name == "inception_v3" else 224
    return load_model(module, Example(args=(torch.zeros(1, 3, size, size),), kwargs={}), GivenInputs()).graph


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:sm_90")
    parser.add_argument("--networks", default="randwire,nasnet")
    options = parser.parse_args(arguments)
    compile_options = CompileOptions(device=options.device)
    vdevice = find_device(options.device).describe(compile_options)
    costs = ModelCosts(vdevice)
    table = Table("network", "rOperators", "states", "transitions", "greedy", "s", *(f"{name}, us" for name in SHOWN))
    for name in options.networks.split(","):
        graph = BUILT[name]() if name in BUILT else of_torchvision(name)
        tasks = lower_graph(graph, vdevice, compile_options, Dump(None))
        estimates = Estimates(tasks, vdevice, costs)
        began = time.process_time()
        found = ios.find_stages(tasks, vdevice.veu_count, estimates)
        seconds = time.process_time() - began
        times = [simulate(tasks, POLICIES[one](tasks, vdevice, costs), vdevice, costs).total_us for one in SHOWN]
        counts = (len(tasks.operators), found.states, found.transitions, found.greedy)
        table.add_row(name, *map(str, counts), f"{seconds:.1f}", *(f"{time_us:.0f}" for time_us in times))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
