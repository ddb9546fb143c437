"""compile_model(): the pipeline for models with loops of very many trips: a chain of programs, each compiled by itself.

    Graph ─long_layers, fuse_loops, cut_loops─▶ Chain and Graphs ─compile_graph─▶ programs ─▶ Executable

A model without such loops is one program.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rammer.devices.base import Binary, Device, Source
from rammer.ir.chain import Chain
from rammer.ir.graph import Graph
from rammer.ir.sizes import check_memory
from rammer.ir.vdevice import VDevice
from rammer.options import CompileOptions
from rammer.passes import cut_loops, fuse_loops, long_layers
from rammer.passes.cut_loops import Cut
from rammer.pipelines.compiler import compile_graph, find_target, interface_of
from rammer.pipelines.planning import Progress, silent
from rammer.runtime.chained import ChainedDevice, joined_binary, joined_source
from rammer.runtime.executable import Executable
from rammer.timings import timed
from rammer.verify import chain as verify_chain


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """What is made of a link's graph: what an `Executable` is made of."""

    name: str
    device: Device
    source: Source
    binary: Binary
    report: bytes

    @classmethod
    def of(cls, **made: Any) -> Any:  # noqa: ANN401 - in the place of an `Executable`
        """Without what the chain has for all of them."""
        return cls(**{name: made[name] for name in cls.__slots__})


def compile_model(
    graph: Graph,
    options: CompileOptions,
    progress: Progress = silent,
    kind: Callable[..., Executable] = Executable,
) -> Executable:
    """From an imported graph to what runs it: one program, or a chain of them where loops stay loops.

    Raises:
        ModelError: the model cannot be used.
        OptionError: an option cannot be used.
        DeviceError: the machine cannot do what was asked.
    """
    looped = fuse_loops.run(long_layers.run(graph))
    if all(operator.repeat is None for operator in looped.operators):
        return compile_graph(graph, options, progress, kind)
    cut = _cut(looped)
    _check_memory(graph.name, cut.chain, find_target(options)[1])
    programs: list[Any] = []
    for number, part in enumerate(cut.graphs):
        folder = None if options.dump_dir is None else options.dump_dir / f"{number}"
        programs.append(compile_graph(part, replace(options, dump_dir=folder), progress, _Program.of))
    return kind(
        **interface_of(graph),
        name=graph.name,
        device=ChainedDevice(programs[0].device),
        source=joined_source(cut.chain, [program.source for program in programs]),
        binary=joined_binary([program.binary for program in programs]),
        report=_report(graph.name, cut, [program.report for program in programs]),
        options=options,
    )


def _check_memory(name: str, chain: Chain, device: VDevice) -> None:
    """Check that what lies between the programs fits in the device's memory beside a call's arrays.

    Raises:
        OutOfMemoryError: it does not.
    """
    parts_bytes = {
        "inputs": sum(chain.input_bytes),
        "outputs": sum(chain.output_bytes),
        "values between programs": chain.scratch_bytes,
    }
    check_memory(parts_bytes, device.levels[-1].capacity_bytes, where=name)


def _cut(looped: Graph) -> Cut:
    """The chain of a graph with loops, proved, and the graphs of its links."""
    with timed("cut_loops", "passes") as step:
        cut = cut_loops.cut(looped)
        step.made = f"{len(cut.graphs)} programs, {sum(link.runs for link in cut.chain.links)} runs"
    with timed("chain", "verify"):
        verify_chain.verify(cut.chain)
    return cut


def _report(name: str, cut: Cut, reports: list[bytes]) -> bytes:
    """What runs where and why, program by program."""
    links = [
        {"runs": link.runs, "report": json.loads(report)} for link, report in zip(cut.chain.links, reports, strict=True)
    ]
    return json.dumps({"name": name, "scratch_bytes": cut.chain.scratch_bytes, "links": links}).encode()
