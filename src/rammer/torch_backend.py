"""`torch.compile(module, backend="rammer")`: PyTorch finds `backend` by the entry point `torch_dynamo_backends`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import count
from typing import Any

from rammer.options import CompileOptions
from rammer.pipelines.kinds import compile_captured

_GRAPHS = count()
"""So many were compiled before: graphs of one module are not to draw the same random numbers."""


def backend(graph: Any, inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:  # noqa: ANN401 - PyTorch's
    """Compile a graph that Dynamo found, when it is first called.

    Args:
        graph: a `torch.fx.GraphModule`.
        inputs: its inputs, without data.
        options: what `torch.compile(..., options={...})` gives: fields of `CompileOptions`.

    Raises:
        ModelError: the graph cannot be used.
        CallError: gradients are wanted.
        OptionError: an option cannot be used.
    """
    chosen = CompileOptions(**options.get("options") or {})
    front_end = import_module("rammer.frontends.torch.backend")
    seeded = replace(chosen, seed=(chosen.seed + next(_GRAPHS)) % 2**64)
    build = partial(compile_captured, options=seeded)
    called: Callable[..., Any] = front_end.compile_graph_module(graph, inputs, build)
    return called
