"""Where in the user's model an operator of the backward pass comes from: the calls whose gradients need it.

PyTorch loses the places of calls where it makes the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch.export import ExportedProgram

from rammer.frontends.torch.converters import CONVERTERS
from rammer.frontends.torch.private import is_operator, operators_with_gradients
from rammer.frontends.torch.sources import location_of


def placed(missing: Sequence[tuple[str, str]], forward: ExportedProgram, model: str) -> list[tuple[str, str]]:
    """Operators that a training step lacks, with their places in the forward pass.

    Args:
        missing: the operators, and the names that PyTorch gave to their calls.
        forward: the forward pass as it was captured, of a module whose part `module` is the user's.
        model: what messages call the module.
    """
    lacking = dict.fromkeys(name for name, _ in missing)
    found: dict[str, list[str]] = {name: [] for name in lacking}
    for node in forward.graph.nodes:
        if node.op == "call_function" and is_operator(node.target):
            for name in operators_with_gradients(node, CONVERTERS) & lacking.keys():
                found[name].append(location_of(node, model).node.removeprefix("module").lstrip("./"))
    unplaced = [(name, call) for name, call in missing if not found[name]]
    return [(name, place) for name, places in found.items() for place in places] + unplaced
