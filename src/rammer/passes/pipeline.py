"""The passes, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from rammer.ir.graph import Graph
from rammer.ir.vdevice import VDevice
from rammer.passes import (
    batch_inputs,
    byte_cells,
    byte_pairs,
    byte_products,
    byte_windows,
    channels_last,
    eliminate_common,
    eliminate_dead,
    finite_weights,
    fold_batch_norm,
    fold_constants,
    fold_scales,
    fuse,
    fuse_attention,
    fuse_cells,
    fuse_matrix_vectors,
    fuse_normalisations,
    fuse_windows,
    hoist_pointwise,
    inline_numbers,
    inline_views,
    known_ranges,
    layout,
    merge_products,
    merge_sums,
    narrow_values,
    pad_images,
    pad_sums,
    part_weights,
    predicate,
    round_products,
    select_parts,
    set_apart,
    simplify_views,
    split_groups,
    split_phases,
    split_reduction,
    store_bytes,
    sum_convolutions,
    take_back,
    unpack_weights,
    unroll,
    unround,
    update_in_place,
    widen_halves,
    winograd,
    write_rounded,
    write_twice,
)
from rammer.timings import timed

Pass = Callable[[Graph, VDevice], Graph]


def _anywhere(run: Callable[[Graph], Graph]) -> Pass:
    """A pass that serves any device."""
    return lambda graph, _device: run(graph)


def _all(passes: Sequence[tuple[str, Pass]]) -> Pass:
    """Passes one after the other as one."""

    def run(graph: Graph, device: VDevice) -> Graph:
        for _, one in passes:
            graph = one(graph, device)
        return graph

    return run


# Each pass states its ordering restrictions. In short: recurrent layers and constants come first, so that everything
# after sees plain operators on known weights; then the passes that know operators by kind, operands and attributes;
# from inline_numbers on, expressions change and only they count. hoist_pointwise leads normalisations to their products
# the first time, and activations to the merged products the second time. winograd chooses by what comes after it.
_REST: tuple[tuple[str, Pass], ...] = (
    ("inline_numbers", _anywhere(inline_numbers.run)),
    ("hoist_pointwise", _anywhere(hoist_pointwise.run)),
    ("inline_views", _anywhere(inline_views.run)),
    ("eliminate_common", _anywhere(eliminate_common.run)),
    ("eliminate_dead", _anywhere(eliminate_dead.run)),
    ("fuse", _anywhere(fuse.run)),
    ("store_bytes", store_bytes.run),
    ("unround", unround.run),
    ("select_parts", _anywhere(select_parts.run)),
    ("fuse_attention", fuse_attention.run),
    ("fuse_cells", fuse_cells.run),
    ("write_twice", write_twice.run),
    ("fuse_matrix_vectors", fuse_matrix_vectors.run),
    ("eliminate_dead", _anywhere(eliminate_dead.run)),
    ("channels_last", _anywhere(channels_last.run)),
    ("pad_sums", pad_sums.run),
    ("round_products", round_products.run),
    ("write_rounded", write_rounded.run),
    ("narrow_values", narrow_values.run),
    ("split_reduction", split_reduction.run),
    ("part_weights", part_weights.run),
    ("layout", layout.run),
    ("merge_sums", merge_sums.run),
    ("fuse_windows", fuse_windows.run),
    ("fuse_normalisations", fuse_normalisations.run),
    ("eliminate_dead", _anywhere(eliminate_dead.run)),
)
PASSES: tuple[tuple[str, Pass], ...] = (
    ("byte_cells", byte_cells.run),
    ("known_ranges", _anywhere(known_ranges.run)),
    ("byte_products", byte_products.run),
    ("byte_pairs", byte_pairs.run),
    ("byte_windows", byte_windows.run),
    ("batch_inputs", batch_inputs.run),
    ("unroll", _anywhere(unroll.run)),
    ("widen_halves", widen_halves.run),
    ("set_apart", set_apart.run),
    ("fold_constants", _anywhere(fold_constants.run)),
    ("fold_scales", fold_scales.run),
    ("finite_weights", _anywhere(finite_weights.run)),
    ("split_phases", _anywhere(split_phases.run)),
    ("simplify_views", _anywhere(simplify_views.run)),
    ("eliminate_common", _anywhere(eliminate_common.run)),
    ("eliminate_dead", _anywhere(eliminate_dead.run)),
    ("hoist_pointwise", _anywhere(hoist_pointwise.run)),
    ("eliminate_dead", _anywhere(eliminate_dead.run)),
    ("fold_batch_norm", _anywhere(fold_batch_norm.run)),
    ("sum_convolutions", _anywhere(sum_convolutions.run)),
    ("merge_products", merge_products.run),
    ("unpack_weights", unpack_weights.run),
    ("split_groups", split_groups.run),
    ("pad_images", pad_images.run),
    ("winograd", partial(winograd.run, rest=_all(_REST))),
    *_REST,
    ("take_back", _anywhere(take_back.run)),
    ("predicate", _anywhere(predicate.run)),
    ("update_in_place", update_in_place.run),
)


_INEXACT = frozenset(
    {
        "byte_cells",
        "byte_products",
        "byte_pairs",
        "byte_windows",
        "widen_halves",
        "fold_scales",
        "split_phases",
        "fold_batch_norm",
        "sum_convolutions",
        "winograd",
        "fuse_attention",
        "fuse_matrix_vectors",
        "fuse_normalisations",
        "pad_sums",
        "unround",
        "split_reduction",
    }
)
"""Passes that sum or round otherwise than the model writes: `numerics="strict"` leaves them out."""


class Merge(Protocol):
    """Merges convolutions: see `merge_siblings`."""

    def __call__(self, graph: Graph, device: VDevice, rest: Pass) -> Graph:
        """The graph with some of them merged; `rest` are the passes that follow."""
        ...


def passes_of(numerics: str, merge: Merge | None = None) -> tuple[tuple[str, Pass], ...]:
    """The passes that run with these `numerics`, by name, in their order; with `merge`, that is one of them."""
    left_out = _INEXACT if numerics == "strict" else frozenset[str]()
    passes = [(name, run) for name, run in PASSES if name not in left_out]
    if merge is not None and numerics != "strict":
        place = 1 + [name for name, _ in passes].index("merge_products")
        passes.insert(place, ("merge_siblings", partial(merge, rest=_all(passes[place:]))))
    return tuple(passes)


def run_passes(
    graph: Graph,
    device: VDevice,
    after: Callable[[str, Graph], None],
    numerics: str = "default",
    merge: Merge | None = None,
) -> Graph:
    """The graph after all passes.

    Args:
        graph: as a frontend made it.
        device: what the graph is compiled for.
        after: called with each pass's name and the graph that came out of it; the compiler verifies and dumps there.
        numerics: "default", or "strict" for sums and roundings as the model writes them.
        merge: a further pass, behind `merge_products`, for policies whose stages merge operators.
    """
    for name, run in passes_of(numerics, merge):
        with timed(name, "passes") as step:
            graph = run(graph, device)
            step.made = f"{len(graph.operators)} operators"
        after(name, graph)
    return graph
