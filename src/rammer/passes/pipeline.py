"""The passes, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

from rammer.ir.graph import Graph
from rammer.ir.vdevice import VDevice
from rammer.passes import (
    eliminate_common,
    eliminate_dead,
    fold_batch_norm,
    fold_constants,
    fuse,
    hoist_pointwise,
    inline_numbers,
    inline_views,
    layout,
    merge_products,
    simplify_views,
    unroll,
)

# Each pass states its ordering restrictions. In short: recurrent layers and constants come first, so that everything
# after sees plain operators on known weights; then the passes that know operators by kind, operands and attributes;
# from inline_numbers on, expressions change and only they count. hoist_pointwise leads normalisations to their products
# the first time, and activations to the merged products the second time.
PASSES: tuple[tuple[str, Callable[[Graph], Graph]], ...] = (
    ("unroll", unroll.run),
    ("fold_constants", fold_constants.run),
    ("simplify_views", simplify_views.run),
    ("eliminate_common", eliminate_common.run),
    ("eliminate_dead", eliminate_dead.run),
    ("hoist_pointwise", hoist_pointwise.run),
    ("eliminate_dead", eliminate_dead.run),
    ("fold_batch_norm", fold_batch_norm.run),
    ("merge_products", merge_products.run),
    ("inline_numbers", inline_numbers.run),
    ("hoist_pointwise", hoist_pointwise.run),
    ("inline_views", inline_views.run),
    ("eliminate_common", eliminate_common.run),
    ("eliminate_dead", eliminate_dead.run),
    ("fuse", fuse.run),
)
"""Passes that serve any device: name and function."""

DEVICE_PASSES: tuple[tuple[str, Callable[[Graph, VDevice], Graph]], ...] = (("layout", layout.run),)
"""Passes that choose for one device; they run last."""


def run_passes(graph: Graph, device: VDevice, after: Callable[[str, Graph], None]) -> Graph:
    """The graph after all passes.

    Args:
        graph: as a frontend made it.
        device: what the graph is compiled for.
        after: called with each pass's name and the graph that came out of it; the compiler verifies and dumps there.
    """
    for name, run in PASSES:
        graph = run(graph)
        after(name, graph)
    for name, choose in DEVICE_PASSES:
        graph = choose(graph, device)
        after(name, graph)
    return graph
