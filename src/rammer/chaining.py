"""compile_model(): the pipeline for models with loops of very many trips: a chain of programs, each compiled by itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rammer.compiler import Progress, compile_graph, find_target, interface_of, silent
from rammer.devices.base import Binary, Device, Source
from rammer.ir.graph import Graph
from rammer.options import CompileOptions
from rammer.passes import cut_loops, long_layers
from rammer.runtime.chained import ChainedDevice, joined_binary, joined_source
from rammer.runtime.executable import Executable


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """What is made of one link."""

    name: str
    device: Device
    source: Source
    binary: Binary
    report: bytes
    tasks: bytes
    options: CompileOptions


def _program(**made: Any) -> Any:  # noqa: ANN401
    made.pop("signature"), made.pop("initial")
    return _Program(**made)


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
    cut = cut_loops.cut(long_layers.run(graph))
    if cut is None:
        return compile_graph(graph, options, progress, kind)
    programs = []
    for number, part in enumerate(cut.graphs):
        own = options if options.dump_dir is None else replace(options, dump_dir=options.dump_dir / f"program{number}")
        programs.append(compile_graph(part, own, progress, _program))
    return kind(
        **interface_of(graph),
        name=graph.name,
        device=ChainedDevice(programs[0].device),
        source=joined_source(cut.chain, [program.source for program in programs]),
        binary=joined_binary([program.binary for program in programs]),
        report=b"{}",
        tasks=b"",
        options=options,
    )
