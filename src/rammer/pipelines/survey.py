"""What is known of a model before it is compiled."""

from __future__ import annotations

import os

from rammer.devices.registry import find_device
from rammer.errors import ModelError
from rammer.frontends.dispatch import Example, load_model, read_contents
from rammer.ir.survey import Survey
from rammer.options import CompileOptions
from rammer.passes import cut_loops, long_layers, unroll
from rammer.passes.helpers.peaks import demands


def survey(model: str | os.PathLike[str], options: CompileOptions) -> Survey:
    """What an ONNX file holds, what is lacking for it, and what would bound it on a device; nothing is compiled.

    Raises:
        ModelError: it cannot be read.
        OptionError: an option cannot be used.
        DeviceError: the machine cannot do what was asked.
    """
    vdevice = find_device(options.device).describe(options)
    contents = read_contents(model)
    try:
        graph = load_model(model, Example(), options.given).graph
    except ModelError as error:
        return Survey(contents=contents, device=vdevice.name, demands=(), refused=str(error))
    cut = cut_loops.cut(long_layers.run(graph))
    graphs = [(link.runs, own) for link, own in zip(cut.chain.links, cut.graphs, strict=True)]
    found = demands([(runs, unroll.run(own)) for runs, own in graphs], vdevice)
    return Survey(contents=contents, device=vdevice.name, demands=found, refused="")
