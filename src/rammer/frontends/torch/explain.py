"""What Rammer sees in a captured program, and what it lacks for it; nothing is compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import torch
from torch.export import ExportedProgram
from torch.fx import Node as FxNode

from rammer.frontends.dispatch import Explanation
from rammer.frontends.torch.importer import missing_operators
from rammer.frontends.torch.private import bounds_of
from rammer.frontends.torch.types import dtype_of
from rammer.ir.types import TensorType


def explain_program(program: ExportedProgram, name: str) -> Explanation:
    """What a captured program without mutation is made of.

    Raises:
        UnsupportedFeatureError: a tensor's element type is none of ours.
    """
    nodes = list(program.graph.nodes)
    signature = program.graph_signature
    inputs = {node.name: node for node in nodes if node.op == "placeholder"}
    written = {
        buffer: inputs[placeholder]
        for placeholder, buffer in signature.inputs_to_buffers.items()
        if buffer in signature.buffers_to_mutate.values()
    }
    results = {node.name: node for node in nodes}
    calls = Counter(str(node.target) for node in nodes if node.op == "call_function")
    return Explanation(
        model=name,
        operators=tuple(sorted(calls.items())),
        missing=tuple(missing_operators(nodes, name)),
        inputs=tuple(_tensors((user, inputs.get(str(user))) for user in signature.user_inputs)),
        outputs=tuple(_tensors((user, results.get(str(user))) for user in signature.user_outputs)),
        states=tuple(_tensors(written.items())),
    )


def _tensors(named: Iterable[tuple[object, FxNode | None]]) -> Iterator[tuple[str, TensorType]]:
    """Names and types of those that are tensors, as large as they can be where that depends on the data."""
    for name, node in named:
        value = None if node is None else node.meta.get("val")
        if isinstance(value, torch.Tensor):
            shape = tuple(_most(extent) for extent in value.shape)
            yield str(name), TensorType(dtype_of(value.dtype, f"'{name}'"), shape)


def _most(extent: int | torch.SymInt) -> int:
    """What PyTorch knows an extent to be at most; 0 where it knows nothing."""
    return extent if isinstance(extent, int) else bounds_of(extent)[1] or 0
